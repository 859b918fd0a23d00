"""Backfill: who may go before the blocked head of a queue without delaying it.

The head's earliest start is found by letting admitted gangs end one after the other at their run-time limits until the
head fits, borrowing included. A later gang of the queue may pass if its own limit has it end by then, or if both fit at
that moment side by side. Gangs without a limit never pass, and nobody passes a head whose start depends on gangs
without one, unless they ask for nothing that the head asks for.

Gangs of other queues could take what the head is to borrow. None of them may start if that delays the head of any
Backfill queue of the tree, unless it *intervenes*, which is to say one of these:

- It has a higher priority than that head.
- It goes first in its own queue, whatever the strategy there, and has the head's priority and an earlier time, or the
  same time and a smaller uid. A gang that passes another one of its own queue has no such right, however old it is.
- It *reclaims*: all that it takes of what the head asks for is owned by its own side of the tree, below the lowest
  cohort that it shares with the head. Who takes what it owns never waits for a borrower; so a head that stays within
  what its own side owns is delayed by no owner. The quota that a blocked head keeps for itself counts as taken.

A gang that grows to full size intervenes as an owner only. A head that has room stands back behind an older head of
another queue as anybody does, and starts once it no longer delays that one.

So what a head has been promised, the earliest start that it had once it was the head, only ever moves earlier while
limits are enforced, nobody intervenes and no policy changes; and nobody starves. It holds for heads that wait for
quota: one that a fence holds up holds up nobody, and takes what is left when the fence gives. Under fair sharing shares
decide between queues, and a head is protected in its own queue only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from webhook.core.decision import Decision
from webhook.core.earliest_start import Start, earliest_start, fits
from webhook.core.fences import Fences
from webhook.core.holdings import Holding, Holdings
from webhook.core.policy import FlavorResource
from webhook.core.queueing import Lane, Line
from webhook.core.quota_tree import AmountsByFlavor, Node, Usage
from webhook.core.reasons import Code, Reason


@dataclass(slots=True)
class Backfill:
    """The heads of all Backfill queues, and what each has been promised."""

    holdings: Holdings
    lanes_of: Callable[[Node], Iterable[Lane]]
    """The Backfill queues of the tree with that root."""
    across_queues: bool
    """Heads are protected from other queues too."""
    _starts: dict[str | None, tuple[object, Start | None]] = field(default_factory=dict)
    """By queue: the start computed last, and for what."""

    def refusal(self, line: Line, decision: Decision, fences: Fences, now: float) -> Reason | None:
        """Return why the head of ``line``, which could start as decided, has to wait for another head; None if not."""
        node = line.lane.node
        if node is None:
            return None
        if line.lane.backfills:
            head = line.lane.head()
            if head is not None and head is not line and head.order_key <= line.order_key:
                why = self._may_not_pass(line, decision, head, fences, now)
                if why is not None:
                    return why
        # Nobody knows when who has to wait for victims starts, and so when that one ends.
        end = None if decision.preempts else _ends_at(line.head.max_run_seconds, now)
        victims = [victim.holding for victim in decision.victims]
        for head in self._heads_elsewhere(node, fences):
            if _goes_before(line, head):
                continue
            start = self._delayed(head, node, decision.assignment.usage, end=end, victims=victims, now=now)
            if start is not None:
                return _behind(head, f"would delay {{}}, head of queue {head.lane.name}", _in(start, now))
        return None

    def lets_grow(self, holding: Holding, extra: AmountsByFlavor, fences: Fences, now: float) -> bool:
        """Return whether an admitted gang can take ``extra`` without delaying a head."""
        node = self.holdings.node_of(holding)
        if node is None:
            return True
        own = next((lane.head() for lane in self.lanes_of(node.root) if lane.node is node), None)
        if own is not None and own.request.keys & extra.keys() and self.start(own, now) is None:
            return False
        heads = [*self._heads_elsewhere(node, fences), *([] if own is None else [own])]
        return all(self._delayed(head, node, extra, end=holding.end_seconds, now=now) is None for head in heads)

    def start(self, head: Line, now: float) -> Start | None:
        """Return when the head of a queue fits at the latest, if nobody else starts; None when that depends on gangs
        without a run-time limit.
        """
        lifted = self.holdings.lifted
        of = (self.holdings.version, None if lifted is None else lifted[0], head.head.uid, now)
        known = self._starts.get(head.lane.name)
        if known is None or known[0] != of:
            known = self._starts[head.lane.name] = (of, earliest_start(self.holdings, head, now))
        return known[1]

    def _may_not_pass(self, line: Line, decision: Decision, head: Line, fences: Fences, now: float) -> Reason | None:
        """Return why ``line`` may not pass the head of its own queue."""
        node, space = line.lane.node, line.sample.namespace
        assert node is not None
        fenced = space == head.sample.namespace and bool(fences.fences(space))
        if decision.preempts:
            return _behind(head, "would pass {}", "only the head may have others stopped")
        if line.head.max_run_seconds is None:
            return _behind(head, "would pass {}", "a gang without a run-time limit may not pass it")
        start, end = self.start(head, now), now + line.head.max_run_seconds
        if start is None:
            if not fenced and not head.request.keys & decision.assignment.usage.keys():
                return None
            return _behind(head, "would pass {}", "whose start depends on gangs without a run-time limit")
        beside = not fenced and self._fits_beside(head, start, node, decision.assignment.usage)
        return None if end <= start.at_seconds or beside else _behind(head, "would pass {}", _in(start, now))

    def _heads_elsewhere(self, node: Node, fences: Fences) -> Iterable[Line]:
        """Yield the heads of the other Backfill queues of the tree that wait for quota and nothing else."""
        for lane in self.lanes_of(node.root) if self.across_queues else ():
            head = None if lane.node is node or lane.closed is not None else lane.head()
            if head is not None and fences.shortfall(head.head, head.head.least_counts) is None:
                yield head

    def _delayed(
        self,
        head: Line,
        node: Node,
        amounts: AmountsByFlavor,
        *,
        end: float | None,
        victims: Iterable[Holding] = (),
        now: float,
    ) -> Start | None:
        """Return the start of ``head`` if ``amounts`` taken by queue ``node`` until ``end`` would move it later."""
        asked = head.request.keys & {key for key, amount in amounts.items() if amount}
        assert head.lane.node is not None
        if not asked or (head.lane.node is not node and self._owns(node, head.lane.node, amounts, asked)):
            return None
        start = self.start(head, now)
        if start is None or (end is not None and end <= start.at_seconds):
            return None
        gone = [v for v in victims if v.uid not in self.holdings.stopping and not _ended(v, start.at_seconds)]
        return None if self._fits_beside(head, start, node, amounts, gone) else start

    def _owns(self, node: Node, other: Node, amounts: AmountsByFlavor, keys: Iterable[FlavorResource]) -> bool:
        """Return whether all that queue ``node`` would take of ``keys`` is owned by its side of the lowest cohort that
        it shares with queue ``other``.
        """
        usage, above = self.holdings.outlook, set(map(id, other.path()))
        side = node
        while side.parent is not None and id(side.parent) not in above:
            side = side.parent
        usage.add(node, amounts)
        owns = all(usage.of(side, key) <= side.subtree.get(key, 0) for key in keys)
        usage.remove(node, amounts)
        return owns

    def _fits_beside(
        self, head: Line, start: Start, node: Node, amounts: AmountsByFlavor, gone: Sequence[Holding] = ()
    ) -> bool:
        view = start.usage.copy() if gone else start.usage
        for holding in gone:
            _take_out(self.holdings, view, holding)
        view.add(node, amounts)
        beside = fits(head, view)
        view.remove(node, amounts)
        return beside


def _goes_before(line: Line, head: Line) -> bool:
    """Return whether a line may start though that delays the head of another queue, whoever owns what it takes."""
    mine, theirs = line.sample.priority, head.sample.priority
    return mine > theirs or (mine == theirs and line.order_key[1:] < head.order_key[1:] and line.lane.leads(line))


def _take_out(holdings: Holdings, view: Usage, holding: Holding) -> None:
    queue = holdings.node_of(holding)
    if queue is not None:
        view.remove(queue, holding.amounts)


def _ends_at(limit_seconds: int | None, since_seconds: float) -> float | None:
    return None if limit_seconds is None else since_seconds + limit_seconds


def _ended(holding: Holding, at_seconds: float) -> bool:
    end = holding.end_seconds
    return end is not None and end <= at_seconds


def _in(start: Start, now: float) -> str:
    return f"which may start in {max(0, start.at_seconds - now):.0f} s, before this gang's limit has it end"


def _behind(head: Line, what: str, why: str) -> Reason:
    name = f"{head.head.namespace}/{head.head.name}"
    return Reason(
        Code.BEHIND_HEAD, f"{what.format(name)}: {why}", help="it starts after the head or in a gap before it"
    )
