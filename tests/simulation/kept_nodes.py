"""What must hold of each decision: nobody starts on nodes that are kept for another, who claims or has booked them."""

from collections.abc import Callable
from typing import Any

from webhook.assembly import ReconcilerParts
from webhook.core.scheduler.plan import Plan


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
