"""A change of a stored job: nothing starts before its gang is admitted, nothing running outgrows its reservation.

A change that makes an object ours (a label, a PodGroup, another ``managedBy``) is judged as its creation is. Whether an
object belongs to its owner's gang is judged in ``children``; what that does not decide is judged by itself.
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.fleet.text import UnreadableRecord, decode
from webhook.core.ledger.record import Reservation
from webhook.core.model.frozen import frozen
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pod_sets.readers import SIZING_ANNOTATIONS
from webhook.jobs.reading import status
from webhook.jobs.reading.gang import GangReading
from webhook.jobs.reading.gating import (
    for_a_member,
    is_child,
    is_noted,
    joins_pod_group,
    managed_by_other,
    owner_of,
    queue_label,
)
from webhook.jobs.reading.ours import OWN_ANNOTATIONS
from webhook.server.jobs.children import decided_by_owner, judge_child, loses_maker
from webhook.server.jobs.gang_checks import gang_problem, gang_warnings, reading, unfit_template
from webhook.server.jobs.growth import forgets, growth, taken_back
from webhook.server.jobs.spare_room import crowded_out
from webhook.server.jobs.ungated import newly_marked
from webhook.server.review.answer import ALLOW, Answer, Refusal, allow, deny
from webhook.server.review.class_checks import check_job
from webhook.server.review.job_facts import (
    JobRules,
    OwnField,
    gang_labels,
    is_suspended,
    malformed_suspend,
    not_ours,
    own_annotations,
    own_fields,
    ruling_alone,
)
from webhook.server.review.pod_facts import render_version
from webhook.untyped import paths
from webhook.untyped.editing import drop
from webhook.untyped.values import mapping
from webhook.wire.admission_review import ReviewRequest

_TELLING_ANNOTATIONS: Final = OWN_ANNOTATIONS.union(SIZING_ANNOTATIONS)


@frozen
class Change:
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


def judge_change(change: Change) -> Answer:
    """Return the answer to a change of a job that is stored."""
    request, rules, kind, obj, old = change.request, change.rules, change.kind, change.obj, change.old
    crowding = crowded_out(request, obj, old)
    if crowding is not None and (is_noted(old) or ruling_alone(rules, kind, obj) is not None):
        return crowding
    if _say_the_same(obj, old) and malformed_suspend(kind, obj) is None:
        return allow((_no_hold(change),)) if _suspends_what_waits(change) else not_ours(rules, obj)
    refusal = loses_maker(request, rules, kind, old, obj)
    if refusal is not None:
        return refusal
    if change.reservation is None and is_child(kind, old, rules.kinds) and decided_by_owner(request, rules, old):
        return judge_child(request, rules, kind, old)
    if is_child(kind, old, rules.kinds) and (refusal := newly_marked(request, rules.settings.account)) is not None:
        # Its owner waits for nobody: whatever it names itself, it bears no mark.
        return refusal
    gated_before, gated_now = (ruling_alone(rules, kind, it) is not None for it in (old, obj))
    marked = is_noted(old) or _bears_marks(change, gated_before)
    held = gated_now or marked
    if not (gated_before or held or change.reservation is not None):
        return newly_marked(request, rules.settings.account) or not_ours(rules, obj)
    refusal = _start_refused(change) if held else None
    # Also of one that is being deleted: a member may have it.
    refusal = refusal or _manager_change_refused(change)
    if refusal is not None or paths.find(obj, ("metadata", "deletionTimestamp")) is not None:
        return refusal or ALLOW
    refusal = _ownership_refused(change)
    refusal = refusal or _queue_change_refused(change, gated_before)
    if gated_before and marked and not gated_now:
        refusal = refusal or _leaving_refused(change)
    if (gated_now and not gated_before) or _groups_an_orphan(change):
        refusal = refusal or _joining_refused(change)
    refusal = refusal or _own_fields_refused(change) or _limit_change_refused(change)
    if refusal is not None:
        return refusal
    unsized = _what_sizes(obj, kind) == _what_sizes(old, kind) and change.queues[0] == change.queues[1]
    answer = ALLOW if unsized else _size_judged(change)
    return allow(_unheard(change)) if answer is ALLOW else answer


def _unheard(change: Change) -> tuple[str, ...]:
    """Return what is to be said of a change that the member of a fleet that has the job does not hear of."""
    kind, note = change.kind, paths.find(change.old, ("metadata", "annotations", names.DISPATCH))
    if not kind.given_manager or note is None or _as_copied(change.obj, kind) == _as_copied(change.old, kind):
        return ()
    try:
        dispatch = decode(note)
    except UnreadableRecord:
        return ()
    if dispatch.phase not in (DispatchPhase.OFFERED, DispatchPhase.GRANTED):
        return ()
    return (
        f"{dispatch.member} has the job as it was when it was offered: this change has no effect there. To have it run "
        f"as it is now, suspend it, and resume it when {names.DISPATCH} says that it is nowhere",
    )


def _as_copied(obj: Mapping[str, Any], kind: JobKind) -> tuple[object, ...]:
    """Return what a copy has of a job; it is suspended whatever the job is."""
    return drop(obj, kind.suspend or ()).get("spec"), paths.find(obj, ("metadata", "labels"))


def _bears_marks(change: Change, gated_before: bool) -> bool:
    """Return whether a stored job was held for us: pods of some kinds cannot be labelled, and it alone tells there."""
    if change.kind.loose_pods:
        return gated_before and is_suspended(change.kind, change.old)
    return any(label is not None for label in gang_labels(change.rules, change.kind, change.old).values())


def _suspends_what_waits(change: Change) -> bool:
    """Return whether somebody writes a waiting job as it is stored, as who suspends it does: nothing else is said."""
    rules, kind, old = change.rules, change.kind, change.old
    now, before = mapping(change.obj.get("metadata")), mapping(old.get("metadata"))
    if now.get("annotations") != before.get("annotations") or now.get("finalizers") != before.get("finalizers"):
        return False
    if change.running or change.request.subresource or not is_suspended(kind, old):
        return False
    held = names.HOLD in own_annotations(old) or paths.find(old, ("metadata", "annotations", names.ADMISSION_GATES))
    return not held and ruling_alone(rules, kind, old) is not None


def _no_hold(change: Change) -> str:
    where, name = change.request.namespace, change.request.name
    return (
        f"{paths.render(change.kind.suspend or ())} is true already: the job waits, and starts when its turn comes. To "
        f"keep it from starting: tutti hold {change.kind.kind.lower()}/{name} -n {where}"
    )


def _say_the_same(obj: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether nothing differs that any rule reads: controllers and collectors change finalizers and notes only.

    The spec is told apart last: it is by far the largest.
    """
    now, before = mapping(obj.get("metadata")), mapping(old.get("metadata"))
    if now.get("labels") != before.get("labels") or now.get("ownerReferences") != before.get("ownerReferences"):
        return False
    notes, noted = mapping(now.get("annotations")), mapping(before.get("annotations"))
    telling = _TELLING_ANNOTATIONS.intersection((*notes, *noted))
    if telling and any(notes.get(name) != noted.get(name) for name in telling):
        return False
    return bool(obj.get("spec") == old.get("spec"))


def _what_sizes(obj: Mapping[str, Any], kind: JobKind) -> tuple[object, ...]:
    """Return what the size of a gang is read from, and for how long: the spec, annotations, the run-time limit.

    Whether it is suspended does not say that: what cannot be read may be suspended still.
    """
    limit = paths.find(obj, ("metadata", "labels", names.MAX_EXECUTION_LABEL))
    sized = obj if kind.suspend is None else drop(obj, kind.suspend)
    return (
        sized.get("spec"),
        limit,
        *(paths.find(obj, ("metadata", "annotations", name)) for name in SIZING_ANNOTATIONS),
    )


def _start_refused(change: Change) -> Answer | None:
    kind, obj, old = change.kind, change.obj, change.old
    if kind.suspend is None:
        return None
    wrong = malformed_suspend(kind, obj)
    if wrong is not None or not is_suspended(kind, old) or is_suspended(kind, obj) or _resumes(change):
        return wrong
    queue = change.queues[0]
    where = f"waits in queue {queue}" if queue else "waits until its whole gang fits"
    namespace = change.request.namespace
    message = (
        f"{kind.kind} {namespace}/{change.request.name} {where}, and only Tutti un-suspends it, when all of its "
        f"pods can start; 'kubectl get workloads -n {namespace} -o wide' says what it waits for"
    )
    return deny(Refusal.UNSUSPENDED, message)


def _resumes(change: Change) -> bool:
    """Return whether it was started already, and holds its room still: its owner only paused what cannot be stopped."""
    held = change.reservation
    if held is None or held.evictable or held.stopping is not None:
        return False
    started = reading(change.rules, change.kind, change.old).admission
    return held.adopted or (started is not None and started.is_of(held))


def _ownership_refused(change: Change) -> Answer | None:
    before, now, username = owner_of(change.old), owner_of(change.obj), change.request.username
    if before == now or username in change.rules.settings.collector_users:
        return None
    known = change.rules.kinds
    kinds = [change.kind, *(known[owner.kind] for owner in (before, now) if owner and owner.kind in known)]
    if any(username in kind.controller_users for kind in kinds):
        return None
    message = (
        "the controller ownerReference of a gang cannot be changed by hand: that would move the gang to another owner"
    )
    return deny(Refusal.FOREIGN_CREATOR, message)


def _manager_change_refused(change: Change) -> Answer | None:
    """Refuse to hand a job that is ours to another controller, which would run it, or own what runs, unasked."""
    kind = change.kind
    if for_a_member(kind, change.old):
        if for_a_member(kind, change.obj):
            return None
        message = f"{kind.placed_by_name} of a job that a hub places is immutable: it may run in a member"
        return deny(Refusal.FOREIGN_CREATOR, message)
    if managed_by_other(kind, change.old) or not managed_by_other(kind, change.obj):
        return None
    message = (
        f"{kind.placed_by_name} of a job that waits for Tutti cannot be set to another controller; create "
        "the job again with it"
    )
    return deny(Refusal.FOREIGN_CREATOR, message)


def _joining_refused(change: Change) -> Answer | None:
    """Refuse a change by which a job has to wait that nobody holds: as at creation, it is stored suspended.

    In a hub one that is no member's is refused too: it would start in the hub itself.
    """
    if change.kind.given_manager and not for_a_member(change.kind, change.obj):
        message = (
            f"a hub places a job in a member only if that is said when it is made ({change.kind.placed_by_name}): "
            f"delete {change.kind.kind} {change.request.namespace}/{change.request.name} and create it again with this "
            "label"
        )
        return deny(Refusal.QUEUE_CHANGE, message)
    if is_suspended(change.kind, change.obj) and not change.running:
        return None
    where = paths.render(change.kind.suspend or ())
    fix = f"suspend it first ({where}: true) and change it then, or" if where else "delete it and"
    message = (
        f"with this change {change.kind.kind} {change.request.namespace}/{change.request.name} would have to wait for "
        f"Tutti, but it is already running; {fix} create it again as it should be"
    )
    return deny(Refusal.UNSUSPENDED, message)


def _groups_an_orphan(change: Change) -> bool:
    """Return whether a job that runs on what is reserved for another, as what an adopted gang made and has lost, joins
    a PodGroup: it would be a gang of its own then, perhaps in no queue, and that room would go to others.
    """
    if change.reservation is not None or is_suspended(change.kind, change.old):
        return False
    before, now = (joins_pod_group(change.kind, it) for it in (change.old, change.obj))
    return now and not before


def _leaving_refused(change: Change) -> Answer:
    """Refuse a change after which nothing says where a marked job waits: nobody could start it.

    Were it started all the same, as one whose namespace was un-gated is, it would be charged to no queue.
    """
    before = change.queues[0]
    where = "joins a PodGroup" if before is None else f"waits in queue {before}"
    message = (
        f"{change.kind.kind} {change.request.namespace}/{change.request.name} {where}: it may name another queue, but "
        "not none: nothing would start it. Delete the job, or create it again without a queue"
    )
    return deny(Refusal.QUEUE_CHANGE, message)


def _queue_change_refused(change: Change, gated_before: bool) -> Answer | None:
    before, now = change.queues
    if before == now:
        return None
    if now is None and _all_wait_in_queues(change):
        message = (
            f"all jobs of namespace {change.request.namespace} wait: the job may change its queue (it is {before}), "
            "but not leave it; name another one, or delete the job"
        )
        return deny(Refusal.QUEUE_CHANGE, message)
    if not change.running:
        return None
    if not gated_before:
        message = (
            f"the job is already running unqueued: labelling it for queue {now} has no effect. Suspend it first, then "
            "label it, or create it again with the label"
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


def _all_wait_in_queues(change: Change) -> bool:
    """Return whether the namespace is gated by hand: there a job without a label would be admitted to no queue."""
    view, namespace = change.rules.view, change.request.namespace
    by_hand = view.namespaces.get(namespace, {}).get(names.GATED_NAMESPACE) == "true"
    return by_hand and namespace not in view.policy.namespace_queues


def _own_fields_refused(change: Change) -> Answer | None:
    before, now = (own_fields(change.rules, change.kind, obj) for obj in (change.old, change.obj))
    if before == now:
        return None
    had, has = (gang_labels(change.rules, change.kind, obj) for obj in (change.old, change.obj))
    # One that cannot be read has lost none for all anybody knows.
    lost = sorted(had.keys() - has.keys()) if has else []
    if lost and change.running:
        message = f"pod set {lost[0]} cannot be taken out of a running gang, which holds room for it. Suspend it first"
        return deny(Refusal.OWN_FIELDS, message)
    before = {field: value for field, value in before.items() if field.pod_set not in lost}
    if not change.running:
        # What is new in a job that waits is marked as what was there.
        gained = has.keys() - had.keys()
        marks: set[tuple[str, str, object]] = {(names.POD_SET_LABEL, name, name) for name in gained}
        marks |= {(names.GANG_LABEL, name, label) for name in gained for label in had.values()}
        now = {field: value for field, value in now.items() if (field.key, field.pod_set, value) not in marks}
    if before == now:
        return None
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    hold = OwnField("annotation", names.HOLD)
    if changed == [hold] and hold not in now and is_suspended(change.kind, change.obj):
        # The mutating phase took it away: the owner un-suspended a held job, which waits again.
        return None
    # In an object that cannot be read our labels are not found either, though it may have them.
    problem = gang_problem(reading(change.rules, change.kind, change.obj))
    return problem or deny(Refusal.OWN_FIELDS, f"{changed[0]} is written only by Tutti; leave it as it is")


def _limit_change_refused(change: Change) -> Answer | None:
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


def _size_judged(change: Change) -> Answer:
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
        denial = denial or unfit_template(asking)
        if denial is not None:
            return denial
        return allow((*warnings, *gang_warnings(rules, kind, change.obj, asking)))
    before = reading(rules, kind, change.old)
    grown = growth(before.asks, asking.asks, change.reservation)
    if grown is not None:
        message = f"{grown}; a running gang does not grow. Suspend it first: it waits for the larger size"
        return deny(Refusal.GROWTH, message)
    return _taking_back_refused(change, before, asking) if status.gives_back(kind) else ALLOW


def _taking_back_refused(change: Change, before: GangReading, asking: GangReading) -> Answer:
    """Refuse to have pods that have ended run again whose room is given back, or may be for all that is known here."""
    held, started, view = change.reservation, before.admission, change.rules.view
    behind = started is not None and (
        view.ledger_lags((started.epoch, started.seq), started.uid) or not (held is None or started.is_of(held))
    )
    if forgets(before, asking) and (behind or not view.ledger_trusted):
        message = (
            "pods that have ended might run again, and this replica has not read what the job holds (ledger "
            f"{render_version(view.ledger.version)}); it is retried"
        )
        return deny(Refusal.LEDGER_BEHIND, message, 503)
    if held is None:
        return ALLOW
    taken = taken_back(before, asking, held, suspended=is_suspended(change.kind, change.old))
    if taken is None:
        return ALLOW
    message = f"{taken}, and others may have their room. Suspend it first: it waits for what it asks then"
    return deny(Refusal.GROWTH, message)
