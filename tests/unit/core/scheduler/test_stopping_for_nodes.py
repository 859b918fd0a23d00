"""Others are stopped for the sake of their nodes, where the quota has room, as few as can be."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scheduler.test_nodes import admitted
from tests.unit.core.worlds import LABELS, cohort, gang, group, policy, queue, run_to_rest
from webhook.core.assignment.decision import Decider
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Flavor, Fungibility, Preemption, PreemptionPolicy, Queue, SearchPolicy
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.nodes.shape import shape_of
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.placement.vacated import Vacated
from webhook.core.quota.fences import Fences
from webhook.core.reasons.reasons import Code
from webhook.core.scheduler import booked_nodes
from webhook.core.scheduler.engine import Engine

PREEMPTS = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
RECLAIMS = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
FAIR = EngineSettings(fair_sharing=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))
WIDE = gang("wide", "q", cpu=4, pods=2, priority=5, created=9.0)


def world(
    *queues: object, nodes: dict[str, int], flavors: tuple[Flavor, ...] = (), settings: EngineSettings | None = None
) -> tuple[Engine, Capacity]:
    made, there = Engine(settings), Capacity()
    made.set_policy(policy(*queues, flavors=flavors), LABELS, 0.0)  # type: ignore[arg-type]
    for name, cpu in nodes.items():
        there.put_node(NodeRecord(name, {"cpu": 1000 * cpu}, {"kind": name.partition("-")[0]}))
    made.know_nodes(there)
    return made, there


def filled(*, pods: str = "xyz", preemption: Preemption = PREEMPTS) -> tuple[Engine, Capacity]:
    """Three nodes, a gang on each, and a quota that has as much again."""
    made, there = world(queue("q", 24, preemption=preemption), nodes=dict.fromkeys("abc", 4))
    for number, name in enumerate(pods):
        made.submit(gang(name, "q", cpu=4, created=float(number), priority=number), 0.0)
    assert sorted(admitted(made)) == sorted(pods)
    return made, there


def stopped(made: Engine, now: float = 2.0) -> list[str]:
    return [each.uid for each in made.cycle(now, Fences(), epoch=1).preempted]


def test_a_gang_that_has_quota_and_no_nodes_stops_those_of_lower_priority_whose_nodes_suffice() -> None:
    made, _ = filled()
    made.submit(WIDE, 2.0)
    assert stopped(made) == ["x", "y"], "the lowest priority goes first, and no more than two have to"
    waits = made.reason("wide")
    assert waits is not None
    assert waits.code is Code.WAITING_FOR_PREEMPTED
    for name in "xy":
        made.release(name)
        made.submit(gang(name, "q", cpu=4), 3.0)
    assert admitted(made, 4.0) == ["wide"]
    assert stopped(made, 5.0) == []


def test_who_may_stop_nobody_books_instead() -> None:
    made, _ = filled(preemption=Preemption())
    made.submit(WIDE, 2.0)
    assert stopped(made) == []
    assert list(made.state.booked) == ["wide"]


def test_nobody_is_stopped_for_a_gang_that_would_find_no_nodes_all_the_same() -> None:
    made, there = filled()
    there.bind("foreign", Bound("c", {"cpu": 1000}))
    made.release("z")
    made.submit(gang("wider", "q", cpu=4, pods=3, priority=5), 2.0)
    assert stopped(made) == []
    there.unbind("foreign")
    made.wake_nodes()
    assert stopped(made, 3.0) == ["x", "y"], "what is free suffices together with what they leave"


def test_who_closes_its_preemption_gate_is_told_that_its_nodes_are_taken_and_stops_nobody() -> None:
    made, _ = filled()
    made.submit(gang("wide", "q", cpu=4, pods=2, priority=5, stops_nobody=True), 2.0)
    assert stopped(made) == []
    waits = made.reason("wide")
    assert waits is not None
    assert waits.code is Code.NODES_DO_NOT_FIT


def test_a_flavor_with_free_nodes_goes_before_stopping_others_on_an_earlier_one() -> None:
    flavors = (Flavor("old", {"kind": "old"}), Flavor("new", {"kind": "new"}))
    rules = queue("q", None, group(old={"cpu": 16}, new={"cpu": 16}), preemption=PREEMPTS)
    made, _ = world(rules, nodes={"old-a": 4, "new-a": 4}, flavors=flavors)
    made.submit(gang("low", "q", cpu=4), 0.0)
    assert admitted(made) == ["low"]
    made.submit(gang("first", "q", cpu=4, priority=5), 1.0)
    assert admitted(made, 1.0) == ["first"]
    made.submit(gang("second", "q", cpu=4, priority=5, created=2.0), 2.0)
    assert stopped(made) == ["low"], "where no flavor has nodes, those of the first are made free"
    made.release("low")
    assert admitted(made, 3.0) == ["second"]


def test_what_a_later_gang_has_booked_is_no_reason_to_stop_more() -> None:
    made, _ = filled()
    made.submit(gang("patient", "q", cpu=4, pods=2, created=8.0), 1.0)
    assert admitted(made, 1.0) == []
    made.release("x")
    assert admitted(made, 1.5) == []
    assert list(made.state.booked) == ["patient"]
    made.submit(WIDE, 2.0)
    assert stopped(made) == ["y"]
    assert "patient" not in made.state.booked or made.state.booked["patient"].awaits
    made.release("y")
    assert admitted(made, 3.0) == ["wide"]


def test_what_two_would_leave_of_which_a_booking_has_most_is_not_counted_once_for_each() -> None:
    """It was taken for enough, nodes were not found in the end, and nobody was stopped."""
    made, _ = world(queue("q", 64, preemption=PREEMPTS), queue("patient", 64), nodes={"a": 8, "b": 4})
    for name, created in (("z", 0.0), ("x", 1.0), ("y", 2.0)):
        made.submit(gang(name, "q", cpu=4, created=created), 0.0)
    assert admitted(made) == ["z", "x", "y"]
    made.submit(gang("books", "patient", cpu=6, priority=9, created=3.0), 3.0)
    assert admitted(made, 3.0) == []
    assert made.state.booked["books"].awaits == ("x", "y"), "who leave 2 of 8 cpu besides"
    made.submit(gang("high", "q", cpu=4, priority=5, created=4.0), 4.0)
    assert stopped(made, 4.0) == ["z"]


def test_in_a_cohort_those_are_stopped_that_borrow_and_nobody_within_its_own() -> None:
    lender, borrower = queue("lender", 8, cohort="all", preemption=RECLAIMS), queue("borrower", 4, cohort="all")
    made, _ = world(cohort("all", cpu=20), lender, borrower, nodes={"a": 4, "b": 4})
    for number, name in enumerate("xy"):
        made.submit(gang(name, "borrower", cpu=4, created=float(number)), 0.0)
    assert admitted(made) == ["x", "y"]
    made.submit(gang("own", "lender", cpu=4, pods=2), 1.0)
    assert stopped(made) == [], "one of them is within its own quota"
    made.withdraw("own")
    made.submit(gang("own", "lender", cpu=4), 2.0)
    assert len(stopped(made)) == 1


def test_many_that_would_have_to_be_searched_for_are_looked_at_a_few_in_each_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(booked_nodes, "SEARCHES", 2)
    made, there = filled()
    there.bind("foreign", Bound("c", {"cpu": 1000}))
    made.release("z")
    for number in range(6):
        name = f"wider-{number}"
        made.submit(gang(name, "q", cpu=4, pods=3 + number, priority=5, created=10.0 + number), 2.0)
    for turn in range(9):
        assert stopped(made, 2.0 + turn) == []
    there.unbind("foreign")
    made.wake_nodes()
    found = [stopped(made, 20.0 + turn) for turn in range(9)]
    assert [uid for uids in found for uid in uids] == ["x", "y"]


def test_one_search_in_vain_is_all_that_a_cycle_makes_and_who_made_it_may_book(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes out all that may be stopped one by one, which may be thousands."""
    made, there = filled()
    there.bind("foreign", Bound("c", {"cpu": 1000}))
    made.release("z")
    for number in range(5):
        made.submit(gang(f"wider-{number}", "q", cpu=4, pods=3, priority=5 + number, created=10.0), 2.0)
    made.submit(gang("patient", "q", cpu=4, pods=2, created=20.0), 2.0)
    searches: list[str] = []
    usual = made.state.decider.__class__.vacated

    def counted(decider: Decider, gang: Gang, *args: Any) -> Vacated | None:
        searches.append(gang.uid)
        return usual(decider, gang, *args)

    monkeypatch.setattr(Decider, "vacated", counted)
    asked: set[str] = set()
    for turn in range(12):
        searches.clear()
        assert stopped(made, 3.0 + turn) == []
        assert len({uid for uid in searches if uid.startswith("wider")}) <= 1
        asked |= set(searches)
    assert asked == {*(f"wider-{number}" for number in range(5)), "patient"}
    assert list(made.state.booked) == ["patient"]


SIZES = st.tuples(st.sampled_from("ab"), st.sampled_from([1, 2, 4]), st.integers(1, 3), st.integers(0, 2))
POLICIES = st.builds(
    Preemption,
    # Within one queue Kueue knows no "Any": two gangs would stop each other for ever.
    within_queue=st.sampled_from([each for each in PreemptionPolicy if each is not PreemptionPolicy.ANY]),
    reclaim_within_cohort=st.sampled_from(PreemptionPolicy),
    borrow_within_cohort=st.sampled_from([PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY]),
)


@given(
    st.lists(st.sampled_from([2, 4]), min_size=1, max_size=4),
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)),
    st.tuples(POLICIES, POLICIES),
    st.lists(SIZES, min_size=2, max_size=8),
    st.tuples(st.sampled_from([None, FAIR]), st.randoms(use_true_random=False)),
)
def test_in_a_cohort_too_stopping_ends_and_nobody_is_stopped_for_a_gang_that_does_not_start(
    nodes: list[int],
    quotas: tuple[int, int, int],
    rules: tuple[Preemption, Preemption],
    sizes: list[tuple[str, int, int, int]],
    others: tuple[EngineSettings | None, Random],
) -> None:
    settings, chance = others
    queues = [queue(name, quotas[n], cohort="all", preemption=rules[n]) for n, name in enumerate("ab")]
    made, _ = world(
        cohort("all", cpu=quotas[2]),
        *queues,
        nodes={f"node-{number}": cpu for number, cpu in enumerate(nodes)},
        settings=settings,
    )
    gangs = [
        gang(f"g{number}", name, cpu=cpu, pods=pods, priority=priority, created=float(number))
        for number, (name, cpu, pods, priority) in enumerate(sizes)
    ]
    run_to_rest(made, gangs, chance)


@given(
    st.lists(st.integers(2, 6), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(0, 2)), max_size=9),
    st.tuples(st.integers(1, 6), st.integers(1, 3)),
)
def test_with_quota_for_all_whoever_is_stopped_had_to_go_and_who_could_make_it_fit_is_stopped(
    nodes: list[int], low: list[tuple[int, int, int]], wide: tuple[int, int]
) -> None:
    made, there = world(
        queue("q", 1000, preemption=PREEMPTS), nodes={f"node-{number}": cpu for number, cpu in enumerate(nodes)}
    )
    for number, (cpu, pods, priority) in enumerate(low):
        made.submit(gang(f"low-{number}", "q", cpu=cpu, pods=pods, priority=priority, created=number), 0.0)
    running = admitted(made)
    for uid in [f"low-{number}" for number in range(len(low)) if f"low-{number}" not in running]:
        made.withdraw(uid)
    wanted = [Asked("main", shape_of(gang("wide", "q", cpu=wide[0]).pod_sets[0]), wide[1])]

    def starts_without(uids: list[str]) -> bool:
        return not isinstance(place(there, wanted, there.held_by(uids)), Misplaced)

    made.submit(gang("wide", "q", cpu=wide[0], pods=wide[1], priority=5), 2.0)
    gone = stopped(made, 3.0)
    there.unclaim("wide")
    if gone:
        assert starts_without(gone)
        assert not any(starts_without([each for each in gone if each != spared]) for spared in gone)
    elif "wide" not in there.allotments:
        assert not starts_without(running)


def test_where_the_queue_says_to_preempt_before_it_looks_further_it_still_takes_free_nodes_first() -> None:
    stops_early = Fungibility(when_can_preempt=SearchPolicy.MAY_STOP_SEARCH)
    flavors = (Flavor("old", {"kind": "old"}), Flavor("new", {"kind": "new"}))
    rules: Queue = queue(
        "q", None, group(old={"cpu": 16}, new={"cpu": 16}), preemption=PREEMPTS, fungibility=stops_early
    )
    made, _ = world(rules, nodes={"old-a": 4, "new-a": 4}, flavors=flavors)
    made.submit(gang("low", "q", cpu=4), 0.0)
    assert admitted(made) == ["low"]
    made.submit(gang("high", "q", cpu=4, priority=5), 1.0)
    plan = made.cycle(2.0, Fences(), epoch=1)
    assert [each.name for each in plan.admitted] == ["high"]
    assert not plan.preempted
