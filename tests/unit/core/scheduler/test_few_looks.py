"""However few gangs a cycle may look at, the next ones go on where it ended, and come to rest."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scheduler.test_stopping_for_nodes import FAIR, world
from tests.unit.core.worlds import gang, group, queue
from webhook.core.model.policy import Cohort, Flavor, Preemption, PreemptionPolicy, Queue
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine

FLAVORS = (Flavor("fast", {"kind": "fast"}), Flavor("slow", {"kind": "slow"}))
CYCLES = 60
"""After what one gang changes so many are more than enough."""


def queue_of(name: str, chance: Random) -> Queue:
    """A queue of one cohort, with quota of one flavor or of both."""
    never, lower = PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY
    rules = Preemption(
        within_queue=chance.choice([never, lower]),
        reclaim_within_cohort=chance.choice(list(PreemptionPolicy)),
        borrow_within_cohort=chance.choice([never, lower]),
    )
    flavors = chance.choice([("fast",), ("slow",), ("fast", "slow")])
    quotas = group(**{flavor: {"cpu": chance.randint(0, 12)} for flavor in flavors})
    return queue(name, None, quotas, cohort="all", preemption=rules)


def comes_to_rest(seed: int) -> None:
    """Submit gangs of several priorities, end some that run, and let cycles follow until none is due."""
    chance, running = Random(seed), list[str]()
    shared = group(**{each.name: {"cpu": chance.randint(0, 12)} for each in FLAVORS})
    nodes = {f"{chance.choice(FLAVORS).name}-{number}": chance.choice([2, 4]) for number in range(chance.randint(2, 6))}
    queues, fair, looks = [queue_of(name, chance) for name in "abc"], chance.choice([None, FAIR]), chance.randint(1, 3)
    made, _ = world(Cohort("all", None, (shared,)), *queues, nodes=nodes, flavors=FLAVORS, settings=fair)
    for number in range(chance.randint(4, 14)):
        asked = {"cpu": chance.choice([1, 2, 4]), "pods": chance.randint(1, 3), "priority": chance.randint(0, 2)}
        made.submit(gang(f"g{number}", chance.choice("abc"), created=float(number), **asked), float(number))
        running += cycles(made, 100.0 * (number + 1), looks)
        if running and chance.random() < 0.3:
            made.release(running.pop(chance.randrange(len(running))))


def cycles(made: Engine, now: float, looks: int) -> list[str]:
    """Run cycles until none is due; return who was admitted."""
    admitted = list[str]()
    for turn in range(CYCLES):
        admitted += [each.uid for each in made.cycle(now + turn, Fences(), 1, looks=looks).admitted]
        if made.next_wake(now + turn) != now + turn:
            return admitted
    raise AssertionError("cycle after cycle is due at once, though nothing changes")


@pytest.mark.parametrize("seed", [5561, 6725, 10061, 38770])
def test_these_came_to_no_rest(seed: int) -> None:
    """A claim for room that is on no node, asked again in each cycle; heads that each used up the other's searches."""
    comes_to_rest(seed)


@given(st.integers(0, 2**32))
def test_cycles_come_to_rest(seed: int) -> None:
    comes_to_rest(seed)
