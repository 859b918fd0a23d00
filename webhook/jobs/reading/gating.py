"""Whether an object of a job kind has to wait for Tutti, and by which rule.

An object is gated if it (a) carries a queue label, (b) has a pod template that joins a PodGroup, or (c) lives in a
namespace that is marked mandatory or mapped to a queue. What a gated owner's controller writes belongs to its owner's
gang and is never gated again; whoever only claims such an owner is gated like everybody else.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from webhook.core.model.policy import Policy
from webhook.core.notation import names
from webhook.core.notation.problem import Unreadable
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.pod_sets.find import find_pod_sets, stated_labels
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.context import NO_CONTEXT, ReadContext
from webhook.jobs.reading import annotations
from webhook.jobs.reading.record import JobRecord, Owner
from webhook.untyped import editing, paths
from webhook.untyped.values import mappings, text


class GateRule(StrEnum):
    """Why an object is gated."""

    QUEUE_LABEL = "QueueLabel"
    POD_GROUP = "PodGroup"
    NAMESPACE = "Namespace"


def queue_label(obj: Mapping[str, Any], kind: JobKind | None = None) -> str | None:
    """Return the queue that the object's labels ask for, or else the kind's own queue field; empty text is none."""
    labels = paths.find_mapping(obj, ("metadata", "labels"))
    for label in names.QUEUE_LABELS:
        value = labels.get(label)
        if value and isinstance(value, str):
            return value
    if kind is not None and kind.queue is not None:
        return text(paths.find(obj, kind.queue)) or None
    return None


def owner_of(obj: Mapping[str, Any]) -> Owner | None:
    """Return the controller ownerReference of ``obj``."""
    references = paths.find(obj, ("metadata", "ownerReferences"))
    for reference in mappings(references) if references else ():
        if reference.get("controller") is True:
            group, slash, _ = str(reference.get("apiVersion", "")).partition("/")
            key = f"{reference.get('kind', '')}.{group if slash else ''}"
            return Owner(key, str(reference.get("name", "")), str(reference.get("uid", "")))
    return None


def gang_owner(
    kind: JobKind,
    obj: Mapping[str, Any],
    kinds: Mapping[str, JobKind] = KINDS,
    username: str | None = None,
) -> Owner | None:
    """Return the controller of ``obj`` to whose gang it belongs: one of a job kind that makes such children.

    Whatever else controls it (a CronJob, a ScheduledSparkApplication) leaves it a gang of its own. With ``username``
    (at creation) only what that owner kind's controller writes counts: an ownerReference that somebody else wrote
    proves nothing.
    """
    owner = owner_of(obj)
    owner_kind = None if owner is None else kinds.get(owner.kind)
    if owner_kind is None or kind.key not in owner_kind.child_kinds:
        return None
    return owner if username is None or username in owner_kind.controller_users else None


def is_child(
    kind: JobKind,
    obj: Mapping[str, Any],
    kinds: Mapping[str, JobKind] = KINDS,
    username: str | None = None,
) -> bool:
    """Return whether ``obj`` belongs to the gang of its controller, as ``gang_owner`` says."""
    return gang_owner(kind, obj, kinds, username) is not None


def gated_by(
    kind: JobKind,
    obj: Mapping[str, Any],
    namespace_labels: Mapping[str, str],
    mapped_namespaces: Collection[str],
    *,
    kinds: Mapping[str, JobKind] = KINDS,
    username: str | None = None,
) -> GateRule | None:
    """Return the first rule by which ``obj`` has to wait, or None when it is not ours to hold.

    ``mapped_namespaces`` are those whose jobs all wait in one queue (leaves of an ElasticQuotaTree). ``username`` is
    who creates the object, where that is known.
    """
    if is_child(kind, obj, kinds, username):
        return None
    return gated_alone(kind, obj, namespace_labels, mapped_namespaces)


def gated_alone(
    kind: JobKind, obj: Mapping[str, Any], namespace_labels: Mapping[str, str], mapped_namespaces: Collection[str]
) -> GateRule | None:
    """Return what ``gated_by`` does, as far as it does not matter who controls ``obj``."""
    if managed_by_other(kind, obj):
        return None
    if queue_label(obj) is not None:
        return GateRule.QUEUE_LABEL
    if joins_pod_group(kind, obj):
        return GateRule.POD_GROUP
    gated = gated_by_namespace(paths.find(obj, ("metadata", "namespace")), namespace_labels, mapped_namespaces)
    return GateRule.NAMESPACE if gated else None


def record_gated_by(
    record: JobRecord, namespace_labels: Mapping[str, str], mapped_namespaces: Collection[str]
) -> GateRule | None:
    """Return the same of a job that was read, whoever owns it."""
    if record.managed_by_other:
        return None
    if record.queue_label is not None:
        return GateRule.QUEUE_LABEL
    if record.gang is not None and record.gang.pod_group is not None:
        return GateRule.POD_GROUP
    gated = gated_by_namespace(record.namespace, namespace_labels, mapped_namespaces)
    return GateRule.NAMESPACE if gated else None


def gated_by_namespace(
    namespace: object, namespace_labels: Mapping[str, str], mapped_namespaces: Collection[str]
) -> bool:
    """Return whether every job of a namespace waits."""
    return namespace_labels.get(names.GATED_NAMESPACE, "false") != "false" or namespace in mapped_namespaces


def left_to_kueue(obj: Mapping[str, Any]) -> bool:
    """Return whether the only queue label of ``obj`` is Kueue's: where Kueue serves too, nothing gates such a thing."""
    labels = paths.find_mapping(obj, ("metadata", "labels"))
    ours, kueues = (labels.get(label) for label in names.QUEUE_LABELS)
    return bool(kueues) and not ours


def is_marked(kind: JobKind, obj: Mapping[str, Any], kinds: Mapping[str, JobKind] = KINDS) -> bool:
    """Return whether ``obj`` is a gang of its own that waits by its namespace alone, or was started by Tutti once.

    Tutti goes on with such a job wherever its namespace's label went. What is merely marked as pending may be an orphan
    that was made for another gang: it was never to start by itself.
    """
    if is_child(kind, obj, kinds) or managed_by_other(kind, obj):
        return False
    own = (names.GANG_PENDING_IN_NAMESPACE, paths.find(obj, ("metadata", "uid")))
    return is_noted(obj) or any(site.labels.get(names.GANG_LABEL) in own for site in readable_sites(kind, obj))


def is_noted(obj: Mapping[str, Any]) -> bool:
    """Return whether a start, stop or hold of this very object is written on it; of adopted ones that is all."""
    own, uid = paths.find_mapping(obj, ("metadata", "annotations")), paths.find(obj, ("metadata", "uid"))
    if not isinstance(uid, str):
        return False
    decoders = {
        names.ADMISSION: annotations.decode_admission,
        names.REQUEUE: annotations.decode_requeue,
        names.HOLD: annotations.decode_hold,
    }
    return any(decode(own[key], uid) for key, decode in decoders.items() if key in own)


def pending(rule: GateRule | None) -> str:
    """Return the gang label of a job that has to wait by ``rule``."""
    return names.GANG_PENDING_IN_NAMESPACE if rule is GateRule.NAMESPACE else names.GANG_PENDING


def with_default_queue(
    kind: JobKind, obj: Mapping[str, Any], namespace_labels: Mapping[str, str], policy: Policy
) -> Mapping[str, Any]:
    """Return a gated ``obj`` that is being created with the queue label that it lacks, as Kueue writes it.

    That is the LocalQueue ``default`` of its namespace. Unlike in Kueue the namespace must be gated by hand too:
    nothing else shows that all of its jobs are to wait.
    """
    namespace = paths.find(obj, ("metadata", "namespace"))
    by_hand = namespace_labels.get(names.GATED_NAMESPACE) == "true" and namespace not in policy.namespace_queues
    if not by_hand or (namespace, names.DEFAULT_LOCAL_QUEUE) not in policy.local_queues or queue_label(obj, kind):
        return obj
    labelled = editing.put_if_possible(obj, ("metadata", "labels", names.QUEUE_LABELS[0]), names.DEFAULT_LOCAL_QUEUE)
    assert isinstance(labelled, Mapping)
    return labelled


def managed_by_other(kind: JobKind, obj: Mapping[str, Any]) -> bool:
    """Return whether the object names a controller other than the kind's ordinary one.

    The annotation of a kind without ``managedBy`` is not asked: where no hub is, it would lead past the gate.
    """
    manager = None if kind.managed_by is None else paths.find(obj, kind.managed_by)
    return bool(manager) and manager not in kind.managers


def pod_group_of(labels: Mapping[str, Any]) -> str | None:
    """Return the PodGroup that a pod or pod template with ``labels`` joins, of whichever generation."""
    for label in names.POD_GROUP_LABELS:
        name = labels.get(label)
        if isinstance(name, str) and name:
            return name
    return None


def joins_pod_group(kind: JobKind, obj: Mapping[str, Any]) -> bool:
    """Return whether pods of ``obj`` name a PodGroup, so that it may have to start together with other jobs."""
    labels = [*(site.pod_labels for site in readable_sites(kind, obj)), *stated_labels(kind, obj)]
    return any(pod_group_of(each) is not None for each in labels)


def readable_sites(kind: JobKind, obj: Mapping[str, Any], context: ReadContext = NO_CONTEXT) -> list[PodSetSite]:
    """Return the pod sets of ``obj``, or none when it cannot be read (validation will say why)."""
    try:
        return find_pod_sets(kind, obj, context)
    except Unreadable:
        return []


def for_a_member(kind: JobKind, obj: Mapping[str, Any]) -> bool:
    """Return whether a job of a hub is one that only a member starts."""
    return bool(kind.given_manager) and paths.find(obj, kind.placed_by) == kind.given_manager
