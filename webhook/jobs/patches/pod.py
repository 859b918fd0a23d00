"""The reconciler's patches of pods behind our scheduling gate, made from a ``PodRecord``: lift, send back, void.

Each carries the uid and the resourceVersion of the record, as the patches of jobs do. Kubernetes takes a gate away and
never puts one back, lets a node selector grow while there is one, and tolerations at any time: so a pod that was let go
is stopped by deleting it, and one that was not keeps waiting.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.core.ledger.record import Reservation
from webhook.core.model.pods import PodRecord, WaitingPod
from webhook.core.model.policy import Flavor
from webhook.core.notation import names
from webhook.jobs.patches.template import preconditions, schedule, stamp, wanted_of
from webhook.jobs.reading import annotations
from webhook.jobs.reading.record import JobRecord, Requeue, Template
from webhook.untyped import editing, paths
from webhook.untyped.editing import Patch

_REQUIRED: Final = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


def lift(
    pod: PodRecord,
    job: JobRecord,
    reservation: Reservation,
    version: tuple[int, int],
    flavors: Mapping[str, Flavor],
    *,
    nodes: Sequence[str] = (),
) -> Patch:
    """Return the patch that lets one waiting pod be scheduled as part of the admitted gang ``job``, on ``nodes`` alone
    where any are given.

    A pod of a PodGroup carries what its gang was admitted with, for it has no job that could.
    """
    waiting = _waiting(pod)
    template = Template(
        pod_set=pod.pod_set,
        path="",
        has_metadata=True,
        marks=waiting.labels,
        has_annotations=waiting.has_annotations,
        node_selector=waiting.node_selector,
        tolerations=waiting.tolerations,
    )
    wanted = wanted_of(reservation, pod.pod_set, flavors)
    scheduling, _ = schedule(template, waiting.asks.tolerations, wanted, None)
    place = f"/spec/schedulingGates/{waiting.gate}"
    return [
        *preconditions(pod),
        *stamp(template, reservation.uid, version),
        *(_admission(pod, job, reservation, version) if pod.group else ()),
        *scheduling,
        *(_held_to(nodes, waiting.affinity) if nodes else ()),
        {"op": "test", "path": f"{place}/name", "value": names.SCHEDULING_GATE},
        {"op": "remove", "path": place},
    ]


def _held_to(nodes: Sequence[str], affinity: Mapping[str, Any]) -> Patch:
    """Return the operation by which a pod may go only to ``nodes``, in addition to what its owner asks of them.

    While a pod has a gate, Kubernetes lets each of its terms get further requirements, and one be there where none was.
    A term that lists nothing means no node, and stays so.
    """
    asked = {"key": names.HOSTNAME, "operator": "In", "values": list(nodes)}
    terms = paths.find(affinity, (*_REQUIRED, "nodeSelectorTerms"))
    narrowed = [_narrowed(term, asked) for term in terms] if terms else [{"matchExpressions": [asked]}]
    value = editing.put(affinity, _REQUIRED, {"nodeSelectorTerms": narrowed})
    return [{"op": "add", "path": "/spec/affinity", "value": value}]


def _narrowed(term: Mapping[str, Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:
    stated = term.get("matchExpressions") or ()
    return {**term, "matchExpressions": [*stated, asked]} if stated or term.get("matchFields") else term


def send_back(pod: PodRecord, gang: str, requeue: Requeue) -> Patch:
    """Return the patch that writes the place and back-off of a stopped gang on a pod of it that still waits.

    It also makes every lift that was authorised before conflict: the same note as before would not, so it also names
    the version that it replaces.
    """
    noted = {names.REQUEUE: annotations.encode_requeue(requeue, gang), names.VOIDED: str(pod.resource_version)}
    return _annotated(pod, noted)


def void(pod: PodRecord, epoch: int) -> Patch:
    """Return the patch that makes every lift authorised before it conflict: it only moves the resourceVersion."""
    return _annotated(pod, {names.VOIDED: f"{epoch}/{pod.resource_version}"})


def _admission(pod: PodRecord, job: JobRecord, reservation: Reservation, version: tuple[int, int]) -> Patch:
    text = annotations.encode_admission(annotations.admission_of(reservation, job, version))
    # The map is there: the ledger version was just stamped into it.
    put: Patch = [{"op": "add", "path": paths.pointer("metadata", "annotations", names.ADMISSION), "value": text}]
    if _waiting(pod).requeue:
        put.append({"op": "remove", "path": paths.pointer("metadata", "annotations", names.REQUEUE)})
    return put


def _annotated(pod: PodRecord, notes: Mapping[str, str]) -> Patch:
    if not _waiting(pod).has_annotations:
        return [*preconditions(pod), {"op": "add", "path": "/metadata/annotations", "value": dict(notes)}]
    added = [
        {"op": "add", "path": paths.pointer("metadata", "annotations", name), "value": text}
        for name, text in notes.items()
    ]
    return [*preconditions(pod), *added]


def _waiting(pod: PodRecord) -> WaitingPod:
    assert pod.waiting is not None, f"pod {pod.key} does not wait"
    return pod.waiting
