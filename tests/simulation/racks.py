"""Nodes in racks, and jobs whose pods are to be in one: a pod set that requires it is never seen in two."""

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final

from tests.simulation import flavors
from tests.simulation.gpu_pods import GPU
from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.laboratory.simulated.objects.store import Event, Stored

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
    """

    def of_node(number: int) -> Room:
        return labels_of(number)[RACK], flavors.labels_of(number)[flavors.POOL] if two_flavors else ""

    left, bound, to_come = Counter[Room](), Counter[tuple[str, str]](), Counter[Room]()
    for number, gpus in enumerate(nodes):
        left[of_node(number)] += gpus
    for pod in pods:
        labels, node = pod["metadata"]["labels"], pod["spec"].get("nodeName")
        if node:
            left[of_node(_number(node))] -= 1
            bound[labels[names.GANG_LABEL], labels.get(names.POD_SET_LABEL, "")] += 1
    for reservation in reservations:
        for pod_set in reservation.pod_sets:
            if RACK in pod_set.domain:
                room = pod_set.domain[RACK], pod_set.flavors.get(GPU, "") if two_flavors else ""
                to_come[room] += max(0, pod_set.count - bound[reservation.uid, pod_set.name])
    return sum(max(0, count - max(0, left[room])) for room, count in to_come.items())


class Racks:
    """Where pods of sets are that have to be in one rack, by the objects alone."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], dict[str, str]] = {}
        """Gang and pod set to the racks of its pods, by their uids."""

    def take(self, event: Event) -> None:
        """Take in one stored write."""
        if event.storage == PODS:
            self._take_pod(event.current, there=event.type != "DELETED")

    def set_back(self, pods: Iterable[Stored]) -> None:
        """Know these pods alone."""
        self._seen.clear()
        for pod in pods:
            self._take_pod(pod, there=True)

    def _take_pod(self, stored: Stored, *, there: bool) -> None:
        pod = stored.object
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        labels = metadata.get("labels") or {}
        key = (labels.get(names.GANG_LABEL, ""), labels.get(names.POD_SET_LABEL, ""))
        self._seen.get(key, {}).pop(stored.uid, None)
        ended = not there or pod["status"].get("phase") in ("Succeeded", "Failed")
        if node and not ended and key[0] and names.REQUIRED_TOPOLOGY in (metadata.get("annotations") or {}):
            self._seen.setdefault(key, {})[stored.uid] = labels_of(_number(node))[RACK]

    def torn(self) -> str:
        """Return which pod set is in two racks, if any is; otherwise nothing."""
        torn = (f"pods of {key} are in {racks}" for key, racks in self._seen.items() if len({*racks.values()}) > 1)
        return next(torn, "")
