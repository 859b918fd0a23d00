"""Claims: what becomes of a gang's right to the room that is being made for it, until the room is free.

The cycle that stops others makes the claim (``cycle``), and the same write of the ledger has both. From then on the
projected usage keeps the room (``allocations.promise``). When the room is free, a cycle turns the claim into a
reservation. Room does not remember who left it: another claim, or a newcomer, may take it if as much comes from others
that are being stopped. Then the claim awaits those. It lapses when nobody is left to wait for, or when another gang
goes first.

A new leader reads claims before it knows all gangs. While the one that claims is not known to wait, the room is
kept and nobody starts in it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from webhook.core.ledger.bounds import fits_alone
from webhook.core.ledger.record import Claim, Reservation, reserve, with_places
from webhook.core.model.gang import PodSet
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.claimed import Claimed
from webhook.core.nodes.shape import shape_of
from webhook.core.pending.pending_queue import PendingGang, PendingQueue
from webhook.core.placement.misplaced import Misplaced
from webhook.core.quota.allocations import Allocations
from webhook.core.quota.tree import AmountsByFlavor, Vertex
from webhook.core.scheduler.state import State


def order(state: State, uid: str) -> tuple[int, float, str]:
    """Return the sort key by which claims are taken up: priority, time, uid."""
    return state.order(uid)


def lapse(state: State, uid: str) -> None:
    """End a claim and let its gang wait like others."""
    state.drop_claim(uid)
    state.pending.unclaim(uid)


def let_heads_pass(state: State) -> None:
    """Let claims in StrictFIFO queues lapse when somebody came in ahead of them: the room is for the head."""
    for uid in state.claimants():
        queue = state.pending.records[uid].queue
        head = queue.top() if queue is not None and queue.strict else None
        if head is not None and head.order_key[1:] < state.order(uid):
            lapse(state, uid)


def await_others(state: State, uid: str) -> list[str]:
    """Let a claim whose victims are gone await all others of its tree that are being stopped, if what they leave makes
    up for what has been taken of its room; else it lapses. Return their uids.
    """
    allocations, claim, gang = state.allocations, state.claims[uid], state.pending.records[uid].gang
    vertex, amounts = allocations.promises[uid]
    allocations.looked_at += len(allocations.stopping)
    others = [each for each in sorted(allocations.stopping) if _draws_on(allocations, each, vertex, amounts)]
    gone = {job for each in others for job in allocations.by_uid[each].reservation.jobs}
    allocations.lift(uid)
    suffices = allocations.projected.fits(vertex, amounts)
    allocations.put_back()
    if others and suffices and state.fences.shortfall(gang, claim.planned.counts, gone) is None:
        state.claims[uid] = replace(claim, awaits=tuple(others))
        if has_places(state, uid, others):
            return others
    lapse(state, uid)
    return []


def places_of(state: State, uid: str, gone: Iterable[str] = ()) -> Allotment | Misplaced | None:
    """Return where a gang that claims would go if those it ``gone`` were, or why nowhere; None where that is not asked.

    What is kept for it is its own; what is kept for others is not.
    """
    planned, gang = state.claims[uid].planned, state.pending.records[uid].gang
    kept = None if state.nodes is None else state.nodes.unclaim(uid)
    places = state.decider.places(gang, planned.counts, planned.flavors, state.decider.uids(gone))
    if state.nodes is not None and kept is not None:
        state.nodes.claim(uid, kept)
    return places


def may_go_on(state: State, uid: str, waits: Sequence[str]) -> bool:
    """Return whether a claim without room stands: there are nodes for it once those it ``waits`` for are gone,
    or its nodes are looked at in a later round only.
    """
    if waits:
        return has_places(state, uid, waits)
    places = places_of(state, uid)
    return isinstance(places, Misplaced) and places.postponed


def has_places(state: State, uid: str, waits: Iterable[str]) -> bool:
    """Return whether a gang that claims has nodes to go to once those are gone that it ``waits`` for: those that are
    kept for it, or others, if they went away or somebody else's pods came there.
    """
    if state.nodes is None or state.nodes.keeps(uid):
        return True
    waits = list(waits)
    places = places_of(state, uid, waits)
    if places is None or (isinstance(places, Misplaced) and places.postponed):
        # Nobody was looked at: as nothing is kept, it is asked in each cycle.
        return True
    state.allocations.looked_at += 1 + len(waits)
    if isinstance(places, Misplaced):
        return False
    keep_places(state, uid, places)
    return True


def keep_places(state: State, uid: str, places: Allotment | None) -> None:
    """Keep room on nodes for a gang that claims, and have its claim say where, if that does not make it too long."""
    claim, nodes = state.claims[uid], state.nodes
    if nodes is None or places is None:
        return
    awaits = (each for each in claim.awaits if each in state.allocations.by_uid)
    nodes.claim(uid, Claimed(places, set(state.decider.uids(awaits))))
    planned = with_places(claim.planned, places.places)
    state.claims[uid] = replace(claim, planned=planned if fits_alone(planned) else with_places(claim.planned, {}))


def know_nodes(state: State, nodes: Capacity | None) -> None:
    """Decide by other nodes, and keep there what claims name; nothing is kept any more on those known until now."""
    if state.nodes is not None:
        for uid in state.claims:
            state.nodes.unclaim(uid)
    state.nodes = nodes
    for uid in [each for each in state.claims if each in state.allocations.promises]:
        keep_places(state, uid, _places_in(state.claims[uid].planned))


def _draws_on(allocations: Allocations, uid: str, vertex: Vertex, amounts: AmountsByFlavor) -> bool:
    allocation = allocations.by_uid[uid]
    home = allocations.vertex_of(allocation)
    return home is not None and home.root is vertex.root and any(allocation.amounts.get(key) for key in amounts)


def renew(state: State) -> None:
    """Look at each claim of a gang that is not claiming yet: it goes on if its gang waits and still asks the same.

    While the gang is not known to wait, as its job may not have been read yet, the room is kept until all that are
    stopped for it are gone.
    """
    for uid in state.claimants(known=False):
        claim = state.claims[uid]
        queue, record = state.pending.queues.get(claim.planned.queue), state.pending.records.get(uid)
        waits = any(each in state.allocations.stopping for each in claim.awaits)
        if queue is None or queue.vertex is None or not (waits if record is None else _asks_it(record, claim, queue)):
            state.drop_claim(uid)
            continue
        if uid not in state.allocations.promises:
            state.allocations.promise(uid, queue.vertex, claim.planned.usage())
            keep_places(state, uid, _places_in(claim.planned))
        if record is not None and record.eclass is not None:
            state.pending.claim(record.gang, record.eclass)
            state.stirred = True


def _asks_it(record: PendingGang, claim: Claim, queue: PendingQueue) -> bool:
    """Return whether a gang still asks what it claims, and may still have it from ``queue`` and the flavors claimed."""
    gang, eclass, planned = record.gang, record.eclass, claim.planned
    if eclass is None or eclass.queue is not queue or eclass.ineligible is not None or queue.closed is not None:
        return False
    most, least = gang.counts, gang.least_counts
    if planned.counts.keys() != most.keys() or any(not least[n] <= c <= most[n] for n, c in planned.counts.items()):
        return False
    flavors = planned.flavors
    asked = reserve(gang, planned.queue, planned.counts, flavors, planned.epoch, 0.0, eclass.request.charges)
    return asked.pod_sets == with_places(planned, {}).pod_sets and eclass.request.allows(flavors)


def _places_in(planned: Reservation) -> Allotment | None:
    """Return the places that a claim was read with; what else its pods ask of nodes is known when their gang is."""
    shapes = {
        each.name: shape_of(PodSet(each.name, each.count, each.price)) for each in planned.pod_sets if each.places
    }
    places = {each.name: dict(each.places) for each in planned.pod_sets if each.places}
    return Allotment(shapes, places) if places else None
