"""The protocol between a hub and its members, searched for a story in which a gang runs twice or without leave."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.core.fleet.world import JOBS, LONG, MEMBERS, World
from webhook.core.fleet.dispatch import DispatchPhase

WALKS = 25
MOVES = 2500
LATE = {"land permit": 0.01, "lose a write": 0.02}
"""Moves less likely than others where permits are long on their way."""


def whole(world: World) -> None:
    """Heal everything, take each move that ends something, and see that each gang ends once and leaves nothing."""
    world.cut.clear()
    for job in JOBS:
        if not world.jobs[job].runs:
            world.toggle(job)
    chance = Random(0)
    for _ in range(300):
        world.walk(chance, 40, faults=0.0, sweep=1.0)
        if at_rest(world):
            return
    raise AssertionError(f"not at rest: {world.jobs}, {world.members}")


def at_rest(world: World) -> bool:
    ended = all(job.over and job.dispatch.phase is DispatchPhase.NOWHERE for job in world.jobs.values())
    empty = all(not m.reserved and not any(m.pods.values()) for m in world.members.values())
    copies = any(found.hub for m in world.members.values() for found in m.objects.values())
    return ended and empty and not copies


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_gang_runs_in_one_member_by_leave_whatever_is_cut_lost_or_late(seed: int) -> None:
    world = World()
    world.walk(Random(seed), MOVES)
    whole(world)


@pytest.mark.parametrize("seed", range(WALKS))
def test_pods_that_are_left_keep_their_gang_where_it_is_whatever_its_members_ledger_says(seed: int) -> None:
    world, chance = World(), Random(seed)
    for _ in range(25):
        world.walk(chance, 60, **LONG)
        for member in world.members.values():
            if chance.random() < 0.4:
                member.lose_ledger()
        world.walk(chance, 40, **LONG)
    whole(world)


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_record_that_is_set_back_places_nothing_twice(seed: int) -> None:
    world, chance = World(), Random(seed)
    for _ in range(12):
        world.walk(chance, chance.randrange(120), **LONG)
        world.back_up()
        world.walk(chance, chance.randrange(250), **LONG)
        world.set_back()
        world.walk(chance, chance.randrange(120), **LONG)
    whole(world)


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_gang_that_comes_after_a_set_back_waits_for_no_member_that_is_silent(seed: int) -> None:
    world, chance = World(), Random(seed)
    whole(world)
    world.back_up()
    world.set_back()
    world.cut.add("c")
    world.submit_again("one")
    for _ in range(100):
        world.walk(chance, 20, faults=0.0, sweep=1.0)
        if world.jobs["one"].over:
            break
    assert world.jobs["one"].over
    assert world.unswept.keys() == {"c"}
    world.walk(chance, MOVES // 10)
    whole(world)


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_permit_that_lands_long_after_its_record_was_set_back_starts_nothing(seed: int) -> None:
    chance = Random(seed)
    for _ in range(20):
        world = World()
        while not any(job.dispatch.phase is DispatchPhase.OFFERED for job in world.jobs.values()):
            world.walk(chance, 5, faults=0.0, **LATE)
        world.walk(chance, chance.randrange(30), faults=0.0, **LATE)
        world.back_up()
        world.walk(chance, chance.randrange(30), faults=0.0, **LATE)
        world.set_back()
        world.walk(chance, 60, faults=0.0, **LATE | {"sweep": 6.0})
        world.walk(chance, 60)
        whole(world)


@pytest.mark.parametrize("seed", range(WALKS))
def test_another_cluster_by_the_name_of_a_member_proves_nothing(seed: int) -> None:
    world, chance = World(), Random(seed)
    for _ in range(4):
        world.walk(chance, chance.randrange(300), **LONG)
        swapped = chance.choice(MEMBERS)
        world.swap(swapped)
        world.accept(swapped)
        world.walk(chance, chance.randrange(300), **LONG)


@pytest.mark.parametrize("seed", range(WALKS))
def test_jobs_of_others_and_members_without_permits_are_left_alone(seed: int) -> None:
    world, chance = World(), Random(seed)
    world.members["a"].knows_permits = False
    world.occupy("b", "one")
    world.walk(chance, MOVES)
    whole(world)


class FleetMachine(RuleBasedStateMachine):
    """The same world, its story chosen and shortened by Hypothesis."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(kind=st.integers(0, 60), which=st.integers(0, 30))
    def move(self, kind: int, which: int) -> None:
        self._take(list(self.world.moves()), kind, which)

    @rule(kind=st.integers(0, 10), which=st.integers(0, 6))
    def fault(self, kind: int, which: int) -> None:
        self._take(list(self.world.faults()), kind, which)

    @rule()
    def back_up(self) -> None:
        self.world.back_up()

    @rule()
    def set_back(self) -> None:
        self.world.set_back()

    @rule(member=st.sampled_from(MEMBERS))
    def swap(self, member: str) -> None:
        if len(self.world.elsewhere) < 2 and not self.world.foreign:
            self.world.swap(member)

    @rule(member=st.sampled_from(MEMBERS))
    def accept(self, member: str) -> None:
        self.world.accept(member)

    @rule(member=st.sampled_from(MEMBERS), job=st.sampled_from(JOBS))
    def occupy(self, member: str, job: str) -> None:
        if not self.world.elsewhere:
            self.world.occupy(member, job)

    @invariant()
    def one_place_by_leave(self) -> None:
        self.world.check()

    def _take(self, moves: list[tuple[str, object]], kind: int, which: int) -> None:
        kinds = sorted({name for name, _ in moves})
        name = kinds[kind % len(kinds)]
        chosen = [move for each, move in moves if each == name]
        self.world.take(name, chosen[which % len(chosen)])  # type: ignore[arg-type]


FleetMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=80)
test_the_protocol_holds_in_every_story = FleetMachine.TestCase
