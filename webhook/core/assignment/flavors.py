"""Which flavor each resource of a gang is taken from.

Follows Kueue's flavor assigner. Pod sets are decided in order; all resources of one resource group get the same flavor;
flavors are tried in the queue's order. One that the pods cannot run on (``misfits``) or that can never hold them is out
of the question. Otherwise it is as good as its worst resource (``Mode``), and the queue's fungibility says whether to
stop or look on.

``request`` has what does not depend on usage; ``assign`` does the rest and is called for each decision.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from webhook.core.assignment.request import Choice, Option, Request
from webhook.core.model.frozen import frozen
from webhook.core.model.policy import Fungibility, Preference, SearchPolicy
from webhook.core.notation.amounts import FlavorResource
from webhook.core.reasons.reasons import Code


class Mode(IntEnum):
    """How a gang could get a flavor, worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Preemption is allowed and finds nobody to stop."""
    PREEMPT = 2
    """By stopping gangs of its own queue."""
    RECLAIM = 3
    """By stopping gangs of other queues only."""
    FIT = 4


class Block(NamedTuple):
    """One thing in the way: this much of this key does not fit, or no flavor matches."""

    code: Code
    key: FlavorResource
    asked: int
    message: str = ""


class Verdict(NamedTuple):
    """How one amount of one key could be had."""

    mode: Mode
    level: int
    code: Code | None = None


@frozen
class Assignment:
    """The flavors chosen for a gang at given counts."""

    mode: Mode
    level: int
    """Borrow level, the highest over all resources."""
    flavors: Mapping[str, Mapping[str, str]]
    """Pod set to resource to flavor."""
    usage: Mapping[FlavorResource, int]
    """Where the mode is NO_FIT: of the pod sets before the one that found no flavors."""
    needs_room: frozenset[FlavorResource] = frozenset()
    """Keys that do not fit without preemption."""
    blocks: tuple[Block, ...] = ()
    """Everything that stood in the way of something better: what a change could help."""
    decisive: tuple[Block, ...] = ()
    """What stood in the way of the choice that failed; all blocks when none did outright."""
    resume: Mapping[int, int] = field(default_factory=dict)
    """Choice to the flavor where its scan would go on; only choices whose scan stopped early."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Says how an amount of one key could be had, and what is the most if everything else were idle."""

    verdict: Callable[[FlavorResource, int], Verdict]
    most: Callable[[FlavorResource], int] | None = None

    def exceeds(self, key: FlavorResource, amount: int) -> bool:
        """Return whether ``amount`` can never be had."""
        return self.most is not None and amount > self.most(key)


def assign(
    request: Request,
    counts: Mapping[str, int],
    fungibility: Fungibility,
    judge: Judge,
    resume: Mapping[int, int] | None = None,
) -> Assignment:
    """Return the best flavors for ``counts`` pods of each set; its mode is NO_FIT when a group finds none.

    ``resume`` is that of an earlier assignment that came to nothing: the flavors it tried are passed over.
    """
    mode, level = Mode.FIT, 0
    chosen: dict[str, dict[str, str]] = {}
    usage: dict[FlavorResource, int] = {}
    needs: set[FlavorResource] = set()
    blocks: list[Block] = []
    decisive: tuple[Block, ...] = ()
    unfinished: dict[int, int] = {}
    seats: tuple[str, ...] = ()
    before = usage
    for index, choice in enumerate(request.choices):
        if choice.seats != seats:
            seats, before = choice.seats, dict(usage)
        start = 0 if resume is None else resume.get(index, 0)
        if any(map(counts.get, choice.seats)):
            best = _Scan(choice, counts, usage, fungibility, judge).run(start)
        else:
            best = _Scan(choice, counts, usage, fungibility, judge).run_idle(start)
        blocks += best.blocks
        if 0 < best.next < len(choice.options):
            unfinished[index] = best.next
        if best.option is None:
            # Of pod sets that found no flavors for some of their resources nothing is kept.
            unfinished = {i: n for i, n in unfinished.items() if request.choices[i].seats != seats}
            level = max(level, best.top_level)
            return Assignment(Mode.NO_FIT, level, {}, before, frozenset(), tuple(blocks), best.blocks, unfinished)
        mode, level = min(mode, best.mode), max(level, best.top_level)
        for key, want in zip(best.option.keys, choice.wants, strict=True):
            chosen.setdefault(want.pod_set, {})[want.resource] = key.flavor
            for part in want.more:
                chosen.setdefault(part.pod_set, {})[want.resource] = key.flavor
            usage[key] = usage.get(key, 0) + want.amount(counts)
        needs.update(best.needs)
        if best.mode is not Mode.FIT:
            decisive += best.blocks
    return Assignment(mode, level, chosen, usage, frozenset(needs), tuple(blocks), decisive, unfinished)


def nearest_way(
    request: Request,
    counts: Mapping[str, int],
    available: Callable[[FlavorResource], int],
    most: Callable[[FlavorResource], int],
    wanted: FlavorResource,
) -> dict[FlavorResource, int]:
    """Return how much of each key would have to be ``available`` for a start; empty where no way is found.

    A scan ends with the first resource that finds no room: those after it may lack some, too. Where there is a choice
    of flavors, what finds room elsewhere goes there, and the rest is taken of ``wanted``, up to the ``most`` it gives.
    """
    taken: dict[FlavorResource, int] = {}

    def lacks(way: Mapping[FlavorResource, int], limit: Callable[[FlavorResource], int]) -> int:
        return sum(max(0, taken.get(key, 0) + more - limit(key)) for key, more in way.items())

    for choice in request.choices:
        asked = [want.amount(counts) for want in choice.wants]
        options = (zip(option.keys, asked, strict=True) for option in choice.options if option.misfit is None)
        ways = [{key: more for key, more in option if more} for option in options]
        ways = [way for way in ways if not lacks(way, most)]
        if not ways:
            return {}
        free = next((way for way in ways if wanted not in way and not lacks(way, available)), None)
        there = next((way for way in ways if wanted in way), None)
        for key, more in (free or there or min(ways, key=lambda way: lacks(way, available))).items():
            taken[key] = taken.get(key, 0) + more
    return taken


@dataclass(slots=True)
class _Scanned:
    """What the scan of one choice came to."""

    option: Option | None = None
    mode: Mode = Mode.NO_FIT
    """The worst of all resources."""
    standing: tuple[Mode, int] = (Mode.NO_FIT, 0)
    """Mode and level of the resource that the queue's fungibility likes least: what flavors are compared by."""
    top_level: int = 0
    """The highest of all resources."""
    needs: tuple[FlavorResource, ...] = ()
    blocks: tuple[Block, ...] = ()
    next: int = 0
    """Where the scan would go on; 0 when it reached the end."""


@dataclass(slots=True)
class _Scan:
    """The scan of one choice's flavors, with ``assumed`` used by the choices before it."""

    choice: Choice
    counts: Mapping[str, int]
    assumed: Mapping[FlavorResource, int]
    fungibility: Fungibility
    judge: Judge

    def run(self, start: int) -> _Scanned:
        best: _Scanned | None = None
        blocks: list[Block] = []
        for index in range(start, len(self.choice.options)):
            option = self.choice.options[index]
            if option.misfit is not None:
                blocks.append(Block(Code.NO_MATCHING_FLAVOR, option.keys[0], 0, option.misfit))
                continue
            found = self._try(option)
            blocks += found.blocks
            if found.option is None:
                continue
            if _stops(found, self.fungibility):
                best = found
                best.next = index + 1
                break
            if best is None or _preferred(found.standing, best.standing, self.fungibility):
                best = found
        if best is None:
            best = _Scanned()
        best.blocks = tuple(blocks)
        return best

    def run_idle(self, start: int) -> _Scanned:
        """Scan for pod sets without pods: what could hold one pod of each comes first, wherever an earlier scan
        stopped.

        Such a find is final: a gang that waits for something else does not get another turn for it.
        """
        best = replace(self, choice=self._with_room()).run(0)
        if best.option is None:
            return self.run(start)
        best.next = 0
        return best

    def _with_room(self) -> Choice:
        """Return the choice with the flavors ruled out that could at best not hold one pod of each of its pod sets."""

        def holds_one(option: Option) -> bool:
            asked = (sum(part.each for part in (want, *want.more)) for want in self.choice.wants)
            pairs = zip(option.keys, asked, strict=True)
            return not any(self.judge.exceeds(key, self.assumed.get(key, 0) + amount) for key, amount in pairs)

        def kept(option: Option) -> Option:
            if option.misfit is not None or holds_one(option):
                return option
            return replace(option, misfit=f"flavor {option.flavor} could hold none of the pods")

        return replace(self.choice, options=tuple(map(kept, self.choice.options)))

    def _try(self, option: Option) -> _Scanned:
        standing, worst, top = (Mode.FIT, 0), Mode.FIT, 0
        needs: list[FlavorResource] = []
        blocks: list[Block] = []
        asked: list[tuple[FlavorResource, int]] = []
        for key, want in zip(option.keys, self.choice.wants, strict=True):
            amount = self.assumed.get(key, 0) + want.amount(self.counts)
            asked.append((key, amount))
            if self.judge.exceeds(key, amount):
                blocks.append(Block(Code.EXCEEDS_MAX_QUOTA, key, amount))
        if blocks:
            # Whatever the other resources lack, no change of usage could help.
            return _Scanned(blocks=tuple(blocks))
        for key, amount in asked:
            mode, level, code = self.judge.verdict(key, amount)
            if mode is not Mode.FIT:
                needs.append(key)
                blocks.append(Block(code or Code.WAITING_FOR_QUOTA, key, amount))
            if mode is Mode.NO_FIT:
                return _Scanned(blocks=tuple(blocks))
            worst, top = min(worst, mode), max(top, level)
            found = (mode, level)
            if found != standing and _preferred(standing, found, self.fungibility):
                standing = found
        return _Scanned(option, worst, standing, top, tuple(needs), tuple(blocks))


def _stops(found: _Scanned, fungibility: Fungibility) -> bool:
    """Return whether the scan ends here."""
    if found.mode <= Mode.NO_CANDIDATES:
        return False
    if found.mode < Mode.FIT and fungibility.when_can_preempt is SearchPolicy.TRY_NEXT_FLAVOR:
        return False
    return not (found.standing[1] > 0 and fungibility.when_can_borrow is SearchPolicy.TRY_NEXT_FLAVOR)


def _preferred(one: tuple[Mode, int], other: tuple[Mode, int], fungibility: Fungibility) -> bool:
    """Return whether mode and level ``one`` are better than ``other``."""
    if Mode.NO_CANDIDATES in (one[0], other[0]) and one[0] is not other[0]:
        return other[0] is Mode.NO_CANDIDATES
    if fungibility.preference is Preference.PREEMPTION_OVER_BORROWING:
        return (-one[1], one[0]) > (-other[1], other[0])
    return (one[0], -one[1]) > (other[0], -other[1])
