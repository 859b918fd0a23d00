"""The reconciler's patches of jobs, made from a ``JobRecord``: start, stop, clear, restore, void, adopt, grow.

Each carries the uid and the resourceVersion of the record: an object that moved on answers 409 (or 422 when it is
another object of the same name) and nothing is applied.

A start injects flavor labels and tolerations and may lower a count. The annotation ``tutti.dev/admission`` says what
was injected. A stop cannot take it back where the API server freezes pod templates until the job has come to rest
(batch/v1 Job, JobSet): it moves that part of the admission into the re-queue annotation as ``undo``, and the patch
``restore`` follows once the record is ``restorable``. A ``start`` of a job not yet restored does both at once. Before
Kubernetes 1.36 a Job that ran becomes so only when ``clear`` has taken the start time out of its status.
"""

from collections.abc import Mapping
from dataclasses import replace

from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Toleration
from webhook.core.model.policy import Flavor
from webhook.core.notation import names
from webhook.core.reasons.eviction import HUB_SILENT, PREPARING
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.template import preconditions, schedule, stamp, wanted_of
from webhook.jobs.reading import annotations
from webhook.jobs.reading.record import Admission, JobRecord, Requeue, Template
from webhook.untyped import paths
from webhook.untyped.editing import Operation, Patch


def start(
    record: JobRecord,
    reservation: Reservation,
    version: tuple[int, int],
    flavors: Mapping[str, Flavor],
    *,
    kinds: Mapping[str, JobKind] = KINDS,
) -> Patch:
    """Return the patch that un-suspends a job with what ``reservation`` grants.

    ``version`` is (epoch, seq) of the ledger that holds the reservation; ``flavors`` by name. The record must be
    restorable unless nothing is injected, and its gang readable. A kind with ``prepared_start`` gets its templates
    first and stays suspended; asked again with the record of that write, the patch lets it go.
    """
    kind = kinds[record.kind]
    undo = None if record.requeue is None else record.requeue.undo
    if kind.prepared_start and undo is not None and undo.is_of(reservation) and undo.counts == reservation.counts:
        marks = _annotate(record, {names.ADMISSION: annotations.encode_admission(undo)}, _waiting_marks(record))
        return [*preconditions(record), *marks, *_set_suspend(record, kind, False)]
    changes = _scaffolds(record)
    injected: dict[str, Mapping[str, object]] = {}
    originals: dict[str, int] = {}
    # Pods of a scheduling-gated kind are stamped one by one, when their gate is lifted.
    for template in () if kind.scheduling_gated else record.templates:
        changes += stamp(template, record.uid, version)
        # A member has nodes of its own, and flavors that name them.
        wanted = ({}, []) if record.for_a_member else wanted_of(reservation, template.pod_set, flavors)
        operations, gained = schedule(template, _owners_tolerations(record, template.pod_set), wanted, undo)
        changes += operations
        if gained:
            injected[template.pod_set] = gained
        changes += _set_count(record, template, reservation, undo, originals)
    admission = annotations.admission_of(reservation, record, version)
    admission = replace(admission, injected=injected, original_counts=originals)
    if kind.prepared_start:
        waiting = record.requeue or Requeue(PREPARING, record.created_seconds)
        text = annotations.encode_requeue(replace(waiting, undo=admission), record.uid)
        return [*preconditions(record), *_annotate(record, {names.REQUEUE: text}, ()), *changes]
    marks = _annotate(record, {names.ADMISSION: annotations.encode_admission(admission)}, _waiting_marks(record))
    return [*preconditions(record), *marks, *changes, *_set_suspend(record, kind, False)]


def stop(record: JobRecord, requeue: Requeue, hold: bool = False, *, kinds: Mapping[str, JobKind] = KINDS) -> Patch:
    """Return the patch that suspends a job whole and writes down its place; with ``hold`` it then waits for its owner.

    What its start injected is taken back at once where the kind allows it, else kept in the annotation for
    ``restore``. A kind that is not ``evictable`` is suspended too, but keeps the pods that it has.
    """
    kind = kinds[record.kind]
    undo = _undo_of(record)
    changes: Patch = []
    if undo is not None and record.restorable:
        changes, undo = _restore_templates(record, undo), None
    start = record.last_start if undo is None else None
    marks = {names.REQUEUE: annotations.encode_requeue(replace(requeue, undo=undo, start=start), record.uid)}
    if hold:
        marks[names.HOLD] = annotations.encode_hold(record.uid)
    if requeue.reason == HUB_SILENT:
        # In the same write: from now on no permit of its hub starts it, whenever it comes.
        marks[names.GIVEN_UP] = record.uid
    suspends = _set_suspend(record, kind, True)
    if not suspends:
        # A start may be under way. A note that says the same as before would not move the version it is bound to.
        marks[names.VOIDED] = str(record.resource_version)
    gone = (names.ADMISSION,) if record.admission is not None else ()
    return [*preconditions(record), *_annotate(record, marks, gone), *changes, *suspends]


def clear(record: JobRecord) -> Patch:
    """Return the patch, of the status, that takes the start time of its last run out of a stopped job.

    Only for a record with ``start_time_left``; the API server refuses it for a job that is not suspended.
    """
    return [*preconditions(record), {"op": "remove", "path": "/status/startTime"}]


def restore(record: JobRecord) -> Patch:
    """Return the patch that takes back what the last start changed; empty when there is nothing to take back.

    Only for a record that is ``restorable``; the API server refuses it otherwise.
    """
    requeue = record.requeue
    if requeue is None or requeue.undo is None:
        return []
    text = annotations.encode_requeue(replace(requeue, undo=None), record.uid)
    marks = _annotate(record, {names.REQUEUE: text}, ())
    return [*preconditions(record), *marks, *_restore_templates(record, requeue.undo)]


def void(record: JobRecord, epoch: int) -> Patch:
    """Return the patch that makes every start authorised before it conflict: it only moves the resourceVersion.

    The value names the version it replaces, so that voiding twice in one epoch moves it twice.
    """
    return [*preconditions(record), *_annotate(record, {names.VOIDED: f"{epoch}/{record.resource_version}"}, ())]


def adopt(record: JobRecord, reservation: Reservation, version: tuple[int, int]) -> Patch:
    """Return the patch that writes the admission on a job that runs already; its templates stay as they are."""
    admission = annotations.admission_of(reservation, record, version)
    marks = _annotate(record, {names.ADMISSION: annotations.encode_admission(admission)}, _waiting_marks(record))
    return [*preconditions(record), *marks]


def grow(record: JobRecord, reservation: Reservation) -> Patch:
    """Return the patch that writes on a running job that its reservation grew, or that others left its ensemble.

    Its controller then looks at it again. Empty for a job that carries no admission.
    """
    if record.admission is None:
        return []
    grown = replace(record.admission, counts=reservation.counts, membership=reservation.membership)
    return [*preconditions(record), *_annotate(record, {names.ADMISSION: annotations.encode_admission(grown)}, ())]


# -- parts ---------------------------------------------------------------------------------------------------------


def _scaffolds(record: JobRecord) -> Patch:
    missing = {pointer: value for template in record.templates for pointer, value in template.missing}
    return [{"op": "add", "path": pointer, "value": value} for pointer, value in missing.items()]


def _waiting_marks(record: JobRecord) -> tuple[str, ...]:
    gone = ((names.REQUEUE, record.requeue is not None), (names.HOLD, record.held))
    return tuple(name for name, present in gone if present)


def _annotate(record: JobRecord, put: Mapping[str, str], gone: tuple[str, ...]) -> Patch:
    if not record.has_annotations:
        return [{"op": "add", "path": "/metadata/annotations", "value": dict(put)}]
    added = [_add(("metadata", "annotations", name), text) for name, text in put.items()]
    return added + [{"op": "remove", "path": paths.pointer("metadata", "annotations", name)} for name in gone]


def _add(place: tuple[str, ...], value: object) -> Operation:
    return {"op": "add", "path": paths.pointer(*place), "value": value}


def _set_suspend(record: JobRecord, kind: JobKind, suspend: bool) -> Patch:
    if kind.suspend is None or record.suspended is suspend:
        return []
    if record.suspend_gap is None:
        return [_add(kind.suspend, suspend)]
    depth = record.suspend_gap.count("/")
    return [_add(kind.suspend[:depth], paths.nest(kind.suspend[depth:], suspend))]


def _owners_tolerations(record: JobRecord, pod_set: str) -> tuple[Toleration, ...]:
    sets = () if record.gang is None else record.gang.pod_sets
    return next((s.tolerations for s in sets if s.name == pod_set), ())


def _set_count(
    record: JobRecord,
    template: Template,
    reservation: Reservation,
    undo: Admission | None,
    originals: dict[str, int],
) -> Patch:
    """Lower the count of a pod set that allows it to what was reserved, or put back what an earlier start lowered.

    Below the whole size of a gang-wide quorum, or of an ensemble, nothing is lowered: the pods that are missing follow
    when there is room.
    """
    reserved = reservation.pod_set(template.pod_set)
    gang = record.asks
    if template.count_path is None or template.count_written is None or reserved is None or gang is None:
        return []
    lowered = None if undo is None else annotations.original_count(undo, template.pod_set, template.count_written)
    owners = template.count_written if lowered is None else lowered
    count = owners
    asked = next((s for s in gang.pod_sets if s.name == template.pod_set), None)
    partial = asked is not None and asked.min_count is not None and reserved.count < asked.count
    if partial and reservation.membership is None:
        count = reserved.count
        originals[template.pod_set] = owners
    return [] if count == template.count_written else _counted(template, count)


def _counted(template: Template, count: int) -> Patch:
    pointers = (template.count_path, template.count_follower)
    return [_replace(pointer, count) for pointer in pointers if pointer is not None]


def _replace(pointer: str, value: object) -> Operation:
    return {"op": "replace", "path": pointer, "value": value}


def _undo_of(record: JobRecord) -> Admission | None:
    """Return the start whose changes are still in the job and must be taken back."""
    if record.admission is not None and (record.admission.injected or record.admission.original_counts):
        return record.admission
    return None if record.requeue is None else record.requeue.undo


def _restore_templates(record: JobRecord, undo: Admission) -> Patch:
    changes: Patch = []
    for template in record.templates:
        changes += schedule(template, (), ({}, []), undo)[0]
        original = annotations.original_count(undo, template.pod_set, template.count_written)
        if original is not None:
            changes += _counted(template, original)
    return changes
