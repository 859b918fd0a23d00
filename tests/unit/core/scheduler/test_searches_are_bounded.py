"""What searching for nodes may cost a cycle, in nodes that are looked at: never in time."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scheduler.test_nodes import admitted
from tests.unit.core.scheduler.test_stopping_for_nodes import FAIR, POLICIES, PREEMPTS, SIZES, stopped, world
from tests.unit.core.worlds import cohort, gang, queue
from webhook.core.assignment.decision import Decider
from webhook.core.model.gang import Nearness, PodPrice, PodSet, Toleration
from webhook.core.model.policy import Preemption
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.nodes.shape import Shape
from webhook.core.placement import ceilings, vacated
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.placement.vacated import Vacated
from webhook.core.quota.fences import Fences
from webhook.core.scheduler import booked_nodes
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan

NODES = 60


def full() -> tuple[Engine, Capacity]:
    """A node for each gang: every second one may be stopped by nobody."""
    made, there = world(
        queue("q", 100 * NODES, preemption=PREEMPTS), nodes={f"node-{number:03}": 4 for number in range(NODES)}
    )
    for number in range(NODES):
        made.submit(gang(f"g{number:03}", "q", cpu=4, priority=9 * (number % 2), created=float(number)), 0.0)
    assert len(admitted(made)) == NODES
    return made, there


def racked(made: Engine, there: Capacity) -> None:
    for number, node in enumerate(sorted(there.nodes.values(), key=lambda each: each.name)):
        there.put_node(replace(node, labels={**node.labels, "rack": f"r{number // 4}"}))
    made.wake_nodes()


@pytest.mark.parametrize("near", [None, Nearness("rack", required=True), Nearness("", False, "rack", 3)])
def test_while_others_end_who_finds_no_nodes_looks_only_at_those_that_they_leave(near: Nearness | None) -> None:
    made, there = full()
    racked(made, there)
    wide = gang("wide", "q", cpu=4, pods=NODES if near is None or near.slice_size else 5, priority=5, created=99.0)
    made.submit(replace(wide, pod_sets=tuple(replace(each, near=near) for each in wide.pod_sets)), 1.0)
    assert stopped(made) == []
    for turn, uid in enumerate([f"g{number:03}" for number in range(20)]):
        before = there.looked
        made.release(uid)
        assert stopped(made, 3.0 + turn) == []
        looked = there.looked - before
        assert looked <= 4 * (turn + 2), "those that are free are looked at for each question, and no others"
    assert "wide" in {each.uid for each in made.waiting()}


def test_others_are_stopped_as_soon_as_what_ended_and_what_they_hold_is_enough() -> None:
    made, _ = full()
    made.submit(gang("wide", "q", cpu=4, pods=NODES // 2 + 3, priority=5, created=99.0), 1.0)
    assert stopped(made) == []
    for turn, uid in enumerate(("g000", "g001", "g003")):
        made.release(uid)
        assert stopped(made, 3.0 + turn) == []
    made.release("g005")
    assert len(stopped(made, 9.0)) == NODES // 2 - 1


def test_no_pods_are_placed_to_see_that_no_rack_will_hold_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    made, there = full()
    racked(made, there)
    placed: list[object] = []

    def counted(*args: Any, **named: Any) -> Allotment | Misplaced:
        placed.append(args)
        return place(*args, **named)

    monkeypatch.setattr(vacated, "place", counted)
    wide = gang("wide", "q", cpu=4, pods=5, priority=99, created=99.0)
    near = Nearness("rack", required=True)
    made.submit(replace(wide, pod_sets=tuple(replace(each, near=near) for each in wide.pod_sets)), 1.0)
    assert stopped(made) == []
    assert not placed


def test_who_asks_what_nobody_asked_before_waits_until_earlier_searches_are_made_up_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(booked_nodes, "LOOKS", 10)
    made, there = full()
    searched: set[str] = set()
    usual = Decider.vacated

    def counted(decider: Decider, gang: object, *args: object) -> Vacated | None:
        searched.add(gang.uid)  # type: ignore[attr-defined]
        return usual(decider, gang, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Decider, "vacated", counted)
    for number in range(12):
        differs = {"tolerations": (Toleration(key=f"key-{number}"),)}
        made.submit(gang(f"wide-{number:02}", "q", cpu=4, pods=NODES, priority=5, placement=differs), 1.0)
    assert stopped(made) == []
    before = there.looked
    cycles, largest = 400, 4 * NODES
    for turn in range(cycles):
        made.wake_nodes()
        assert stopped(made, 3.0 + turn) == []
    assert there.looked - before <= cycles * 10 + largest
    assert len(searched) == 12, "each has its turn"


def test_what_thousands_of_gangs_hold_is_added_up_over_several_cycles_and_then_others_are_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = gang("wide", "q", cpu=4, pods=NODES // 2, priority=5, created=99.0)
    at_once, _ = full()
    at_once.submit(wide, 1.0)
    expected = stopped(at_once)
    assert len(expected) == NODES // 2
    monkeypatch.setattr(ceilings, "COUNTED_AT_ONCE", 4)
    added: list[int] = []
    usual = ceilings._Gone._add

    def add(gone: ceilings._Gone, held: Mapping[str, object], sign: int) -> None:
        added.append(len(held))
        usual(gone, held, sign)  # type: ignore[arg-type]

    monkeypatch.setattr(ceilings._Gone, "_add", add)
    made, _ = full()
    made.submit(wide, 1.0)
    for turn in range(NODES // 2 // 4 * 2):
        added.clear()
        found = stopped(made, 2.0 + turn)
        assert sum(added) <= 2 * 4
        if found:
            break
        assert made.next_wake(2.0 + turn) == 2.0 + turn, "it goes on at once"
    assert found == expected
    assert turn > 1


def test_nothing_that_others_hold_is_added_up_for_pods_larger_than_any_node(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = full()
    added: list[object] = []
    monkeypatch.setattr(ceilings._Gone, "_add", lambda gone, held, sign: added.append(held))
    made.submit(gang("large", "q", cpu=5, priority=99, created=99.0), 1.0)
    assert stopped(made) == []
    assert not added
    reason = made.reason("large")
    assert reason is not None
    assert "no node is large enough" in reason.message


def test_a_search_that_would_place_pods_on_too_many_nodes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Capacity()
    for name in "abc":
        there.put_node(NodeRecord(name, {"cpu": 4000, "pods": 9000}))
    shapes = [Shape((("cpu", 4000),)), Shape((("cpu", 3000),))]
    seats = Vacated(there, [Asked(str(number), shape, 2) for number, shape in enumerate(shapes)])
    assert not seats.found()
    assert not seats.given_up
    monkeypatch.setattr(vacated, "MOST_LOOKED", 0)
    there.bind("pod", Bound("a", {"cpu": 1000}, "low"))
    seats = Vacated(there, [Asked("0", shapes[1], 2), Asked("1", Shape((("cpu", 2000),)), 2)])
    seats.take(["low"])
    assert not seats.found()
    assert seats.given_up


@pytest.mark.parametrize(("sets", "booked"), [(1, ["wide"]), (8, [])])
def test_a_search_owes_what_it_looked_at_and_one_of_too_many_sets_is_made_once(
    sets: int, booked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacated, "MOST_LOOKED", 4 * NODES)
    monkeypatch.setattr(booked_nodes, "LOOKS", 1)
    made, there = full()
    small = [PodSet(f"s{number}", 1, PodPrice({"cpu": 10 + number})) for number in range(sets)]
    pod_sets = (PodSet("main", NODES - 1, PodPrice({"cpu": 4000})), *small)
    made.submit(gang("wide", "q", pod_sets=pod_sets, created=99.0), 1.0)
    before = there.looked
    assert admitted(made, 2.0) == []
    assert list(made.state.booked) == booked
    assert NODES < there.looked - before <= 12 * NODES
    assert made.state.looks_owed > NODES
    before = there.looked
    assert [made.cycle(3.0 + turn, Fences(), epoch=1) for turn in range(3)] == [Plan()] * 3
    assert there.looked == before


def test_a_reason_looks_at_the_pods_of_those_alone_that_changed_and_at_no_nodes_own_record_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, there = full()
    there.put_node(replace(there.nodes["node-000"], name="spare", cordoned=True))
    made.submit(gang("wide", "q", cpu=4, pods=NODES + 1, priority=5, created=99.0), 1.0)
    assert stopped(made) == []
    read: list[str] = []
    usual, why_not = Capacity._going, Shape.why_not

    def going(capacity: Capacity, gangs: Any) -> Any:
        read.extend(gangs)
        return usual(capacity, gangs)

    def asked(shape: Shape, node: NodeRecord) -> str | None:
        read.append(node.name)
        return why_not(shape, node)

    made.reason("wide")
    monkeypatch.setattr(Capacity, "_going", going)
    monkeypatch.setattr(Shape, "why_not", asked)
    before = made.reason("wide")
    assert not read
    made.release("g000")
    made.submit(gang("new", "q", cpu=2, priority=9), 2.0)
    assert admitted(made, 3.0) == ["new"]
    assert made.reason("wide") != before
    assert set(read) <= {"g000", "new"}
    cordoned = there.nodes["node-059"]
    there.put_node(replace(cordoned, cordoned=True))
    assert "2 cordoned" in str(made.reason("wide"))


@given(
    st.lists(st.sampled_from([2, 4]), min_size=1, max_size=4),
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)),
    st.tuples(POLICIES, POLICIES),
    st.lists(SIZES, min_size=2, max_size=8),
    st.tuples(st.sampled_from([None, FAIR]), st.lists(st.integers(0, 7), max_size=8), st.booleans()),
)
def test_what_is_stopped_and_started_is_what_full_searches_would_stop_and_start(
    nodes: list[int],
    quotas: tuple[int, int, int],
    rules: tuple[Preemption, Preemption],
    sizes: list[tuple[str, int, int, int]],
    others: tuple[EngineSettings | None, list[int], bool],
) -> None:
    settings, ending, near = others
    queues = [queue(name, quotas[n], cohort="all", preemption=rules[n]) for n, name in enumerate("ab")]
    there = {f"node-{number}": cpu for number, cpu in enumerate(nodes)}
    made, full_searches = (world(cohort("all", cpu=quotas[2]), *queues, nodes=there, settings=settings) for _ in "ab")
    full_searches[0].state.ceilings.may_hold = lambda *_: True  # type: ignore[method-assign]
    placement = {"near": Nearness("kind", required=True)} if near else {}
    plans = []
    for engine, _ in (made, full_searches):
        found = []
        for number, (name, cpu, pods, priority) in enumerate(sizes):
            engine.submit(
                gang(f"g{number}", name, cpu=cpu, pods=pods, priority=priority, placement=dict(placement)), 1.0
            )
            found.append(engine.cycle(2.0 + number, Fences(), epoch=1))
        for turn, number in enumerate(ending):
            engine.release(f"g{number}")
            found.append(engine.cycle(20.0 + turn, Fences(), epoch=1))
        plans.append((found, sorted(engine.state.booked)))
    assert plans[0] == plans[1]
