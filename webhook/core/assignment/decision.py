"""One decision about one gang: with how many pods and from which flavors it may start, at whose cost, or what is in the
way.

Usage, fences and policy in, a value out; nothing is changed. A gang that may be smaller than whole (partial admission,
a quorum below its count) takes the largest size that fits quota and fences, never less than ``Gang.least_counts``; but
stopping others for its full size wins over shrinking, as in Kueue.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar

from webhook.core.assignment.fair_sharing import targets_of
from webhook.core.assignment.flavors import Assignment, Judge, Mode, Verdict, assign
from webhook.core.assignment.preemption import (
    Candidate,
    Preemptor,
    Ranks,
    may_be_stopped,
    mode_of,
    no_ranks,
    uses,
)
from webhook.core.assignment.request import Request
from webhook.core.ledger.record import Reservation
from webhook.core.model.frozen import frozen
from webhook.core.model.gang import ANYWHERE, Gang
from webhook.core.model.policy import Flavor, NodeFit, PreemptionPolicy, Queue
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.shape import shape_of
from webhook.core.notation.amounts import FlavorResource
from webhook.core.placement.ceilings import Ceilings
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.placement.vacated import Vacated
from webhook.core.quota.allocations import Allocations
from webhook.core.quota.fences import Fences
from webhook.core.quota.tree import AmountsByFlavor, Usage, Vertex
from webhook.core.reasons.barriers import Barrier, StopsNobody
from webhook.core.reasons.reasons import Code
from webhook.core.reasons.wake_keys import Owed

UNBOUND = Assignment(Mode.FIT, 0, {}, {})
"""What a gang without queue is assigned."""


def nobody(uid: str) -> bool:
    """No gang yields."""
    return False


@frozen
class Decision:
    """What could be done for a gang now."""

    counts: Mapping[str, int]
    assignment: Assignment
    barrier: Barrier | Misplaced | None = None
    """Set when the quota has room, or could get it, and a fence or the nodes have none, or another gang goes first."""
    places: Allotment | None = None
    """Where its pods are to go, now or once its victims are gone, when the nodes are known."""
    victims: tuple[Candidate, ...] = ()
    """Which gangs to stop to make room."""
    awaits: tuple[str, ...] = ()
    """Uids of gangs that are being stopped already and whose room it may count on."""
    owed: Owed | None = None
    """What it leaves to a starved gang, if that is what blocks it."""
    held_up_by: Barrier | Misplaced | None = None
    """What keeps it waiting besides, when the nodes have no room: another would go first if they had."""

    @property
    def misplaced(self) -> Misplaced | None:
        """What is in the way when it is the nodes alone."""
        return self.barrier if isinstance(self.barrier, Misplaced) else None

    @property
    def postponed(self) -> bool:
        """It is not known yet whether the nodes have room: too many shapes are new in this round."""
        return self.misplaced is not None and self.misplaced.postponed

    @property
    def fits(self) -> bool:
        """It may start now."""
        return self.assignment.mode is Mode.FIT and self.barrier is None

    @property
    def preempts(self) -> bool:
        """It may start once its victims, or others that are being stopped, are gone."""
        return bool(self.victims or self.awaits)


@dataclass(frozen=True, slots=True)
class Decider:
    """What decisions are made from."""

    allocations: Allocations
    fences: Fences
    settings: EngineSettings
    ranks: Ranks = no_ranks
    yields: Callable[[str], bool] = nobody
    """Whether the gang of this uid stops nobody for its share."""
    nodes: Capacity | None = None
    """What is free on which node; None: the nodes are not known, and nothing is asked of them."""
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    """By name."""
    ceilings: Ceilings = field(default_factory=Ceilings)
    """What nodes would hold if all were gone that somebody may have stopped."""
    out_of_reach: Set[str] = frozenset()
    """Uids of jobs that nobody could stop now."""

    def places(
        self, gang: Gang, counts: Mapping[str, int], flavors: Mapping[str, Mapping[str, str]], gone: Iterable[str] = ()
    ) -> Allotment | Misplaced | None:
        """Return where ``counts`` pods of each set go, or why nowhere; None where the nodes are not known.

        ``flavors`` are those chosen (pod set to resource to flavor); ``gone`` are gangs whose room counts as free.
        """
        asked = self._asked(gang, counts, flavors)
        if self.nodes is None:
            blind = next((each for each in asked if each.count), None)
            return None if blind is None else Misplaced(blind, 0, certain=False, unread=True)
        return _in_turn(self.nodes, gang, asked, gone)

    def more_places(self, gang: Gang, held: Reservation, larger: Reservation) -> Allotment | Misplaced | None:
        """Return where the pods go by which a running gang would be ``larger`` than what it has ``held``, or why
        nowhere; None where nobody asks. A gang that has to be in one domain is in it already.
        """
        if self.nodes is None or held.adopted or held.loose_pods:
            return None
        before, domains = held.counts, {each.name: each.domain for each in held.pod_sets}
        extra = {each.name: larger.counts.get(each.name, 0) - before.get(each.name, 0) for each in gang.pod_sets}
        asked = [
            Asked(each.name, each.shape.within(domains.get(each.name, {})), each.count)
            for each in self._asked(gang, extra, larger.flavors)
            if each.count > 0
        ]
        return _in_turn(self.nodes, gang, asked)

    def vacated(
        self, gang: Gang, counts: Mapping[str, int], flavors: Mapping[str, Mapping[str, str]]
    ) -> Vacated | None:
        """Return the nodes for such pods, to take others out of; None where the nodes are not known."""
        return None if self.nodes is None else Vacated(self.nodes, self._asked(gang, counts, flavors))

    def uids(self, gangs: Iterable[str]) -> list[str]:
        """Return the uids by which nodes know these gangs."""
        return [uid for gang in gangs for uid in self.allocations.by_uid[gang].uids]

    def _asked(self, gang: Gang, counts: Mapping[str, int], flavors: Mapping[str, Mapping[str, str]]) -> list[Asked]:
        """Return the pod sets that wait until they fit nodes."""
        found = []
        for each in gang.pod_sets:
            # Who has to be in one domain has to know which.
            binding = each.near is not None and each.near.binding
            if not binding and self.nodes is None:
                continue
            named = dict.fromkeys(flavors.get(each.name, {}).values())
            chosen = {name: self.flavors[name] for name in named if name in self.flavors}
            if binding or (self.nodes is not None and self._must_fit(self.nodes, chosen.values())):
                shape = shape_of(each, chosen)
                # On a flavor with a topology, who asks for nothing may lie anywhere in it, as in Kueue.
                near = each.near or (ANYWHERE if shape.levels else None)
                found.append(Asked(each.name, shape, counts[each.name], near, each.together))
        return found

    def _must_fit(self, nodes: Capacity, flavors: Collection[Flavor]) -> bool:
        """Return whether pods on ``flavors`` wait until they fit nodes. Where there are none at all, who waits for them
        waits for ever, or they are made for who asks.
        """
        default = self.settings.node_fit
        if any((flavor.node_fit or default) is not NodeFit.ENFORCE for flavor in flavors):
            return False
        if not flavors and default is not NodeFit.ENFORCE:
            return False
        return nodes.has_nodes({key: value for flavor in flavors for key, value in flavor.node_labels.items()})

    def decide(
        self,
        gang: Gang,
        request: Request,
        queue: Queue | None,
        vertex: Vertex | None,
        room: Mapping[FlavorResource, int] | None = None,
        *,
        stops_for_nodes: bool = False,
    ) -> Decision:
        """Return what could be done for ``gang``, which waits in ``queue`` at ``vertex`` (None: bound by fences only).

        ``room`` is the most that it may take of what, where that is less than there is. With ``stops_for_nodes`` others
        are stopped also where the quota has room and the nodes have none.
        """
        if request.refusal is not None:
            return Decision(gang.counts, Assignment(Mode.NO_FIT, 0, {}, {}))
        attempt = Attempt(self, gang, request, queue, vertex, room=room or {}, stops_for_nodes=stops_for_nodes)
        return attempt.best()


def _in_turn(
    nodes: Capacity, gang: Gang, asked: Sequence[Asked], gone: Iterable[str] = ()
) -> Allotment | Misplaced | None:
    """Return places for pod sets whose shapes may be looked at in this round; None where there is nothing to place."""
    if not asked:
        return None
    shapes = dict.fromkeys(each.shape for each in asked)
    if too_many := nodes.too_many(shapes, gang.uid):
        return Misplaced(asked[0], 0, certain=False, shapes=too_many)
    if not nodes.may_ask(shapes, gang.uid):
        return Misplaced(asked[0], 0, certain=False, postponed=True)
    return place(nodes, asked, nodes.held_by(gone))


@dataclass(slots=True)
class Attempt:
    """The search for one gang's decision."""

    decider: Decider
    gang: Gang
    request: Request
    queue: Queue | None
    vertex: Vertex | None
    resume: Mapping[int, int] | None = None
    """Flavors to pass over, as an earlier attempt left it."""
    room: Mapping[FlavorResource, int] = field(default_factory=dict)
    """The most that may be taken of what, where that is less than there is."""
    stops_for_nodes: bool = False
    """Others are stopped also where the quota has room and only the nodes have none."""
    looks_further: ClassVar[bool] = True
    """It tries flavors after one that preemption cannot clear, and stops only so many that the share holds."""
    _searched: dict[tuple[object, ...], tuple[tuple[Candidate, ...], tuple[str, ...]]] = field(default_factory=dict)

    def best(self) -> Decision:
        """Return the decision for the whole gang, or for the largest size that can start, or why neither can."""
        counts = self.gang.counts
        whole = self.at(counts)
        if not (whole.fits or whole.preempts or whole.postponed):
            whole = self.largest(counts, self.gang.least_counts) or whole
        if whole.preempts and self.gang.stops_nobody:
            return replace(whole, barrier=StopsNobody(), victims=(), awaits=())
        return whole

    def at(self, counts: Mapping[str, int]) -> Decision:
        """Return the decision for exactly ``counts`` pods of each set."""
        if self.queue is None or self.vertex is None:
            return self._placed(Decision(counts, UNBOUND, self.decider.fences.shortfall(self.gang, counts)))
        resume, judge = self.resume, Judge(self._judge, self.vertex.potential)
        passed: Decision | None = None
        unplaced: list[Decision] = []
        while True:
            assignment = assign(self.request, counts, self.queue.fungibility, judge, resume)
            if passed is not None:
                # What was passed over may have room one day, and is what is waited for where nothing follows.
                blocks = passed.assignment.blocks + assignment.blocks
                if assignment.mode is Mode.NO_FIT:
                    passed = replace(passed, assignment=replace(passed.assignment, blocks=blocks))
                    return self._for_nodes(unplaced) or passed
                assignment = replace(assignment, blocks=blocks)
            if assignment.mode is Mode.NO_FIT:
                return Decision(counts, assignment)
            fence = self.decider.fences.shortfall(self.gang, counts)
            if assignment.mode is Mode.FIT:
                decision = self._placed(Decision(counts, assignment, fence))
                if decision.fits or fence is not None or decision.postponed:
                    # Whether there is room is not known yet: then no other flavor is better.
                    return decision
                unplaced.append(decision)
                if not assignment.resume or not self.looks_further:
                    return self._for_nodes(unplaced) or decision
                # The quota has room in this flavor and its nodes have not: the scan goes on after it.
                resume, passed = {**(resume or {}), **assignment.resume}, decision
                continue
            # What it asks none of is not borrowed, however much of it its queue has borrowed: Kueue leaves it out here.
            asked = {key: amount for key, amount in assignment.usage.items() if amount}
            victims, awaits = self._room(asked, assignment.needs_room)
            if fence is not None and not self._clears_fences(counts, victims, awaits):
                return Decision(counts, assignment, fence)
            if victims or awaits or not assignment.resume or not self.looks_further:
                decision = Decision(counts, assignment, None, victims=victims, awaits=awaits)
                if not (victims or awaits):
                    return decision
                decision = self._placed(decision)
                if decision.misplaced is None or decision.misplaced.unseen or not victims:
                    return decision
                # The quota alone names some; where their nodes are not enough, others are looked for.
                victims, awaits = self._seated(decision, asked)
                stopping = victims or awaits
                if not stopping or (fence is not None and not self._clears_fences(counts, victims, awaits)):
                    return decision
                return self._placed(Decision(counts, assignment, None, victims=victims, awaits=awaits))
            # The scan stopped at a flavor that preemption cannot clear for the whole request: it goes on after it.
            resume, passed = {**(resume or {}), **assignment.resume}, Decision(counts, assignment)

    def _for_nodes(self, unplaced: Iterable[Decision]) -> Decision | None:
        """Return the decision by which others are stopped for the sake of their nodes, on the first flavor where that
        helps; None where it helps on none. ``unplaced`` are those for which the quota has room.
        """
        for decision in unplaced if self.stops_for_nodes and not self.gang.stops_nobody else ():
            found, assignment = decision.misplaced, decision.assignment
            if found is None or found.unseen:
                continue
            seats = self.decider.vacated(self.gang, decision.counts, assignment.flavors)
            asked = {key: amount for key, amount in assignment.usage.items() if amount}
            scarce = set(assignment.flavors.get(found.asked.name, {}).values())
            needs = frozenset(key for key in asked if key.flavor in scarce)
            victims, awaits = self._search(asked, needs, seats)
            stopping = replace(assignment, mode=self._mode_of(victims, awaits), needs_room=needs)
            instead = self._placed(Decision(decision.counts, stopping, victims=victims, awaits=awaits))
            if instead.preempts:
                return instead
        return None

    def _mode_of(self, victims: Sequence[Candidate], awaits: Iterable[str]) -> Mode:
        """Return what stopping ``victims`` is to the gang, and counting on what those leave that it ``awaits``."""
        assert self.vertex is not None
        mode = mode_of(victims, self.vertex)
        if awaits and mode is not Mode.PREEMPT:
            own = self.decider.allocations.of_queue(self.vertex.name)
            mode = Mode.PREEMPT if any(uid in own for uid in awaits) else Mode.RECLAIM
        return mode

    def _seated(self, decision: Decision, asked: AmountsByFlavor) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
        """Return which gangs to stop, and for which to wait, so that the gang finds quota and nodes: of those who hold
        what its quota lacks, and where these do not make room, of all who hold anything that it asks.
        """
        assignment = decision.assignment
        for needs in dict.fromkeys((assignment.needs_room, frozenset(asked))):
            seats = self.decider.vacated(self.gang, decision.counts, assignment.flavors)
            victims, awaits = self._search(asked, needs, seats)
            if victims or awaits:
                return victims, awaits
        return (), ()

    def _placed(self, decision: Decision) -> Decision:
        """Return ``decision`` with places on nodes, or with the reason why there are none: then nobody is stopped."""
        if decision.barrier is not None or not (decision.fits or decision.preempts):
            return decision
        gone = [uid for victim in decision.victims for uid in victim.allocation.uids]
        gone += self.decider.uids(decision.awaits)
        places = self.decider.places(self.gang, decision.counts, decision.assignment.flavors, gone)
        if isinstance(places, Misplaced):
            return replace(decision, barrier=places, victims=(), awaits=())
        return decision if places is None else replace(decision, places=places)

    def _clears_fences(self, counts: Mapping[str, int], victims: Iterable[Candidate], awaits: Iterable[str]) -> bool:
        """Return whether ``counts`` pods pass all fences once the gangs are gone that have to stop for the quota."""
        allocations = self.decider.allocations
        going = [victim.allocation for victim in victims] + [allocations.by_uid[uid] for uid in awaits]
        jobs = {uid for each in going for uid in each.reservation.jobs}
        return bool(jobs) and self.decider.fences.shortfall(self.gang, counts, jobs) is None

    def largest(self, most: Mapping[str, int], least: Mapping[str, int]) -> Decision | None:
        """Return the decision for the largest size below ``most`` that can start or preempt, or None; one that is
        postponed if one of the sizes is.

        Sizes shrink proportionally over the pod sets, in as many steps as pods may be missing, and are searched by
        bisection over all of them, the full size included, as Kueue does.
        """
        if least == most:
            return None
        spare = {name: most[name] - least[name] for name in most}
        steps = sum(spare.values())
        low, end, found = 0, steps + 1, None
        while low < end:
            middle = (low + end) // 2
            decision = None
            if 0 < middle <= steps:
                decision = self.at({name: most[name] - spare[name] * middle // steps for name in most})
            if decision is not None and decision.postponed:
                return decision
            if decision is not None and (decision.fits or decision.preempts):
                found, end = decision, middle
            else:
                low = middle + 1
        return found

    def views(self) -> tuple[Usage, Usage]:
        """Return what is used now, and what will be once all that is decided is done: a gang has to fit both."""
        return self.decider.allocations.usage, self.decider.allocations.projected

    def _judge(self, key: FlavorResource, amount: int) -> Verdict:
        """Return how ``amount`` of one key could be had."""
        vertex = self.vertex
        assert vertex is not None
        if amount > self.room.get(key, amount):
            return Verdict(Mode.NO_FIT, 0, Code.WAITING_FOR_QUOTA)
        now, view = self.views()
        level, may_reclaim = view.borrow_level(vertex, key, amount)
        if amount <= max(0, now.available(vertex, key)) and (
            view is now or amount <= max(0, view.available(vertex, key))
        ):
            return Verdict(Mode.FIT, level)
        if vertex.nominal(key) < amount and not may_reclaim and not self._borrows_while_preempting():
            return Verdict(Mode.NO_FIT, level, Code.WAITING_FOR_QUOTA)
        victims, awaits = self._room({key: amount}, frozenset((key,)))
        if not (victims or awaits):
            return Verdict(Mode.NO_CANDIDATES, level, Code.WAITING_FOR_QUOTA)
        mode = self._mode_of(victims, awaits)
        if victims:
            for victim in victims:
                view.remove(victim.vertex, victim.allocation.amounts)
            level, _ = view.borrow_level(vertex, key, amount)
            for victim in victims:
                view.add(victim.vertex, victim.allocation.amounts)
        return Verdict(mode, level, Code.WAITING_FOR_QUOTA)

    def _room(
        self, amounts: AmountsByFlavor, needs: frozenset[FlavorResource]
    ) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
        """Return which gangs to stop, and for which that are stopping already to wait, so that ``amounts`` fit."""
        assert self.queue is not None
        rules = self.queue.preemption
        if rules.within_queue is rules.reclaim_within_cohort is PreemptionPolicy.NEVER:
            return (), ()
        memo = (needs, tuple(sorted(amounts.items())))
        if memo not in self._searched:
            self._searched[memo] = self._search(amounts, needs)
        return self._searched[memo]

    def _search(
        self, amounts: AmountsByFlavor, needs: frozenset[FlavorResource], seats: Vacated | None = None
    ) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
        """Return what ``_room`` does; with ``seats`` the gang has to find nodes as well."""
        preemptor = self.preemptor(seats)
        awaits = self.awaited(preemptor, needs)
        if seats is not None:
            if not self._might_be_seated(preemptor, needs, awaits, seats):
                return (), ()
            seats.take(self.decider.uids(awaits))
        if preemptor.fits(amounts, borrowing=True):
            return (), awaits
        victims = tuple(targets_of(preemptor, lasting=self.looks_further)(amounts, needs))
        if seats is not None and seats.given_up:
            return (), ()
        return victims, awaits if victims else ()

    def _might_be_seated(
        self, preemptor: Preemptor, needs: frozenset[FlavorResource], awaits: Iterable[str], seats: Vacated
    ) -> bool:
        """Return whether the gang might find nodes if all were gone that it may have stopped; False is certain, unless
        there was no answer yet.
        """
        if seats.hopeless:
            return False
        found = list(may_be_stopped(preemptor, needs))
        if not (found or awaits):
            return False
        gangs = dict.fromkeys((*self.decider.uids(awaits), *(uid for each in found for uid in each.uids)))
        # Of a higher priority may be stopped mostly the same.
        kind = (preemptor.queue.name, max((each.priority for each in found), default=None), needs)
        return bool(self.decider.ceilings.may_hold(seats.capacity, seats.alike, kind, gangs, self.gang.uid))

    def _borrows_while_preempting(self) -> bool:
        """Return whether it may preempt for a request beyond its queue's own quota."""
        assert self.queue is not None
        rules = self.queue.preemption
        if self.decider.settings.fair_sharing:
            return rules.reclaim_within_cohort is not PreemptionPolicy.NEVER
        return rules.borrow_within_cohort is not PreemptionPolicy.NEVER

    def preemptor(self, seats: Vacated | None = None) -> Preemptor:
        """Return the gang as one that may have others stopped."""
        assert self.queue is not None
        assert self.vertex is not None
        allocations = self.decider.allocations
        return Preemptor(
            self.gang,
            self.queue,
            self.vertex,
            allocations,
            usage=allocations.projected,
            strategies=self.decider.settings.fair_sharing,
            spared=allocations.stopping.keys(),
            out_of_reach=self.decider.out_of_reach,
            ranks=self.decider.ranks,
            seats=seats,
            yields=self.decider.yields(self.gang.uid),
        )

    def awaited(self, preemptor: Preemptor, needs: frozenset[FlavorResource]) -> tuple[str, ...]:
        """Return the gangs being stopped that this gang could have stopped itself: it may count on their room."""
        rules, found = preemptor.queue.preemption, []
        allocations = self.decider.allocations
        allocations.looked_at += len(allocations.stopping)
        for uid in allocations.stopping:
            allocation = allocations.by_uid[uid]
            vertex = allocations.vertex_of(allocation)
            if vertex is None or vertex.root is not preemptor.vertex.root or not uses(allocation, needs):
                continue
            if not allocation.is_in_reach(preemptor.out_of_reach):
                continue
            if vertex is not preemptor.vertex and not vertex.reclaimable:
                continue
            policy = rules.within_queue if vertex is preemptor.vertex else rules.reclaim_within_cohort
            if preemptor.outranks(allocation, policy):
                found.append(uid)
        return tuple(sorted(found))
