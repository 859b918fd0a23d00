"""Where hubs die: which write of which gang it is, over a link in which state, and which crash is lain in wait for.

A crash counts once, for the gang whose write it is: of its job in the hub, or of its copy in the member that its record
names; a gang that has ended and is nowhere is none any more. It counts by the phase of the gang and by the state of the
link to its member, both as they are when the write is sent. The member of a gang that is nowhere is the one that the
write offers it to; where the write offers it to nobody, it is the link that the write goes over.

So there is no cell that cannot be hit: whatever the link to its member does, each phase ends with a write of the record
over the link to the hub, and that may be sent, and stored, just after the other link has failed.

What a job refers to is written for its copy, once its grant is stored: a crash there counts like one at its permit, and
is told apart besides.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from tests.simulation.fleet.links import Fault, Link, Moment, Write
from tests.simulation.fleet.rules import STORAGES, Rules
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.text import decode
from webhook.core.notation import names

HUB_LINK: Final = "hub"
BEFORE, AFTER, FAILED, IDLE = "crash before", "crash after", "crash failed", "crash idle"
"""Before the write is sent; after it was stored; as its sender is told that it failed; while nothing is written."""
WHAT: Final = (BEFORE, AFTER, FAILED, IDLE)
BOUNDED: Final = (BEFORE, AFTER)
"""Each of these is to be hit often in each phase, over a link in each state."""
MOMENTS: Final[Mapping[str, Moment]] = {BEFORE: "before", AFTER: "stored"}
STRUCK: Final = {
    DispatchPhase.NOWHERE: 1.0,
    DispatchPhase.OFFERED: 0.35,
    DispatchPhase.GRANTED: 0.45,
    DispatchPhase.RECALLED: 1.0,
}
"""How likely the hub dies at a write in each phase: no gang would come as far as the later ones if all were hit in the
first.
"""
STRUCK_AT_A_COPY: Final = STRUCK | {DispatchPhase.OFFERED: 0.03}
"""The same at a write in a member: copies are made again and again."""
STRUCK_WHILE_BRINGING: Final = 1.0
"""The same at a write of what a job refers to: few jobs refer to anything that is not there yet."""
EARLY: Final = 0.08
"""How often the link fails before the hub comes to the write, which it then may never do."""
STORES_LITTLE: Final = (Fault.REFUSE, Fault.BLACK_HOLE, Fault.DENIED, Fault.HANGS)
"""Over such a link a write is seldom stored: no crash after one is waited for there."""
_JOB: Final = re.compile(r"/namespaces/[^/]+/((?:pytorch)?jobs|sparkapplications)(?:/([^/]+))?(?:/status)?$")
_BROUGHT: Final = re.compile(r"/namespaces/[^/]+/(?:configmaps|secrets|serviceaccounts)(?:/[^/]+)?$")
_KINDS: Final = {plural: kind for kind, (_, plural) in STORAGES.items()}

Counts = Counter[tuple[DispatchPhase, Fault, str]]
"""(phase of a gang, state of the link to its member, what happened there)."""


Cut = Callable[[str, Fault], None]
"""Has a link be in a state."""


class Linked(Protocol):
    """A hub process."""

    @property
    def links(self) -> Mapping[str, Link]: ...


@dataclass(frozen=True)
class Place:
    """What a write is of."""

    gang: str
    phase: DispatchPhase
    """Before it."""
    link: str
    """To the member of the gang."""
    brings: bool = False
    """It is of what the job refers to."""


@dataclass(eq=False)
class Aim:
    """A crash that is lain in wait for."""

    fault: Fault
    what: str
    gang: str = ""
    """Whose writes alone are meant, because the link to its member has been made to fail; otherwise whoever is next."""
    link: str = ""
    """That was made to fail."""
    write: Write | None = None
    """After which the hub is to die, if it is stored."""

    def means(self, write: Write, place: Place, links: Mapping[str, Link]) -> bool:
        """Return whether the hub may die so at this write, once the link to the member of its gang has failed."""
        if place.link == HUB_LINK or (self.gang and self.gang != place.gang):
            return False
        if links[place.link].cut not in (None, self.fault):
            return False
        return self.what == BEFORE or write.link == HUB_LINK or self.fault not in STORES_LITTLE


class Crashes:
    """Counts the crashes of one story, and aims those that chance alone would hit too rarely."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(f"crashes {seed}")
        """Its own: what else happens in the story does not hang on it."""
        self.counts: Counts = Counter()
        self.brought: Counter[str] = Counter()
        """What happened at writes of what jobs refer to: these are among the others."""
        self.total = 0
        self.aim: Aim | None = None
        self._under_way: dict[Write, tuple[Place | None, Fault]] = {}
        self._stored: set[Write] = set()

    def draw(self) -> Aim:
        """Return the crash to lie in wait for next."""
        return Aim(self.dice.choice(list(Fault)), self.dice.choice(BOUNDED))

    def aimed(self, write: Write, moment: Moment, hub: Linked, rules: Rules, cut: Cut) -> bool:
        """Take in a moment of a write; return whether the hub dies there because that was lain in wait for."""
        if moment == "before":
            place = place_of(write, rules)
            if place is not None:
                self._take_aim(write, place, hub, cut)
            self._under_way[write] = place, Fault.PASS if place is None else hub.links[place.link].fault
        elif moment == "stored":
            self._stored.add(write)
        aim = self.aim
        if aim is None or aim.write is not write or moment != MOMENTS[aim.what]:
            return False
        self.aim = None
        self.died(write, moment)
        return True

    def _take_aim(self, write: Write, place: Place, hub: Linked, cut: Cut) -> None:
        """Have the link fail as aimed, if the hub may die at this write."""
        aim = self.aim
        if aim is None or aim.write in self._under_way or not aim.means(write, place, hub.links):
            return
        struck = STRUCK if write.link == HUB_LINK else STRUCK_AT_A_COPY
        if self.dice.random() < (STRUCK_WHILE_BRINGING if place.brings else struck[place.phase]):
            if aim.link:
                # Where the one before was not stored, it may have been of a gang in another member.
                cut(aim.link, Fault.PASS)
            cut(place.link, aim.fault)
            aim.link, aim.write = place.link, write

    def died(self, write: Write, moment: Moment) -> None:
        """Count a crash at a moment of a write."""
        self.total += 1
        place, fault = self._under_way[write]
        if place is not None:
            what = BEFORE if moment == "before" else AFTER if write in self._stored else FAILED
            self.counts[place.phase, fault, what] += 1
            self.brought[what] += place.brings

    def died_idle(self, phase: DispatchPhase, fault: Fault) -> None:
        """Count a crash while nothing is written, but something is expected."""
        self.total += 1
        self.counts[phase, fault, IDLE] += 1

    def over(self, write: Write) -> None:
        """Forget a write."""
        self._under_way.pop(write, None)
        self._stored.discard(write)


def place_of(write: Write, rules: Rules) -> Place | None:
    """Return what a write is of; None for one of no gang, such as of an Event, or of a copy that no record names."""
    found = _JOB.search(write.path)
    if found is None:
        return _brought_for(write, rules)
    plural, name = found.groups()
    gang = rules.gang(_KINDS[plural], name or str(json.loads(write.body)["metadata"]["name"]))
    if gang is None:
        return None
    uid, record = gang
    if record.phase is DispatchPhase.NOWHERE:
        return Place(uid, record.phase, _offered_to(write) or write.link)
    return Place(uid, record.phase, record.member) if write.link in (HUB_LINK, record.member) else None


def _brought_for(write: Write, rules: Rules) -> Place | None:
    """Return what a write is of that has an object of a member belong to a copy; None for any other."""
    if write.link == HUB_LINK or _BROUGHT.search(write.path) is None:
        return None
    for uid, record in rules.records().items():
        granted = record.phase is DispatchPhase.GRANTED and record.member == write.link
        if granted and record.copy_uid.encode() in write.body:
            return Place(uid, record.phase, record.member, brings=True)
    return None


def _offered_to(write: Write) -> str:
    """Return the member that a write of a gang's record names; nothing where it is no such write."""
    if write.link != HUB_LINK or write.method != "PATCH":
        return ""
    for change in json.loads(write.body):
        noted = change["value"].get(names.DISPATCH) if change["path"] == "/metadata/annotations" else None
        record = Dispatch() if noted is None else decode(noted)
        if record.phase is not DispatchPhase.NOWHERE:
            return record.member
    return ""
