"""One decision about one gang: with how many pods and from which flavors it may start now, or what is in the way.

Pure: usage, fences and policy in, a value out. A gang that may be smaller than whole (partial admission, a quorum below
its count) takes the largest size that fits quota and fences, never less than ``Gang.least_counts``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from webhook.core.fences import Fences
from webhook.core.flavors import Assignment, Judge, Mode, Request, Verdict, assign
from webhook.core.gang import Gang
from webhook.core.policy import FlavorResource, Fungibility, Queue
from webhook.core.quota_tree import Node, Usage
from webhook.core.reasons import Code, Reason

Oracle = Callable[[FlavorResource, int], tuple[Mode, int]]
"""Whether preemption could make room for an amount of one key, and at which borrow level."""

UNBOUND = Assignment(Mode.FIT, 0, {}, {})
"""What a gang without queue is assigned."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What could be done for a gang now."""

    counts: Mapping[str, int]
    assignment: Assignment
    fence: Reason | None = None
    """Set when the quota has room and a fence has none."""

    @property
    def fits(self) -> bool:
        """It may start now."""
        return self.assignment.mode is Mode.FIT and self.fence is None


def judge_of(usage: Usage, node: Node, oracle: Oracle | None = None, preempts_while_borrowing: bool = False) -> Judge:
    """Return how amounts can be had at ``node`` under ``usage``; without an oracle nobody is preempted."""

    def judge(key: FlavorResource, amount: int) -> Verdict:
        if amount > node.potential(key):
            return Verdict(Mode.NO_FIT, 0, Code.EXCEEDS_MAX_QUOTA)
        level, may_reclaim = usage.borrow_level(node, key, amount)
        if amount <= max(0, usage.available(node, key)):
            return Verdict(Mode.FIT, level)
        if node.nominal(key) >= amount or may_reclaim or preempts_while_borrowing:
            mode, level = (Mode.NO_CANDIDATES, level) if oracle is None else oracle(key, amount)
            return Verdict(mode, level, Code.WAITING_FOR_QUOTA)
        return Verdict(Mode.NO_FIT, level, Code.WAITING_FOR_QUOTA)

    return judge


def decide(
    gang: Gang, request: Request, queue: Queue | None, judge: Judge | None, fences: Fences, *, skip: int = 0
) -> Decision:
    """Return what could be done for ``gang``: whole if possible, else as large as fits, else what is in the way."""

    def at(counts: Mapping[str, int]) -> Decision:
        assignment = UNBOUND
        if judge is not None:
            fungibility = Fungibility() if queue is None else queue.fungibility
            assignment = assign(request, counts, fungibility, judge, skip)
        fence = fences.shortfall(gang, counts) if assignment.mode is Mode.FIT else None
        return Decision(counts, assignment, fence)

    whole = at(gang.counts)
    if whole.fits:
        return whole
    return largest(gang.counts, gang.least_counts, at) or whole


def largest(
    most: Mapping[str, int], least: Mapping[str, int], at: Callable[[Mapping[str, int]], Decision]
) -> Decision | None:
    """Return the decision for the largest size below ``most`` that fits, or None.

    Sizes shrink proportionally over the pod sets, in as many steps as pods may be missing, and are searched by
    bisection, as Kueue does.
    """
    spare = {name: most[name] - least[name] for name in most}
    steps = sum(spare.values())
    if steps == 0:
        return None
    low, high, found = 1, steps, None
    while low <= high:
        middle = (low + high) // 2
        decision = at({name: most[name] - spare[name] * middle // steps for name in most})
        if decision.fits:
            found, high = decision, middle - 1
        else:
            low = middle + 1
    return found
