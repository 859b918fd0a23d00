"""What must hold of each decision: who starts has a place for each of its pods, no node is given more than it has, and
nobody starts on nodes that are kept for another, who claims or has booked them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.simulation.gpu_pods import GPU
from webhook.assembly.reconciler import ReconcilerParts
from webhook.core.ledger.record import Reservation
from webhook.core.nodes.capacity import Capacity
from webhook.core.scheduler.plan import Plan


def large_to_come(reservation: Reservation, bound: int) -> int:
    """Return what pods of a gang ask that are not bound yet, if they ask more than one GPU each; else 0.

    Where others landed elsewhere than was meant, no node may have as much in one piece any more. The pieces are others'
    then, and the sum of what is reserved says nothing.
    """
    each = max(pod_set.price.requests.get(GPU, 0) for pod_set in reservation.pod_sets)
    return each * max(0, sum(reservation.counts.values()) - bound) if each > 1000 else 0


def not_to_come(reservation: Reservation, live: Mapping[tuple[str, str], int]) -> int:
    """Return what pods ask that a gang which is being stopped has no more, by how many are left of each pod set.

    It is sent no others. If the node of one was meant for another, whose pods come there at last, it has no place.
    """
    if reservation.stopping is None or reservation.adopted:
        return 0
    return sum(
        pod_set.price.requests.get(GPU, 0) * max(0, pod_set.count - live.get((reservation.uid, pod_set.name), 0))
        for pod_set in reservation.pod_sets
    )


def without_room(nodes: Capacity, started: Iterable[Reservation]) -> str:
    """Return whose start has no witness: a place for each pod, on nodes that take it and hold all that is bound and
    kept there; nothing where each has one. What is free is counted here, not believed.
    """
    touched = set[str]()
    for each in started:
        kept, wanted = nodes.allotments.get(each.uid), {name: count for name, count in each.counts.items() if count}
        places = {} if kept is None else {name: on for name, on in kept.places.items() if on}
        if kept is None or {name: sum(on.values()) for name, on in places.items()} != wanted:
            return f"{each} starts with {wanted} pods and has places for {places}"
        written = {pod_set.name: dict(pod_set.places) for pod_set in each.pod_sets if pod_set.count}
        if written != places:
            return f"{each} is to go to {places}, the ledger will say {written}"
        for name, on in places.items():
            if refused := [node for node in on if not kept.shapes[name].admits(nodes.nodes[node])]:
                return f"{each} is to go to {refused}, which do not take its pods"
        touched |= {node for on in places.values() for node in on}
    if not touched:
        return ""
    used = {node: Counter[str]() for node in touched}
    for bound in nodes.all_bound():
        used.get(bound.node, Counter[str]()).update(bound.requests)
    for allotment in nodes.allotments.values():
        for name, on in allotment.places.items():
            for node in on.keys() & touched:
                uses = allotment.shapes[name].uses
                used[node].update({resource: amount * on[node] for resource, amount in uses.items()})
    for node, amounts in used.items():
        has = nodes.nodes[node].capacity
        over = {name: amount for name, amount in amounts.items() if amount > has.get(name, 0)}
        if over:
            return f"{node} has {dict(has)}, bound or kept there are {over}"
    return ""


class KeptNodes:
    """Looks at what every leader decides, within the one call: meanwhile no node and no pod comes or goes."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.kept = 0
        """How often a decision found room that was kept."""
        self.starts = 0
        """How many gangs were started on nodes."""
        self.put_off = 0
        """How often a gang waited for its turn to have its nodes looked at."""

    def watch(self, parts: ReconcilerParts) -> None:
        """Look at the decisions of one process."""
        engine = parts.reconciler.engine
        usual = engine.cycle

        def cycle(*args: Any, **more: Any) -> Plan:
            nodes = None if parts.view.nodes is None else parts.view.nodes.capacity
            kept = [] if nodes is None else [uid for uid in nodes.claimants() if nodes.keeps(uid)]
            plan = usual(*args, **more)
            lost = [] if nodes is None else [uid for uid in kept if uid in nodes.claimants() and not nodes.keeps(uid)]
            if lost:
                self._fail(f"others start on nodes that are kept for {lost}: {[each.key for each in plan.admitted]}")
            self.kept += len(kept)
            self.put_off += 0 if nodes is None else len(nodes.due)
            if nodes is not None and nodes.nodes:
                grown = {each.uid: each for each in plan.grown}
                whole = [grown.get(each.uid, each) for each in plan.admitted]
                started = [each for each in whole if not each.adopted and not each.loose_pods]
                if wrong := without_room(nodes, started):
                    self._fail(wrong)
                self.starts += len(started)
            return plan

        engine.cycle = cycle  # type: ignore[method-assign]
