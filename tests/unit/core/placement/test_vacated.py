"""While others are taken out and put back, a gang finds nodes where it would if they were gone, for fewer looks."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webhook.core.model.gang import ANYWHERE, Nearness
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.claimed import Claimed
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.nodes.shape import Shape
from webhook.core.placement import vacated
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.placement.vacated import Vacated

NODES = 6
NEAR = st.sampled_from(
    [None, None, ANYWHERE, *(Nearness("rack", required) for required in (True, False)), Nearness("", False, "rack", 2)]
)
SETS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8), NEAR), min_size=1, max_size=4)
GANGS = st.lists(st.lists(st.integers(0, NODES - 1), min_size=1, max_size=4), min_size=1, max_size=6)
CLAIMS = st.lists(
    st.tuples(st.lists(st.integers(0, NODES - 1), min_size=1, max_size=6), st.sets(st.integers(0, 5)), st.booleans()),
    max_size=3,
)
STEPS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=14)


def occupied(gangs: list[list[int]]) -> Capacity:
    """Six nodes of two racks, on which gangs have a pod each that takes a quarter of a node."""
    there = Capacity()
    for number in range(NODES):
        there.put_node(NodeRecord(f"n{number}", {"cpu": 4000, "pods": 110_000}, {"rack": f"r{number % 2}"}))
    for gang, nodes in enumerate(gangs):
        for number, node in enumerate(nodes):
            there.bind(f"{gang}-{number}", Bound(f"n{node}", {"cpu": 1000, "pods": 1000}, f"g{gang}", "main"))
    return there


def asked_for(sets: list[tuple[int, int, Nearness | None]]) -> list[Asked]:
    return [
        Asked(f"s{number}", Shape((("cpu", 1000 * cpu), ("pods", 1000))), count, near)
        for number, (cpu, count, near) in enumerate(sets)
    ]


@given(SETS, GANGS, STEPS)
def test_what_is_found_is_what_would_be_if_those_were_gone(
    sets: list[tuple[int, int, Nearness | None]], gangs: list[list[int]], steps: list[tuple[int, bool]]
) -> None:
    there, asked, out = occupied(gangs), asked_for(sets), set[int]()
    seats = Vacated(there, asked)
    for each, asks in steps:
        gang = each % len(gangs)
        if gang in out:
            seats.give_back([f"g{gang}"])
        else:
            seats.take([f"g{gang}"])
        out ^= {gang}
        if asks:
            left = [nodes if number not in out else [] for number, nodes in enumerate(gangs)]
            assert seats.found() is not isinstance(place(occupied(left), asked, thorough=False), Misplaced)
    assert not seats.given_up


@example([(2, 11, None)], [[0, 0], [0, 0]], [([0, 0, 0], {0, 1}, True)], [(0, False), (1, True)])
@example(
    [(2, 11, None)], [[0, 0], [0, 0]], [([0, 0, 0], {0, 1}, False)], [(0, False), (1, True), (0, False), (0, True)]
)
@example([(2, 11, None), (2, 1, None)], [[0, 0], [0, 0]], [([0], {0, 1}, False)], [(0, False), (1, True)])
@given(SETS, GANGS, CLAIMS, STEPS)
def test_what_several_leave_that_one_claim_or_booking_awaits_is_not_counted_once_for_each(
    sets: list[tuple[int, int, Nearness | None]],
    gangs: list[list[int]],
    claims: list[tuple[list[int], set[int], bool]],
    steps: list[tuple[int, bool]],
) -> None:
    there, asked, out = occupied(gangs), asked_for(sets), set[str]()
    for number, (places, awaits, booked) in enumerate(claims):
        room = Allotment({"main": asked_for([(1, 1, None)])[0].shape}, {"main": Counter(f"n{node}" for node in places)})
        there.claim(f"c{number}", Claimed(room, {f"g{each}" for each in awaits}, booked))
    seats = Vacated(there, asked)
    for each, asks in steps:
        gang = {f"g{each % len(gangs)}"}
        if gang <= out:
            seats.give_back(gang)
        else:
            seats.take(gang)
        out ^= gang
        if asks:
            assert seats.found() is not isinstance(place(there, asked, there.held_by(out), thorough=False), Misplaced)


def full(nodes: int) -> Capacity:
    """Nodes with a gang on each."""
    there = Capacity()
    for number in range(nodes):
        there.put_node(NodeRecord(f"n{number}", {"cpu": 4000, "pods": 110_000}))
        there.bind(f"p{number}", Bound(f"n{number}", {"cpu": 4000}, f"g{number}", "main"))
    return there


def with_many_small(nodes: int, small: int) -> list[Asked]:
    """One set takes almost all nodes, and comes last; of the others no two are alike."""
    different = [Asked(f"s{number}", Shape((("cpu", 1000 + number), ("pods", 1000))), 1) for number in range(small)]
    return [*different, *asked_for([(4, nodes - 1, None)])]


def test_while_the_widest_set_is_in_the_way_no_others_are_counted() -> None:
    there = full(40)
    seats = Vacated(there, with_many_small(40, 20))
    for number in range(38):
        seats.take([f"g{number}"])
        assert not seats.found()
    # A sixteenth of the nodes to begin with, and each of the small ones on the first node.
    assert there.looked <= 21 * 40 // 16 + 20 + 38


@pytest.mark.parametrize("small", [1, 20])
def test_a_search_in_which_too_many_sets_are_counted_on_too_many_nodes_is_given_up(
    small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacated, "MOST_LOOKED", 260)
    there = full(40)
    seats = Vacated(there, with_many_small(40, small))
    found, taken = False, list[str]()
    while not found and len(taken) < 40:
        taken.append(f"g{len(taken)}")
        seats.take(taken[-1:])
        found = seats.found()
    assert found is (small == 1)
    assert seats.given_up is (small == 20)
    assert there.looked <= 260
    for gang in taken if small == 20 else ():
        seats.give_back([gang])
        assert not seats.found()
        assert seats.given_up, "to the end"


@pytest.mark.parametrize("sets", [[(4, 39, None)], [(4, 1, None)] * 39, [(4, 3, ANYWHERE)] * 13])
def test_one_set_is_counted_on_however_many_nodes_and_those_of_one_shape_are_as_one(
    sets: list[tuple[int, int, Nearness | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacated, "MOST_LOOKED", 0)
    seats = Vacated(full(40), asked_for(sets))
    for number in range(39):
        assert not seats.found()
        seats.take([f"g{number}"])
    assert seats.found()
