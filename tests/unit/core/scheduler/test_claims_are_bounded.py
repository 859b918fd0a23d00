"""What settling claims may cost a cycle, in gangs that are looked at: never in time."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.core.worlds import LABELS, gang, policy, queue
from webhook.core.model.policy import Preemption, PreemptionPolicy
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.allocations import Allocations
from webhook.core.quota.fences import Fences
from webhook.core.scheduler import claims
from webhook.core.scheduler.engine import Engine

STOPPED = 60
EACH = 4
"""Pods of each gang that claims, and so many gangs are stopped for it."""
CLAIMS = STOPPED // EACH
LOOKS = STOPPED
RULES = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)


def with_quota(made: Engine, cpu: int) -> None:
    made.set_policy(policy(queue("q", cpu, preemption=RULES)), LABELS, 0.0)


def claiming() -> tuple[Engine, Capacity, list[str]]:
    """Gangs that claim what others leave, each with a node for itself; return also the uids of those that stop."""
    made, there = Engine(), Capacity()
    with_quota(made, STOPPED)
    for number in range(STOPPED):
        there.put_node(NodeRecord(f"node-{number:03}", {"cpu": MILLI}))
        made.submit(gang(f"low-{number:03}", "q", created=float(number)), 0.0)
    made.know_nodes(there)
    assert len(made.cycle(0.0, Fences(), 1).admitted) == STOPPED
    for number in range(CLAIMS):
        made.submit(gang(f"high-{number:03}", "q", pods=EACH, priority=5, created=100.0 + number), 1.0)
    going = [each.uid for each in made.cycle(1.0, Fences(), 1).preempted]
    assert (len(going), len(made.claims())) == (STOPPED, CLAIMS)
    return made, there, going


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often what was asked, and of how many gangs, until it is cleared."""
    found = Counter[str]()

    def counted(owner: Any, name: str, number: Callable[..., int]) -> None:
        original = getattr(owner, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            found[name] += number(*arguments, **named)
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, noted)

    counted(Allocations, "vertex_of", lambda *_: 1)
    counted(claims, "places_of", lambda state, uid, gone=(): len(list(gone)))
    return found


def test_a_gang_that_many_claims_await_is_looked_at_once_in_a_cycle(counts: Counter[str]) -> None:
    made, _, going = claiming()
    awaited = sum(len(each.awaits) for each in made.claims().values())
    assert awaited > 5 * STOPPED, "they await each other's, too"
    made.release(going[-1])
    counts.clear()
    assert made.cycle(2.0, Fences(), 1, looks=LOOKS).admitted == ()
    assert counts["vertex_of"] <= 2 * STOPPED


def test_claims_whose_nodes_are_lost_look_for_others_a_few_in_a_cycle_until_all_have_looked(
    counts: Counter[str],
) -> None:
    made, there, going = claiming()
    # The last of them find no room any more, wherever the first may go.
    for number in range(0, STOPPED, 2):
        there.bind(f"other-{number}", Bound(f"node-{number:03}", {"cpu": MILLI}))
    made.wake_nodes()
    turns, all_looked = 0, 0
    while turns == 0 or made.next_wake(2.0) is not None:
        counts.clear()
        assert made.cycle(2.0, Fences(), 1, looks=LOOKS).admitted == ()
        # The one that goes beyond the limit ends the cycle: it looks at those it awaits, and at all that stop.
        assert counts["places_of"] <= LOOKS + 2 * STOPPED
        all_looked += counts["places_of"]
        turns += 1
        assert turns < 20 * CLAIMS, "it comes to an end"
    assert turns > 2
    assert all_looked > 5 * LOOKS
    for uid in going:
        made.release(uid)
    admitted = made.cycle(3.0, Fences(), 1).admitted
    assert sum(each.counts["main"] for each in admitted) == STOPPED // 2 // EACH * EACH, "what is left is used"
