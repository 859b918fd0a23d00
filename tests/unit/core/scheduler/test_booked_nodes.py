"""A gang that finds no nodes books those that become free first, so that smaller ones do not overtake it for ever."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scheduler.test_nodes import admitted, engine
from tests.unit.core.worlds import cohort, gang, group, queue
from webhook.core.model.gang import PodPrice, PodSet
from webhook.core.model.policy import Flavor, Strategy
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.placement import vacated
from webhook.core.quota.fences import Fences
from webhook.core.scheduler import booked_nodes
from webhook.core.scheduler.engine import Engine

WIDE = gang("wide", "q", cpu=4, pods=2, created=10.0)


def three_nodes(**settings: object) -> tuple[Engine, Capacity]:
    """Three nodes with a gang on each, which end one after the other, and a gang of two nodes that waits."""
    made, there = engine(queue("q", 24, **settings), nodes={"a": 4, "b": 4, "c": 4})
    for number, name in enumerate("xyz"):
        made.submit(gang(name, "q", cpu=4, created=float(number), max_run_seconds=100 * (number + 1)), 0.0)
    assert admitted(made) == ["x", "y", "z"]
    made.submit(WIDE, 10.0)
    assert admitted(made, 10.0) == []
    return made, there


def newcomer(number: int, **settings: object) -> object:
    return gang(f"small-{number}", "q", cpu=4, created=20.0 + number, **settings)


def test_what_ends_first_is_booked_and_kept_from_those_that_came_later() -> None:
    made, _ = three_nodes()
    assert made.state.booked["wide"].awaits == ("x", "y")
    assert made.state.booked["wide"].planned.pod_sets[0].places == {"a": 1, "b": 1}
    made.submit(newcomer(1), 20.0)
    assert admitted(made, 20.0) == []
    made.release("x")
    assert admitted(made, 100.0) == [], "room for one of two"
    made.release("y")
    assert admitted(made, 200.0) == ["wide"]
    assert list(made.state.booked) == ["small-1"]
    made.release("z")
    assert admitted(made, 300.0) == ["small-1"]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_wide_gang_starts_though_smaller_ones_keep_coming_in_a_queue_of_any_strategy(
    strategy: Strategy,
) -> None:
    made, _ = three_nodes(strategy=strategy)
    for number in range(20):
        made.submit(newcomer(number, max_run_seconds=50), 20.0)
    now, ends = 20.0, {"x": 100.0, "y": 200.0, "z": 300.0}
    while "wide" not in ends:
        now = min(ends.values())
        for uid in [uid for uid, end in ends.items() if end == now]:
            made.release(uid)
            del ends[uid]
        ends |= dict.fromkeys(admitted(made, now), now + 50)
    assert now == 200.0


@pytest.mark.parametrize("differ_by", [0, 1])
def test_a_gang_of_many_pod_sets_books_nodes_too(differ_by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as jobs that share a PodGroup, or pods of which no two ask quite the same."""
    monkeypatch.setattr(vacated, "MOST_LOOKED", 200)
    made, _ = engine(
        queue("q", 99, strategy=Strategy.STRICT_FIFO), queue("r", 99), nodes=dict.fromkeys("abcdefghij", 4)
    )
    for number in range(10):
        made.submit(gang(f"small-{number}", "r", cpu=4, created=float(number)), 0.0)
    assert len(admitted(made)) == 10
    sets = tuple(PodSet(f"s{number}", 1, PodPrice({"cpu": 4000 - differ_by * number})) for number in range(8))
    made.submit(gang("wide", "q", pod_sets=sets, created=10.0), 10.0)
    for number in range(8):
        assert admitted(made, 20.0 + number) == []
        made.release(f"small-{number}")
        made.submit(gang(f"later-{number}", "r", cpu=4, created=20.0 + number), 20.0)
    assert admitted(made, 30.0) == ["wide"]


def test_whoever_leaves_before_it_was_expected_to_leaves_room_that_is_kept_too() -> None:
    """Those without a limit may run for ever."""
    made, _ = engine(queue("q", 24), nodes={"a": 4, "b": 4, "c": 4})
    for number, name in enumerate("xyz"):
        made.submit(gang(name, "q", cpu=4, created=float(number)), 0.0)
    assert admitted(made) == ["x", "y", "z"]
    made.submit(WIDE, 10.0)
    made.submit(newcomer(1), 20.0)
    assert admitted(made, 20.0) == []
    assert made.state.booked["wide"].awaits == ("x", "y")
    made.release("z")
    assert admitted(made, 30.0) == []
    assert made.state.booked["wide"].awaits == ("x",)
    made.release("y")
    assert admitted(made, 40.0) == ["wide"]


def test_beside_what_is_booked_others_start() -> None:
    made, there = three_nodes()
    there.put_node(NodeRecord("d", {"cpu": 6000}))
    made.wake_nodes()
    made.submit(gang("small", "q", cpu=2, created=20.0), 20.0)
    assert admitted(made, 20.0) == ["small"]
    assert made.state.booked["wide"].awaits == ("x",)
    made.release("x")
    assert admitted(made, 100.0) == ["wide"]


def test_who_goes_before_it_takes_over_and_starts_at_once_where_there_is_room() -> None:
    made, _ = three_nodes()
    made.release("x")
    assert admitted(made, 100.0) == []
    made.submit(gang("first", "q", cpu=4, priority=1, created=100.0), 100.0)
    assert admitted(made, 100.0) == ["first"]
    assert made.state.booked["wide"].awaits == ("y", "z"), "of first nobody knows an end"


def test_the_nodes_are_free_again_when_it_goes_away() -> None:
    made, there = three_nodes()
    made.release("x")
    made.submit(newcomer(1), 20.0)
    assert admitted(made, 100.0) == []
    made.withdraw("wide")
    assert there.claimants() == []
    assert admitted(made, 100.0) == ["small-1"]


def test_who_could_start_on_no_nodes_books_none() -> None:
    made, there = three_nodes()
    made.withdraw("wide")
    made.submit(gang("giant", "q", cpu=5, created=11.0), 11.0)
    made.submit(gang("wider", "q", cpu=4, pods=4, created=12.0), 12.0)
    assert admitted(made, 20.0) == []
    assert not made.state.booked
    assert there.claimants() == []


def test_many_that_fit_no_nodes_at_all_hold_up_neither_the_cycle_nor_who_would_book_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _ = three_nodes()
    made.withdraw("wide")
    monkeypatch.setattr(booked_nodes, "SEARCHES", 2)
    made.submit(gang("later", "q", cpu=4, pods=2, created=30.0, priority=-1), 20.0)
    assert admitted(made, 20.0) == []
    assert list(made.state.booked) == ["later"]
    for number in range(9):
        made.submit(gang(f"wider-{number}", "q", cpu=4, pods=4 + number, created=5.0 + number / 10), 20.0)
    made.submit(WIDE, 20.0)
    for turn in range(20):
        assert admitted(made, 21.0 + turn) == []
    assert list(made.state.booked) == ["wide"]


def test_where_its_node_goes_away_it_books_another() -> None:
    made, there = three_nodes()
    there.drop_node("a")
    made.wake_nodes()
    assert admitted(made, 20.0) == []
    assert made.state.booked["wide"].awaits == ("y", "z")
    there.drop_node("b")
    made.wake_nodes()
    assert admitted(made, 21.0) == []
    assert not made.state.booked, "one node is left"
    assert there.claimants() == []


def test_what_is_booked_stays_so_while_the_quota_of_those_that_it_awaits_would_do() -> None:
    """The rest of the nodes and of the quota are others' for as long."""
    made, _ = engine(queue("q", 8), nodes={"a": 4, "b": 4})
    for number, name in enumerate("xy"):
        made.submit(gang(name, "q", cpu=2, pods=1, created=float(number), max_run_seconds=100), 0.0)
    made.submit(gang("wide", "q", cpu=4, created=2.0), 2.0)
    there = made.nodes
    assert there is not None
    assert admitted(made) == ["x", "y", "wide"]
    made.release("wide")
    made.release("y")
    there.bind("foreign", Bound("b", {"cpu": 1000}))
    made.submit(gang("wide", "q", cpu=4, created=2.0), 2.0)
    made.submit(gang("small", "q", cpu=3, created=3.0), 3.0)
    assert admitted(made, 3.0) == ["small"]
    assert made.state.booked["wide"].awaits == ("x",)
    assert admitted(made, 4.0) == []
    assert list(made.state.booked) == ["wide"]
    made.release("x")
    assert admitted(made, 100.0) == ["wide"]


def test_nothing_stays_booked_for_who_would_lack_quota_even_then() -> None:
    made, _ = engine(queue("q", 12), nodes={"a": 4, "b": 4, "c": 8})
    for number, name in enumerate("xy"):
        made.submit(gang(name, "q", cpu=2, pods=1, created=float(number)), 0.0)


def test_it_is_told_what_is_booked_until_when_and_others_for_whom() -> None:
    made, _ = three_nodes()
    assert str(made.reason("wide")) == (
        "asks for 2 pods of 4 cpu; 0 fit now; of 3 nodes 3 take none: 3 lack cpu; "
        "held by team/x (4), team/y (4), team/z (4); it starts when 2 more of its pods fit; "
        "it has booked a, b, free when team/x, team/y have ended, by 1970-01-01T00:03:21Z"
    )
    made.submit(newcomer(1), 20.0)
    made.release("x")
    assert admitted(made, 100.0) == []
    assert str(made.reason("small-1")) == (
        "asks for 1 pod of 4 cpu; 0 fit now; of 3 nodes 3 take none: 3 lack cpu; "
        "held by team/y (4), team/z (4); it starts when 1 more of its pods fits; "
        "these end by 1970-01-01T00:05:01Z; "
        "booked for team/wide, which goes before it: a, b"
    )


def test_a_forecast_books_in_a_copy_only() -> None:
    made, there = three_nodes()
    twin = made.copy()
    twin.release("x")
    twin.release("y")
    assert admitted(twin, 20.0) == ["wide"]
    assert made.state.booked["wide"].awaits == ("x", "y")
    assert there.claimants() == ["wide"]


Asked = tuple[int, int, int, int | None]
"""Of one gang: cpu of a pod, pods, priority, run-time limit."""


@given(
    st.lists(st.sampled_from([2, 4]), min_size=1, max_size=4),
    st.lists(
        st.tuples(
            st.sampled_from([1, 2, 4]),
            st.integers(1, 3),
            st.integers(0, 1),
            st.none() | st.sampled_from([30, 60, 200]),
        ),
        min_size=2,
        max_size=14,
    ),
    st.sampled_from(Strategy),
    st.randoms(use_true_random=False),
)
def test_the_last_that_it_awaits_never_becomes_a_later_one_and_nobody_starts_on_what_is_booked(
    nodes: list[int], gangs: list[Asked], strategy: Strategy, chance: Random
) -> None:
    made, there = engine(
        queue("q", sum(nodes), strategy=strategy), nodes={f"node-{number}": cpu for number, cpu in enumerate(nodes)}
    )
    coming = [
        gang(f"g{number:02}", "q", cpu=cpu, pods=pods, priority=priority, created=float(number), max_run_seconds=limit)
        for number, (cpu, pods, priority, limit) in enumerate(gangs)
    ]
    ends, now, last = dict[str, float](), 0.0, dict[str, tuple[object, ...]]()
    while coming or ends:
        if coming and (not ends or chance.random() < 0.6):
            now += 1
            made.submit(coming.pop(0), now)
        elif ends:
            # Some end before their limits, and who has none any time.
            uid = min(ends, key=lambda each: ends[each]) if chance.random() < 0.5 else chance.choice(sorted(ends))
            now = max(now, min(ends[uid], now + 10))
            due = {each for each, end in ends.items() if end <= now} | {uid}
            for each in sorted(due):
                made.release(each)
                del ends[each]
        before = dict(made.state.booked)
        plan = made.cycle(now, Fences(), epoch=1)
        assert not plan.preempted
        for started in plan.admitted:
            limit = gangs[int(started.uid[1:])][3]
            ends[started.uid] = float("inf") if limit is None else now + limit
        assert len(made.state.booked) <= 1, "one a flavor"
        for uid, booked in made.state.booked.items():
            assert there.keeps(uid)
            there_still = [
                made.state.allocations.by_uid[e] for e in booked.awaits if e in made.state.allocations.by_uid
            ]
            assert there_still, "it would have started"
            latest = max((ends[e.uid], e.reservation.since_seconds, e.uid) for e in there_still)
            assert uid not in before or latest <= last[uid]
            last[uid] = latest
        assert set(there.claimants()) == set(made.state.booked)
        assert all(free >= 0 for of_node in there.free.values() for free in of_node.values())
    # Whoever could start at all has started and ended.
    assert not made.state.booked
    assert there.free == {node.name: dict(node.capacity) for node in there.nodes.values()}


def backfill(*more: object) -> tuple[Engine, Capacity]:
    """A Backfill queue ``q``, and another beside it in its cohort; two nodes of four."""
    queues = (queue("q", 8, strategy=Strategy.BACKFILL, cohort="c"), queue("r", 8, cohort="c"))
    return engine(*queues, *more, nodes={"a": 4, "b": 4})


def test_who_is_larger_than_all_nodes_is_not_the_head_of_a_backfill_queue_until_there_are_more_nodes() -> None:
    made, there = backfill()
    made.submit(gang("giant", "q", cpu=4, pods=3, max_run_seconds=50), 0.0)
    assert admitted(made) == []
    made.submit(gang("endless", "q", cpu=4, created=1.0), 1.0)
    made.submit(gang("other", "r", cpu=4, created=2.0, max_run_seconds=90), 2.0)
    assert admitted(made, 2.0) == ["endless", "other"]
    made.release("endless")
    there.put_node(NodeRecord("c", {"cpu": 4000}))
    made.wake_nodes()
    made.submit(gang("late", "q", cpu=4, created=3.0), 3.0)
    assert admitted(made, 3.0) == [], "three nodes hold it now, so that it is passed by nobody without a limit"
    made.release("other")
    assert admitted(made, 4.0) == ["giant"]


def test_the_head_of_a_backfill_queue_that_lacks_nodes_keeps_its_quota_from_nobody_who_finds_others() -> None:
    queues = (queue("q", 8, strategy=Strategy.BACKFILL, cohort="c"), queue("r", 0, cohort="c"))
    made, there = engine(*queues, nodes={"a": 4, "b": 4, "small": 2})
    there.bind("foreign", Bound("a", {"cpu": 4000}))
    made.submit(gang("wide", "q", cpu=4, pods=2, max_run_seconds=50), 0.0)
    assert admitted(made) == []
    made.submit(gang("own", "q", created=1.0, max_run_seconds=500), 1.0)
    made.submit(gang("other", "r", created=2.0), 2.0)
    assert admitted(made, 2.0) == ["other"], "in its own queue nobody passes it who takes its quota"
    there.unbind("foreign")
    made.wake_nodes()
    assert admitted(made, 3.0) == [], "now it lacks quota"
    made.release("other")
    assert admitted(made, 4.0) == ["wide"]


def test_a_head_of_two_sets_that_lacks_nodes_of_either_flavor_keeps_its_quota_from_nobody() -> None:
    owns, borrows = (group(own={"cpu": cpu}, rented={"cpu": cpu}) for cpu in (8, 0))
    queues = (queue("q", None, owns, strategy=Strategy.BACKFILL, cohort="c"), queue("r", None, borrows, cohort="c"))
    flavors = tuple(Flavor(name, {"kind": name}) for name in ("own", "rented"))
    made, _ = engine(*queues, nodes={"own-a": 4, "own-b": 4, "rented-a": 4, "rented-b": 4}, flavors=flavors)
    sets = tuple(PodSet(name, 1, PodPrice({"cpu": 5000})) for name in ("leader", "worker"))
    made.submit(gang("wide", "q", pod_sets=sets, max_run_seconds=50), 0.0)
    made.submit(gang("other", "r", cpu=4, pods=2, created=2.0), 0.0)
    assert admitted(made) == ["other"]


def test_who_needs_neither_the_quota_nor_the_nodes_of_a_backfill_head_passes_it() -> None:
    made, there = backfill(cohort("c", None, 24))
    there.put_node(NodeRecord("small", {"cpu": 2000}))
    there.bind("foreign", Bound("a", {"cpu": 4000}))
    made.submit(gang("wide", "q", cpu=4, pods=2, max_run_seconds=50), 0.0)
    assert admitted(made) == []
    made.submit(gang("own", "q", created=1.0, max_run_seconds=500), 1.0)
    made.submit(gang("other", "r", created=2.0), 2.0)
    assert admitted(made, 2.0) == ["own", "other"]
    there.unbind("foreign")
    made.wake_nodes()
    assert admitted(made, 3.0) == ["wide"]
