"""What is in a blocked class's way, and so what may wake it.

A class that can only ever start by room becoming free waits at the bottleneck, the vertex that refused it. One that
might turn to another flavor or size, that might stop others as soon as a little is freed, or that only a promise keeps
out, is looked at whenever anything it asks for is freed anywhere in its tree.
"""

from collections.abc import Mapping
from dataclasses import replace

from webhook.core.assignment.decision import Attempt, Decision
from webhook.core.assignment.flavors import Mode
from webhook.core.backfill.heads import before_heads, lacks_nodes
from webhook.core.model.policy import PreemptionPolicy
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.pending_queue import EquivalenceClass
from webhook.core.pending.wake_index import BottleneckOrder, Need
from webhook.core.placement.beyond import beyond
from webhook.core.quota.tree import AmountsByFlavor, Usage, Vertex
from webhook.core.reasons.barriers import BehindHead
from webhook.core.reasons.reasons import Code
from webhook.core.reasons.wake_keys import (
    BesideHead,
    Freed,
    NamespaceFences,
    NodesFreed,
    NodesTurn,
    QueueHead,
    Releasing,
    WakeKey,
)
from webhook.core.scheduler.state import State


def mark_unschedulable(state: State, eclass: EquivalenceClass, decision: Decision) -> None:
    """Set a blocked class aside until something that is in its way changes."""
    before, eclass.barrier = eclass.barrier, decision.barrier
    led = not eclass.queue.backfills or eclass.queue.head() is eclass
    least, vertex = smallest(state, eclass, decision), eclass.queue.vertex
    short = short_of(eclass, decision, least)
    # All of it may never have quota where its smallest start has, and only the nodes have no room for that.
    for_nodes = least is not None and least.misplaced is not None
    eclass.hopeless = _is_beyond_nodes(state, eclass, decision) or not (short or for_nodes or decision.barrier)
    if eclass.hopeless:
        # It waits for other nodes, and until there are some it goes behind nobody.
        decision = replace(decision, held_up_by=None, owed=None)
    behind_head = next((each for each in (decision.barrier, decision.held_up_by) if isinstance(each, BehindHead)), None)
    wake_on = beside_quota(state, eclass, decision, least)
    found, eclass.short_of = decision.misplaced, None
    if found is not None and found.certain and decision.assignment.mode is Mode.FIT and not eclass.shifting:
        eclass.short_of = found.asked
    head, marks = None if eclass.shifting or behind_head is None else behind_head.beside, list[Need]()
    # Another flavor than the one that it leaves to others will do.
    keys = sorted(eclass.request.keys) if decision.owed is not None or behind_head else list(short)
    if decision.owed is not None:
        wake_on.append(decision.owed)
        state.guard.watch(decision.owed)
    elif behind_head and vertex is not None and head is not None and _can_stop_nobody(state, eclass, vertex, decision):
        sides, marks = _rights_to_come(state.allocations.projected, vertex, decision.assignment.usage)
        wake_on = [
            BesideHead(head),
            before_heads(eclass.queue),
            *sides,
            *([NodesFreed()] if decision.held_up_by else []),
        ]
        keys = []
    elif behind_head:
        # Another head goes, or it becomes the head of its own queue.
        queues = (eclass.queue, *(() if vertex is None else state.pending.backfilling.get(vertex.root, ())))
        wake_on += [QueueHead(queue.name) for queue in queues]
    elif decision.barrier is not None and eclass.queue.backfills and eclass.queue.head() is eclass:
        # It waits for a fence: nobody else has to wait for it.
        state.pending.wake(QueueHead(eclass.queue.name))
    if vertex is not None and keys:
        _mark_in_tree(state, eclass, decision, keys, wake_on)
    else:
        state.pending.mark_unschedulable(eclass, wake_on, marks=marks)
    turned = lacks_nodes(before) is not lacks_nodes(decision.barrier)
    if led and (eclass.hopeless or (eclass.queue.backfills and turned)):
        state.pending.head_changed(eclass.queue)


def _is_beyond_nodes(state: State, eclass: EquivalenceClass, decision: Decision) -> bool:
    """Return whether a gang of a Backfill queue has quota, and the nodes never hold it: it is in nobody's way then."""
    nodes = state.nodes
    if nodes is None or not eclass.queue.backfills:
        return False
    found = decision.misplaced
    if found is None or found.unseen:
        return False
    if decision.assignment.mode is not Mode.FIT or eclass.shifting or eclass.elastic:
        return False
    # That no node is large enough is found at a glance: a tenant may submit hundreds of such jobs.
    largest, shape = nodes.largest, found.asked.shape
    return not largest.might_take(shape) or nodes.eligible(shape).no_such_node or beyond(nodes, found) is not None


def smallest(state: State, eclass: EquivalenceClass, decision: Decision) -> Decision | None:
    """Return what could be done for the smallest start of a class; None where it has one size, or no need."""
    queue = eclass.queue
    if not eclass.elastic or queue.vertex is None or decision.fits:
        return None
    attempt = Attempt(state.decider, eclass.head, eclass.request, queue.spec, queue.vertex)
    if queue.heads(eclass):
        # What the queue keeps for its head is not in that one's own way.
        state.allocations.lift(QueueHead(queue.name))
    least = attempt.at(eclass.head.least_counts)
    state.allocations.put_back()
    return least


def beside_quota(state: State, eclass: EquivalenceClass, decision: Decision, least: Decision | None) -> list[WakeKey]:
    """Return what else than freed quota may help a class, ``least`` being its smallest start: more room at its fences
    or on nodes, or a look at these that was put off.
    """
    fenced = decision.barrier is not None or (eclass.elastic and bool(state.fences.fences(eclass.sample.namespace)))
    wake_on: list[WakeKey] = [NamespaceFences(eclass.sample.namespace)] if fenced else []
    if decision.misplaced is not None:
        wake_on = [NodesFreed()]
    elif least is not None and least.misplaced is not None:
        wake_on.append(NodesFreed())
    if decision.postponed or (least is not None and least.postponed):
        wake_on.append(NodesTurn(eclass.head.uid))
    return wake_on


def short_of(eclass: EquivalenceClass, decision: Decision, least: Decision | None) -> dict[FlavorResource, None]:
    """Return what would have to be freed for a class to start, ``least`` being its smallest start; empty where no room
    helps.
    """
    blocks = decision.assignment.blocks
    if least is not None:
        # The whole gang may never fit where its smallest start only waits.
        blocks += least.assignment.blocks
    keys = dict.fromkeys(b.key for b in blocks if b.code is Code.WAITING_FOR_QUOTA)
    if keys and decision.assignment.mode is not Mode.NO_FIT:
        # Which gangs it may stop depends on what it borrows, and by how much: that may be a key that has room.
        keys |= dict.fromkeys(decision.assignment.usage)
    if eclass.request.has_alternatives and (keys or len(eclass.request.choices) > 1):
        # Another flavor for one pod set may leave room, or somebody to stop, for the next.
        options = [option for choice in eclass.request.choices for option in choice.options if option.misfit is None]
        keys |= dict.fromkeys(key for option in options for key in option.keys)
    return keys


def _mark_in_tree(
    state: State, eclass: EquivalenceClass, decision: Decision, keys: list[FlavorResource], wake_on: list[WakeKey]
) -> None:
    """Set a class aside under ``wake_on`` and at the vertex that refuses it; where others may help it, until any of
    ``keys`` is freed in its tree.
    """
    vertex, need = eclass.queue.vertex, None
    assert vertex is not None
    if _waits_for_room_only(state, eclass, vertex, decision):
        amounts = eclass.request.amounts(decision.counts)
        need = _refused(state.allocations.usage, vertex, keys[0], amounts)
    if need is None:
        state.pending.mark_unschedulable(eclass, [*wake_on, *(Freed(vertex.root.index, key) for key in keys)])
        return
    if eclass.queue.heads(eclass):
        wake_on += [Releasing(vertex.root.index, key) for key in keys]
    below = [each for each in vertex.path() if each.height <= need.vertex.height]
    wake_on += [Freed(each.index, need.key) for each in below if need.key in each.local]
    view = state.allocations.projected
    marks = [mark for key, amount in amounts.items() for mark in _marks(view, vertex, key, amount)]
    gang = eclass.head
    order: BottleneckOrder = (decision.assignment.level, -gang.priority, gang.created_seconds, gang.uid)
    state.pending.mark_unschedulable(eclass, wake_on, (need, order), marks)


def _rights_to_come(view: Usage, queue: Vertex, amounts: AmountsByFlavor) -> tuple[list[WakeKey], list[Need]]:
    """Return where less has to be used for the queue's side of the tree to own all of ``amounts``, at any height: then
    it has a right before the heads that are not on that side.
    """
    wake_on: list[WakeKey] = []
    marks: list[Need] = []
    sides = [each for each in queue.path() if each.parent is not None]
    for key, amount in amounts.items():
        if any(key in each.local for each in sides):
            # How much arrives at the sides above depends on what is used below.
            wake_on += [Freed(each.index, key) for each in sides]
        else:
            marks += [Need(each, key, amount) for each in sides if amount and view.borrowing_with(each, key, amount)]
    return wake_on, marks


def _waits_for_room_only(state: State, eclass: EquivalenceClass, vertex: Vertex, decision: Decision) -> bool:
    """Return whether nothing but room at the vertex that refused it can let the class's head start."""
    settings = state.settings
    if eclass.shifting or settings.fair_sharing:
        return False
    if decision.barrier is not None or eclass.queue.keeps_quota(eclass):
        # What a blocked head holds back of its queue's own quota is measured again after each change.
        return False
    return _can_stop_nobody(state, eclass, vertex, decision)


def _can_stop_nobody(state: State, eclass: EquivalenceClass, vertex: Vertex, decision: Decision) -> bool:
    """Return whether the head of ``eclass`` can have nobody stopped until its own side of the tree uses less or
    somebody is admitted to its queue.
    """
    queue, view = eclass.queue.spec, state.allocations.projected
    assert queue is not None
    rules = queue.preemption
    if rules.within_queue is rules.reclaim_within_cohort is PreemptionPolicy.NEVER:
        return True
    if state.settings.fair_sharing:
        return False
    lowest = state.allocations.lowest_priority(vertex.name)
    if lowest is not None and rules.may_stop_own(eclass.sample.priority, lowest):
        return False
    if rules.reclaim_within_cohort is PreemptionPolicy.NEVER:
        return True
    if rules.borrow_within_cohort is not PreemptionPolicy.NEVER:
        return False
    amounts = eclass.request.amounts(decision.counts)
    return decision.assignment.mode not in (Mode.PREEMPT, Mode.RECLAIM) and not any(
        view.borrow_level(vertex, key, amount)[1] for key, amount in amounts.items()
    )


def _refused(usage: Usage, vertex: Vertex, key: FlavorResource, amounts: Mapping[FlavorResource, int]) -> Need | None:
    """Return what the vertex that refuses ``key`` needs room for; None when only a promise is in the way."""
    found = usage.binding(vertex, key, amounts[key])
    return None if found is None else Need(found[0], key, found[1])


def _marks(view: Usage, queue: Vertex, key: FlavorResource, amount: int) -> list[Need]:
    """Return what the queue and cohorts below the root would have to own unused for it to borrow less high up."""
    marks: list[Need] = []
    rest = amount
    for vertex in queue.path():
        if vertex.parent is None or not view.borrowing_with(vertex, key, rest):
            break
        marks.append(Need(vertex, key, rest))
        rest -= view.local_available(vertex, key)
    return marks
