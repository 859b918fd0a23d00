"""Backfill: who may pass the blocked head of a queue without delaying it.

The head's earliest start is found by letting admitted gangs end one after the other at their run-time limits until the
head fits. A later gang may pass if its own limit has it end by then, or if both fit at that moment side by side. Gangs
without a limit never pass, and nobody passes a head whose start depends on gangs without one, unless they ask for
nothing that the head asks for. So the promise to the head only ever moves earlier, and nobody starves.
"""

from webhook.core.decision import Decision
from webhook.core.flavors import Assignment, Mode, Verdict, assign
from webhook.core.holdings import Holding, Holdings
from webhook.core.policy import FlavorResource, Queue
from webhook.core.queueing import Line
from webhook.core.quota_tree import Node, Usage
from webhook.core.reasons import Code, Reason

Start = tuple[float, Usage]
"""When a head fits at the latest, and usage at that time."""


def refusal(
    line: Line, decision: Decision, head: Line, start: Start | None, *, now: float, fenced: bool
) -> Reason | None:
    """Return why the head of ``line``, which could start as decided, may not pass the head of ``head``; None if it may.

    ``start`` is the earliest start of the latter.
    ``fenced``: both wait in one namespace that has fences, so that it might also take the head's room there.
    """
    lane, gang = head.lane, line.head
    if lane.node is None or lane.queue is None:
        return None
    name = f"{head.head.namespace}/{head.head.name}"
    if decision.preempts:
        return _behind(name, "only the head may have others stopped")
    if gang.max_run_seconds is None:
        return _behind(name, "a gang without a run-time limit may not pass it")
    if start is None:
        if not fenced and not head.request.keys & decision.assignment.usage.keys():
            return None
        return _behind(name, "whose start depends on gangs without a run-time limit")
    at, view = start
    if now + gang.max_run_seconds <= at:
        return None
    view.add(lane.node, decision.assignment.usage)
    beside = not fenced and _fitting(head, lane.queue, lane.node, view).mode is Mode.FIT
    view.remove(lane.node, decision.assignment.usage)
    if beside:
        return None
    return _behind(name, f"which may start in {max(0, at - now):.0f} s, before this gang's limit has it end")


def _behind(name: str, why: str) -> Reason:
    return Reason(Code.BEHIND_HEAD, f"would pass {name}: {why}", help="it starts after the head or in a gap before it")


def earliest_start(holdings: Holdings, head: Line, now: float) -> Start | None:
    """Return when the head of a line fits at the latest, if nobody else starts, and usage at that time.

    None when that depends on gangs without a run-time limit. Unix seconds.
    """
    queue, node = head.lane.queue, head.lane.node
    if queue is None or node is None:
        return None
    ends = sorted(
        ((end, holding.uid, holding) for holding in holdings.under(node.root) if (end := _end(holding)) is not None),
        key=lambda item: item[:2],
    )
    going = [(end, holding) for end, _, holding in ends if holding.uid not in holdings.stopping]
    low, high = 0, len(going)
    if _fitting(head, queue, node, _after(holdings, going[:high])).mode is not Mode.FIT:
        return None
    while low < high:
        middle = (low + high) // 2
        if _fitting(head, queue, node, _after(holdings, going[:middle])).mode is Mode.FIT:
            high = middle
        else:
            low = middle + 1
    at = max(now, going[low - 1][0]) if low else now
    ended = [item for item in going if item[0] <= at]
    return at, _after(holdings, ended)


def _end(holding: Holding) -> float | None:
    limit = None if holding.gang is None else holding.gang.max_run_seconds
    return None if limit is None else holding.reservation.since_seconds + limit


def _after(holdings: Holdings, ended: list[tuple[float, Holding]]) -> Usage:
    view = holdings.outlook.copy()
    for _, holding in ended:
        queue = holdings.node_of(holding)
        if queue is not None:
            view.remove(queue, holding.amounts)
    return view


def _fitting(head: Line, queue: Queue, node: Node, view: Usage) -> Assignment:
    def judge(key: FlavorResource, amount: int) -> Verdict:
        fits = amount <= max(0, view.available(node, key))
        return Verdict(Mode.FIT if fits else Mode.NO_FIT, 0, None if fits else Code.WAITING_FOR_QUOTA)

    return assign(head.request, head.head.least_counts, queue.fungibility, judge)
