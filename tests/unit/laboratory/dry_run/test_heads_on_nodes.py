"""One head a queue, on nodes: who lacks them has its turn in time."""

from typing import Any
from unittest.mock import patch

from tests.unit.core.worlds import World, gang, group, queue
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import Flavor, NodeFit, Preemption, PreemptionPolicy
from webhook.core.nodes import turns
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.reasons.reasons import Code
from webhook.laboratory.dry_run.one_head import OneHeadEngine

LOWER = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)


def world(*queues: Any, **nodes: int) -> tuple[World, Capacity]:
    """A world whose nodes have so much cpu."""
    made, there = World(*queues, engine=OneHeadEngine()), Capacity()
    for name, cpu in nodes.items():
        there.put_node(NodeRecord(name, {"cpu": 1000 * cpu}))
    made.engine.know_nodes(there)
    return made, there


def code(made: World, name: str) -> Code:
    reason = made.engine.reason(name)
    assert reason is not None
    return reason.code


def wide(name: str, shapes: int, **more: Any) -> Gang:
    """A gang of so many pods, no two alike."""
    sets = tuple(PodSet(f"s{number}", 1, PodPrice({"cpu": 100 + number})) for number in range(shapes))
    return gang(name, "q", pod_sets=sets, **more)


def test_who_has_had_no_look_at_nodes_starts_once_there_was_one() -> None:
    made, _ = world(queue("q", 1000), n0=64)
    made.submit(wide("wide", turns.ROUND_SHAPES + 2))
    assert made.cycle() == []
    assert code(made, "wide") is Code.PENDING_EVALUATION
    assert made.cycle() + made.cycle() == ["wide"]


def test_who_lacks_nodes_has_its_turn_when_some_come_free() -> None:
    made, nodes = world(queue("a", 8), n0=4)
    nodes.bind("foreign", Bound("n0", {"cpu": 1000}))
    assert made.submit(gang("x", "a", 4)).cycle() == []
    assert code(made, "x") is Code.NODES_DO_NOT_FIT
    assert made.cycle() == []
    nodes.unbind("foreign")
    made.engine.wake_nodes()
    assert made.cycle() == ["x"]


def test_a_look_that_is_put_off_takes_no_place_from_who_others_were_stopped_for() -> None:
    """Of two that ask the same it was ``wide1`` for which ``low`` was stopped."""
    made, nodes = world(queue("q", 10, preemption=LOWER), n0=64)
    made.submit(gang("low", "q", 10)).cycle()
    made.submit(wide("wide1", 20, priority=1, created=1.0))
    assert [each.uid for each in made.plan().preempted] == ["low"]
    made.end("low").submit(wide("wide0", 20, priority=1))
    # What was seen of the node is forgotten, and there is time for one look in the next round.
    nodes._decided.rankings.clear()
    with patch.multiple(turns, ROUND_SHAPES=1):
        started = [name for _ in range(45) for name in made.cycle()]
    assert started == ["wide1", "wide0"]


def test_a_look_that_is_put_off_sends_nobody_to_the_next_flavor_and_lets_nobody_of_the_queue_pass() -> None:
    kinds = (Flavor("own", {"kind": "own"}), Flavor("rented", {"kind": "rented"}, node_fit=NodeFit.OBSERVE))
    both, there = queue("q", None, group(own={"cpu": 100}, rented={"cpu": 100})), Capacity()
    made = World(both, engine=OneHeadEngine(), flavors=kinds)
    there.put_node(NodeRecord("n0", {"cpu": 64000}, {"kind": "own"}))
    made.engine.know_nodes(there)
    made.submit(wide("wide", 3), gang("narrow", "q", created=1.0))
    with patch.multiple(turns, ROUND_SHAPES=1):
        started = [each for _ in range(9) for each in made.plan().admitted]
    assert [each.name for each in started] == ["wide", "narrow"]
    assert {flavor for each in started[0].pod_sets for flavor in each.flavors.values()} == {"own"}
