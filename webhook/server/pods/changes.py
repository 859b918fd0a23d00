"""Changes of pods that exist: what Tutti wrote stays, and a resize stays within its place or what the fences leave."""

from collections.abc import Mapping
from typing import Any

from webhook.core.model.gang import PodPrice
from webhook.core.notation import names
from webhook.core.notation.problem import Unreadable
from webhook.core.reasons.barriers import reason_of
from webhook.jobs.pricing.pod_requests import price
from webhook.jobs.pricing.resizing import as_held
from webhook.server.pods.excess import excess_over
from webhook.server.pods.group_checks import regrouped
from webhook.server.pods.loose_pods import BUSY
from webhook.server.pods.review import PodReview, PodRules, is_fenced
from webhook.server.pods.tally import larger, unkept
from webhook.server.review.answer import ALLOW, Answer, Refusal, deny
from webhook.server.review.controllers_labels import controllers_label_changed
from webhook.server.review.pod_facts import PodFacts
from webhook.wire import pods as wire


def judge_change(review: PodReview, rules: PodRules) -> Answer:
    """Return whether a pod may be changed: its gang, PodGroup, queue, gate and owner are not for everybody."""
    pod, old, user = review.pod, review.old, review.request.username
    assert old is not None
    if user == rules.settings.account:
        return ALLOW
    now, before = pod.own, old.own
    if now != before:
        changed = sorted(key for key in now.keys() | before.keys() if now.get(key) != before.get(key))
        message = f"{changed[0]} is written only by Tutti; leave it as it is"
        return deny(Refusal.OWN_FIELDS, message)
    if old.gang is not None and (refused := regrouped(pod, old)) is not None:
        return refused
    if old.gated and not pod.gated:
        message = (
            f"scheduling gate {names.SCHEDULING_GATE} is removed by Tutti when the gang is admitted, not by {user!r}"
        )
        return deny(Refusal.GATE_REMOVED, message)
    if old.gang is None or _is_controller(user, rules):
        return ALLOW
    if (label := controllers_label_changed(review.request.object, review.request.old_object)) is not None:
        message = (
            f"label {label} of a gang's pod cannot be removed: its controller would release the pod, which would keep "
            "running"
        )
        return deny(Refusal.FOREIGN_CREATOR, message)
    return _owner_change(review) if pod.controller != old.controller else ALLOW


def _is_controller(user: str, rules: PodRules) -> bool:
    settings = rules.settings
    return (
        user in settings.collector_users or user in rules.creators.controllers or user in settings.known_manifest_users
    )


def _owner_change(review: PodReview) -> Answer:
    user = review.request.username
    message = f"only its job's controller may change the controller of a gang's pod, not {user!r}"
    return deny(Refusal.FOREIGN_CREATOR, message)


def judge_resize(review: PodReview, rules: PodRules, now: float) -> Answer:
    """Return whether a running pod may ask more, in place."""
    pod, old, request = review.pod, review.old, review.request
    assert old is not None
    try:
        cost = price(pod.spec)
        held, before = _held(pod, request.object), _held(old, request.old_object)
    except Unreadable as error:
        return deny(Refusal.UNPRICEABLE, str(error), 422)
    reservation = None if old.gang is None or old.gated else rules.view.ledger.entries.get(old.gang)
    if reservation is not None:
        reserved = reservation.pod_set(old.pod_set)
        excess = (
            None
            if reserved is None
            else excess_over(cost, reserved, rules.view, request.namespace, rules.settings.transformed)
        )
        return ALLOW if excess is None else deny(Refusal.BEYOND_RESERVATION, f"{reservation}: {excess}")
    if not is_fenced(rules.view, request.namespace):
        return ALLOW
    return ALLOW if larger(before, held) is before else _judge_growth(review, rules, held, now)


def _judge_growth(review: PodReview, rules: PodRules, held: PodPrice, now: float) -> Answer:
    """Return whether the fences have room for a pod that grows to ``held``; the tally remembers it.

    Otherwise each of several resized at once would be given the same room, and one that is created beside them too.
    """
    namespace, uid, tally = review.request.namespace, review.pod.uid, rules.tally
    if (unheld := unkept(held)) is not None:
        return deny(Refusal.UNPRICEABLE, unheld, 422)
    if tally.full(namespace, now):
        return BUSY
    unseen, seen = tally.loose(namespace, now, but=uid), rules.view.fences.pod(namespace, uid)
    # One that is not seen yet counts with nothing.
    counted = [] if seen is None or seen.terminal else [seen.price]
    short = rules.view.fences.pod_shortfall(namespace, held, unseen.come, [*unseen.instead_of, *counted])
    if short is not None:
        return deny(Refusal.FENCED, f"the larger pod does not fit: {reason_of(short)}")
    if not review.request.dry_run and namespace in rules.view.namespaces:
        tally.add_resize(namespace, uid, held, now, review.old_version)
    return ALLOW


def _held(pod: PodFacts, document: Mapping[str, Any] | None) -> PodPrice:
    """Return what a pod counts with: one that was to shrink holds what it has until its node has taken it."""
    return price(as_held(dict(pod.spec), wire.status(document or {})))
