"""/validate/jobs: nothing starts before its gang is admitted, and nothing running grows past what was reserved.

Pure: request and rules in, answer out. Our own account may change everything and is not brought before it (``gate``);
deletion is never hindered; everybody else may create suspended and marked, change what waits, hold and shrink what
runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.core.ledger.record import Reservation
from webhook.core.model import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pod_sets.readers import SIZING_ANNOTATIONS
from webhook.jobs.reading.gang import GangReading
from webhook.jobs.reading.gating import is_child, owner_of, pod_group_of, queue_label
from webhook.server.jobs.children import judge_child, judge_scale
from webhook.server.jobs.gang_checks import gang_problem, gang_warnings, lingering, preset_node, reading
from webhook.server.jobs.growth import growth
from webhook.server.review.answer import ALLOW, Answer, Refusal, allow, deny
from webhook.server.review.class_checks import check_job
from webhook.server.review.job_facts import (
    JobRules,
    OwnField,
    gang_labels,
    is_suspended,
    left_to_kueue,
    malformed,
    own_annotations,
    own_fields,
    reservation_of,
    ruling,
)
from webhook.server.review.resources_table import Handling, ResourcesTable
from webhook.untyped import paths
from webhook.wire.admission_review import ReviewRequest

_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE")
_TELLING_ANNOTATIONS: Final = (*names.OWN_ANNOTATIONS, *SIZING_ANNOTATIONS)


def validate(request: ReviewRequest, rules: JobRules, table: ResourcesTable) -> Answer:
    """Return the answer of the validating phase for a job, its scale subresource, or what cannot be gated."""
    if request.operation not in _OPERATIONS:
        return deny(Refusal.UNCLASSIFIED, f"operation {request.operation!r} is not one Tutti registered", 400)
    handling = table.handling(request.group, request.resource, request.subresource)
    if handling is Handling.NONE or (request.operation == "DELETE" and handling is not None):
        return ALLOW
    if handling is Handling.WARN:
        return _warn_ungated(request)
    kind = rules.by_resource.get((request.group, request.resource))
    if kind is None or handling not in (Handling.JOB, Handling.SCALE):
        served = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        message = (
            f"{served!r} of group {request.group!r} is not a resource Tutti decides about; correct the registration"
        )
        return deny(Refusal.UNCLASSIFIED, message, 400)
    if handling is Handling.SCALE:
        return judge_scale(request, rules, kind)
    obj = request.object
    if obj is None:
        return deny(Refusal.MALFORMED, "request.object is missing", 422)
    wrong = malformed(request, kind, obj)
    if wrong is not None:
        return wrong
    if request.operation == "CREATE":
        return _create(request, rules, kind, obj)
    old = request.old_object
    if old is None:
        return deny(Refusal.MALFORMED, "request.oldObject is missing", 422)
    return _update(request, rules, kind, obj, old)


# -- creation ---------------------------------------------------------------------------------------------------------


def _create(request: ReviewRequest, rules: JobRules, kind: JobKind, obj: Mapping[str, Any]) -> Answer:
    if is_child(kind, obj, rules.kinds, request.username):
        return judge_child(request, rules, kind, None)
    written = own_annotations(obj)
    if written and request.username != rules.settings.account:
        message = f"annotation {next(iter(written))} is written by Tutti alone; leave it out"
        return deny(Refusal.OWN_FIELDS, message)
    if ruling(rules, kind, obj, request.username) is None:
        return _not_ours(rules, obj)
    asking = reading(rules, kind, obj)
    problem = (
        (None if kind.suspend is None else _held_at_birth(kind, obj, asking))
        or gang_problem(asking)
        or preset_node(asking)
    )
    if problem is not None:
        return problem
    denial, warnings = check_job(rules, asking)
    return denial or allow((*warnings, *gang_warnings(rules, kind, obj, asking), *lingering(kind, obj, asking)))


def _not_ours(rules: JobRules, obj: Mapping[str, Any]) -> Answer:
    if rules.settings.left_to_kueue and left_to_kueue(obj):
        return Answer(True, "left_to_kueue")
    return ALLOW


def _held_at_birth(kind: JobKind, obj: Mapping[str, Any], asking: GangReading) -> Answer | None:
    wrong = _malformed_suspend(kind, obj)
    if wrong is not None:
        return wrong
    suspend = paths.find(obj, kind.suspend or ())
    where = paths.render(kind.suspend or ())
    if suspend is not True:
        dropped = "" if suspend is not None else _dropped(kind, where, "upgrade its operator, or correct the entry")
        message = (
            f"a job that waits is stored with {where}: true; Tutti's mutating webhook sets it and did "
            f"not act. Set it yourself, or ask the administrators to look at the registration{dropped}"
        )
        return deny(Refusal.UNSUSPENDED, message)
    labelled = (site for site in asking.sites if site.metadata_path is not None)
    unmarked = next((site for site in labelled if site.labels.get(names.GANG_LABEL) != names.GANG_PENDING), None)
    if unmarked is not None:
        message = (
            f"pod template {unmarked.name} lacks label {names.GANG_LABEL}: {names.GANG_PENDING}; Tutti's mutating "
            "webhook sets it and did not act. Ask the administrators to look at the registration"
        )
        return deny(Refusal.UNSUSPENDED, message + _cannot_carry(kind, obj))
    return None


def _malformed_suspend(kind: JobKind, obj: Mapping[str, Any]) -> Answer | None:
    suspend = None if kind.suspend is None else paths.find(obj, kind.suspend)
    if suspend is None or isinstance(suspend, bool):
        return None
    return deny(Refusal.MALFORMED, f"{paths.render(kind.suspend or ())} must be true or false", 422)


def _dropped(kind: JobKind, field: str, remedy: str) -> str:
    """Return the other explanation for a field that the mutating webhook wrote and that is not there."""
    served = f"the definition of {kind.kind} {kind.group}/{kind.version} that this cluster serves"
    return f"; or {served} has no field {field}, and the API server dropped it: {remedy}"


def _cannot_carry(kind: JobKind, obj: Mapping[str, Any]) -> str:
    needed = kind.labels_need
    if needed is None or paths.find(obj, needed.field) is not None:
        return ""
    return _dropped(kind, paths.render(needed.field), needed.remedy)


# -- change -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Change:
    """A job as it is stored and as it would be."""

    request: ReviewRequest
    rules: JobRules
    kind: JobKind
    obj: Mapping[str, Any]
    old: Mapping[str, Any]
    reservation: Reservation | None

    @property
    def running(self) -> bool:
        """It may have pods, or may get them at any moment."""
        return self.reservation is not None or not is_suspended(self.kind, self.old)

    @property
    def queues(self) -> tuple[str | None, str | None]:
        """The queue it names, before and after."""
        return queue_label(self.old, self.kind), queue_label(self.obj, self.kind)


def _update(
    request: ReviewRequest, rules: JobRules, kind: JobKind, obj: Mapping[str, Any], old: Mapping[str, Any]
) -> Answer:
    if _say_the_same(obj, old) and _malformed_suspend(kind, obj) is None:
        return _not_ours(rules, obj)
    change = _Change(request, rules, kind, obj, old, reservation_of(rules, old))
    if is_child(kind, old, rules.kinds) and change.reservation is None:
        return judge_child(request, rules, kind, old)
    gated_before, gated_now = ruling(rules, kind, old) is not None, ruling(rules, kind, obj) is not None
    held = gated_now or any(label is not None for label in gang_labels(rules, kind, old).values())
    if not (gated_before or held or change.reservation is not None):
        return _not_ours(rules, obj)
    refusal = _start_refused(change) if held else None
    if refusal is not None or paths.find(obj, ("metadata", "deletionTimestamp")) is not None:
        return refusal or ALLOW
    refusal = _ownership_refused(change) or _queue_change_refused(change, gated_before)
    refusal = refusal or _own_fields_refused(change) or _limit_change_refused(change)
    if refusal is not None:
        return refusal
    if _what_sizes(obj) == _what_sizes(old) and change.queues[0] == change.queues[1]:
        return ALLOW
    return _size_judged(change)


def _say_the_same(obj: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether nothing differs that any rule reads: controllers and collectors change finalizers and notes only.

    The spec is told apart last: it is by far the largest.
    """
    metadata, before = (paths.find_mapping(it, ("metadata",)) for it in (obj, old))
    if any(metadata.get(field) != before.get(field) for field in ("labels", "ownerReferences")):
        return False
    notes, noted = (paths.find_mapping(it, ("annotations",)) for it in (metadata, before))
    if notes != noted and any(notes.get(name) != noted.get(name) for name in _TELLING_ANNOTATIONS):
        return False
    return bool(obj.get("spec") == old.get("spec"))


def _what_sizes(obj: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what the size of a gang is read from, and for how long: the spec, annotations, the run-time limit."""
    limit = paths.find(obj, ("metadata", "labels", names.MAX_EXECUTION_LABEL))
    return obj.get("spec"), limit, *(paths.find(obj, ("metadata", "annotations", name)) for name in SIZING_ANNOTATIONS)


def _start_refused(change: _Change) -> Answer | None:
    kind, obj, old = change.kind, change.obj, change.old
    if kind.suspend is None:
        return None
    wrong = _malformed_suspend(kind, obj)
    if wrong is not None or not is_suspended(kind, old) or is_suspended(kind, obj):
        return wrong
    queue = change.queues[0]
    where = f"waits in queue {queue}" if queue else "waits until its whole gang fits"
    namespace = change.request.namespace
    message = (
        f"{kind.kind} {namespace}/{change.request.name} {where} and is un-suspended by Tutti alone, when all of its "
        f"pods can start; 'kubectl get workloads -n {namespace} -o wide' says what it waits for"
    )
    return deny(Refusal.UNSUSPENDED, message)


def _ownership_refused(change: _Change) -> Answer | None:
    before, now, username = owner_of(change.old), owner_of(change.obj), change.request.username
    if before == now or username in change.rules.settings.collector_users:
        return None
    known = change.rules.kinds
    kinds = [change.kind, *(known[owner.kind] for owner in (before, now) if owner and owner.kind in known)]
    if any(username in kind.controller_users for kind in kinds):
        return None
    message = "the controller ownerReference of a gang is not changed by hand: it would move the gang to another owner"
    return deny(Refusal.FOREIGN_CREATOR, message)


def _queue_change_refused(change: _Change, gated_before: bool) -> Answer | None:
    before, now = change.queues
    if before == now or not change.running:
        return None
    if not gated_before:
        message = (
            f"the job runs already, outside every queue: the label of queue {now} would not stop it. Suspend it first "
            "and label it then, or create it anew with the label"
        )
    elif now is None:
        message = f"the job runs in queue {before}, which is charged for it; its queue label stays while it runs"
    else:
        queue = before if change.reservation is None else change.reservation.queue
        message = (
            f"the job runs in queue {queue}, which is charged for it; it cannot move to {now} while it runs. "
            "Suspend it first: it waits in the new queue then"
        )
    return deny(Refusal.QUEUE_CHANGE, message)


def _own_fields_refused(change: _Change) -> Answer | None:
    before, now = (own_fields(change.rules, change.kind, obj) for obj in (change.old, change.obj))
    if before == now:
        return None
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    hold = OwnField("annotation", names.HOLD)
    if changed == [hold] and hold not in now and is_suspended(change.kind, change.obj):
        # The mutating phase took it away: the owner un-suspended a held job, which waits again.
        return None
    # In an object that cannot be read our labels are not found either, though they may stand there.
    problem = gang_problem(reading(change.rules, change.kind, change.obj))
    return problem or deny(Refusal.OWN_FIELDS, f"{changed[0]} is written by Tutti alone; leave it as it is")


def _limit_change_refused(change: _Change) -> Answer | None:
    """Refuse to move the run-time limit of a running gang: others were told to wait until then."""
    before, now = (
        paths.find(obj, ("metadata", "labels", names.MAX_EXECUTION_LABEL)) for obj in (change.old, change.obj)
    )
    if before == now or not change.running or change.reservation is None:
        return None
    message = (
        f"label {names.MAX_EXECUTION_LABEL} stays as it is while the job runs (it is "
        f"{'not set' if before is None else f'{before!r:.40}'}); suspend the job first"
    )
    return deny(Refusal.GROWTH, message)


def _size_judged(change: _Change) -> Answer:
    rules, kind = change.rules, change.kind
    asking = reading(rules, kind, change.obj)
    problem = gang_problem(asking)
    if problem is not None:
        # What was malformed before Tutti came must stay editable, as long as nobody can tell that it grows.
        stale = not change.running and gang_problem(reading(rules, kind, change.old)) is not None
        return ALLOW if stale else problem
    assert asking.asks is not None
    if not change.running:
        denial, warnings = check_job(rules, asking)
        denial = denial or preset_node(asking)
        if denial is not None:
            return denial
        lost = change.queues[0] is not None and ruling(rules, kind, change.obj) is None
        unlabelled = ("without a queue label nothing admits this job; it stays suspended",) if lost else ()
        return allow((*unlabelled, *warnings, *gang_warnings(rules, kind, change.obj, asking)))
    grown = growth(reading(rules, kind, change.old).asks, asking.asks, change.reservation)
    if grown is None:
        return ALLOW
    message = f"{grown}; a running gang does not grow. Suspend it first: it waits for the larger size"
    return deny(Refusal.GROWTH, message)


# -- what cannot be gated ---------------------------------------------------------------------------------------------


def _warn_ungated(request: ReviewRequest) -> Answer:
    obj = request.object
    labels = paths.find_mapping(obj, ("metadata", "labels"))
    template = paths.find_mapping(obj, ("spec", "template", "metadata", "labels"))
    kind = request.kind.partition(".")[0]
    found = next((key for key in names.QUEUE_LABELS if key in labels or key in template), None)
    if found is None and pod_group_of(labels) is None and pod_group_of(template) is None:
        return ALLOW
    what = f"label {found}" if found else "a PodGroup label"
    advice = "label its jobTemplate" if kind == "CronJob" else "use a Job, JobSet or another gated kind"
    return allow((f"{what} on a {kind} does not make it wait: Tutti cannot gate this kind; {advice} instead",))
