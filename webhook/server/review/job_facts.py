"""A job as a review shows it: which kind, whether it is ours to hold, and what its owner may not touch."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.core.reasons.reasons import Reason
from webhook.jobs.compute_class.catalog import ComputeClassCatalog
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.gating import (
    GateRule,
    gated_alone,
    is_child,
    left_to_kueue,
    owner_of,
    readable_sites,
    record_gated_by,
)
from webhook.jobs.reading.ours import OWN_ANNOTATIONS, OWN_LABELS
from webhook.jobs.reading.record import JobRecord
from webhook.server.review.answer import ALLOW, Answer, Refusal, deny
from webhook.server.review.creators import Creators
from webhook.server.review.gang_owner import OWNER_DEPTH_MAX
from webhook.server.review.settings import ReviewSettings
from webhook.untyped import paths
from webhook.wire.admission_review import ReviewRequest

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

Potential = Callable[[Any], Reason | None]
"""Why a gang can never fit under the present policy (the engine's ``potential``)."""


@dataclass(frozen=True, slots=True)
class JobRules:
    """What the decision about a job may look at besides the request."""

    view: View
    settings: ReviewSettings
    kinds: Mapping[str, JobKind]
    creators: Creators
    by_resource: Mapping[tuple[str, str], JobKind]
    context: Callable[[], ReadContext]
    potential: Potential
    classes: ComputeClassCatalog
    in_hub: bool
    """Some kinds are placed in other clusters."""


def malformed(request: ReviewRequest, kind: JobKind, obj: Mapping[str, Any]) -> Answer | None:
    """Return the refusal of a review that contradicts itself, else None."""
    group, slash, _ = str(obj.get("apiVersion", "")).rpartition("/")
    if obj.get("kind") != kind.kind or (group if slash else "") != kind.group:
        message = f"the object is a {obj.get('kind')!r} of {obj.get('apiVersion')!r}, the request says {kind.key}"
        return deny(Refusal.MALFORMED, message, 422)
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return deny(Refusal.MALFORMED, "metadata must be an object", 422)
    if not (metadata.get("name") or metadata.get("generateName") or request.name):
        return deny(Refusal.MALFORMED, "the object has neither a name nor a generateName", 422)
    if kind.namespaced and not _DNS_LABEL.fullmatch(request.namespace):
        return deny(Refusal.MALFORMED, f"namespace {request.namespace!r} is not a DNS label", 422)
    if metadata.get("namespace") not in (None, "", request.namespace):
        message = f"metadata.namespace {metadata['namespace']!r} is not the request's {request.namespace!r}"
        return deny(Refusal.MALFORMED, message, 422)
    for field in ("labels", "annotations"):
        found = metadata.get(field)
        if found is not None and not isinstance(found, dict):
            return deny(Refusal.MALFORMED, f"metadata.{field} must be an object", 422)
    if not isinstance(obj.get("spec"), dict):
        return deny(Refusal.MALFORMED, "spec must be an object", 422)
    return None


def ruling(rules: JobRules, kind: JobKind, obj: Mapping[str, Any], username: str) -> GateRule | None:
    """Return by which rule ``obj``, which ``username`` creates, has to wait; None when it is not ours to hold."""
    return None if is_child(kind, obj, rules.kinds, username) else ruling_alone(rules, kind, obj)


def ruling_alone(rules: JobRules, kind: JobKind, obj: Mapping[str, Any]) -> GateRule | None:
    """Return by which rule ``obj`` has to wait as far as its owner does not matter; None when it is not ours to hold.

    An ownerReference in a stored object may be its editor's own: whether the owner is one is for the caller to judge.
    """
    if rules.settings.left_to_kueue and left_to_kueue(obj):
        return None
    namespace_labels = rules.view.namespaces.get(paths.find(obj, ("metadata", "namespace")) or "", {})
    return gated_alone(kind, obj, namespace_labels, rules.view.policy.namespace_queues)


def not_ours(rules: JobRules, obj: Mapping[str, Any]) -> Answer:
    """Return the answer for an object that waits for nobody."""
    return Answer(True, "left_to_kueue") if rules.settings.left_to_kueue and left_to_kueue(obj) else ALLOW


def malformed_suspend(kind: JobKind, obj: Mapping[str, Any]) -> Answer | None:
    """Return the refusal of a suspend field that is neither true nor false, else None."""
    suspend = None if kind.suspend is None else paths.find(obj, kind.suspend)
    if suspend is None or isinstance(suspend, bool):
        return None
    return deny(Refusal.MALFORMED, f"{paths.render(kind.suspend or ())} must be true or false", 422)


def is_suspended(kind: JobKind, obj: Mapping[str, Any]) -> bool:
    """Return whether ``obj`` is stored suspended; a kind without such a field never is."""
    return kind.suspend is not None and paths.find(obj, kind.suspend) is True


def gang_labels(rules: JobRules, kind: JobKind, obj: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the gang label of each pod template, by pod set."""
    return {site.name: site.labels.get(names.GANG_LABEL) for site in readable_sites(kind, obj, rules.context())}


class OwnField(NamedTuple):
    """A place where Tutti alone writes."""

    place: str
    """``annotation`` or ``label``."""
    key: str
    pod_set: str = ""
    """Whose template it is on; empty for the object itself."""

    def __str__(self) -> str:
        whose = f" of pod set {self.pod_set}" if self.pod_set else ""
        return f"{self.place} {self.key}{whose}"


def own_fields(rules: JobRules, kind: JobKind, obj: Mapping[str, Any]) -> dict[OwnField, object]:
    """Return what Tutti alone writes into a job that waits for it, by its place.

    Not the labels of the object itself, where ours mean nothing: of a Job without any the API server makes copies of
    the pod template's.
    """
    marks = paths.find_mapping(obj, ("metadata", "annotations"))
    fields: dict[OwnField, object] = {
        OwnField("annotation", key): marks[key] for key in OWN_ANNOTATIONS if key in marks
    }
    for site in readable_sites(kind, obj, rules.context()):
        for key in OWN_LABELS:
            if key in site.labels:
                fields[OwnField("label", key, site.name)] = site.labels[key]
        noted = paths.find_mapping(site.metadata, ("annotations",))
        fields |= {OwnField("annotation", key, site.name): noted[key] for key in OWN_ANNOTATIONS if key in noted}
    return fields


def own_annotations(obj: Mapping[str, Any]) -> dict[str, object]:
    """Return those of Tutti's annotations that ``obj`` itself carries."""
    marks = paths.find_mapping(obj, ("metadata", "annotations"))
    if OWN_ANNOTATIONS.isdisjoint(marks):
        return {}
    return {key: marks[key] for key in sorted(OWN_ANNOTATIONS) if key in marks}


def reservation_of(rules: JobRules, obj: Mapping[str, Any]) -> Reservation | None:
    """Return the reservation of the gang that ``obj`` is, by its uid."""
    uid = paths.find(obj, ("metadata", "uid"))
    return rules.view.ledger.entries.get(uid) if isinstance(uid, str) else None


@dataclass(frozen=True, slots=True)
class Root:
    """The top of an object's chain of controller owners."""

    uid: str
    record: JobRecord | None
    """None when the view does not know it (yet)."""


def root_of(rules: JobRules, obj: Mapping[str, Any]) -> Root | None:
    """Return the topmost owner of a known kind, None for an object without such an owner."""
    owner = owner_of(obj)
    if owner is None or owner.kind not in rules.kinds:
        return None
    for _ in range(OWNER_DEPTH_MAX):
        record = rules.view.jobs.get(owner.uid)
        if record is None or record.owner is None:
            return Root(owner.uid, record)
        owner = record.owner
    return Root(owner.uid, None)


def waits_for_tutti(rules: JobRules, record: JobRecord) -> bool:
    """Return whether a job that the view knows is gated."""
    view = rules.view
    if record.uid in view.ledger.entries or (record.marked and not record.managed_by_other):
        return True
    labels = view.namespaces.get(record.namespace, {})
    return record_gated_by(record, labels, view.policy.namespace_queues) is not None
