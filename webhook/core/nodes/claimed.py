"""Room on nodes that is kept for gangs whose victims are still there.

On each node that is what is claimed there, less what the victims hold. As they leave, it is kept free for the gang that
claims it, and nobody else starts in it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.core.nodes.allotment import Allotment
from webhook.core.notation.amounts import Amounts

_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class Claimed:
    """What one gang is to have on nodes."""

    allotment: Allotment
    awaits: set[str]
    """Uids of the gangs that leave it room."""
    booked: bool = False
    """Whether nobody was stopped for it, so that those that it awaits may run for long."""


@dataclass(slots=True)
class Weighed:
    """What is claimed on each node, against what those leave there who are awaited."""

    awaited: Counter[str] = field(default_factory=Counter)
    """Uid of a gang that leaves to the claims that count on it."""
    _claimed: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node to amounts."""
    _leaving: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node to what the gangs that are awaited hold there."""

    def put(self, claimed: Claimed) -> list[str]:
        """Add a claim; return the gangs that nobody awaited before."""
        new = [gang for gang in sorted(claimed.awaits) if not self.awaited[gang]]
        self.awaited.update(claimed.awaits)
        self._note(claimed, 1)
        return new

    def drop(self, claimed: Claimed) -> list[str]:
        """Forget a claim; return the gangs that nobody awaits any more."""
        self.awaited.subtract(claimed.awaits)
        old = [gang for gang in sorted(claimed.awaits) if not self.awaited[gang]]
        for gang in old:
            del self.awaited[gang]
        self._note(claimed, -1)
        return old

    def leaves(self, node: str, amounts: Amounts, count: int) -> None:
        """Take note that gangs that are awaited hold so much more on a node; less where ``count`` is negative."""
        _add(self._leaving, node, amounts, count)

    def kept(self, node: str, gone: Amounts) -> dict[str, int]:
        """Return what is claimed on a node beyond what is about to leave it, but for what is ``gone`` of that."""
        leaving = self._leaving.get(node, _NOTHING)
        claimed = self._claimed.get(node, _NOTHING)
        return {name: amount - leaving.get(name, 0) + gone.get(name, 0) for name, amount in claimed.items()}

    def enough(self, node: str, spare: Mapping[str, int]) -> bool:
        """Return whether all that is claimed on a node fits there once who leaves is gone; ``spare`` is there now."""
        return all(amount <= spare.get(name, 0) for name, amount in self.kept(node, _NOTHING).items())

    def copy(self) -> "Weighed":
        """Return an independent copy."""
        claimed, leaving = (
            {node: dict(amounts) for node, amounts in each.items()} for each in (self._claimed, self._leaving)
        )
        return Weighed(Counter(self.awaited), claimed, leaving)

    def _note(self, claimed: Claimed, sign: int) -> None:
        for name, places in claimed.allotment.places.items():
            requests = dict(claimed.allotment.shapes[name].requests)
            for node, count in places.items():
                _add(self._claimed, node, requests, sign * count)


@dataclass(slots=True)
class Gone:
    """What those hold that are awaited and are taken for gone, by node."""

    firm: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of those that claims await."""
    whole: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of those that claims or bookings do."""


_NOBODY: Final = Gone()


@dataclass(slots=True)
class ClaimedRoom:
    """All that is claimed.

    Claims count on those alone that one of them awaits: a gang that only a booking awaits runs on for as long as it
    likes, and the booking may await another tomorrow. A booking comes after all claims, and counts on everybody.
    """

    claims: dict[str, Claimed] = field(default_factory=dict)
    """By uid of the gang that claims."""
    firm: Weighed = field(default_factory=Weighed)
    """Claims alone."""
    whole: Weighed = field(default_factory=Weighed)
    """Claims and bookings."""

    def put(self, uid: str, claimed: Claimed) -> dict[str, list[Weighed]]:
        """Add a claim; return the gangs that nobody awaited before, and where."""
        assert uid not in self.claims
        self.claims[uid] = claimed
        return _by_gang((each, each.put(claimed)) for each in self._sides(claimed))

    def drop(self, uid: str) -> dict[str, list[Weighed]]:
        """Forget a claim; return the gangs that nobody awaits any more, and where."""
        claimed = self.claims.pop(uid)
        return _by_gang((each, each.drop(claimed)) for each in self._sides(claimed))

    def has_left(self, gang: str) -> dict[str, list[Weighed]]:
        """Stop awaiting a gang: what it holds from now on it keeps. Return where it was awaited."""
        for claimed in self.claims.values():
            claimed.awaits.discard(gang)
        return {gang: [each for each in (self.firm, self.whole) if each.awaited.pop(gang, 0)]}

    def leaves(self, gang: str, node: str, amounts: Amounts, count: int) -> None:
        """Take note that a gang that is awaited holds so much more on a node; less where ``count`` is negative."""
        for each in (self.firm, self.whole):
            if gang in each.awaited:
                each.leaves(node, amounts, count)

    def withheld(self, node: str, gone: Gone = _NOBODY) -> dict[str, int]:
        """Return what is kept on a node beside what is about to leave it, and beside what is ``gone`` of that."""
        kept = self.whole.kept(node, gone.whole.get(node, _NOTHING))
        first = self.firm.kept(node, gone.firm.get(node, _NOTHING))
        most = {name: max(amount, first.get(name, 0)) for name, amount in kept.items()}
        return {name: amount for name, amount in most.items() if amount > 0}

    def count_gone(self, gang: str, held: Mapping[str, Amounts], gone: Gone, count: int) -> None:
        """Take note in ``gone`` that a gang is that holds so much; that it is back where ``count`` is negative."""
        for side, of in ((self.firm, gone.firm), (self.whole, gone.whole)):
            for node, amounts in held.items() if gang in side.awaited else ():
                _add(of, node, amounts, count)

    def enough(self, claimed: Claimed, node: str, spare: Mapping[str, int]) -> bool:
        """Return whether what is claimed on a node fits there once who leaves is gone, where so much is spare now; of a
        booking together with all claims.
        """
        return (self.whole if claimed.booked else self.firm).enough(node, spare)

    def copy(self) -> "ClaimedRoom":
        """Return an independent copy."""
        claims = {uid: replace(each, awaits=set(each.awaits)) for uid, each in self.claims.items()}
        return ClaimedRoom(claims, self.firm.copy(), self.whole.copy())

    def _sides(self, claimed: Claimed) -> tuple[Weighed, ...]:
        return (self.whole,) if claimed.booked else (self.firm, self.whole)


def _by_gang(found: Iterable[tuple[Weighed, list[str]]]) -> dict[str, list[Weighed]]:
    sides: dict[str, list[Weighed]] = {}
    for side, gangs in found:
        for gang in gangs:
            sides.setdefault(gang, []).append(side)
    return sides


def _add(to: dict[str, dict[str, int]], node: str, amounts: Amounts, count: int) -> None:
    sums = to.setdefault(node, {})
    for name, amount in amounts.items():
        now = sums.get(name, 0) + count * amount
        if now:
            sums[name] = now
        else:
            sums.pop(name, None)
    if not sums:
        del to[node]
