"""Whoever has nodes booked would start if they were free, and no booking ends only to be made again."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.scheduler.test_stopping_for_nodes import FAIR
from tests.unit.core.worlds import LABELS, cohort, gang, policy, queue
from webhook.core.assignment.decision import Decision
from webhook.core.assignment.flavors import Mode
from webhook.core.model.policy import Cohort, Preemption, PreemptionPolicy, Queue, Strategy
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import NodeRecord
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.state import State


class World:
    """Nodes of 4 cpu each, and a queue ``o`` outside the cohort of the others, with quota for all."""

    def __init__(self, nodes: int, *tree: Queue | Cohort, settings: EngineSettings | None = None) -> None:
        self.engine, self.nodes, self.now = Engine(settings), Capacity(), 0.0
        self.lapses = Counter[str]()
        self.engine.set_policy(policy(*tree, queue("o", 100)), LABELS, 0.0)
        for number in range(nodes):
            self.put(number)
        self.engine.know_nodes(self.nodes)

    def put(self, number: int, *, cordoned: bool = False) -> None:
        self.nodes.put_node(NodeRecord(f"n{number}", {"cpu": 4000}, cordoned=cordoned))
        self.engine.wake_nodes()

    def comes(self, name: str, of: str, **asked: Any) -> list[str]:
        """Submit a gang to the queue ``of``; return who starts."""
        self.engine.submit(gang(name, of, created=self.now, **asked), self.now)
        return self.cycle()

    def ends(self, name: str) -> list[str]:
        self.engine.release(name)
        return self.cycle()

    def cycle(self) -> list[str]:
        """Return who starts; ``lapses`` counts the bookings that end in this cycle."""
        self.now += 1.0
        self.lapses.clear()
        lapse = State.lapse_booking

        def counted(state: State, uid: str) -> None:
            self.lapses[uid] += uid in state.booked
            lapse(state, uid)

        with patch.object(State, "lapse_booking", counted):
            return [each.name for each in self.engine.cycle(self.now, Fences(), epoch=1).admitted]

    @property
    def booked(self) -> list[str]:
        return list(self.engine.state.booked)

    def decided(self, uid: str, *, on_booked: bool = False) -> Decision:
        """Return what is decided about a gang that has booked nodes, or would be if it had these and no others."""
        twin = self.engine.copy()
        there, eclass, planned = twin.nodes, twin.state.pending.records[uid].eclass, twin.state.booked[uid].planned
        assert there is not None
        assert eclass is not None
        assert eclass.head.uid == uid
        if on_booked:
            for name in list(there.nodes):
                there.put_node(NodeRecord(name, {"cpu": 4000}, cordoned=True))
            for number in range(planned.pod_sets[0].count):
                there.put_node(NodeRecord(f"new{number}", planned.pod_sets[0].price.requests))
        return twin.state.decide(eclass)


def behind_head() -> World:
    """The head waits, and nobody knows for how long: who would pass it on a node that ``last`` leaves may not."""
    world = World(2, cohort("c", None, 8), queue("q", 4, cohort="c", strategy=Strategy.BACKFILL))
    world.comes("endless", "q", cpu=4)
    world.comes("last", "o", cpu=2, max_run_seconds=50)
    world.comes("first", "q", pods=12, max_run_seconds=1000)
    world.comes("held", "q", cpu=4, max_run_seconds=100)
    return world


def behind_promise() -> World:
    """The same, and what is left of the queue's own quota is kept for the head."""
    world = World(2, queue("q", 8, strategy=Strategy.BACKFILL))
    world.comes("endless", "q", cpu=4)
    world.comes("last", "o", cpu=2, max_run_seconds=500)
    world.comes("first", "q", pods=8, max_run_seconds=1000)
    world.comes("held", "q", cpu=4, max_run_seconds=100)
    return world


def behind_other_head() -> World:
    """The head of another queue would be put off."""
    queues = (queue("q", 4, cohort="c", strategy=Strategy.BACKFILL), queue("r", 0, cohort="c"))
    world = World(2, cohort("c", None, 8), *queues)
    world.comes("long", "q", cpu=4, max_run_seconds=1000)
    world.comes("last", "o", cpu=2, max_run_seconds=500)
    world.comes("first", "q", pods=12, max_run_seconds=1000)
    world.comes("held", "r", cpu=4, max_run_seconds=5000)
    return world


def behind_starved() -> World:
    """Another queue has less than it owns, and a gang that needs the room."""
    world = World(3, *(queue(name, cpu, cohort="c", guards_borrowing=True) for name, cpu in (("q", 8), ("r", 4))))
    world.comes("endless", "r", cpu=4, pods=2)
    world.comes("last", "o", cpu=2, max_run_seconds=500)
    world.comes("first", "q", cpu=4, pods=2)
    world.comes("held", "r", cpu=4)
    return world


Story = Callable[[], World]
STORIES: list[Story] = [behind_head, behind_promise, behind_other_head, behind_starved]


@pytest.mark.parametrize("story", STORIES)
def test_who_would_not_start_if_it_had_nodes_keeps_none_from_others(story: Story) -> None:
    world = story()
    assert world.comes("other", "o", cpu=2) == ["other"]
    for _ in range(3):
        world.cycle()
        assert (world.booked, world.lapses["held"]) == ([], 0)


@pytest.mark.parametrize("story", STORIES)
def test_it_books_as_soon_as_nobody_goes_first(story: Story) -> None:
    world = story()
    world.engine.withdraw("first")
    world.cycle()
    assert world.booked == ["held"]


@pytest.mark.parametrize("story", STORIES)
def test_what_it_has_booked_is_free_again_once_another_goes_first(story: Story) -> None:
    world = story()
    first = world.engine.state.pending.records["first"].gang
    world.engine.withdraw("first")
    world.comes("other", "o", cpu=2)
    assert world.booked == ["held"]
    world.engine.submit(first, world.now)
    assert world.cycle() == ["other"]
    assert not world.booked


def test_it_takes_no_nodes_from_those_after_it_that_have_booked_some() -> None:
    world = behind_head()
    world.comes("wide", "o", cpu=4)
    assert world.booked == ["wide"]
    again = world.engine.state.pending.records["held"].gang
    world.engine.withdraw("held")
    world.engine.submit(again, world.now)
    world.cycle()
    assert (world.booked, world.lapses["wide"]) == (["wide"], 0)
    assert world.ends("last") == ["wide"]


def test_one_that_no_nodes_ever_hold_is_not_decided_about_again_for_the_head_that_it_would_pass() -> None:
    world = World(1, queue("q", 12, strategy=Strategy.BACKFILL))
    world.comes("endless", "q")
    world.comes("first", "q", pods=12, max_run_seconds=1000)
    assert world.comes("giant", "q", cpu=4, pods=2, max_run_seconds=100) == []
    assert not world.booked


def test_an_elastic_gang_keeps_no_nodes_on_which_it_fits_and_may_not_start() -> None:
    """With one pod it would leave room to the head, which waits for a node. Nobody looks for such a size there."""
    world = World(2, queue("q", 8, strategy=Strategy.BACKFILL))
    world.nodes.put_node(NodeRecord("other", {"cpu": 4000}, {"kind": "other"}, cordoned=True))
    world.comes("last", "o", cpu=4, pods=2)
    world.comes("first", "q", cpu=4, max_run_seconds=1000, placement={"node_selector": {"kind": "other"}})
    world.comes("held", "q", cpu=4, pods=2, min_count=1, max_run_seconds=5000)
    assert world.booked == ["held"]
    assert world.ends("last") == []
    assert not world.booked


CAME = st.tuples(
    st.sampled_from(["q", "q", "r", "o"]),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 4),
    st.integers(0, 1),
    st.none() | st.sampled_from([5, 30, 200]),
    st.booleans(),
)
"""A gang comes: its queue, cpu of a pod, pods, priority, run-time limit, whether it may start with one pod."""
EVENTS = st.one_of(CAME, st.tuples(st.sampled_from(["end", "end", "cordon", "withdraw"]), st.integers(0, 5)))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two queues of any strategy in a cohort."""
    strategies, nodes = st.sampled_from([Strategy.BACKFILL, *Strategy]), draw(st.integers(2, 5))
    rules: dict[str, Any] = {"cohort": "c", "guards_borrowing": draw(st.booleans())}
    if draw(st.booleans()):
        lower = PreemptionPolicy.LOWER_PRIORITY
        rules["preemption"] = Preemption(within_queue=lower, reclaim_within_cohort=lower)
    queues = [queue(name, draw(st.integers(0, 12)), strategy=draw(strategies), **rules) for name in "qr"]
    shared, fair = draw(st.sampled_from([0, 4, 8])), draw(st.sampled_from([None, FAIR]))
    return World(nodes, cohort("c", None, shared), *queues, settings=fair)


def happens(world: World, event: str, *what: Any) -> None:
    running, waiting = sorted(world.engine.state.allocations.by_uid), world.engine.waiting()
    if event == "end":
        world.engine.release(running[what[0] % len(running)] if running else "")
    elif event == "withdraw":
        world.engine.withdraw(waiting[what[0] % len(waiting)].uid if waiting else "")
    elif event == "cordon":
        number = what[0] % len(world.nodes.nodes)
        world.put(number, cordoned=not world.nodes.nodes[f"n{number}"].cordoned)
    else:
        cpu, pods, priority, limit, elastic = what
        asked = {"cpu": cpu, "pods": pods, "min_count": 1 if elastic else None}
        coming = gang(
            f"{event}{world.now:.0f}", event, priority=priority, max_run_seconds=limit, created=world.now, **asked
        )
        world.engine.submit(coming, world.now)


@settings(max_examples=200, deadline=None)
@given(worlds(), st.lists(EVENTS, min_size=6, max_size=20))
def test_whoever_has_nodes_booked_would_start_on_them_and_no_booking_ends_to_be_made_again(
    world: World, events: list[tuple[Any, ...]]
) -> None:
    for event in events:
        happens(world, *event)
        world.cycle()
        for _ in range(3):
            started = world.cycle()
            again = [uid for uid in world.booked if world.lapses[uid]]
            assert started or not again, f"{again} have lapsed, and are booked again"
        for uid in world.booked:
            now, then = world.decided(uid), world.decided(uid, on_booked=True)
            if now.assignment.mode is Mode.FIT:
                assert now.misplaced, f"{uid} keeps nodes that it does not start on: {now.barrier}"
                assert then.fits, f"{uid} would not start on what it has booked: {then.barrier}"
