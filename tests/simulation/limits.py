"""One cohort whose queues lend and borrow within limits of their own, and have weights where shares are to be fair."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.gpu_pods import GPU
from tests.simulation.trees import Trees
from webhook.core.ledger.record import Reservation
from webhook.core.notation.amounts import FlavorResource

COHORT: Final = "shared"


@dataclass(frozen=True, slots=True)
class Limits:
    """GPUs of one queue: what it owns, lends at most and borrows at most; and its weight."""

    nominal: int
    lends: int
    borrows: int
    weight: str


LIMITS: Final = {"red": Limits(4, 1, 2, "2"), "blue": Limits(4, 4, 3, "1"), "alone": Limits(3, 2, 1, "0.5")}
"""Any job of three pods finds room in what its queue owns."""
USUAL: Final = Trees({queue: (limits.nominal, COHORT) for queue, limits in LIMITS.items()})


def of_queue(queue: str, *, fair: bool) -> dict[str, Any]:
    """Return what a queue's spec says of it beside its nominal quota."""
    preemption: dict[str, Any] = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    if fair:
        return {"cohortName": COHORT, "preemption": preemption, "fairSharing": {"weight": LIMITS[queue].weight}}
    preemption["borrowWithinCohort"] = {"policy": "LowerPriority", "maxPriorityThreshold": 100}
    return {"cohortName": COHORT, "preemption": preemption}


def of_quota(queue: str) -> dict[str, int]:
    """Return the limits that stand beside a queue's nominal quota."""
    return {"borrowingLimit": LIMITS[queue].borrows, "lendingLimit": LIMITS[queue].lends}


def overdrawn(held: Iterable[tuple[Reservation, Mapping[FlavorResource, int]]]) -> str:
    """Return who borrows or lends more than it may, empty when nobody does. ``held`` is what each gang is charged."""
    used = Counter[str]()
    for entry, usage in held:
        used[entry.queue or ""] += sum(amount for key, amount in usage.items() if key.resource == GPU)
    # What a queue does not lend stands ready for it alone; beyond that it takes of what all of them lend.
    taken = sum(max(0, used[queue] - 1000 * (each.nominal - each.lends)) for queue, each in LIMITS.items())
    lent = 1000 * sum(each.lends for each in LIMITS.values())
    over = {queue: used[queue] for queue, each in LIMITS.items() if used[queue] > 1000 * (each.nominal + each.borrows)}
    if over:
        return f"queues borrow more than they may: {over}"
    return f"{taken} is taken of {lent} that queues lend: {dict(used)}" if taken > lent else ""
