"""Turns what blocked a decision into a typed reason: where, the numbers, who holds what is missing, what helps."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from math import ceil
from sys import maxsize

from webhook.core.assignment.decision import Attempt, Decision
from webhook.core.assignment.flavors import Block, Judge, Mode, Verdict, assign, nearest_way
from webhook.core.assignment.request import Request
from webhook.core.ledger.record import Claim
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Queue
from webhook.core.nodes.capacity import Capacity
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.counted import counted
from webhook.core.notation.moments import time_text
from webhook.core.notation.problem import some
from webhook.core.pending.gang_state import GangState
from webhook.core.pending.pending_queue import EquivalenceClass, PendingGang
from webhook.core.placement.beyond import beyond
from webhook.core.placement.explain import misplaced, why_misplaced
from webhook.core.placement.holders import holders
from webhook.core.placement.misplaced import Misplaced
from webhook.core.quota.allocations import Allocation, Allocations
from webhook.core.quota.tree import Usage, Vertex
from webhook.core.reasons.barriers import HELD_UP, Barrier, FenceFull, reason_of
from webhook.core.reasons.blockers import (
    Blocker,
    KeptForOthers,
    QuotaMissing,
    QuotaTooLow,
    StartsBy,
    StartUnknown,
    TooMuch,
    render,
    render_all,
)
from webhook.core.reasons.reasons import Code, Holder, Reason
from webhook.core.scheduler.growth import extra, joining, one_more
from webhook.core.scheduler.state import State

HOLDERS_SHOWN = 3
NODES_SHOWN = 3
_SEVERITY = {Code.WAITING_FOR_QUOTA: 0, Code.EXCEEDS_MAX_QUOTA: 1, Code.NO_MATCHING_FLAVOR: 2}


Ahead = Callable[[Vertex, FlavorResource], int]
"""How many jobs are before one that waits for room of a vertex."""


def explain(
    eclass: EquivalenceClass, decision: Decision, vertex: Vertex, allocations: Allocations, ahead: Ahead = lambda *_: 0
) -> Reason:
    """Return why ``decision`` does not let a gang of ``eclass`` start at queue ``vertex``."""
    if decision.barrier is not None:
        return barred(decision.barrier)
    if decision.awaits and not decision.fits:
        return awaiting([allocations.by_uid[uid] for uid in decision.awaits], vertex)
    if decision.fits or decision.preempts:
        return Reason(Code.PENDING_EVALUATION, "has room; the next cycle decides")
    blocks = decision.assignment.decisive
    if decision.assignment.mode is not Mode.NO_FIT:
        # There is a flavor for everything and nobody to stop for it; flavors that could never do do not count.
        blocks = tuple(block for block in blocks if block.code is Code.WAITING_FOR_QUOTA)
    never = _of_blocks(blocks, vertex, eclass.request, decision.counts)
    if never is not None:
        return never
    lacking = _lacking(eclass, decision, _deciding(blocks), vertex, allocations.usage)
    return _short(lacking, vertex, allocations, decision.assignment.mode, ahead)


def barred(barrier: Barrier | Misplaced) -> Reason:
    """Return what to tell of that which blocks a gang whose quota has room."""
    return misplaced(barrier) if isinstance(barrier, Misplaced) else reason_of(barrier)


def _deciding(blocks: tuple[Block, ...]) -> Block:
    """Return the worst of what is in the way of the flavor that comes nearest; it is as good as its worst resource."""
    worst: dict[str, Block] = {}
    for block in blocks:
        known = worst.setdefault(block.key.flavor, block)
        if _SEVERITY.get(block.code, 0) > _SEVERITY.get(known.code, 0):
            worst[block.key.flavor] = block
    return min(worst.values(), key=lambda block: _SEVERITY.get(block.code, 0))


def _lacking(
    eclass: EquivalenceClass, decision: Decision, block: Block, vertex: Vertex, usage: Usage
) -> tuple[Block, ...]:
    """Return all of which too little is there, beginning with what decided."""
    available, most, request, queue = (
        partial(usage.available, vertex),
        vertex.potential,
        eclass.request,
        eclass.queue.spec,
    )
    way = nearest_way(request, decision.counts, available, most, block.key)
    if not way and queue is not None:
        idle = Judge(lambda _key, _amount: Verdict(Mode.FIT, 0), most)
        found = assign(request, decision.counts, queue.fungibility, idle)
        way = dict(found.usage) if found.mode is Mode.FIT else {}
    short = {key: asked for key, asked in way.items() if asked > available(key)}
    if block.key in short or not short:
        short = {block.key: 0} | short
        short[block.key] = max(block.asked, short[block.key])
    return tuple(Block(Code.WAITING_FOR_QUOTA, key, asked) for key, asked in short.items())


def _of_blocks(blocks: tuple[Block, ...], vertex: Vertex, request: Request, counts: Mapping[str, int]) -> Reason | None:
    """Return the reason when no flavor could ever do, or None when one has merely no room now."""
    block = _deciding(blocks)
    if block.code is Code.NO_MATCHING_FLAVOR:
        return Reason(
            Code.NO_MATCHING_FLAVOR,
            message="; ".join(dict.fromkeys(b.message for b in blocks if b.code is Code.NO_MATCHING_FLAVOR)),
            where=str(vertex),
            resource=block.key.resource,
            help="change the gang's node selector, affinity or tolerations, or the queue's flavors",
        )
    if block.code is Code.EXCEEDS_MAX_QUOTA:
        way = nearest_way(request, counts, vertex.potential, lambda _: maxsize, block.key)
        most = max(block.asked, way.pop(block.key, 0))
        others = (Block(block.code, key, asked) for key, asked in way.items() if asked > vertex.potential(key))
        return _exceeds(vertex, block._replace(asked=most), tuple(others))
    return None


def never(gang: Gang, request: Request, queue: Queue, vertex: Vertex) -> Reason | None:
    """Return why the smallest start of ``gang`` would not fit an idle tree, or None when it would."""
    if request.refusal is not None:
        return request.refusal

    judge = Judge(lambda _key, _amount: Verdict(Mode.FIT, 0), vertex.potential)
    assignment = assign(request, gang.least_counts, queue.fungibility, judge)
    if assignment.mode is Mode.FIT:
        return None
    found = _of_blocks(assignment.decisive, vertex, request, gang.least_counts)
    return found or Reason(Code.EXCEEDS_MAX_QUOTA, where=str(vertex))


def _exceeds(vertex: Vertex, block: Block, others: tuple[Block, ...]) -> Reason:
    """Return the reason of amounts that the queue could not hold even if everything else were idle."""
    limit, more = vertex.potential(block.key), tuple(_too_much(vertex, each) for each in others)
    tip = f"it can never start: ask for at most what {vertex} can hold, or raise its quota"
    return Reason(
        Code.EXCEEDS_MAX_QUOTA,
        where=str(_cap(vertex, block.key, limit)),
        resource=block.key.resource,
        flavor=block.key.flavor,
        asked=block.asked,
        limit=limit,
        help="; ".join([*map(render, more), tip]),
        blockers=more,
    )


def _too_much(vertex: Vertex, block: Block) -> TooMuch:
    limit = vertex.potential(block.key)
    where = str(_cap(vertex, block.key, limit))
    return TooMuch(block.key.resource, block.asked, where, limit, block.key.flavor)


def _cap(vertex: Vertex, key: FlavorResource, limit: int) -> Vertex:
    """Return the vertex whose quota makes ``limit`` the most that ``vertex`` could ever use."""
    if vertex.parent is None or vertex.subtree.get(key, 0) + vertex.borrowing.get(key, limit + 1) == limit:
        return vertex
    rest = limit - vertex.local.get(key, 0)
    return _cap(vertex.parent, key, rest)


def _short(lacking: tuple[Block, ...], vertex: Vertex, allocations: Allocations, mode: Mode, ahead: Ahead) -> Reason:
    block, usage = lacking[0], allocations.usage
    binding = usage.scarcest(vertex, block.key, block.asked)
    limit = binding.subtree.get(block.key, 0) + binding.borrowing.get(block.key, 0)
    resources = [each.key.resource for each in lacking]
    missing = tuple(
        _missing(each, vertex, allocations, ahead, resources.count(each.key.resource) > 1) for each in lacking
    )
    tail = "preemption finds no gang that may be stopped; " if mode is Mode.NO_CANDIDATES else ""
    return Reason(
        Code.WAITING_FOR_QUOTA,
        where=str(binding),
        resource=block.key.resource,
        flavor=block.key.flavor,
        asked=block.asked,
        used=usage.of(binding, block.key),
        limit=limit,
        holders=_holders(binding, block.key, allocations),
        help=tail + render_all(missing),
        blockers=missing,
    )


def _missing(block: Block, vertex: Vertex, allocations: Allocations, ahead: Ahead, by_flavor: bool) -> Blocker:
    key = block.key
    binding = allocations.usage.scarcest(vertex, key, block.asked)
    missing, flavor = block.asked - allocations.usage.available(vertex, key), key.flavor if by_flavor else ""
    if missing <= 0:
        return KeptForOthers()
    if not _holders(binding, key, allocations):
        return QuotaTooLow(key.resource, missing, flavor)
    return QuotaMissing(key.resource, missing, ahead(binding, key), flavor)


def _holders(vertex: Vertex, key: FlavorResource, allocations: Allocations) -> tuple[Holder, ...]:
    return tuple(Holder(str(h), h.amounts[key]) for h in allocations.largest(vertex, key, HOLDERS_SHOWN))


def why_waiting(state: State, uid: str) -> Reason | None:
    """Return why a gang waits, with the numbers of this moment, or why one that has started is no larger; None when it
    lacks nothing.
    """
    record = state.pending.records.get(uid)
    if record is None:
        return _why_no_larger(state, uid)
    gang, queue, eclass = record.gang, record.queue, record.eclass
    if queue is None:
        what, fix = state.policy.why_no_queue(gang.namespace, gang.queue)
        return Reason(Code.QUEUE_NOT_FOUND, what, help=fix)
    claim = state.claims.get(uid) if record.state is GangState.CLAIMING else (state.followed or {}).get(uid)
    if claim is not None and queue.vertex is not None:
        return _claiming(state, claim, queue.vertex)
    if eclass is None:
        return Reason(Code.BACKING_OFF, f"tries again at {time_text(ceil(gang.not_before_seconds))}")
    for known in (queue.closed, eclass.ineligible, eclass.request.refusal):
        if known is not None:
            return known
    head = queue.strict_head()
    ahead = next(iter(queue.claiming.values()), None) if queue.strict else None if head is None else head.head
    if head is None and ahead is None and queue.strict and state.followed is not None:
        # A follower sets no gang aside: the leader has decided about the first of the queue, or is about to.
        head = queue.top()
    if ahead is None and head is not None:
        ahead = head.head
    if ahead is not None and ahead.uid != uid:
        state.deciding = ahead.uid
        behind = why_waiting(state, ahead.uid)
        text = f"queue {queue.name} is StrictFIFO and its head is {ahead.key}, which waits: {behind}"
        return Reason(Code.BEHIND_HEAD, text)
    decision = state.decide(eclass) if queue.vertex is not None else None
    held_up = decision is not None and isinstance(decision.barrier, HELD_UP)
    if eclass.elastic and not held_up and (decision is None or not (decision.fits or decision.preempts)):
        # What the smallest start lacks is what stands in its way.
        decision = Attempt(state.decider, eclass.head, eclass.request, queue.spec, queue.vertex).at(
            eclass.head.least_counts
        )
    if queue.vertex is None or decision is None:
        barrier = _behind(state, record, eclass.level, eclass.barrier if decision is None else decision.barrier)
        return Reason(Code.PENDING_EVALUATION) if barrier is None else barred(barrier)
    if decision.misplaced is not None and state.nodes is not None:
        return _of_nodes(state, state.nodes, decision.misplaced, uid)
    if eclass.unschedulable and decision.victims and decision.barrier is None:
        names = ", ".join(str(victim.allocation) for victim in decision.victims[:HOLDERS_SHOWN])
        text = f"could stop {names}, which started or began to borrow since its last decision"
        return Reason(Code.PENDING_EVALUATION, text, help="it is tried again when anything in its cohort becomes free")
    before = partial(_ahead_of, state, record, decision.assignment.level)
    decision = replace(decision, barrier=_behind(state, record, decision.assignment.level, decision.barrier))
    why = explain(eclass, decision, queue.vertex, state.allocations, before)
    heads = queue.backfills and queue.head() is eclass and eclass.head.uid == uid
    return _with_start(state, eclass, why) if heads and why.code is Code.WAITING_FOR_QUOTA else why


def _behind(
    state: State, record: PendingGang, level: int, barrier: Barrier | Misplaced | None
) -> Barrier | Misplaced | None:
    """Return what blocks a gang; of a ResourceQuota with how many are before it: they may take what becomes free."""
    if not isinstance(barrier, FenceFull):
        return barrier
    gang, queue = record.gang, record.queue
    assert queue is not None
    fence = next((each for each in state.fences.fences(gang.namespace) if each.label == barrier.fence), None)
    if fence is None:
        return barrier

    def asks(other: Gang) -> bool:
        if other.namespace != gang.namespace or other.loose_pods:
            return False
        pods = [(pod_set.price, pod_set.count) for pod_set in other.pod_sets]
        return fence.demand(pods).get(barrier.resource, 0) > 0

    ahead = queue.ahead_of(gang, asks) + _before_elsewhere(state, record, level, lambda eclass: asks(eclass.sample))
    return replace(barrier, ahead=ahead)


def _why_no_larger(state: State, uid: str) -> Reason | None:
    """Return what one more pod of an admitted gang has no room for; None where none is to come, or there is room."""
    allocation = state.allocations.elastic.get(uid)
    if allocation is None or allocation.gang is None or not state.may_grow(allocation):
        return None
    larger = one_more(allocation, joining(state.policy, state.settings))
    if larger is None:
        return None
    usage, vertex = state.allocations.usage, state.allocations.vertex_of(allocation)
    if vertex is not None:
        more = extra(larger.usage(allocation.reclaimed), allocation)
        lacking = [(key, amount) for key, amount in more.items() if amount > usage.available(vertex, key)]
        if lacking:
            blocks = tuple(Block(Code.WAITING_FOR_QUOTA, *each) for each in lacking)
            return _short(blocks, vertex, state.allocations, Mode.FIT, lambda vertex, key: 0)
    held = allocation.reservation.counts
    fence = state.fences.shortfall(
        allocation.gang, {name: count - held.get(name, 0) for name, count in larger.counts.items()}
    )
    if fence is not None or state.nodes is None:
        return None if fence is None else reason_of(fence)
    found = state.decider.more_places(allocation.gang, allocation.reservation, larger)
    return _of_nodes(state, state.nodes, found, uid) if isinstance(found, Misplaced) else None


def _ahead_of(state: State, record: PendingGang, level: int, vertex: Vertex, key: FlavorResource) -> int:
    """Return how many jobs wait before a gang in its queue, or in others below ``vertex`` for the same ``key``."""
    gang, queue = record.gang, record.queue
    assert queue is not None
    count = queue.ahead_of(gang)
    if vertex.is_queue:
        return count

    def asks(eclass: EquivalenceClass) -> bool:
        other = eclass.queue.vertex
        return other is not None and vertex in other.path() and key in eclass.request.keys

    return count + _before_elsewhere(state, record, level, asks)


def _before_elsewhere(state: State, record: PendingGang, level: int, asks: Callable[[EquivalenceClass], bool]) -> int:
    """Return how many jobs of other queues, of classes that ask for the same, wait before a gang.

    They come in the order in which a cycle looks at them; by fair sharing that is theirs only when their turn comes, so
    none of them counts as before it.
    """
    if state.settings.fair_sharing:
        return 0
    gang, count = record.gang, 0
    for other in state.pending.queues.values():
        if other is record.queue or other.closed is not None:
            continue
        for eclass in other.eclasses.values():
            if eclass.ineligible is not None or eclass.hopeless or eclass.never or not asks(eclass):
                continue
            borrows = eclass.level
            if eclass.smallest is not None and other.vertex is not None:
                borrows = state.allocations.usage.highest_level(other.vertex, eclass.smallest)
            group, place = (borrows, -eclass.sample.priority), (gang.created_seconds, gang.uid)
            count += eclass.before(group, (level, -gang.priority), place)
    return count


def _with_start(state: State, head: EquivalenceClass, why: Reason) -> Reason:
    """Return why the head of a Backfill queue waits, with its start as its neighbors are told it."""
    at, vertex = state.backfill.start_of(head, state.fences, state.now), head.queue.vertex
    assert vertex is not None
    found: Blocker
    if at is not None:
        found = StartsBy(at - state.now)
    else:
        holders = state.allocations.largest(vertex.root, FlavorResource(why.flavor, why.resource), HOLDERS_SHOWN)
        unlimited = tuple(str(each) for each in holders if each.end_seconds is None)
        if not unlimited:
            return why
        found = StartUnknown(unlimited)
    return replace(why, help=f"{why.help}; {render(found)}", blockers=(*why.blockers, found))


def _of_nodes(state: State, nodes: Capacity, found: Misplaced, uid: str) -> Reason:
    """Return why a gang finds no nodes: who holds what it lacks matters only where it could start without them."""
    never = None if found.unseen else beyond(nodes, found)
    return never or _with_booked_nodes(state, uid, _with_holders(state, nodes, found, uid))


def _with_holders(state: State, nodes: Capacity, found: Misplaced, uid: str) -> Reason:
    """Return why a gang finds no nodes, with the others who hold most of what it lacks there, and when they end. One
    that has booked nodes is told that by its booking.
    """
    # What it has booked is free for it.
    kept = nodes.unclaim(uid) if uid in state.booked else None
    why = why_misplaced(nodes, found)
    if kept is not None:
        nodes.claim(uid, kept)
    if found.unseen:
        return why
    by_uid, (resource, held) = state.allocations.by_uid, holders(nodes, found)
    known = [(by_uid[each], n) for each, n in held.items() if each != uid and each in by_uid]
    most = nsmallest(HOLDERS_SHOWN, known, key=lambda each: (-each[1], each[0].uid))
    ends = [each.end_seconds for each, _ in most]
    by = [end for end in ends if end is not None]
    text = (
        f"; these end by {time_text(ceil(max(by)))}" if by and len(by) == len(ends) and uid not in state.booked else ""
    )
    told = tuple(Holder(str(each), amount) for each, amount in most)
    return replace(why, resource=resource, holders=told, help=f"{why.help}{text}")


def _with_booked_nodes(state: State, uid: str, why: Reason) -> Reason:
    """Return why a gang finds no nodes, with those that are booked for it, or that the first before it has booked."""
    own, nodes = state.booked.get(uid), state.nodes
    if own is not None:
        awaited = [state.allocations.by_uid[each] for each in own.awaits if each in state.allocations.by_uid]
        if not awaited:
            return why
        ends = [each.end_seconds for each in awaited]
        by = "" if None in ends else f", by {time_text(ceil(max(end for end in ends if end is not None)))}"
        have = "has" if len(awaited) == 1 else "have"
        text = f"it has booked {_nodes_of(own)}, free when {some(awaited, HOLDERS_SHOWN)} {have} ended{by}"
        return replace(why, help=f"{why.help}; {text}")
    if nodes is None or not state.booked:
        return why
    before = next((each for each in state.booked.values() if _keeps_any(nodes, each)), None)
    if before is None:
        return why
    text = f"booked for {before.planned.key}, which goes before it: {_nodes_of(before)}"
    return replace(why, help=f"{why.help}; {text}")


def _keeps_any(nodes: Capacity, booked: Claim) -> bool:
    return any(nodes.withheld(node) for each in booked.planned.pod_sets for node in each.places)


def _nodes_of(booked: Claim) -> str:
    found = sorted({node for each in booked.planned.pod_sets for node in each.places})
    more = f" and {counted(len(found) - NODES_SHOWN, 'more node')}" if len(found) > NODES_SHOWN else ""
    return ", ".join(found[:NODES_SHOWN]) + more


def _claiming(state: State, claim: Claim, vertex: Vertex) -> Reason:
    going = [state.allocations.by_uid[uid] for uid in claim.awaits if uid in state.allocations.by_uid]
    return awaiting(going, vertex)


def awaiting(going: list[Allocation], vertex: Vertex) -> Reason:
    """Return the reason of a gang at ``vertex`` for which others are ``going``."""
    return Reason(
        Code.WAITING_FOR_PREEMPTED,
        f"{some(going, HOLDERS_SHOWN) or 'others'} being stopped to make room",
        where=str(vertex),
        help="it starts when they are gone",
    )
