"""One head a queue, on nodes: heads of one cycle have no room twice, and who lacks nodes has its turn in time."""

from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.worlds import World, gang, group, queue
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import Flavor, NodeFit, Preemption, PreemptionPolicy
from webhook.core.nodes import turns
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.reasons.reasons import Code
from webhook.laboratory.dry_run.one_head import OneHeadEngine

RECLAIMS = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
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


def test_two_heads_are_not_given_the_same_room_on_a_node() -> None:
    made, nodes = world(queue("a", 8), queue("b", 8), n0=4)
    made.submit(gang("x", "a", 4), gang("y", "b", 4))
    assert made.cycle() == ["x"]
    assert nodes.free["n0"]["cpu"] == 0
    assert code(made, "y") is Code.NODES_DO_NOT_FIT
    assert made.cycle() == []
    assert made.end("x").cycle() == ["y"]


def test_a_head_goes_elsewhere_where_an_earlier_one_has_the_node() -> None:
    made, nodes = world(queue("a", 8), queue("b", 8), n0=4, n1=4)
    made.submit(gang("x", "a", 4), gang("y", "b", 4))
    assert made.cycle() == ["x", "y"]
    assert [free["cpu"] for free in nodes.free.values()] == [0, 0]


def test_room_that_is_being_made_on_a_node_is_no_later_heads() -> None:
    """``high`` has two of the four that are free, and those of its victim."""
    made, nodes = world(queue("a", 4, preemption=LOWER), queue("b", 8), n0=6)
    made.submit(gang("low", "a", 2)).cycle()
    plan = made.submit(gang("high", "a", 4, priority=1), gang("other", "b", 4, created=1)).plan()
    assert [each.uid for each in plan.preempted] == ["low"]
    assert plan.admitted == ()
    assert made.end("low").cycle() == ["high"]
    assert nodes.free["n0"]["cpu"] == 2000


def test_who_starts_at_once_counts_on_no_room_that_others_will_leave() -> None:
    """``low`` leaves two more than it is stopped for; until then two are free."""
    made, nodes = world(queue("a", 4, preemption=LOWER), queue("b", 2), queue("d", 2), n0=6)
    made.submit(gang("low", "a", 4)).cycle()
    plan = made.submit(gang("high", "a", 2, priority=1), gang("x", "b", 2), gang("y", "d", 2, created=1)).plan()
    assert [each.uid for each in plan.preempted] == ["low"]
    assert [each.uid for each in plan.admitted] == ["x"]
    assert nodes.free["n0"]["cpu"] == 0
    assert made.end("low").cycle() == ["high", "y"]


def test_who_is_enough_to_be_gone_for_two_heads_on_its_node_is_all_that_is_stopped() -> None:
    rules = Preemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY)
    owners = [queue(name, cpu, cohort="c", preemption=rules) for name, cpu in (("a", 2), ("b", 4))]
    made, _ = world(*owners, queue("guest", 0, cohort="c"), n0=4, n1=2)
    made.submit(gang("wide", "guest", 4)).cycle()
    made.submit(gang("low", "b", 2)).cycle()
    plan = made.submit(gang("x", "a", 2, priority=2), gang("y", "b", 2, priority=1)).plan()
    assert [(each.uid, each.by) for each in plan.preempted] == [("wide", "x")]
    assert made.end("wide").cycle() == ["x", "y"]


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


SIZES = st.integers(1, 6)
STEPS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from("abd"), SIZES, st.integers(1, 3), st.integers(0, 1)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("other"), st.integers(0, 2), SIZES),
    st.tuples(st.just("cycle")),
)


@settings(max_examples=80, deadline=None)
@given(steps=st.lists(STEPS, min_size=5, max_size=30), rules=st.sampled_from((Preemption(), RECLAIMS, LOWER)))
def test_no_node_is_overfull_and_when_all_is_quiet_nobody_waits_who_fits(
    steps: list[tuple[Any, ...]], rules: Preemption
) -> None:
    """Few nodes, few looks at them in a round, and pods of others that come and go."""
    queues = [queue("a", 6, cohort="c", preemption=rules), queue("b", 4, cohort="c"), queue("d", 9, preemption=rules)]
    with patch.multiple(turns, ROUND_SHAPES=1):
        made, nodes = world(*queues, n0=6, n1=4, n2=4)
        gangs, running, going = dict[str, Gang](), dict[str, Reservation](), list[str]()

        def cycle() -> None:
            plan = made.plan()
            running.update({each.uid: each for each in plan.admitted})
            going.extend(each.uid for each in plan.preempted)
            assert all(free["cpu"] >= 0 for free in nodes.free.values())

        def end(uid: str) -> None:
            del running[uid]
            made.end(uid)

        for number, (step, *chosen) in enumerate([*steps, *([("cycle",)] * 25)]):
            if step == "submit":
                name, cpu, pods, priority = chosen
                gangs[f"g{number}"] = gang(f"g{number}", name, cpu, pods, priority=priority, created=float(number))
                made.submit(gangs[f"g{number}"])
            elif step == "end" and running:
                end(sorted(running)[chosen[0] % len(running)])
            elif step == "other":
                node, cpu = f"n{chosen[0]}", chosen[1] * 1000
                if nodes.bound(node) is not None:
                    nodes.unbind(node)
                    made.engine.wake_nodes()
                elif nodes.free[node]["cpu"] >= cpu:
                    nodes.bind(node, Bound(node, {"cpu": cpu}))
            elif step == "cycle":
                cycle()
                for uid in [uid for uid in going if uid in running]:
                    end(uid)
                going.clear()
    if rules == Preemption():
        fresh = World(*queues)
        fresh.engine.know_nodes(nodes)
        for uid, held in running.items():
            fresh.engine.restore(held, gangs[uid])
        fresh.submit(*made.engine.waiting())
        assert fresh.cycle() == []
