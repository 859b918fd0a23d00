"""Jobs that share a PodGroup, on nodes."""

from tests.unit.core.pod_group.test_ensemble_engine import Shared, job
from tests.unit.core.worlds import queue
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import NodeRecord


def test_an_ensemble_grows_as_far_as_the_nodes_hold_and_each_job_has_its_own_room_there() -> None:
    world, nodes = Shared(queue("q", 9)), Capacity()
    nodes.put_node(NodeRecord("one", {"cpu": 3000}))
    world.engine.know_nodes(nodes)
    world.submit(job("a", pods=3), job("b", pods=3, created=1.0))
    assert world.start() == []
    nodes.put_node(NodeRecord("two", {"cpu": 1000}))
    world.engine.wake_nodes()
    assert world.start() == ["a", "b"]
    nodes.put_node(NodeRecord("three", {"cpu": 1000}))
    world.engine.wake_nodes()
    assert world.start() == []
    held = {uid: entry.counts["main"] for uid, entry in world.ledger.items()}
    assert sum(held.values()) == 5, "the quota has room for 6"
    assert {uid: sum(each.places["main"].values()) for uid, each in nodes.allotments.items()} == held
    assert all(not free["cpu"] for free in nodes.free.values())
