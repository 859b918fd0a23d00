"""Pods of no gang: within what reservations leave of their namespace's fences."""

from typing import Final

from webhook.core.model.gang import PodPrice
from webhook.core.reasons.barriers import reason_of
from webhook.server.pods.review import PodReview, PodRules
from webhook.server.review.answer import ALLOW, Answer, Refusal, deny

BUSY: Final = deny(Refusal.BUSY, "too many pods of this namespace were allowed and are not seen yet; try again", 429)


def judge_loose(review: PodReview, rules: PodRules, cost: PodPrice, now: float) -> Answer:
    """Return whether there is room for a pod that costs ``cost``; remembers it in the tally."""
    request, tally = review.request, rules.tally
    if tally.full(request.namespace, now):
        return BUSY
    unseen = tally.loose(request.namespace, now, but=review.pod.uid)
    short = rules.view.fences.pod_shortfall(request.namespace, cost, unseen.come, unseen.instead_of)
    if short is not None:
        why = f"the namespace has no unreserved room for this pod: {reason_of(short)}"
        return deny(Refusal.FENCED, why)
    if not request.dry_run and request.namespace in rules.view.namespaces:
        # Of a namespace that nobody has seen nothing is kept: it may be invented, and has nothing reserved yet.
        tally.add(request.namespace, review.tally_key, cost, now, review.created_seconds)
    return ALLOW
