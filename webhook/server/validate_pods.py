"""/validate/pods: a gang's pods stay within its reservation, loose pods within what reservations leave of the fences.

The decision is a pure function of the request, the view and the tally; waiting for a newer ledger and passing the
review on to the owning replica are the gate's business. Who may create a gang's pods is settled by the authenticated
user, never by ownerReferences or labels alone: those are writable by anybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from webhook.core import amounts, names, quantity
from webhook.core.gang import PodPrice
from webhook.core.ledger import Reservation, ReservedPodSet
from webhook.jobs.compute_class_policy import ComputeClassPolicy
from webhook.jobs.kinds import JobKind
from webhook.jobs.pod_groups import gang_uid, role_of
from webhook.jobs.pod_requests import PriceError, price
from webhook.jobs.resizing import as_held
from webhook.server.answer import ALLOW, Answer, Refusal, allow, deny
from webhook.server.class_checks import check_pod
from webhook.server.group_checks import misgrouped, nameless, opt_in_warnings, regrouped
from webhook.server.job_facts import left_to_kueue
from webhook.server.pod_facts import PodFacts, read, render_version
from webhook.server.settings import GateSettings
from webhook.server.tally import Tally
from webhook.view import View
from webhook.wire import pods as wire
from webhook.wire.admission_review import ReviewRequest


@dataclass(frozen=True, slots=True)
class PodRules:
    """What the decision may look at besides the request."""

    view: View
    settings: GateSettings
    kinds: Mapping[str, JobKind]
    tally: Tally
    classes: ComputeClassPolicy


@dataclass(frozen=True, slots=True)
class PodReview:
    """A review that was read: the pod as it would be, and as it was."""

    request: ReviewRequest
    pod: PodFacts
    old: PodFacts | None


def read_review(request: ReviewRequest) -> PodReview | Answer:
    """Return the review's pods, or the answer where none is needed or possible. Raises Misshapen, FieldError."""
    if request.operation == "DELETE":
        return ALLOW
    if request.operation not in ("CREATE", "UPDATE"):
        return deny(Refusal.UNCLASSIFIED, f"operation {request.operation!r} on pods is not one Tutti registered", 400)
    if request.object is None:
        return deny(Refusal.MALFORMED, "request.object is missing", 422)
    if request.operation == "UPDATE" and request.old_object is None:
        return deny(Refusal.MALFORMED, "request.oldObject is missing", 422)
    pod = read(request.object)
    if not (pod.name or request.name):
        return deny(Refusal.MALFORMED, "the pod has neither a name nor a generateName", 422)
    if pod.namespace not in ("", request.namespace):
        return deny(Refusal.MALFORMED, f"metadata.namespace {pod.namespace!r} is not {request.namespace!r}", 422)
    old = read(request.old_object) if request.operation == "UPDATE" and request.old_object is not None else None
    return PodReview(request, pod, old)


def wants_ledger(review: PodReview, rules: PodRules) -> tuple[int, int] | None:
    """Return the ledger version to wait for: the pod was admitted by one that this replica has not seen."""
    version = review.pod.ledger_version
    if version is None or review.pod.gang in (None, names.GANG_PENDING) or review.request.operation != "CREATE":
        return None
    # Only a controller's word is worth waiting for; anybody else could make us wait for ever.
    behind = version > rules.view.ledger.version and review.request.username in controller_users(rules.kinds)
    return version if behind else None


def wants_owner(review: PodReview, rules: PodRules) -> bool:
    """Return whether the decision hangs on a tally, so that the namespace's owner has to make it."""
    if review.request.operation == "CREATE":
        gang = review.pod.gang not in (None, names.GANG_PENDING)
        return gang or is_fenced(rules.view, review.request.namespace)
    return review.request.subresource == "resize" and is_fenced(rules.view, review.request.namespace)


def decide(review: PodReview, rules: PodRules, now_seconds: float) -> Answer:
    """Return the answer to one pod review; remembers in the tally what it lets pass, unless it is a dry run."""
    if review.request.operation == "CREATE":
        return _create(review, rules, now_seconds)
    if review.pod.deleting:
        return ALLOW
    if review.request.subresource == "resize":
        return _resize(review, rules, now_seconds)
    return _update(review, rules)


def is_fenced(view: View, namespace: str) -> bool:
    """Return whether loose pods of ``namespace`` are checked; a namespace not seen yet is."""
    labels = view.namespaces.get(namespace)
    return labels is None or labels.get(names.FENCED_NAMESPACE, "false") != "false"


def controller_users(kinds: Mapping[str, JobKind]) -> frozenset[str]:
    """Return every username under which some kind's controller works."""
    return frozenset().union(*(kind.controller_users for kind in kinds.values()))


def users_of(kind: str, kinds: Mapping[str, JobKind]) -> frozenset[str]:
    """Return the usernames that may create pods for a gang of ``kind``: its controller's, its children's and others."""
    users: set[str] = set()
    waiting, seen = [kind], set()
    while waiting:
        key = waiting.pop()
        entry = kinds.get(key)
        if entry is not None and key not in seen:
            seen.add(key)
            users |= entry.controller_users | entry.pod_users
            waiting.extend(entry.child_kinds)
    return frozenset(users)


# -- creation ----------------------------------------------------------------------------------------------------


def _create(review: PodReview, rules: PodRules, now: float) -> Answer:
    pod, request = review.pod, review.request
    if pod.mirror and request.username.startswith("system:node:"):
        return ALLOW
    if pod.controllers > 1:
        return deny(Refusal.MALFORMED, "metadata.ownerReferences names more than one controller; keep one", 422)
    relevant = pod.gang is not None or is_fenced(rules.view, request.namespace)
    if relevant and pod.node and request.username not in rules.settings.scheduler_users:
        return deny(Refusal.NODE_PRESET, _preset_message(pod))
    denial, warnings = check_pod(request.object or {}, rules.classes)
    if denial is not None:
        return denial
    try:
        cost = price(pod.spec)
    except PriceError as error:
        return deny(Refusal.UNPRICEABLE, str(error), 422) if relevant else allow(warnings)
    left = pod.held_by_kueue or (rules.settings.left_to_kueue and left_to_kueue(request.object or {}))
    if pod.gang is None:
        if not left and (refused := nameless(pod)) is not None:
            return refused
        answer = _loose(review, rules, cost, now) if is_fenced(rules.view, request.namespace) else ALLOW
        return allow((*warnings, *(() if left else opt_in_warnings(pod)))) if answer is ALLOW else answer
    answer = (_waiting if pod.gated else _member)(review, rules, cost, now)
    return allow(warnings) if answer is ALLOW else answer


def _preset_message(pod: PodFacts) -> str:
    return (
        f"spec.nodeName is preset to {pod.node!r}, which passes by the scheduler and its gates; "
        "leave it empty and use nodeSelector or affinity"
    )


def _loose(review: PodReview, rules: PodRules, cost: PodPrice, now: float) -> Answer:
    request, tally = review.request, rules.tally
    if tally.full(request.namespace):
        return deny(Refusal.BUSY, "too many pods of this namespace were let pass and not seen yet; try again", 429)
    also = [p.price for p in tally.pending(request.namespace, now, but=review.pod.uid) if p.gang is None]
    reason = rules.view.fences.pod_shortfall(request.namespace, cost, also)
    if reason is not None:
        return deny(Refusal.FENCED, f"this pod would take what the namespace has no room for or has reserved: {reason}")
    if not request.dry_run:
        tally.add(request.namespace, _tally_key(review), cost, now)
    return ALLOW


def _waiting(review: PodReview, rules: PodRules, cost: PodPrice, now: float) -> Answer:
    """Decide about a pod behind our gate. It is stored before its gang is admitted, so it needs room as a loose pod
    does, unless its gang has a place reserved for it that no pod has taken yet.
    """
    pod, request = review.pod, review.request
    own = pod.group is not None and pod.gang == gang_uid(request.namespace, pod.group)
    if not own and (pod.gang != names.GANG_PENDING or request.username not in controller_users(rules.kinds)):
        message = f"label {names.GANG_LABEL} is written by Tutti alone; leave it out"
        return deny(Refusal.FOREIGN_CREATOR, message)
    written = sorted(names.OWN_ANNOTATIONS & pod.own.keys())
    if written:
        return deny(Refusal.OWN_FIELDS, f"annotation {written[0]} is written by Tutti alone; leave it out")
    malformed = misgrouped(pod, request.namespace, rules.view) if own else None
    if malformed is not None:
        return malformed
    if not is_fenced(rules.view, request.namespace):
        return ALLOW
    gang = (pod.gang or "") if own or pod.controller is None else pod.controller.uid
    pod_set = role_of(cost, pod.spec) if own else pod.pod_set
    reservation = rules.view.ledger.entries.get(gang)
    place = None if reservation is None or reservation.stopping is not None else reservation.pod_set(pod_set)
    if place is not None and _excess(cost, place, rules.view, request.namespace) is None:
        there = rules.view.fences.live_pods(request.namespace, gang, pod_set)
        coming = rules.tally.members(request.namespace, gang, pod_set, now, but=pod.uid)
        if there + coming < place.count:
            if not request.dry_run:
                rules.tally.add(request.namespace, _tally_key(review), cost, now, gang=gang, pod_set=pod_set)
            return ALLOW
    return _loose(review, rules, cost, now)


def _member(review: PodReview, rules: PodRules, cost: PodPrice, now: float) -> Answer:
    pod, request = review.pod, review.request
    if pod.gang == names.GANG_PENDING or pod.gang is None:
        message = f"{_whose(pod)} is not admitted yet: its pods start together, and not before"
        return deny(Refusal.NOT_ADMITTED, message + _left_behind(pod, rules.view))
    reservation = rules.view.ledger.entries.get(pod.gang)
    if reservation is None or reservation.namespace != request.namespace:
        return _unknown_gang(review, rules)
    creator = _wrong_creator(review, rules, reservation)
    if creator is not None:
        return creator
    if reservation.stopping is not None:
        message = (
            f"{reservation} is being stopped ({reservation.stopping}); it starts no pods until it is admitted again"
        )
        return deny(Refusal.NOT_ADMITTED, message)
    reserved = reservation.pod_set(pod.pod_set)
    if reserved is None:
        known = ", ".join(s.name for s in reservation.pod_sets)
        message = f"pod set {pod.pod_set!r} is not part of the reservation of {reservation}, which has {known}"
        return deny(Refusal.BEYOND_RESERVATION, message)
    excess = _excess(cost, reserved, rules.view, request.namespace)
    if excess is not None:
        return deny(Refusal.BEYOND_RESERVATION, f"{reservation}, pod set {reserved.name}: {excess}")
    return _take_place(review, rules, _Place(reservation, reserved, cost), now)


def _left_behind(pod: PodFacts, view: View) -> str:
    """Return what else may be wrong where the pod is of a child, which the view does not keep.

    Before its release 0.8 the MPI operator lets a launcher start with the pod template of the MPIJob as it waited.
    """
    if pod.controller is None or pod.controller.uid in view.jobs:
        return ""
    return (
        "; if its owner runs, the owner's controller did not pass on what the start wrote on the pod templates: "
        "upgrade it (the MPI operator to 0.8 or newer)"
    )


class _Place(NamedTuple):
    """A pod's place in a reservation."""

    reservation: Reservation
    reserved: ReservedPodSet
    cost: PodPrice


def _take_place(review: PodReview, rules: PodRules, place: _Place, now: float) -> Answer:
    reservation, reserved, cost = place
    namespace, uid = review.request.namespace, reservation.uid
    live = rules.view.fences.live_pods(namespace, uid, reserved.name)
    coming = rules.tally.members(namespace, uid, reserved.name, now, but=review.pod.uid)
    if live + coming >= reserved.count:
        behind = _ledger_note(review, rules)
        message = (
            f"{reservation} has a reservation for {reserved.count} pods of set {reserved.name} and {live + coming} "
            f"exist or are being created{behind}; it is retried"
        )
        return deny(Refusal.BEYOND_RESERVATION, message, 429)
    if not review.request.dry_run:
        rules.tally.add(namespace, _tally_key(review), cost, now, gang=uid, pod_set=reserved.name)
    return ALLOW


def _unknown_gang(review: PodReview, rules: PodRules) -> Answer:
    pod, ledger = review.pod, rules.view.ledger
    if not rules.view.ledger_trusted:
        message = (
            f"{_whose(pod)} has no reservation in the ledger as last read ({render_version(ledger.version)}), and the "
            "ledger cannot be read now; no gang starts beyond what it held. It is retried"
        )
        return deny(Refusal.LEDGER_UNTRUSTED, message, 503)
    if pod.ledger_version is not None and pod.ledger_version > ledger.version:
        message = (
            f"{_whose(pod)} was admitted by ledger {render_version(pod.ledger_version)}, this replica has seen "
            f"{render_version(ledger.version)}; it is retried"
        )
        return deny(Refusal.LEDGER_BEHIND, message, 503)
    return deny(Refusal.NOT_ADMITTED, f"{_whose(pod)} has no reservation in the ledger: it is not admitted")


def _ledger_note(review: PodReview, rules: PodRules) -> str:
    version = review.pod.ledger_version
    if version is not None and version > rules.view.ledger.version:
        return f" (by ledger {render_version(rules.view.ledger.version)}; the pod's is {render_version(version)})"
    return "" if rules.view.ledger_trusted else " (by the ledger as last read; it cannot be read now)"


def _wrong_creator(review: PodReview, rules: PodRules, reservation: Reservation) -> Answer | None:
    pod, user = review.pod, review.request.username
    may = users_of(reservation.kind, rules.kinds) | rules.settings.known_manifest_users
    if user not in may:
        message = (
            f"label {names.GANG_LABEL} claims a place in {reservation}, but only its controller creates its pods, "
            f"not user {user!r}; leave the label out"
        )
        return deny(Refusal.FOREIGN_CREATOR, message)
    if pod.controller is None:
        message = f"label {names.GANG_LABEL} claims a place in {reservation}, but the pod has no controller owner"
        return deny(Refusal.FOREIGN_CREATOR, message)
    known = rules.view.jobs.get(pod.controller.uid)
    if known is not None and known.uid != reservation.uid and known.owner is None:
        message = f"the pod belongs to {known.kind} {known.key}, not to {reservation}"
        return deny(Refusal.FOREIGN_CREATOR, message)
    return None


def _whose(pod: PodFacts) -> str:
    if pod.controller is None:
        return f"gang {pod.gang!r}"
    return f"{pod.controller.kind.partition('.')[0]} {pod.controller.name}"


def _tally_key(review: PodReview) -> str:
    return review.pod.uid or f"review {review.request.uid}"


def _excess(cost: PodPrice, reserved: ReservedPodSet, view: View, namespace: str) -> str | None:
    """Return how a pod asks more than its place holds, in any resource that a queue or a fence counts."""
    for word, asked, held in (
        ("requests", cost.requests, reserved.price.requests),
        ("limits", cost.limits, reserved.price.limits),
    ):
        over = {name: amount for name, amount in asked.items() if amount > held.get(name, 0)}
        for name in sorted(over):
            # Queues count requests; what a controller adds beside the template (an init container) may have limits.
            queued = word == "requests" and name in reserved.flavors
            if "/" in name or queued or _is_fenced_resource(view, namespace, word, name):
                holds = quantity.render(held.get(name, 0), name)
                return (
                    f"the pod {word} {amounts.render({name: over[name]})}, its place in the reservation holds {holds}"
                )
    return None


def _is_fenced_resource(view: View, namespace: str, word: str, name: str) -> bool:
    keys = (f"{word}.{name}", name) if word == "requests" else (f"{word}.{name}",)
    return any(key in fence.hard for fence in view.fences.fences(namespace) for key in keys)


# -- change ------------------------------------------------------------------------------------------------------


def _update(review: PodReview, rules: PodRules) -> Answer:
    pod, old, user = review.pod, review.old, review.request.username
    assert old is not None
    if user == rules.settings.account:
        return ALLOW
    if pod.own != old.own:
        changed = sorted(key for key in pod.own.keys() | old.own.keys() if pod.own.get(key) != old.own.get(key))
        message = f"{changed[0]} is written by Tutti alone; leave it as it is"
        return deny(Refusal.OWN_FIELDS, message)
    if old.gang is not None and (refused := regrouped(pod, old)) is not None:
        return refused
    if old.gated and not pod.gated:
        message = (
            f"scheduling gate {names.SCHEDULING_GATE} is removed by Tutti when the gang is admitted, not by {user!r}"
        )
        return deny(Refusal.GATE_REMOVED, message)
    return _owner_change(review, rules) if old.gang is not None and pod.controller != old.controller else ALLOW


def _owner_change(review: PodReview, rules: PodRules) -> Answer:
    user, settings = review.request.username, rules.settings
    if user in settings.collector_users or user in controller_users(rules.kinds) | settings.known_manifest_users:
        return ALLOW
    message = f"the controller of a gang's pod is changed by its job's controller alone, not by {user!r}"
    return deny(Refusal.FOREIGN_CREATOR, message)


def _resize(review: PodReview, rules: PodRules, now: float) -> Answer:
    pod, old, request = review.pod, review.old, review.request
    assert old is not None
    try:
        cost = price(pod.spec)
        held, before = _held(pod, request.object), _held(old, request.old_object)
    except (PriceError, quantity.QuantityError) as error:
        return deny(Refusal.UNPRICEABLE, str(error), 422)
    reservation = None if old.gang is None or old.gated else rules.view.ledger.entries.get(old.gang)
    if reservation is not None:
        reserved = reservation.pod_set(old.pod_set)
        excess = None if reserved is None else _excess(cost, reserved, rules.view, request.namespace)
        return ALLOW if excess is None else deny(Refusal.BEYOND_RESERVATION, f"{reservation}: {excess}")
    if not is_fenced(rules.view, request.namespace):
        return ALLOW
    also = [p.price for p in rules.tally.pending(request.namespace, now, but=old.uid) if p.gang is None]
    reason = rules.view.fences.pod_shortfall(request.namespace, held, also, replacing=before)
    return ALLOW if reason is None else deny(Refusal.FENCED, f"the larger pod does not fit: {reason}")


def _held(pod: PodFacts, document: Mapping[str, Any] | None) -> PodPrice:
    """Return what a pod counts with: one that was to shrink holds what it has until its node has taken it."""
    return price(as_held(dict(pod.spec), wire.status(document or {})))
