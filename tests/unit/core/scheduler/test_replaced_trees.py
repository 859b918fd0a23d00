"""Of a policy that another one has followed nothing is kept, whatever waits."""

import gc

from tests.unit.core.worlds import World, cohort, gang, queue
from webhook.core.model.policy import Cohort, Preemption, PreemptionPolicy, Queue
from webhook.core.quota.tree import Vertex

QUEUES = 5


def quotas(owned: int) -> list[Queue | Cohort]:
    reclaims = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    others = [queue(f"q-{number}", 1, cohort="all") for number in range(QUEUES)]
    return [cohort("all", cpu=QUEUES), queue("owner", owned, cohort="all", preemption=reclaims), *others]


def vertices() -> int:
    return sum(isinstance(each, Vertex) for each in gc.get_objects())


def test_what_is_remembered_of_a_tree_goes_with_it() -> None:
    gc.collect()
    before, world = vertices(), World(*quotas(4))
    world.submit(*[gang(f"lent-{number}", f"q-{number}", 2) for number in range(QUEUES)])
    assert world.cycle()
    world.submit(gang("large", "owner", 5 * QUEUES, created=1), gang("next", "owner", 4, created=2))
    for change in range(1, 40):
        world.set_policy(*quotas(4 + change % 2))
        world.cycle()
        allocations = world.engine.state.allocations
        assert allocations.borrowing(allocations.tree.cohorts["all"])
    gc.collect()
    assert vertices() - before <= 3 * (QUEUES + 2)
