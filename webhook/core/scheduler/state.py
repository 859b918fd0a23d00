"""Everything the engine remembers between cycles, and the few changes that touch more than one part of it."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.core.assignment.decision import Decider, Decision
from webhook.core.assignment.flavors import Mode
from webhook.core.assignment.preemption import may_stop_any
from webhook.core.backfill.rule import Backfill
from webhook.core.ledger.bounds import fits_alone
from webhook.core.ledger.record import Claim, Reservation, with_places
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Policy
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.gang_state import GangState
from webhook.core.pending.pending_queue import EquivalenceClass, PendingQueue
from webhook.core.pending.pending_queues import PendingQueues
from webhook.core.placement.ceilings import Ceilings
from webhook.core.quota.allocations import Allocation, Allocations
from webhook.core.quota.fences import Fences
from webhook.core.quota.tree import QuotaTree, Vertex
from webhook.core.quota.usage_decay import DecayedUsage
from webhook.core.reasons.wake_keys import BesideHead, NamespaceFences, NodesFreed, NodesTurn, QueueHead, Releasing
from webhook.core.scheduler.borrowing_guard import BorrowingGuard
from webhook.core.scheduler.usage_order import UsageOrder

LOWEST: Final = (-sys.maxsize, 0.0, "")
"""Goes before all gangs by negated priority, time, uid."""


@dataclass(slots=True)
class State:
    """The engine's memory."""

    settings: EngineSettings
    policy: Policy
    pending: PendingQueues
    allocations: Allocations
    fences: Fences = field(default_factory=Fences)
    """As of the last cycle, or what a follower looks at."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """By uid, the rights of gangs to room that is being made for them, also of those that an earlier leader wrote and
    that are not known to wait yet. What the projected usage keeps for each is among the promises of ``allocations``.
    """
    booked: dict[str, Claim] = field(default_factory=dict)
    """By uid, what gangs that find no nodes are to hold on those that are booked for them, and whose end they await."""
    asked_from: tuple[int, float, str] | None = None
    """Negated priority, time and uid of who is asked next whether it finds nodes, may stop others for theirs, or books
    some; None: nobody is."""
    asked_at: tuple[int, float, str] | None = None
    """Where that stood when the cycle began."""
    asked_next: tuple[int, float, str] | None = None
    """Where that begins once more when it has come to the end."""
    searches_left: int = 0
    """How many more gangs may look for nodes to book in this cycle."""
    searcher: str | None = None
    """Uid of the gang that has begun to look for nodes, and is being decided about."""
    looks_owed: int = 0
    """At how many nodes such searches have looked, less what each cycle since may spend on them."""
    followed: Mapping[str, Claim] | None = None
    """By uid, the claims of the leader that this engine follows; None: it decides itself."""
    after: dict[str, Gang] = field(default_factory=dict)
    """Gangs that are to wait as soon as their old reservation is released."""
    growing: dict[str, None] = field(default_factory=dict)
    """Gangs admitted below full size for which something changed."""
    stopped_for_share: dict[str, str] = field(default_factory=dict)
    """Gangs that were stopped for the share of another, and its uid. Not in the ledger: a new leader may stop and
    start a gang once more than this one would."""
    nodes: Capacity | None = None
    """What is free on which node; None while the nodes are not known."""
    nodes_seen: int = 0
    """Of these, as of when those were last woken who fitted none (``Capacity.generation``)."""
    deciding: str | None = None
    """Uid of the gang that is decided about, or was last, so that whoever meets an error knows at which."""
    now: float = 0.0
    """Unix time of the last cycle, or of a follower's last look."""
    out_of_reach: frozenset[str] = frozenset()
    """Uids of jobs that can be neither stopped nor started now, whatever is decided."""
    undrained: bool = True
    """A queue may have started to drain."""
    draining: bool = False
    """More are to be stopped for that than the last cycle stopped."""
    cut: bool = False
    """The last cycle ended before all were decided about: its searches for victims had looked at so many gangs."""
    stirred: bool = True
    """Something changed that a claim may have waited for."""

    backfill: Backfill = field(init=False)
    """The heads of Backfill queues."""
    guard: BorrowingGuard = field(init=False)
    """Which gangs leave room to which."""
    usage: UsageOrder = field(init=False)
    """Which local queue goes first by decayed usage."""
    ceilings: Ceilings = field(default_factory=Ceilings)
    """What nodes would hold if others were gone."""
    _decider: Decider | None = None

    def __post_init__(self) -> None:
        self.pending.room_at = self.allocations.headroom
        self.guard = BorrowingGuard(self.pending, self.allocations)
        self.backfill = Backfill(self.pending, self.allocations, not self.settings.fair_sharing)
        decay = self.settings.usage_decay
        self.usage = UsageOrder(self.pending, self.allocations, None if decay is None else DecayedUsage(decay))

    @classmethod
    def empty(cls, settings: EngineSettings) -> "State":
        """Return the state of an engine that knows nothing."""
        return cls(settings, Policy(), PendingQueues(settings), Allocations(QuotaTree(Policy())))

    @property
    def decider(self) -> Decider:
        """What decisions are made from."""
        known = self._decider
        if known is None or known.fences is not self.fences or known.nodes is not self.nodes:
            flavors = self.policy.flavors
            known = Decider(
                self.allocations,
                self.fences,
                self.settings,
                self.usage.ranks,
                self.yields,
                self.nodes,
                flavors,
                self.ceilings,
                self.out_of_reach,
            )
            self._decider = known
        return known

    @property
    def counts_on(self) -> bool:
        """Whether somebody waits for what the next cycle goes on to count."""
        return bool(self.ceilings.waiting)

    def set_policy(self, policy: Policy, namespaces: Mapping[str, Mapping[str, str]], now: float) -> None:
        """Decide by another policy; where it says something new, every gang is decided again."""
        tree = QuotaTree(policy, self.allocations.tree)
        self.allocations.rebase(tree)
        queues, claimants = dict(self.pending.queues), self.claimants()
        self.pending.set_policy(policy, tree, namespaces)
        self.policy, self._decider = policy, None
        for name, queue in queues.items():
            if self.pending.queues.get(name) is not queue:
                self.allocations.withdraw_promise(QueueHead(queue.name))
        for uid in claimants:
            if not self.is_claiming(uid):
                self.drop_claim(uid)
        for uid in list(self.booked):
            self.lapse_booking(uid)
        self.pending.end_backoffs(now)
        self.growing = dict.fromkeys(self.allocations.by_uid)
        self.usage.rerank()
        self.undrained = self.stirred = True

    def is_claiming(self, uid: str) -> bool:
        """Return whether others are being stopped for a gang that is known to wait."""
        return self.pending.state_of(uid) is GangState.CLAIMING

    def claimants(self, *, known: bool = True) -> list[str]:
        """Return the gangs that claim room, by uid: those that are known to wait for it, or the others."""
        return [uid for uid in self.claims if self.is_claiming(uid) == known] if self.claims else []

    def forget(self, uid: str) -> Gang | None:
        """Forget a waiting gang, with all that is kept for it, and return it."""
        record = self.pending.records.get(uid)
        self.drop_claim(uid)
        self.lapse_booking(uid)
        gang = self.pending.withdraw(uid)
        self.forget_stops(uid)
        if record is not None and record.queue is not None and (record.queue.strict or record.queue.backfills):
            self.let_head_go(record.queue)
            self.growing.update(dict.fromkeys(self.partial()))
        return gang

    def drop_claim(self, uid: str) -> None:
        """End a claim and wake those who may have the room instead."""
        promised = self.allocations.promises.get(uid)
        if self.end_claim(uid) is not None:
            self.wake_nodes()
        if promised is not None:
            self.wake(*promised)

    def end_claim(self, uid: str) -> Allotment | None:
        """End a claim; return what it kept on nodes, if anything. Others may count on what its victims leave there."""
        claim = self.claims.pop(uid, None)
        self.allocations.withdraw_promise(uid)
        kept = None if self.nodes is None else self.nodes.unclaim(uid)
        if self.nodes is not None and kept is not None and claim is not None:
            going = [each for each in claim.awaits if each in self.allocations.stopping]
            self.allocations.looked_at += len(self.nodes.claimants()) if going else 0
            self.nodes.hand_over(self.decider.uids(going))
        return None if kept is None else kept.allotment

    def end_booking(self, uid: str) -> Allotment | None:
        """Let others have the nodes that are booked for a gang; return which are, if any."""
        if self.booked.pop(uid, None) is None or self.nodes is None:
            return None
        self.asked_from = LOWEST
        kept = self.nodes.unclaim(uid)
        return None if kept is None else kept.allotment

    def order(self, uid: str) -> tuple[int, float, str]:
        """Return the sort key by which claims are taken up, and gangs have their turn where nodes are short."""
        gang = self.pending.records[uid].gang
        return (-gang.priority, gang.created_seconds, uid)

    def may_stop_for_nodes(self, eclass: EquivalenceClass) -> bool:
        """Return whether there might be gangs that the head of a class could have stopped for nodes, at a glance."""
        queue = eclass.queue
        if queue.spec is None or queue.vertex is None:
            return False
        return may_stop_any(eclass.sample, queue.spec, queue.vertex, self.allocations)

    def _ask_from(self, place: tuple[int, float, str]) -> None:
        """Have those from ``place`` on decided about again, few in a cycle; once more where they are being asked."""
        if self.asked_from is None:
            self.asked_from = place
        else:
            self.asked_next = place if self.asked_next is None else min(place, self.asked_next)

    def lapse_booking(self, uid: str) -> None:
        """End a booking, and have its gang and all decided about again that may have the nodes."""
        if self.end_booking(uid) is None:
            return
        record = self.pending.records.get(uid)
        if record is not None and record.eclass is not None and record.eclass.unschedulable:
            self.pending.wake_class(record.eclass)
        self.wake_nodes()

    def decide(self, eclass: EquivalenceClass, *, stops_for_nodes: bool = False) -> Decision:
        """Decide about the head of a class, as if nothing were held back for it: no nodes, nor its queue's quota.

        With ``stops_for_nodes`` others are stopped also where the quota has room and only the nodes have none.
        """
        nodes = self.nodes
        if nodes is None or not self.booked:
            return self._decide_beside_claims(eclass, stops_for_nodes=stops_for_nodes)
        uid = eclass.head.uid
        kept = nodes.unclaim(uid) if uid in self.booked else None
        decision = self._decide_beside_claims(eclass, stops_for_nodes=stops_for_nodes)
        if kept is not None:
            nodes.claim(uid, kept)
        return decision

    def _decide_beside_claims(self, eclass: EquivalenceClass, *, stops_for_nodes: bool) -> Decision:
        queue, allocations = eclass.queue, self.allocations
        if queue.strict or queue.backfills:
            allocations.lift(QueueHead(queue.name))
        decision = self.decider.decide(
            eclass.head, eclass.request, queue.spec, queue.vertex, stops_for_nodes=stops_for_nodes
        )
        if decision.assignment.mode is Mode.NO_FIT and queue.vertex is not None and not eclass.shifting:
            # It keeps its place among the others: what is blocked at one height is not decided about at a lower one.
            level = allocations.projected.highest_level(queue.vertex, eclass.request.amounts(decision.counts))
            decision = replace(decision, assignment=replace(decision.assignment, level=level))
        if allocations.lifted is not None and not queue.leads(eclass):
            # What is held back for the head stays so after a passer has started.
            allocations.put_back()
        if decision.fits or decision.preempts:
            why = self.backfill.refusal(eclass, decision, self.fences, self.now)
            if why is not None:
                refused = replace(decision, barrier=why, victims=(), awaits=())
                decision = self._beside_heads(eclass) or refused
        decision = self.guard.judge(eclass, decision, self.fences)
        allocations.put_back()
        return decision

    def _beside_heads(self, eclass: EquivalenceClass) -> Decision | None:
        """Return the decision for another flavor or fewer pods with which a class delays nobody, or a postponed one;
        None without one.
        """
        if not eclass.shifting:
            return None
        room = self.backfill.room_beside(eclass, self.fences, self.now)
        decision = self.decider.decide(eclass.head, eclass.request, eclass.queue.spec, eclass.queue.vertex, room)
        if decision.postponed:
            return decision
        refused = not decision.fits or self.backfill.refusal(eclass, decision, self.fences, self.now) is not None
        return None if refused else decision

    def settle_bookings(self, *, recheck: bool = False) -> bool:
        """Book for the heads of Backfill queues, and decide again about gangs held up by a head that moved, or
        beside which there may be more room; return whether there are such heads.

        ``recheck`` says that more may have changed than allocations and who waits.
        """
        moved = self.backfill.settle(self.fences, self.now, recheck=recheck)
        for key in moved:
            self.pending.wake(key)
        freed = self.backfill.freed
        for uid in freed:
            self.pending.wake(BesideHead(uid), unless=self.backfill.refusals(uid, self.now))
        return bool(moved or freed)

    def lets_grow(self, allocation: Allocation, extra: Mapping[FlavorResource, int]) -> bool:
        """Return whether an admitted gang can take ``extra`` without delaying the head of a Backfill queue, and without
        keeping a starved gang waiting.
        """
        allowed = self.backfill.lets_grow(allocation, extra, self.fences, self.now)
        return allowed and self.guard.lets_grow(allocation, extra, self.fences)

    def settle_guard(self, *, recheck: bool = False) -> bool:
        """Decide again about gangs that no starved gang holds up any more; return whether there may be some.

        ``recheck`` says that more may have changed than allocations.
        """
        if not self.guard.settle(self.fences, recheck=recheck):
            return False
        self.growing.update(dict.fromkeys(self.partial()))
        return True

    def let_head_go(self, queue: PendingQueue) -> None:
        """End what the head of a StrictFIFO or Backfill queue holds back."""
        promised = self.allocations.promises.get(QueueHead(queue.name))
        if promised is not None:
            self.allocations.withdraw_promise(QueueHead(queue.name))
            self.wake(*promised)

    def replace(self, known: Allocation | None, allocation: Allocation) -> None:
        """Charge ``allocation`` instead of ``known``, and wake the gangs that the difference could help."""
        vertex = None if known is None else self.allocations.vertex_of(known)
        self.allocations.put(allocation)
        queue = self.pending.queues.get(allocation.reservation.queue)
        if queue is not None:
            self.pending.admitted_beside(queue, allocation.priority)
        if known is not None:
            moved = known.reservation.queue != allocation.reservation.queue
            less = [key for key, amount in known.amounts.items() if moved or amount > allocation.amounts.get(key, 0)]
            self.pending.wake(NamespaceFences(known.reservation.namespace))
            if vertex is not None and less:
                self.wake(vertex, less)
        self.growing[allocation.uid] = None
        self.undrained = self.stirred = True

    def knows(self, uid: str) -> bool:
        """Return whether a gang waits or holds something."""
        return uid in self.allocations.by_uid or uid in self.pending.records

    def yields(self, uid: str) -> bool:
        """Return whether a gang was stopped for the share of another that is still about: it stops nobody for its own.

        So each gang is stopped for a share at most once while none ends, and stopping comes to an end.
        """
        return uid in self.stopped_for_share and self.knows(self.stopped_for_share[uid])

    def note_stop(self, uid: str, by: str) -> None:
        """Remember that ``uid`` was stopped for the share of ``by``."""
        self.stopped_for_share = {victim: of for victim, of in self.stopped_for_share.items() if self.knows(victim)}
        self.stopped_for_share[uid] = by

    def forget_stops(self, by: str) -> None:
        """Have those decided about again who were stopped for ``by``, if that is gone."""
        victims = [] if self.knows(by) else [uid for uid, of in self.stopped_for_share.items() if of == by]
        for victim in victims:
            record = self.pending.records.get(victim)
            if record is not None and record.eclass is not None and record.eclass.unschedulable:
                self.pending.wake_class(record.eclass)

    def let_go(self, allocation: Allocation) -> None:
        """Return what an allocation charges and wake the gangs that this could help."""
        vertex = self.allocations.vertex_of(allocation)
        self.allocations.drop(allocation.uid)
        self.forget_stops(allocation.uid)
        self.pending.wake(NamespaceFences(allocation.reservation.namespace))
        if self.nodes is not None:
            self.nodes.withdraw(allocation.uid)
            for uid in allocation.uids:
                self.nodes.has_left(uid)
            self.wake_nodes()
        if vertex is not None:
            self.wake(vertex, allocation.amounts)
        self.stirred = True

    def wake(self, vertex: Vertex, keys: Iterable[FlavorResource]) -> None:
        """Have those decided about again who could use ``keys`` that became free at queue ``vertex``."""
        projected, keys = self.allocations.projected, list(keys)
        for each in vertex.path():
            for key in keys:
                self.pending.touch(each, key, each.subtree.get(key, 0) - projected.of(each, key))
        for key in keys if self.allocations.stopping else ():
            self.pending.wake(Releasing(vertex.root.index, key))
        for uid in self.partial():
            self.growing[uid] = None

    def wake_nodes(self) -> None:
        """Have those decided about again who fitted no nodes, but for those who fit none still."""
        nodes = self.nodes
        others = nodes is not None and nodes.generation != self.nodes_seen
        self.nodes_seen = 0 if nodes is None else nodes.generation

        def still_short(eclass: EquivalenceClass) -> bool:
            asked = eclass.short_of
            if (eclass.order and eclass.head.uid in self.booked) or (others and eclass.hopeless):
                return False
            if nodes is None or asked is None or not nodes.has_nodes(dict(asked.shape.selector)):
                return False
            known = nodes.known_ranking(asked.shape)
            short = known is not None and known.total < asked.count
            if short and eclass.order and self.may_stop_for_nodes(eclass):
                # What is free may suffice together with what others would leave: that is looked at few at a time.
                self._ask_from(self.order(eclass.head.uid))
            return short

        self.pending.wake(NodesFreed(), unless=still_short)
        self.growing.update(dict.fromkeys(self.partial()))
        self.stirred = True

    def wake_turns(self, uids: Iterable[str]) -> None:
        """Have those decided about again whose nodes have been looked at by now, or that are to stand in line again."""
        for uid in uids:
            self.pending.wake(NodesTurn(uid))
            if uid in self.allocations.by_uid:
                self.growing[uid] = None
            self.stirred = True

    def know_out_of_reach(self, uids: frozenset[str]) -> None:
        """Have none of these jobs stopped for others, nor grow; who may stop those again is decided about again."""
        again = self.out_of_reach - uids
        self.out_of_reach, self._decider = uids, None
        back = [each for each in self.allocations.by_uid.values() if not each.is_in_reach(again)]
        self.growing.update({each.uid: None for each in back})
        roots = {vertex.root for each in back if (vertex := self.allocations.vertex_of(each)) is not None}
        for queue in list(self.pending.queues.values()):
            if queue.vertex is not None and queue.vertex.root in roots:
                for eclass in [each for each in queue.eclasses.values() if each.unschedulable]:
                    self.pending.wake_class(eclass)
        self.stirred = True

    def renounce(self, uid: str) -> None:
        """Decide again about claims that counted on ``uid`` being stopped: it is not."""
        self.stopped_for_share.pop(uid, None)
        self.allocations.unstop(uid)
        for claimant in [claimant for claimant in self.claimants() if uid in self.claims[claimant].awaits]:
            self.drop_claim(claimant)
            self.pending.unclaim(claimant)

    def allot(self, reservation: Reservation, places: Allotment | None) -> Reservation:
        """Keep the room on nodes that was found for a gang, and return its reservation with them written in it, if that
        does not make it too long.
        """
        if self.nodes is None or places is None:
            return reservation
        self.nodes.allot(reservation.uid, places)
        placed = with_places(reservation, places.places, places.domains)
        # Places are a wish that may be left out, a domain is not.
        return placed if fits_alone(placed) else with_places(reservation, {}, places.domains)

    def allot_more(self, reservation: Reservation, more: Allotment) -> Reservation:
        """Keep room on nodes for pods that join a gang too, and return its reservation with their places beside those
        of the others, as ``allot`` does. A set of which not all were written down gets none.
        """
        assert self.nodes is not None
        self.nodes.allot_more(reservation.uid, more)
        places, domains = dict[str, Counter[str]](), {each.name: each.domain for each in reservation.pod_sets}
        for each in reservation.pod_sets:
            all_of_it = Counter(each.places) + Counter(more.places.get(each.name, {}))
            places[each.name] = all_of_it if all_of_it.total() == each.count else Counter(each.places)
        placed = with_places(reservation, places, domains)
        return placed if fits_alone(placed) else reservation

    def wake_namespace(self, namespace: str) -> None:
        """Decide again about gangs that the fences of ``namespace`` stopped."""
        self.pending.wake(NamespaceFences(namespace))
        for uid, allocation in self.partial().items():
            if allocation.reservation.namespace == namespace:
                self.growing[uid] = None
        self.stirred = True

    def copy(self) -> "State":
        """Return an independent state; gangs that are unschedulable stay so."""
        twin = State(self.settings, self.policy, self.pending.copy(), self.allocations.copy(), self.fences)
        twin.nodes = None if self.nodes is None else self.nodes.copy()
        twin.out_of_reach = self.out_of_reach
        twin.claims, twin.after, twin.growing = dict(self.claims), dict(self.after), dict(self.growing)
        twin.booked, twin.asked_from = dict(self.booked), self.asked_from
        twin.asked_next, twin.looks_owed = self.asked_next, self.looks_owed
        twin.now, twin.usage.decayed = self.now, None if self.usage.decayed is None else self.usage.decayed.copy()
        twin.stopped_for_share = dict(self.stopped_for_share)
        twin.undrained, twin.draining, twin.stirred = self.undrained, self.draining, self.stirred
        twin.cut = self.cut
        twin.guard.watched = dict(self.guard.watched)
        twin.backfill.booked, twin.backfill.turns = dict(self.backfill.booked), dict(self.backfill.turns)
        twin.backfill.put_off, twin.backfill.recalled = dict(self.backfill.put_off), dict(self.backfill.recalled)
        return twin

    def partial(self) -> dict[str, Allocation]:
        """Return the admitted gangs that may still grow to full size."""
        return {uid: allocation for uid, allocation in self.allocations.elastic.items() if self.may_grow(allocation)}

    def may_grow(self, allocation: Allocation) -> bool:
        """Return whether pods of an admitted gang that may be larger are still to come."""
        goes_on = allocation.uid not in self.allocations.stopping and allocation.is_in_reach(self.out_of_reach)
        return goes_on and allocation.lacks_pods
