"""When the head of a queue can start at the latest: gangs end one by one at their run-time limits until it fits.

Gangs without a limit are not counted on, and those being stopped are as good as gone.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from webhook.core.flavors import Judge, Mode, Verdict, assign
from webhook.core.holdings import Holding, Holdings
from webhook.core.policy import FlavorResource
from webhook.core.queueing import Line, head_of
from webhook.core.quota_tree import Usage
from webhook.core.reasons import Code


@dataclass(frozen=True, slots=True)
class Start:
    """The earliest start of a head, if nobody else starts."""

    at_seconds: float
    """Unix time."""
    usage: Usage
    """What is taken then."""


def earliest_start(holdings: Holdings, head: Line, now: float) -> Start | None:
    """Return when the head of a line fits at the latest, if nobody else starts, and usage at that time.

    None when that depends on gangs without a run-time limit. What the head itself holds back is not in its own way.
    """
    node = head.lane.node
    if node is None:
        return None
    own = holdings.promises.get(head_of(head.lane))
    view = holdings.outlook.copy_of(node.root)
    if own is not None:
        view.remove(*own)
    future = _Future(holdings, head, view, holdings.ending(node.root))
    ended = future.first_fit()
    if ended is None:
        return None
    at = max(now, future.end_of(ended)) if ended else now
    while ended < len(future.going) and future.end_of(ended + 1) <= at:
        ended += 1
    future.let_end(ended)
    return Start(at, view)


@dataclass(slots=True)
class _Future:
    """Usage of a tree while its gangs end one after the other, seen by a head that waits there."""

    holdings: Holdings
    head: Line
    view: Usage
    going: Sequence[Holding]
    """In the order of their ends."""
    ended: int = 0
    """How many of them the view leaves out."""

    def end_of(self, number: int) -> float:
        """Return when the gang ``number``, counted from 1, ends."""
        end = self.going[number - 1].end_seconds
        assert end is not None
        return end

    def first_fit(self) -> int | None:
        """Return after how many ends the head fits; None if it does not when all that can be known to end have.

        The more have ended the more fits: so ever larger steps first, then half of the last one again and again.
        """
        if self._fits_after(0):
            return 0
        low, high, most = 0, 1, len(self.going)
        while high < most and not self._fits_after(high):
            low, high = high, 2 * high
        if high >= most:
            high = most
            if low == most or not self._fits_after(most):
                return None
        return low + 1 + bisect_left(range(low + 1, high), True, key=self._fits_after)

    def let_end(self, number: int) -> None:
        """Let the view be that after ``number`` ends."""
        for holding in self.going[self.ended : number]:
            node = self.holdings.node_of(holding)
            assert node is not None
            self.view.remove(node, holding.amounts)
        for holding in self.going[number : self.ended]:
            node = self.holdings.node_of(holding)
            assert node is not None
            self.view.add(node, holding.amounts)
        self.ended = number

    def _fits_after(self, number: int) -> bool:
        self.let_end(number)
        return fits(self.head, self.view)


def fits(head: Line, view: Usage) -> bool:
    """Return whether the smallest start of a head fits ``view``."""
    queue, node = head.lane.queue, head.lane.node
    assert queue is not None
    assert node is not None
    if head.smallest is not None:
        return view.fits(node, head.smallest)

    def judge(key: FlavorResource, amount: int) -> Verdict:
        room = amount <= max(0, view.available(node, key))
        return Verdict(Mode.FIT if room else Mode.NO_FIT, 0, None if room else Code.WAITING_FOR_QUOTA)

    return assign(head.request, head.head.least_counts, queue.fungibility, Judge(judge)).mode is Mode.FIT
