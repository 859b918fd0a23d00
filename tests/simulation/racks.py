"""Nodes in racks, and jobs whose pods are to be in one: a pod set that requires it is never seen in two."""

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final

from tests.simulation import flavors
from tests.simulation.gpu_pods import GPU
from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.laboratory.simulated.objects.store import Event

RACK: Final = "example.com/rack"
POOL: Final = {"example.com/pool": "gpus"}
TOPOLOGY: Final = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Topology",
    "metadata": {"name": "racks"},
    "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": names.HOSTNAME}]},
}
PODS: Final = ("", "pods")
Room = tuple[str, str]
"""A rack, and the flavor of nodes in it; nothing where there is one flavor."""


def labels_of(node: int) -> dict[str, str]:
    """Return the labels of a node by its number: two and two are in one rack."""
    return {**POOL, RACK: f"r{node // 2}"}


def _number(node: str) -> int:
    return int(node.removeprefix("node-"))


def asked(rng: Random, pods: int) -> dict[str, str]:
    """Return annotations of a pod set of so many pods."""
    kinds = ({names.REQUIRED_TOPOLOGY: RACK}, {names.PREFERRED_TOPOLOGY: RACK})
    slices = {names.SLICE_TOPOLOGY: RACK, names.SLICE_SIZE: str(pods)}
    return rng.choice((*kinds, slices, kinds[0] | slices))


def without_rack(
    nodes: Sequence[int], pods: Iterable[dict[str, Any]], reservations: Iterable[Reservation], *, two_flavors: bool
) -> int:
    """Return how many pods are to come that have to be in one rack, and find no room there: others landed in it whose
    room was kept elsewhere, and that is others' by then. ``nodes`` are their GPUs, of which each pod takes one. Where
    there are ``two_flavors``, a rack has nodes of both, and a pod finds room on those of its own.

    For a gang that is being stopped nobody who may go elsewhere gives up a place that it was given in that rack. Nor
    does a gang that is being stopped, for anybody: what it holds there is free as soon as it has stopped. Until then
    it may lack that place: to one whose pod landed there because another's had landed where it was to go.
    """

    def of_node(number: int) -> Room:
        return labels_of(number)[RACK], flavors.labels_of(number)[flavors.POOL] if two_flavors else ""

    left, bound, there = Counter[Room](), Counter[tuple[str, str]](), Counter[tuple[str, str, str]]()
    to_come, stopping, anywhere, goes_soon = Counter[Room](), Counter[Room](), Counter[Room](), Counter[Room]()
    strays = Counter[Room]()
    for number, gpus in enumerate(nodes):
        left[of_node(number)] += gpus
    for pod in pods:
        labels, node = pod["metadata"]["labels"], pod["spec"].get("nodeName")
        if node:
            left[of_node(_number(node))] -= 1
            whose = labels[names.GANG_LABEL], labels.get(names.POD_SET_LABEL, "")
            bound[whose] += 1
            there[*whose, node] += 1
    for reservation in reservations:
        for pod_set in reservation.pod_sets:
            missing = max(0, pod_set.count - bound[reservation.uid, pod_set.name])
            for number in range(len(nodes)):
                here = there[reservation.uid, pod_set.name, f"node-{number}"]
                strays[of_node(number)] += max(0, here - pod_set.places.get(f"node-{number}", 0))
            if RACK not in pod_set.domain:
                for node, count in pod_set.places.items():
                    here = min(missing, max(0, count - there[reservation.uid, pod_set.name, node]))
                    anywhere[of_node(_number(node))] += here
                    goes_soon[of_node(_number(node))] += 0 if reservation.stopping is None else here
                    missing -= here
                continue
            room = pod_set.domain[RACK], pod_set.flavors.get(GPU, "") if two_flavors else ""
            to_come[room] += missing
            if reservation.stopping is not None:
                stopping[room] += missing
    lacking = {room: count - max(0, left[room]) for room, count in to_come.items()}
    return sum(
        max(
            lacks,
            min(stopping[room], lacks + anywhere[room]),
            min(to_come[room] + strays[room], lacks + goes_soon[room]),
            0,
        )
        for room, lacks in lacking.items()
    )


class Racks:
    """Where pods of sets are that have to be in one rack, by the objects alone."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], dict[str, str]] = {}
        """Gang and pod set to the racks of its pods, by their uids."""

    def take(self, event: Event) -> None:
        """Take in one stored write."""
        if event.storage != PODS:
            return
        pod = event.current.object
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        labels = metadata.get("labels") or {}
        key = (labels.get(names.GANG_LABEL, ""), labels.get(names.POD_SET_LABEL, ""))
        self._seen.get(key, {}).pop(event.current.uid, None)
        ended = event.type == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed")
        if node and not ended and key[0] and names.REQUIRED_TOPOLOGY in (metadata.get("annotations") or {}):
            self._seen.setdefault(key, {})[event.current.uid] = labels_of(_number(node))[RACK]

    def torn(self) -> str:
        """Return which pod set is in two racks, if any is; otherwise nothing."""
        torn = (f"pods of {key} are in {racks}" for key, racks in self._seen.items() if len({*racks.values()}) > 1)
        return next(torn, "")
