"""What must hold of each decision: nobody starts on nodes that are kept for another, who claims or has booked them."""

from collections.abc import Callable
from typing import Any

from webhook.assembly import ReconcilerParts
from webhook.core.ledger.record import Reservation
from webhook.core.scheduler.plan import Plan


def large_to_come(reservation: Reservation, bound: int) -> int:
    """Return what pods of a gang ask that are not bound yet, if they ask more than one GPU each; else 0.

    Where others landed elsewhere than was meant, no node may have as much in one piece any more. The pieces are others'
    then, and the sum of what is reserved says nothing.
    """
    each = max(pod_set.price.requests.get("nvidia.com/gpu", 0) for pod_set in reservation.pod_sets)
    return each * max(0, sum(reservation.counts.values()) - bound) if each > 1000 else 0


class KeptNodes:
    """Looks at what every leader decides, within the one call: meanwhile no node and no pod comes or goes."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.kept = 0
        """How often a decision found room that was kept."""

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
            return plan

        engine.cycle = cycle  # type: ignore[method-assign]
