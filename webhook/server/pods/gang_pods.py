"""Pods of gangs at creation: each within what its gang's reservation has left, or behind our gate until it has one."""

from typing import NamedTuple

from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation, ReservedPodSet
from webhook.core.model.gang import PodPrice
from webhook.core.notation import names
from webhook.core.notation.counted import counted, does
from webhook.jobs.plain_pods.groups import gang_uid, role_of
from webhook.jobs.reading.ours import OWN_ANNOTATIONS
from webhook.server.pods.excess import added_by_others, excess_over
from webhook.server.pods.group_checks import misgrouped
from webhook.server.pods.loose_pods import judge_loose
from webhook.server.pods.review import PodReview, PodRules, is_fenced
from webhook.server.review.answer import ALLOW, Answer, Refusal, deny
from webhook.server.review.gang_owner import belongs
from webhook.server.review.pod_facts import PodFacts, render_version


def judge_waiting(review: PodReview, rules: PodRules, cost: PodPrice, now: float) -> Answer:
    """Decide about a pod behind our gate. It is stored before its gang is admitted, so it needs room as a loose pod
    does, unless its gang has a reservation for it that no pod has taken yet.
    """
    pod, request = review.pod, review.request
    group = pod.group
    own = group is not None and pod.gang == gang_uid(request.namespace, group)
    if not own and (pod.gang not in names.NOT_ADMITTED or request.username not in rules.creators.controllers):
        message = f"label {names.GANG_LABEL} is written only by Tutti; leave it out"
        return deny(Refusal.FOREIGN_CREATOR, message)
    written = sorted(OWN_ANNOTATIONS & pod.own.keys())
    if written:
        return deny(Refusal.OWN_FIELDS, f"annotation {written[0]} is written only by Tutti; leave it out")
    malformed = misgrouped(pod, request.namespace, rules.view) if own else None
    if malformed is not None:
        return malformed
    if not is_fenced(rules.view, request.namespace):
        return ALLOW
    gang = (pod.gang or "") if own or pod.controller is None else pod.controller.uid
    pod_set = role_of(cost, pod.spec) if own else pod.pod_set
    reservation = rules.view.ledger.entries.get(gang)
    reserved = None if reservation is None or reservation.stopping is not None else reservation.pod_set(pod_set)
    if (
        reserved is not None
        and excess_over(cost, reserved, rules.view, request.namespace, rules.settings.transformed) is None
    ):
        there = rules.view.fences.live_pods(request.namespace, gang, pod_set)
        coming = rules.tally.of_pod_set(request.namespace, gang, pod_set, now, but=pod.uid)
        ended = rules.view.fences.given_back(request.namespace, gang, pod_set)
        if there + coming + ended < reserved.count:
            if not request.dry_run:
                made = review.created_seconds
                rules.tally.add(request.namespace, review.tally_key, cost, now, made, gang=gang, pod_set=pod_set)
            return ALLOW
    return judge_loose(review, rules, cost, now)


def judge_gang_pod(review: PodReview, rules: PodRules, cost: PodPrice, now: float) -> Answer:
    """Return whether the reservation of the gang that the pod's label names has room for it; the tally remembers it."""
    pod, request = review.pod, review.request
    if pod.gang in names.NOT_ADMITTED or pod.gang is None:
        message = f"{_whose(pod)} is not admitted yet: its pods start together, and not before"
        return deny(Refusal.NOT_ADMITTED, message + _left_behind(pod, rules.view))
    reservation = rules.view.ledger.entries.get(pod.gang)
    if reservation is None or reservation.namespace != request.namespace:
        return _unknown_gang(review, rules)
    refused = _placed_elsewhere(rules.view, reservation) if rules.in_hub else None
    refused = refused or _wrong_creator(review, rules, reservation)
    if refused is not None:
        return refused
    if reservation.stopping is not None:
        message = (
            f"{reservation} is being stopped ({reservation.stopping}); it starts no pods until it is admitted again"
        )
        return deny(Refusal.NOT_ADMITTED, message)
    if rules.view.is_deleted(reservation.uid):
        # Its controller may not know yet; once all pods are proved gone, the room is given away.
        return deny(Refusal.NOT_ADMITTED, f"{reservation} was deleted: no further pod of it may start")
    reserved = reservation.pod_set(pod.pod_set)
    if reserved is None:
        known = ", ".join(s.name for s in reservation.pod_sets)
        message = f"pod set {pod.pod_set!r} is not part of the reservation of {reservation}, which has {known}"
        return deny(Refusal.BEYOND_RESERVATION, message)
    excess = excess_over(cost, reserved, rules.view, request.namespace, rules.settings.transformed)
    if excess is not None:
        added = added_by_others(pod.spec, reserved.name, rules.view.jobs.get(reservation.uid))
        return deny(Refusal.BEYOND_RESERVATION, f"{reservation}, pod set {reserved.name}: {excess}{added}")
    return _take_allowance(review, rules, _Allowance(reservation, reserved, cost), now)


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


class _Allowance(NamedTuple):
    """What a reservation has for a pod."""

    reservation: Reservation
    reserved: ReservedPodSet
    cost: PodPrice


def _there(pods: int) -> str:
    return f"{does(pods, 'exist')} or {'is' if pods == 1 else 'are'} being created"


def _take_allowance(review: PodReview, rules: PodRules, allowance: _Allowance, now: float) -> Answer:
    reservation, reserved, cost = allowance
    namespace, uid = review.request.namespace, reservation.uid
    live = rules.view.fences.live_pods(namespace, uid, reserved.name)
    coming = rules.tally.of_pod_set(namespace, uid, reserved.name, now, but=review.pod.uid)
    held = reserved.count - rules.view.fences.given_back(namespace, uid, reserved.name)
    if live + coming >= held:
        ended = "" if held == reserved.count else f", of which {does(reserved.count - held, 'have')} ended for good,"
        behind = _ledger_note(review, rules)
        message = (
            f"{reservation} has a reservation for {counted(reserved.count, 'pod')} of set {reserved.name}{ended} and "
            f"{_there(live + coming)}{behind}; it is retried"
        )
        return deny(Refusal.BEYOND_RESERVATION, message, 429)
    leaving = rules.view.fences.leaving_pods(namespace, uid, reserved.name, rules.unix_now())
    if live + coming + leaving >= held:
        message = (
            f"{reservation} has a reservation for {counted(reserved.count, 'pod')} of set {reserved.name}: "
            f"{_there(live + coming)}, "
            f"and {does(leaving, 'are', 'more')} being deleted and may still run; it is retried"
        )
        return deny(Refusal.BEYOND_RESERVATION, message, 429)
    if not review.request.dry_run:
        made = review.created_seconds
        rules.tally.add(namespace, review.tally_key, cost, now, made, gang=uid, pod_set=reserved.name)
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


def _placed_elsewhere(view: View, reservation: Reservation) -> Answer | None:
    """Return the refusal of a pod in a hub whose gang runs in a member: not every controller reads ``managedBy``, and
    some kinds have none.
    """
    job = view.jobs.get(reservation.uid)
    if job is None or not job.for_a_member:
        return None
    message = (
        f"{reservation} is placed by this hub and runs in a member: no pod of it may start here. A hub runs no "
        f"controllers of jobs: remove the one that makes pods of {reservation.kind.partition('.')[0]}"
    )
    return deny(Refusal.FOREIGN_CREATOR, message)


def _wrong_creator(review: PodReview, rules: PodRules, reservation: Reservation) -> Answer | None:
    pod, user = review.pod, review.request.username
    if _made_by_its_pod(review, rules, reservation):
        return None
    if user not in rules.creators.of(reservation.kind) and user not in rules.settings.known_manifest_users:
        message = (
            f"label {names.GANG_LABEL} claims a place in {reservation}, but only its controller creates its pods, "
            f"not user {user!r}; leave the label out"
        )
        return deny(Refusal.FOREIGN_CREATOR, message)
    if pod.controller is None:
        message = f"label {names.GANG_LABEL} claims a place in {reservation}, but the pod has no controller owner"
        return deny(Refusal.FOREIGN_CREATOR, message)
    owner = pod.controller
    if belongs(rules.view, rules.creators, owner.kind, owner.uid, reservation):
        return None
    whose = f"{owner.kind.partition('.')[0]} {owner.name} (uid {owner.uid})"
    message = f"the pod belongs to {whose}, not to {reservation}: leave label {names.GANG_LABEL} out of its template"
    return deny(Refusal.FOREIGN_CREATOR, message)


def _made_by_its_pod(review: PodReview, rules: PodRules, reservation: Reservation) -> bool:
    """Return whether a pod of the gang that makes others made this one: it goes with its owner, as theirs do."""
    owner, namespace = review.pod.controller, review.request.namespace
    if owner is None or owner.kind != "Pod." or not rules.creators.makes_by_pods(reservation.kind):
        return False
    if not review.request.username.startswith(f"system:serviceaccount:{namespace}:"):
        return False
    maker = rules.view.fences.pod(namespace, owner.uid)
    return maker is not None and maker.gang == reservation.uid and not maker.terminal


def _whose(pod: PodFacts) -> str:
    if pod.controller is None:
        return f"gang {pod.gang!r}"
    return f"{pod.controller.kind.partition('.')[0]} {pod.controller.name}"
