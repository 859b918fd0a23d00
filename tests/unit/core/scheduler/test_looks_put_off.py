"""A look at nodes that is put off says nothing: who was promised quota or nodes has them still when its turn comes."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.worlds import LABELS, cohort, gang, policy, queue
from webhook.core.ledger.record import Claim
from webhook.core.model.gang import Gang, PodPrice, PodSet, Requirement
from webhook.core.model.policy import Preemption, PreemptionPolicy, Strategy
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes import capacity, turns
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import NodeRecord
from webhook.core.notation.amounts import FlavorResource
from webhook.core.quota.fences import Fences
from webhook.core.reasons.wake_keys import QueueHead
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan

CPU = FlavorResource("default", "cpu")
PREEMPTS = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)


@contextmanager
def limits(visits: int, shapes: int, kept: int) -> Iterator[None]:
    """A round looks at so many nodes for so many new shapes, and so many are kept."""
    rounds = {"ROUND_VISITS": visits, "ROUND_SHAPES": shapes}
    with patch.multiple(turns, **rounds), patch.multiple(capacity, SHAPES_MAX=kept, ROUND_VISITS=visits):
        yield


class World:
    """Nodes of 4 cpu each, a queue ``q`` that owns some quota, ``o`` that owns none, in a cohort with what they share,
    and ``crowd`` for others.
    """

    def __init__(self, nodes: int, own: int = 1000, shared: int = 0, **settings: Any) -> None:
        self.engine, self.nodes, self.now = Engine(EngineSettings()), Capacity(), 0.0
        queues = (queue("q", own, cohort="c", preemption=PREEMPTS, **settings), queue("o", 0, cohort="c"))
        self.engine.set_policy(policy(queue("crowd", 10**6), cohort("c", None, shared), *queues), LABELS, 0.0)
        for number in range(nodes):
            self.put(number)
        self.engine.know_nodes(self.nodes)

    def put(self, number: int, *, cordoned: bool = False) -> None:
        self.nodes.put_node(NodeRecord(f"n{number}", {"cpu": 4000}, cordoned=cordoned))

    def submit(self, *gangs: Gang) -> None:
        for each in gangs:
            self.engine.submit(each, self.now)

    def crowd(self, number: int) -> None:
        """Have so many gangs of another tenant wait, no two alike, that no node is large enough for."""
        self.submit(*(gang(f"big{each}", "crowd", cpu=5 + each, created=self.now + each) for each in range(number)))

    def exhaust(self, sizes: Iterable[int]) -> None:
        """Have so many wait in line that a round ends with one look at the shape that is not kept, of these sizes."""
        kept = {dict(shape.requests)["cpu"] for shape in self.nodes._decided.rankings}
        (missing,) = (each for each in sizes if each not in kept)
        racks = tuple(f"r{number}" for number in range(120))
        heavy = {"node_affinity": ((Requirement("rack", "In", racks),),)}
        self.submit(gang("heavy", "crowd", priority=9, placement=heavy))
        for number in range(3):
            pair = PodSet("main", 2, PodPrice({"cpu": missing}))
            self.submit(gang(f"pair{number}", "crowd", pod_sets=(pair,), priority=-1 - number, created=10.0))
        self.cycle()

    def cycle(self) -> Plan:
        self.now += 1.0
        return self.engine.cycle(self.now, Fences(), epoch=1)

    def starts(self) -> list[str]:
        return [each.name for each in self.cycle().admitted]

    def starts_within(self, rounds: int) -> list[str]:
        return [name for _ in range(rounds) for name in self.starts()]

    def all_have_places(self) -> bool:
        """Return whether room is kept on nodes for each pod of all that have started; none is bound."""
        kept = {uid: each.places for uid, each in self.nodes.allotments.items()}
        return all(
            sum(kept.get(uid, {}).get(name, {}).values()) == count
            for uid, each in self.engine.state.allocations.by_uid.items()
            for name, count in each.reservation.counts.items()
        )


def sets(*milli: int) -> tuple[PodSet, ...]:
    """One pod of each size."""
    return tuple(PodSet(f"s{each}", 1, PodPrice({"cpu": each})) for each in milli)


@limits(visits=40, shapes=4, kept=16)
@pytest.mark.parametrize(
    ("strategy", "own"), [(Strategy.BACKFILL, 8), (Strategy.BACKFILL, 0), (Strategy.STRICT_FIFO, 8)]
)
@pytest.mark.parametrize("crowd", [0, 12])
def test_a_head_keeps_its_quota_while_a_look_at_its_nodes_is_put_off(strategy: Strategy, own: int, crowd: int) -> None:
    """In a Backfill queue also what it borrows."""
    world = World(10, own=own, shared=8 - own, strategy=strategy)
    # The shape of the one that would borrow is known by then.
    world.submit(gang("first", "o", cpu=3))
    assert world.starts() == ["first"]
    world.engine.release("first")
    world.cycle()
    world.crowd(crowd)
    world.cycle()
    world.submit(gang("head", "q", cpu=4, pods=2, created=10.0, max_run_seconds=100))
    world.submit(gang("passer", "o", cpu=3, created=20.0))
    assert world.starts_within(12) == ["head"]


@limits(visits=40, shapes=4, kept=16)
def test_a_head_whose_nodes_were_looked_at_and_are_short_keeps_no_quota_any_more() -> None:
    world = World(10, own=8, strategy=Strategy.BACKFILL)
    world.crowd(12)
    world.cycle()
    world.submit(gang("head", "q", cpu=8, created=10.0, max_run_seconds=100))
    world.submit(gang("passer", "o", cpu=3, created=20.0))
    assert world.starts() == []
    assert world.starts_within(12) == ["passer"]


@limits(visits=40, shapes=4, kept=8)
@pytest.mark.parametrize(("own", "strategy"), [(1000, Strategy.BEST_EFFORT_FIFO), (28, Strategy.STRICT_FIFO)])
@pytest.mark.parametrize("crowd", [0, 30])
def test_booked_nodes_stay_booked_while_a_look_at_others_is_put_off(own: int, strategy: Strategy, crowd: int) -> None:
    """Also those of a head that is kept all the quota that is left."""
    world = World(6, own=own, strategy=strategy)
    for number in range(6):
        world.submit(gang(f"r{number}", "q", cpu=4, created=float(number), max_run_seconds=100 * (number + 1)))
    world.cycle()
    world.submit(gang("wide", "q", cpu=4, pods=3, created=10.0))
    world.cycle()
    for name in ("r0", "r1"):
        world.engine.release(name)
        world.cycle()
    world.crowd(crowd)
    world.submit(gang("late", "crowd", cpu=3, created=11.0))
    world.cycle()
    # Of the nodes that are booked this one goes away, and what is free on the two others stays kept.
    world.put(2, cordoned=True)
    world.engine.wake_nodes()
    assert world.starts_within(40) == []
    world.engine.release("r3")
    assert "wide" in world.starts_within(40)


def test_who_has_booked_books_others_in_the_cycle_that_looked_at_them_though_more_shapes_are_asked_than_are_kept() -> (
    None
):
    with limits(visits=100, shapes=5, kept=8):
        world, sizes = World(0), range(900, 909)
        for number in range(9):
            world.nodes.put_node(NodeRecord(f"n{number}", {"cpu": 1000}))
            world.submit(gang(f"low{number}", "q", max_run_seconds=100 * (1 + number)))
        world.cycle()
        world.submit(gang("wide", "q", pod_sets=sets(*sizes), created=5.0))
        while "wide" not in world.engine.state.booked:
            world.cycle()
        world.exhaust(sizes)
        world.nodes.put_node(NodeRecord("n9", {"cpu": 1000}))
        world.nodes.put_node(NodeRecord("n0", {"cpu": 1000}, cordoned=True))
        world.engine.wake_nodes()
        world.cycle()
        assert world.engine.state.booked.keys() == {"wide"}


def test_a_claim_stands_while_a_look_at_its_nodes_is_put_off_and_is_taken_up_on_some() -> None:
    with limits(visits=40, shapes=4, kept=8):
        world = World(10, own=8)
        world.submit(gang("low", "q", cpu=4, pods=2))
        world.cycle()
        world.submit(gang("high", "q", cpu=4, pods=2, priority=5))
        world.cycle()
        world.crowd(30)
        for _ in range(3):
            world.cycle()
        world.engine.release("low")
        assert world.starts() == []
        assert world.engine.claims().keys() == {"high"}
        assert world.starts_within(12) == ["high"]
        assert world.all_have_places()


def test_a_claim_is_taken_up_on_the_nodes_that_were_found_though_more_shapes_are_asked_than_are_kept() -> None:
    with limits(visits=100, shapes=5, kept=8):
        world = World(0, own=9)
        for number in range(9):
            world.nodes.put_node(NodeRecord(f"n{number}", {"cpu": 1000}))
        world.submit(gang("low", "q", pods=9))
        world.cycle()
        sizes = range(900, 909)
        world.submit(gang("wide", "q", pod_sets=sets(*sizes), priority=5, created=5.0))
        while "wide" not in world.engine.claims():
            world.cycle()
        world.exhaust(sizes)
        world.engine.release("low")
        assert world.starts() == ["wide"]
        assert world.all_have_places()


def test_pods_join_a_gang_only_on_nodes_that_are_kept_for_them() -> None:
    with limits(visits=90, shapes=9, kept=8):
        world = World(10)
        main = PodSet("main", 2, PodPrice({"cpu": 1000}))
        crew = gang("crew", "q", pod_sets=(main,), quorum=2, joinable=True)
        world.submit(crew)
        (admitted,) = world.cycle().admitted
        whole = (main, *sets(*range(100, 109)))
        world.engine.restore(admitted, gang("crew", "q", pod_sets=whole, quorum=2, joinable=True))
        grown = []
        for _ in range(6):
            grown += world.cycle().grown
            assert world.all_have_places()
        assert len(grown[-1].pod_sets) == 10


SIZES = st.lists(st.sampled_from([1000, 2000, 3000, 3900, 4000]), min_size=1, max_size=3, unique=True)
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["q", "o"]), SIZES, st.integers(1, 2)),
    st.tuples(st.just("crowd"), st.just([]), st.integers(1, 12)),
    st.tuples(st.sampled_from(["end", "cordon"]), st.just([]), st.integers(0, 5)),
)


class Watched(World):
    """Six nodes with a gang on each, and one that waits for some of them. What becomes of those with a promise is
    compared with what would if any number of new shapes were looked at.
    """

    def __init__(self, own: int, strategy: Strategy, waits: list[int], priority: int) -> None:
        super().__init__(6, own=own, strategy=strategy)
        for number in range(6):
            end = 100.0 * (1 + number)
            self.submit(gang(f"r{number}", "q", cpu=4, created=float(number), max_run_seconds=end))
        super().cycle()
        sizes = tuple(PodSet(f"s{each}", 2, PodPrice({"cpu": each})) for each in waits)
        self.submit(gang("waits", "q", pod_sets=sizes, priority=priority, created=10.0, max_run_seconds=100.0))
        for _ in range(3):
            super().cycle()

    def happens(self, event: str, sizes: list[int], number: int) -> None:
        running = sorted(self.engine.state.allocations.by_uid)
        if event in {"q", "o"}:
            pods = tuple(PodSet(f"s{each}", number, PodPrice({"cpu": each})) for each in sizes)
            self.submit(gang(f"{event}{self.now:.0f}", event, pod_sets=pods, created=10.0 + self.now))
        elif event == "crowd":
            for each in range(number):
                size = PodSet("main", 1, PodPrice({"cpu": 5000 + 20 * int(self.now) + each}))
                self.submit(gang(f"big{self.now:.0f}-{each}", "crowd", pod_sets=(size,), created=self.now))
        elif event == "end" and running:
            self.engine.release(running[number % len(running)])
        elif event == "cordon":
            self.put(number, cordoned=not self.nodes.nodes[f"n{number}"].cordoned)
            self.engine.wake_nodes()

    def cycle(self) -> Plan:
        """Those whose look is put off keep what they would keep if it were not, or who goes before them has it."""
        state, twin, head = self.engine.state, self.engine.copy(), self._head_with_quota()
        before = {**state.booked, **state.claims}
        with limits(visits=10**6, shapes=10**6, kept=10**6):
            twin.cycle(self.now + 1.0, Fences(), epoch=1)
        order = {each.uid: (-each.priority, each.created_seconds, each.uid) for each in self.engine.waiting()}
        plan, held = super().cycle(), {**state.booked, **state.claims}
        assert self.all_have_places()
        later = self.nodes.due.keys() - state.allocations.by_uid.keys()
        gained = [uid for uid, each in held.items() if each != before.get(uid)] + [each.uid for each in plan.admitted]
        for uid in self._kept_in(twin, before) & later - held.keys():
            assert any(order[each] < order[uid] for each in gained), f"{uid} has lost its promise"
        if head in later & twin.state.allocations.by_uid.keys():
            assert self._head_with_quota() == head
        return plan

    @staticmethod
    def _kept_in(twin: Engine, before: dict[str, Claim]) -> set[str]:
        """Return who of ``q`` keeps in ``twin`` what was promised before, or has started. Who borrows gives way to an
        owner, also while a look of that one is put off.
        """
        booked = {uid for uid in twin.state.booked if twin.nodes is not None and twin.nodes.keeps(uid)}
        claims = {uid for uid, each in twin.claims().items() if each == before.get(uid)}
        kept = (booked | claims | twin.state.allocations.by_uid.keys()) & before.keys()
        return {uid for uid in kept if twin.queue_of(uid) == "q"}

    def _head_with_quota(self) -> str | None:
        """Return the head of the queue ``q``, if what the queue owns has room for it."""
        waits, allocations = self.engine.waiting("q"), self.engine.state.allocations
        vertex = allocations.usage.tree.queues["q"]
        allocations.lift(QueueHead("q"))
        unused = allocations.projected.unused_nominal(vertex, CPU)
        allocations.put_back()
        asked = sum(each.count * each.price.requests["cpu"] for each in waits[0].pod_sets) if waits else 0
        return waits[0].uid if waits and asked <= unused and waits[0].uid not in self.engine.state.claims else None


@settings(max_examples=100, deadline=None)
@given(
    looks=st.tuples(st.integers(6, 24), st.integers(1, 4), st.integers(2, 5)),
    own=st.sampled_from([24, 40]),
    strategy=st.sampled_from([Strategy.BACKFILL, Strategy.STRICT_FIFO]),
    waits=st.tuples(SIZES, st.integers(0, 1)),
    events=st.lists(EVENTS, min_size=5, max_size=20),
)
def test_whose_look_is_put_off_keeps_what_was_promised(
    looks: tuple[int, int, int],
    own: int,
    strategy: Strategy,
    waits: tuple[list[int], int],
    events: list[tuple[str, list[int], int]],
) -> None:
    with limits(*looks):
        world = Watched(own, strategy, *waits)
        for event in events:
            world.happens(*event)
            world.cycle()
