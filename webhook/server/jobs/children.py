"""Objects that a gated owner's controller writes: child Jobs of a JobSet, the RayCluster of a RayJob, scale requests.

A child belongs to its owner's gang. It is never queued by itself, and runs only while its owner is admitted. Who made
it is settled by the authenticated user; an ownerReference alone proves nothing. Nobody takes a child from its owner, or
deletes it without its pods: the owner's controller would make it again.
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading.gating import gated_by_namespace, is_child, joins_pod_group, owner_of, queue_label
from webhook.jobs.reading.made_for import made_for, owners_named
from webhook.jobs.reading.ours import Mark, own_marks
from webhook.jobs.reading.record import JobRecord, Owner
from webhook.server.jobs.child_growth import child_growth
from webhook.server.review.answer import ALLOW, Answer, Refusal, deny
from webhook.server.review.controllers_labels import controllers_label_changed
from webhook.server.review.gang_owner import belongs
from webhook.server.review.job_facts import (
    JobRules,
    gang_labels,
    is_suspended,
    own_fields,
    root_of,
    ruling_alone,
    waits_for_tutti,
)
from webhook.server.review.pod_facts import parse_version, render_version
from webhook.untyped import paths
from webhook.untyped.values import seconds, text
from webhook.wire.admission_review import ReviewRequest

_ON_ITSELF: Final = Mark("label", names.GANG_LABEL, "metadata.labels")


def ledger_version(rules: JobRules, kind: JobKind, obj: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the newest ledger version that the pod templates of ``obj`` name."""
    found = [
        version
        for field, value in own_fields(rules, kind, obj).items()
        if field.pod_set and field.key == names.LEDGER_VERSION and (version := parse_version(value)) is not None
    ]
    return max(found, default=None)


def wants_ledger(request: ReviewRequest, rules: JobRules) -> tuple[int, int] | None:
    """Return the ledger version to wait for before a child that is started by its owner's controller is judged."""
    kind = rules.by_resource.get((request.group, request.resource))
    obj = request.object
    if kind is None or obj is None or request.subresource or is_suspended(kind, obj):
        return None
    owner = owner_of(obj)
    if owner is None or request.username not in rules.creators.of(owner.kind):
        return None
    version = ledger_version(rules, kind, obj)
    return version if version is not None and version > rules.view.ledger.version else None


def decided_by_owner(request: ReviewRequest, rules: JobRules, old: Mapping[str, Any]) -> bool:
    """Return whether a change of a stored object that names an owner is decided as that of its child.

    So it is when the owner's controller makes it, or when the owner is known to wait or run by Tutti's leave. Otherwise
    the reference proves nothing (its editor may have written it, the owner may be another controller's), and the object
    is judged by itself.
    """
    root = root_of(rules, old)
    known = root is not None and root.record is not None and waits_for_tutti(rules, root.record)
    return known or _trusted(request, rules, request.object or {})


def _trusted(request: ReviewRequest, rules: JobRules, obj: Mapping[str, Any]) -> bool:
    owner = owner_of(obj)
    return request.username == rules.settings.account or (
        owner is not None and request.username in rules.creators.of(owner.kind)
    )


def judge_child(request: ReviewRequest, rules: JobRules, kind: JobKind, old: Mapping[str, Any] | None) -> Answer:
    """Return the answer about a child: it may be written by its owner's controller, and runs with its owner only."""
    obj = request.object
    assert obj is not None
    started = not is_suspended(kind, obj) and (old is None or is_suspended(kind, old))
    if old is not None and not _trusted(request, rules, obj):
        return _foreign_edit(request, rules, kind, old, obj)
    gangs = _gangs_named(obj)
    return _stranger(rules, obj, gangs) or (_start(rules, kind, obj, gangs) if started else ALLOW)


def judge_deletion(request: ReviewRequest, rules: JobRules, kind: JobKind) -> Answer:
    """Return the answer to a deletion: whatever leaves pods behind is no child that would be made again beside them."""
    old = request.old_object
    if old is None or not _orphaning(request, old):
        return ALLOW
    return _let_go(request, rules, kind, old) or ALLOW


def loses_maker(
    request: ReviewRequest, rules: JobRules, kind: JobKind, old: Mapping[str, Any], obj: Mapping[str, Any]
) -> Answer | None:
    """Return the refusal of a change that takes the owner off what its controller made: anybody could delete it then
    like any Job, and its controller would not find it again. Nor does an orphan lose what tells whose it was.
    """
    if owner_of(old) == owner_of(obj):
        return _moves(request, rules, kind, old, obj)
    if request.username in rules.settings.collector_users:
        return None
    return _let_go(request, rules, kind, old)


def _moves(
    request: ReviewRequest, rules: JobRules, kind: JobKind, old: Mapping[str, Any], obj: Mapping[str, Any]
) -> Answer | None:
    """Return the refusal of a change of the labels that tell for which gang an orphan was made: it would be charged to
    another one, and the room that its pods use given away. What bears our mark is told by that.
    """
    if owner_of(old) is not None or _makers_borne(kind, old) == _makers_borne(kind, obj):
        return None
    charged_itself = paths.find(old, ("metadata", "uid")) in rules.view.ledger.entries
    if charged_itself or any(mark is not None for mark in gang_labels(rules, kind, old).values()):
        return None
    if all(ruling_alone(rules, kind, each) is None for each in (old, obj)):
        return None
    message = (
        "labels by which its controller said for which object it was made do not change: that one's quota may be held "
        f"for what it runs. Create another {kind.kind}"
    )
    return deny(Refusal.FOREIGN_CREATOR, message)


def _makers_borne(kind: JobKind, obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the labels of an object say of others that it was made for."""
    metadata = paths.find_mapping(obj, ("metadata",))
    labels, own = paths.find_mapping(metadata, ("labels",)), metadata.get("uid")
    uid, place = made_for(labels), (text(metadata.get("namespace")), text(metadata.get("name")))
    return ("" if uid == own else uid, *owners_named(kind, *place, labels))


def comes_to_wait(rules: JobRules, kind: JobKind, old: Mapping[str, Any], obj: Mapping[str, Any]) -> bool:
    """Return whether a child that runs beside all queues, as its owner did, is let go of and asks for a queue itself.

    It would be adopted like what ran before Tutti came, and overdraw the queue. What an adopted gang made stays with
    that gang, in the same queue. What Tutti has started bears its mark.
    """
    owner = owner_of(old)
    if owner is None or not is_child(kind, old, rules.kinds) or is_child(kind, obj, rules.kinds):
        return False
    if ruling_alone(rules, kind, obj) is None:
        return False
    entry, namespace = _entry_above(rules, owner), paths.find(old, ("metadata", "namespace"))
    if entry is not None and entry.namespace != namespace:
        # Owners are of one namespace: somebody wrote that reference.
        entry = None
    if _is_marked_as_started(rules, kind, old, entry):
        return False
    label = queue_label(obj, kind)
    if entry is None:
        return not _is_to_be_adopted(rules, owner, namespace, label)
    if _was_adopted_with(entry, old):
        return _asks_elsewhere(rules, entry, label, grouped=joins_pod_group(kind, obj))
    return True


def _entry_above(rules: JobRules, owner: Owner) -> Reservation | None:
    """Return what is reserved for the gang of ``owner``, by controllers' references alone: labels are anybody's."""
    entries = rules.view.ledger.entries
    return next((entries[uid] for uid in rules.view.lineage.line(owner.uid) if uid in entries), None)


def _is_marked_as_started(rules: JobRules, kind: JobKind, old: Mapping[str, Any], entry: Reservation | None) -> bool:
    """Return whether a child bears the label of a gang where Tutti writes it. The reconciler adopts none that does.

    On the object itself anybody may have had it written: by a JobSet in no queue that has it in its template of Jobs.
    """
    marks = gang_labels(rules, kind, old)
    if marks or entry is None:
        return any(mark is not None for mark in marks.values())
    # Its templates cannot be read now: they bear it somewhere.
    inside = (value for mark, value in own_marks(old).items() if mark != _ON_ITSELF)
    return entry.uid in inside


def _was_adopted_with(entry: Reservation, old: Mapping[str, Any]) -> bool:
    """Return whether a child was there when the gang above it was adopted."""
    created = paths.find(old, ("metadata", "creationTimestamp"))
    return entry.adopted and seconds(created or "") <= entry.since_seconds


def _asks_elsewhere(rules: JobRules, entry: Reservation, label: str | None, *, grouped: bool) -> bool:
    """Return whether what was let go of would be a gang of its own in another queue than the one that it was made for,
    or in none: that of its label may not exist, and a PodGroup makes it one without a label.
    """
    job, named = rules.view.jobs.get(entry.uid), rules.view.policy.queue_of(entry.namespace, label)
    if job is not None and job.queue_label == label and entry.queue is not None:
        # Whatever became of that queue meanwhile.
        return False
    return named != entry.queue and (label is not None or grouped)


def _is_to_be_adopted(rules: JobRules, owner: Owner, namespace: object, label: str | None) -> bool:
    """Return whether the owner ran before Tutti came, in the queue of that label: its adoption was not read yet."""
    root = rules.view.jobs.get(owner.uid)
    if root is None or root.marked or root.queue_label != label or root.namespace != namespace:
        return False
    return root.running and waits_for_tutti(rules, root)


def _orphaning(request: ReviewRequest, old: Mapping[str, Any]) -> bool:
    """Return whether a deletion leaves behind what the object owns; Jobs of ``batch`` do where nothing is said."""
    if request.orphaning is not None:
        return request.orphaning
    return request.group == "batch" or "orphan" in (paths.find(old, ("metadata", "finalizers")) or ())


def _let_go(request: ReviewRequest, rules: JobRules, kind: JobKind, old: Mapping[str, Any]) -> Answer | None:
    """Return the refusal where there are queues, or all jobs wait.

    What ran before Tutti came bears no mark of it, so children of jobs in no queue are kept as well.
    """
    if not is_child(kind, old, rules.kinds):
        return None
    namespace, policy = request.namespace, rules.view.policy
    labels = rules.view.namespaces.get(namespace, {})
    queued = any(place == namespace for place, _ in policy.local_queues)
    if not queued and not gated_by_namespace(namespace, labels, policy.namespace_queues):
        return None
    message = (
        f"it belongs to {_named(owner_of(old))}, whose controller would make it again beside the pods that are left; "
        "leave its owner as it is, and delete it without --cascade=orphan"
    )
    return deny(Refusal.FOREIGN_CREATOR, message)


def claims_an_owner(request: ReviewRequest, owner: Owner) -> Answer:
    """Return the refusal of a new gang that names an owner whose controller does not make it.

    It would be stored suspended and be nobody's to start: neither the owner's, by who made it, nor a gang of its own.
    """
    message = (
        f"it names {_named(owner)} as its controller, and {request.username} is not known to work for that kind: it "
        "would wait for ever. Leave the ownerReference out; if that is the account of the kind's operator, have the "
        f"administrators add it to controllerUsers of {owner.kind}"
    )
    return deny(Refusal.FOREIGN_CREATOR, message)


def _gangs_named(obj: Mapping[str, Any]) -> set[str]:
    """Return the gang labels of the child, ``pending`` included."""
    return {str(value) for mark, value in own_marks(obj).items() if mark.key == names.GANG_LABEL}


def _stranger(rules: JobRules, obj: Mapping[str, Any], gangs: set[str]) -> Answer | None:
    """Return the refusal of a child that is marked as a member of a gang that is not its owner's."""
    owner = owner_of(obj)
    for gang in sorted(gangs):
        reservation = rules.view.ledger.entries.get(gang)
        if reservation is None or owner is None:
            continue
        if not belongs(rules.view, rules.creators, owner.kind, owner.uid, reservation):
            message = f"it has label {names.GANG_LABEL}: {gang}, but {_named(owner)} is not of {reservation}"
            return deny(Refusal.FOREIGN_CREATOR, message)
    return None


def _named(owner: Owner | None) -> str:
    return f"{owner.kind.partition('.')[0]} {owner.name}" if owner else "its owner"


def _foreign_edit(
    request: ReviewRequest, rules: JobRules, kind: JobKind, old: Mapping[str, Any], obj: Mapping[str, Any]
) -> Answer:
    whose = _named(owner_of(old))
    if is_suspended(kind, old) and not is_suspended(kind, obj):
        message = f"it belongs to the gang of {whose} and only {whose}'s controller starts it"
        return deny(Refusal.UNSUSPENDED, message)
    # Wherever they are: in what cannot be read now, or on the object itself, nobody else writes them either.
    if own_marks(old) != own_marks(obj):
        return deny(Refusal.OWN_FIELDS, f"labels and annotations of {names.DOMAIN} are written only by Tutti")
    if owner_of(old) != owner_of(obj) and request.username not in rules.settings.collector_users:
        return deny(Refusal.FOREIGN_CREATOR, f"it belongs to the gang of {whose}; its controller owner cannot change")
    if (queue := queue_label(obj, kind)) != queue_label(old, kind) and queue is not None:
        message = f"it belongs to the gang of {whose}: naming queue {queue} has no effect. Label {whose} instead"
        return deny(Refusal.QUEUE_CHANGE, message)
    if (label := controllers_label_changed(obj, old)) is not None:
        message = f"label {label} of what belongs to the gang of {whose} cannot change: {whose}'s controller reads it"
        return deny(Refusal.FOREIGN_CREATOR, message)
    grown = child_growth(rules, kind, old, obj)
    if grown is not None:
        message = f"{grown}; it belongs to the gang of {whose}, which was given no more: only a smaller size passes"
        return deny(Refusal.GROWTH, message)
    return ALLOW


def _start(rules: JobRules, kind: JobKind, obj: Mapping[str, Any], gangs: set[str]) -> Answer:
    root = root_of(rules, obj)
    if root is None:
        return ALLOW
    # Of an owner that is a child itself the view knows nothing: then the gang's own label says which it is.
    entries = rules.view.ledger.entries
    reservation = next((entries[uid] for uid in (root.uid, *sorted(gangs)) if uid in entries), None)
    if reservation is not None and reservation.stopping is None:
        return ALLOW
    if root.record is not None and not waits_for_tutti(rules, root.record):
        return ALLOW
    if root.record is None and not gangs:
        # Not marked, so its owner was never held; the view merely has not seen the owner yet.
        return ALLOW
    whose = _named(owner_of(obj))
    version = ledger_version(rules, kind, obj)
    if version is not None and version > rules.view.ledger.version:
        message = (
            f"{whose} was started by ledger {render_version(version)}, this replica has seen "
            f"{render_version(rules.view.ledger.version)}; it is retried"
        )
        return deny(Refusal.LEDGER_BEHIND, message, 503)
    state = "is being stopped" if reservation is not None else "is not admitted"
    return deny(Refusal.NOT_ADMITTED, f"{whose} {state}: its gang starts whole or not at all", 403)


def judge_scale(request: ReviewRequest, rules: JobRules, kind: JobKind) -> Answer:
    """Return the answer to a scale request, which names its parent and has no labels: a started gang does not grow."""
    obj, old = request.object, request.old_object
    if obj is None or old is None:
        return deny(Refusal.MALFORMED, "a scale request carries object and oldObject", 422)
    wanted, current = _replicas(obj), _replicas(old)
    if wanted is None or current is None:
        return deny(Refusal.MALFORMED, "spec.replicas must be a number of 0 or more", 422)
    if wanted <= current:
        return ALLOW
    view = rules.view
    # Of what waits for nobody there is no record by name; the API server writes the uid of the parent on its Scale.
    uid = text(paths.find(old, ("metadata", "uid"))) or view.job_names.get(
        (kind.key, request.namespace, request.name), ""
    )
    record = view.jobs.get(uid)
    if record is None and not view.lineage.knows(uid):
        return deny(Refusal.NOT_READY, f"{kind.kind} {request.name} is not known to this replica yet; try again", 503)
    stopped = record is not None and record.suspended and uid not in view.ledger.entries
    if stopped or not any(_is_reserved_for(rules, each) for each in view.lineage.line(uid)):
        return ALLOW
    if record is not None and _goes_back(rules, record, current, wanted):
        return ALLOW
    message = (
        f"{kind.kind} {request.namespace}/{request.name} runs as a gang with a reservation; scaling it from {current} "
        f"to {wanted} replicas would start pods that are not reserved. Suspend it first; it waits for the larger size"
    )
    return deny(Refusal.GROWTH, message)


def _goes_back(rules: JobRules, record: JobRecord, current: int, wanted: int) -> bool:
    """Return whether a gang is scaled to no more than what is reserved for it.

    Which pod set that is only its definition tells: any of that size, so all of its pods have to be judged one by one.
    """
    entry = rules.view.ledger.entries.get(record.uid)
    if entry is None or entry.adopted or record.gang is None:
        return False
    marks = {template.pod_set: (template.marks or {}).get(names.GANG_LABEL) for template in record.templates}
    counts = record.gang.counts
    if any(marks.get(name) != record.uid for name in counts):
        return False
    return any(count == current and wanted <= entry.counts.get(name, 0) for name, count in counts.items())


def _is_reserved_for(rules: JobRules, uid: str) -> bool:
    """Return whether an object is a gang that holds a reservation, or runs and is about to."""
    record = rules.view.jobs.get(uid)
    waits = record is not None and not record.suspended and waits_for_tutti(rules, record)
    return waits or uid in rules.view.ledger.entries


def _replicas(scale: Mapping[str, Any]) -> int | None:
    replicas = paths.find(scale, ("spec", "replicas"))
    if replicas is None:
        return 0
    return replicas if type(replicas) is int and replicas >= 0 else None
