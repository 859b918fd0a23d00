"""/validate/pods: a gang's pods stay within its reservation, loose pods within what reservations leave of the fences.

The decision is a pure function of the request, the view and the tally; waiting for a newer ledger and passing the
review on to the owning replica are the handler's business.
"""

from typing import Final

from webhook.core.notation import names
from webhook.core.notation.problem import Unreadable
from webhook.jobs.pricing.pod_requests import price
from webhook.jobs.reading.gating import left_to_kueue
from webhook.server.pods.changes import judge_change, judge_resize
from webhook.server.pods.gang_pods import judge_gang_pod, judge_waiting
from webhook.server.pods.group_checks import nameless, opt_in_warnings, unfollowed, unplaced
from webhook.server.pods.loose_pods import judge_loose
from webhook.server.pods.review import PodReview, PodRules, is_fenced
from webhook.server.pods.tally import unkept
from webhook.server.review.answer import ALLOW, Answer, Refusal, allow, deny
from webhook.server.review.class_checks import check_pod
from webhook.server.review.pod_facts import PodFacts, mirrors_static_pod

_NOT_ADMITTED: Final = frozenset({None, *names.NOT_ADMITTED})


def wants_ledger(review: PodReview, rules: PodRules) -> tuple[int, int] | None:
    """Return the ledger version to wait for: the pod was admitted by one that this replica has not seen."""
    version = review.pod.ledger_version
    if version is None or review.pod.gang in _NOT_ADMITTED or review.request.operation != "CREATE":
        return None
    # Only a controller's word is worth waiting for; anybody else could make us wait for ever.
    behind = rules.view.ledger_lags(version, review.pod.gang or "")
    behind = behind and review.request.username in rules.creators.controllers
    return version if behind else None


def wants_owner(review: PodReview, rules: PodRules) -> bool:
    """Return whether the decision hangs on a tally, so that the namespace's owner has to make it."""
    if review.request.namespace not in rules.view.namespaces:
        return False  # nothing is remembered of it
    if review.request.operation == "CREATE":
        return review.pod.gang not in _NOT_ADMITTED or is_fenced(rules.view, review.request.namespace)
    return review.request.subresource == "resize" and is_fenced(rules.view, review.request.namespace)


def decide(review: PodReview, rules: PodRules, now_seconds: float) -> Answer:
    """Return the answer to one pod review; remembers in the tally what it lets pass, unless it is a dry run."""
    if review.request.operation == "CREATE":
        return _create(review, rules, now_seconds)
    # Of a pod that is being deleted too: its owner chose how long it runs on, and it holds its place until then.
    if review.request.subresource == "resize":
        return judge_resize(review, rules, now_seconds)
    return judge_change(review, rules)


def _create(review: PodReview, rules: PodRules, now: float) -> Answer:
    pod, request = review.pod, review.request
    if mirrors_static_pod(pod, request):
        return ALLOW
    if pod.controllers > 1:
        return deny(Refusal.MALFORMED, "metadata.ownerReferences names more than one controller; keep one", 422)
    relevant = pod.gang is not None or is_fenced(rules.view, request.namespace)
    if relevant and pod.node and request.username not in rules.settings.scheduler_users:
        return deny(Refusal.NODE_PRESET, _preset_message(pod))
    denial, warnings = check_pod(pod, rules.classes)
    if denial is not None:
        return denial
    try:
        cost = price(pod.spec)
    except Unreadable as error:
        return deny(Refusal.UNPRICEABLE, str(error), 422) if relevant else allow(warnings)
    if relevant and (unheld := unkept(cost)) is not None:
        return deny(Refusal.UNPRICEABLE, unheld, 422)
    left = pod.held_by_kueue or (rules.settings.left_to_kueue and left_to_kueue(pod.document))
    if pod.gang is None:
        if pod.own:
            message = f"{min(pod.own)} is written only by Tutti, and this pod belongs to no gang; leave it out"
            return deny(Refusal.OWN_FIELDS, message)
        if not left and (refused := nameless(pod)) is not None:
            return refused
        answer = judge_loose(review, rules, cost, now) if is_fenced(rules.view, request.namespace) else ALLOW
        return allow((*warnings, *(() if left else opt_in_warnings(pod)))) if answer is ALLOW else answer
    answer = (judge_waiting if pod.gated else judge_gang_pod)(review, rules, cost, now)
    if answer is not ALLOW:
        return answer
    in_hub = unplaced(pod) if rules.in_hub else ()
    return allow((*warnings, *unfollowed(pod, request.namespace, rules), *in_hub))


def _preset_message(pod: PodFacts) -> str:
    return (
        f"spec.nodeName is preset to {pod.node!r}, which bypasses the scheduler and its gates; "
        "leave it empty and use nodeSelector or affinity"
    )
