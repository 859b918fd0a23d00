"""What waits unschedulable is remembered once, however often it is decided about again."""

from tests.unit.core.worlds import World, cohort, gang, queue
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.wake_index import SPARE, Need, WakeIndex
from webhook.core.reasons.wake_keys import Freed


def test_a_class_that_is_decided_about_again_and_again_takes_no_more_room_each_time() -> None:
    world = World(queue("q", 1, cohort="all"), cohort("all"))
    world.submit(gang("large", "q", 5))
    (waiting,) = [each for each in world.engine.state.pending.queues.values() if each.eclasses]
    (eclass,), key = waiting.eclasses.values(), FlavorResource("any", "cpu")
    assert waiting.vertex is not None
    need, index = Need(waiting.vertex, key, 5_000), WakeIndex()
    for _ in range(1_000):
        index.mark_unschedulable(eclass, (), (need, (0, 0, 1.0, "large")), [need])
    spot = Freed(need.vertex.index, key)
    bottleneck = index.bottlenecks[spot]
    rows = [row.heap for named in index._rows.values() for row in named.values()]
    heaps = [*index._marks.values(), *bottleneck.heaps.values(), *rows]
    assert len(heaps) == 3
    assert max(map(len, heaps)) <= 2 + SPARE
    assert index.first(bottleneck, 5_000, lambda _: False) is eclass
    assert index.passed(spot, 5_000) == [eclass]
