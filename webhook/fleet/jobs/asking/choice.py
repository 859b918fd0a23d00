"""Which member one gang is offered to next: one where something has just ended, else one that has not said no yet.

A member is asked by an offer, and its own Tutti says with numbers why the copy waits there. A member that said no, or
had the gang and did not run it, is passed over at once while others have not been asked. Members are first asked for
room as it is. When all have said no, one is asked again, for room at the cost of others too, and the gang stays there a
while, in that member's queue. This is the member whose queue has booked the earliest start for the gang, if one has,
otherwise the last. When each was asked so, the gang stays where it starts first, until that start was due.

Where its policy has groups of members, those of the first are asked before those of the next, in either way. Nobody is
stopped in the first group while there is room as it is in the second.

A gang that was told no goes only to a member that has not said no in this round, so one round has no more offers than
there are members, and one for room at the cost of others. Only room that frees adds one. Nobody waits for a member that
does not answer, or that was found unfit when its turn came. Pure; what it remembers may be lost at any time.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from typing import Final, NamedTuple

from webhook.fleet.jobs.asking.pauses import Pauses
from webhook.fleet.members.told import HUB, Waits

OFFER_SECONDS: Final = 15.0
"""A member that has not reserved by then is given up for the next one."""
STAYS_SECONDS: Final = 300.0
"""At most, where its start is booked: then the others may have booked an earlier one."""
TOLD_SECONDS: Final = 1.0
"""After which a member is asked why a copy waits: its Tutti puts that into words once a second."""
LOOKED_AT_SECONDS: Final = 5.0
"""So long after an offer its member is looked at again and again."""
WAITS_SECONDS: Final = OFFER_SECONDS + 5.0
"""After which its record says why it still waits where it was offered: one that moves on says it of itself."""
TOLD_MAX: Final = 10
"""Members that a record names with why the gang is not there."""


class Target(NamedTuple):
    """Where to offer a gang."""

    member: str
    cluster: str
    empty: bool
    """It has nothing of the gang's name."""


class Choice:
    """What one gang has heard from the members."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        """Why it was not placed in a member when it was last asked."""
        self._starts: dict[str, float] = {}
        """Unix time of the start that a member has booked for it, by its last word."""
        self.never: set[str] = set()
        """Members in which it cannot start whatever ends, by their last word."""
        self._now = 0.0
        """Unix time at which a member was last heard."""
        self._pressed: set[str] = set()
        """Members that were asked for room at the cost of others and had none in time."""
        self._asked: set[str] = set()
        """Members that have said no in this round."""
        self._unfit: set[str] = set()
        """Members that were found in this round to answer, and not to be able to have it."""
        self.ranks: Mapping[str, int] = {}
        """By member, after how many groups of others it is asked, where the gang's policy has several."""
        self._free: str = ""
        """The member in which something has ended since it was last asked."""
        self.pauses = Pauses()
        self.stops_others = False
        """All have said no to it as things are: the next offer is for room at the cost of others too."""

    def freed(self, member: str) -> None:
        """Note that something has ended in a member."""
        self._free = member
        for noted in (self._asked, self._pressed, self._unfit):
            noted.discard(member)
        self.stops_others = False

    @property
    def freed_in(self) -> str:
        """The member to ask first, for something has ended there; empty where there is none."""
        return self._free

    def moves(self, current: str, members: Collection[str]) -> bool:
        """Return whether there is no need to hear ``current`` again: it has said no, and something ended elsewhere."""
        return self._free != current and self._free in members and current in self._asked

    def unfit(self, member: str) -> None:
        """Note that a member answers and cannot have the gang, as was found when its turn came."""
        self._unfit.add(member)
        if self._free == member:
            self._free = ""

    def offered(self) -> None:
        """Note that it goes to another member: that something has ended was a reason for one move only."""
        self._free = ""

    def hears(self, member: str, told: Waits, now: float) -> None:
        """Take in a member's word on why the gang waits there, if it has said any, and on when it will start."""
        self._now = now
        if told.why:
            self.failed_by(member, f"says {told.why}")
            if told.never:
                self.never.add(member)
            if told.starts_at is not None:
                self._starts[member] = told.starts_at

    def failed_by(self, member: str, why: str) -> None:
        """Note why a member does not run the gang, in words that follow its name: the others are asked before it."""
        self._said[member] = why
        self._asked.add(member)
        self._starts.pop(member, None)
        self.never.discard(member)

    def gives_up(
        self,
        current: str,
        age_seconds: float,
        why: str,
        members: Collection[str],
        *,
        stopped_nobody: bool = False,
        contested: bool = False,
    ) -> bool:
        """Return whether an offer is given up that its member has not reserved for.

        ``why`` is the member's word on it, if it has said any; ``members`` are those that answer; ``stopped_nobody``:
        it was for room as it is. ``contested``: another process moves the gang away, so nobody is stopped for it.
        """
        answering, members = set(members), set(members) - self._unfit
        if self._free == current or self._free not in members:
            # Room in a member that it may not run in is none of its business, whatever its policy said before.
            self._free = ""
        if age_seconds >= OFFER_SECONDS:
            if not stopped_nobody:
                self._pressed.add(current)
            if first := self._pressed.issuperset(members) and self._first(current, members) == current:
                due = self._starts.get(current, 0.0) + OFFER_SECONDS
                if self._now < due and age_seconds < STAYS_SECONDS:
                    return bool(self._free)
            self._said.setdefault(current, f"reserved no room within {OFFER_SECONDS:.0f} s and gave no reason")
            # Another round begins after it.
            self._asked, self._unfit = {current}, set()
            # Where nobody else answers no other round would come, and it would never stop anybody.
            self.stops_others = stopped_nobody and not contested and answering <= self._asked
            if first:
                self._pressed = set()
            return True
        all_asked = self._asked.issuperset(members)
        self.stops_others = all_asked and not self._free and not contested
        return bool(why) and (bool(self._free) or not all_asked or stopped_nobody)

    def in_turn(self, current: str, members: Iterable[str], *, told_no: bool = False) -> list[str]:
        """Return the members to ask, the best first.

        ``told_no``: ``current`` has said no, so those who have said it too are left out; else ``current`` is lost or
        there is none, and anybody will do.
        """
        turn = sorted(members)
        self.stops_others &= told_no
        if self.stops_others and (fit := [name for name in turn if name not in self._unfit]):
            return [self._first(current, fit)]
        if current in turn:
            at = turn.index(current)
            turn = turn[at + 1 :] + turn[:at]
        if told_no:
            turn = [name for name in turn if name not in self._asked]

        def order(name: str) -> tuple[bool, int, bool]:
            return name in self._asked and name != self._free, self._rank(name), name != self._free

        return sorted(turn, key=order)

    def _first(self, current: str, members: Iterable[str]) -> str:
        """Return the member to ask for room at the cost of others; of those that were not asked so yet, if any.

        Of these the preferred group is asked first. When all were, the gang stays where it starts first.
        """
        all_of_them = list(members)
        left = [name for name in all_of_them if name not in self._pressed]
        best = min(map(self._rank, left), default=0)
        left = [name for name in left if self._rank(name) == best] or all_of_them
        # What the user wants may have changed since ``current`` was asked, so that it is none of them.
        otherwise = current if current in left or not left else left[0]
        return min(((self._starts[name], name) for name in left if name in self._starts), default=(0, otherwise))[1]

    def _rank(self, member: str) -> int:
        return self.ranks.get(member, 0)

    def word(self, member: str, refusals: dict[str, str]) -> str:
        """Return why it still waits in the member that was asked: ``refusals`` found now, else what the member said."""
        return refusals.get(member) or self._said.get(member, "")

    def told(self, refusals: Mapping[str, str], members: Container[str], besides: str = "") -> tuple[str, ...]:
        """Return why it is not in this member or that, ``besides`` one: ``refusals`` found now, else what each said."""
        known = {name: why for name, why in self._said.items() if name in members} | dict(refusals)
        known.pop(besides, None)
        # What holds for the hub itself comes first, for it keeps the gang from all of them.
        words = tuple(f"{name} {why}" for name, why in sorted(known.items(), key=lambda each: (each[0] != HUB, each)))
        more = (f"{len(words) - TOLD_MAX} more",) if len(words) > TOLD_MAX else ()
        return words[:TOLD_MAX] + more
