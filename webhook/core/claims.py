"""Claims: what becomes of a gang's right to the room that is made for it, until that is free.

A claim is made by the cycle that stops others (``cycle``), stands in the ledger, and is taken up when the room is free.
It lapses when those it counted on are gone and the room does not suffice, or when another gang goes first.
"""

from webhook.core.ledger import Claim, reserve
from webhook.core.queueing import Lane
from webhook.core.state import State
from webhook.core.waiting_room import Ticket


def order(state: State, uid: str) -> tuple[int, float, str]:
    """Return the sort key by which claims are taken up: priority, time, uid."""
    gang = state.room.tickets[uid].gang
    return (-gang.priority, gang.created_seconds, uid)


def lapse(state: State, uid: str) -> None:
    """End a claim and let its gang wait like others."""
    state.drop_claim(uid)
    state.room.unclaim(uid)


def let_heads_pass(state: State) -> None:
    """Let claims in StrictFIFO queues lapse when somebody came in ahead of them: the room is for the head."""
    for uid in list(state.claims):
        lane = state.room.tickets[uid].lane
        head = lane.top() if lane is not None and lane.strict else None
        if head is not None and head.order_key[1:] < order(state, uid):
            lapse(state, uid)


def renew(state: State) -> None:
    """Let the claims of an earlier leader stand.

    The room is kept for a gang that is not known to wait, as its job may not have been read yet, until all that are
    stopped for it are gone. A claim lapses when the gang, or what its queue offers, is another than it was.
    """
    for uid, claim in list(state.pledges.items()):
        lane, ticket = state.room.lanes.get(claim.planned.queue), state.room.tickets.get(uid)
        going = [each for each in claim.awaits if each in state.holdings.by_uid]
        if lane is None or lane.node is None or any(each not in state.holdings.stopping for each in going):
            state.drop_claim(uid)
        elif ticket is None and going:
            state.holdings.promise(uid, lane.node, claim.planned.usage())
        elif ticket is None or ticket.line is None or not _stands(claim, ticket, lane):
            state.drop_claim(uid)
        else:
            state.claims[uid] = state.pledges.pop(uid)
            state.room.claim(ticket.gang, ticket.line)
            state.holdings.promise(uid, lane.node, claim.planned.usage())
            state.stirred = True


def _stands(claim: Claim, ticket: Ticket, lane: Lane) -> bool:
    """Return whether a gang still asks what it claims, and may still have it from that queue and those flavors."""
    gang, line, planned = ticket.gang, ticket.line, claim.planned
    if line is None or line.lane is not lane or line.aside is not None or lane.closed is not None:
        return False
    most, least = gang.counts, gang.least_counts
    if planned.counts.keys() != most.keys() or any(not least[n] <= c <= most[n] for n, c in planned.counts.items()):
        return False
    flavors = {pod_set.name: pod_set.flavors for pod_set in planned.pod_sets}
    asked = reserve(gang, planned.queue, planned.counts, flavors, planned.epoch, 0.0, line.request.charges)
    return asked.pod_sets == planned.pod_sets and line.request.allows(flavors)
