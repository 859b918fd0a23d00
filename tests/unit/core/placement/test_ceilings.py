"""What nodes would hold if others were gone, kept from question to question, against a look at all of them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webhook.core.model.gang import Nearness
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.nodes.shape import Shape
from webhook.core.notation.names import HOSTNAME
from webhook.core.placement import ceilings
from webhook.core.placement.ceilings import Ceilings
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.placement.vacated import Vacated

GANGS = "xyz"
LEVELS = ("block", "rack", HOSTNAME)
NEAR = st.sampled_from(
    [
        None,
        Nearness("rack", required=True),
        Nearness("block", required=True),
        Nearness("rack", required=False),
        Nearness("block", True, "rack", 2),
        Nearness("", False, "rack", 2),
    ]
)
CHANGES = st.one_of(
    st.tuples(st.just("node"), st.integers(0, 5), st.integers(1, 6)),
    st.tuples(st.just("drop"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("bind"), st.integers(0, 8), st.integers(0, 5)),
    st.tuples(st.just("unbind"), st.integers(0, 8), st.just(0)),
    st.tuples(st.just("allot"), st.integers(0, 2), st.integers(0, 5)),
    st.tuples(st.just("withdraw"), st.integers(0, 2), st.just(0)),
)


def change(there: Capacity, what: str, number: int, amount: int) -> None:
    match what:
        case "node":
            labels = {"block": f"b{number // 4}", "rack": f"r{number // 2}", HOSTNAME: f"n{number}"}
            there.put_node(NodeRecord(f"n{number}", {"cpu": 1000 * amount}, labels))
        case "drop":
            there.drop_node(f"n{number}")
        case "bind":
            there.bind(f"pod-{number}", Bound(f"n{amount}", {"cpu": 1000}, GANGS[number % 3], "main"))
        case "allot":
            places = {"main": {f"n{amount}": 1, "n0": 2}}
            there.allot(GANGS[number], Allotment({"main": Shape((("cpu", 500),))}, places))
        case "withdraw":
            there.withdraw(GANGS[number])
        case _:
            there.unbind(f"pod-{number}")


@given(
    st.lists(st.tuples(CHANGES, st.sets(st.sampled_from(GANGS))), max_size=12),
    st.tuples(st.integers(1, 3), st.integers(1, 5), NEAR),
)
def test_a_no_is_certain_and_of_one_set_counts_say_what_placing_it_says(
    steps: list[tuple[tuple[str, int, int], set[str]]], wanted: tuple[int, int, Nearness | None]
) -> None:
    there, kept = Capacity(), Ceilings()
    for number in range(4):
        change(there, "node", number, 3)
    cpu, count, near = wanted
    asked = [Asked("main", Shape((("cpu", 1000 * cpu),), levels=LEVELS), count, near)]
    for step, gone in steps:
        change(there, *step)
        assert there.held_by(GANGS) == there.copy().held_by(GANGS), "what is remembered of gangs is what they hold"
        fits = not isinstance(place(there, asked, there.held_by(sorted(gone))), Misplaced)
        may = kept.may_hold(there, asked, "kind", dict.fromkeys(sorted(gone)), "gang")
        assert may or not fits
        assert may == Ceilings().may_hold(there, asked, "kind", gone, "gang"), "as if it were asked for the first time"
        seats = Vacated(there, asked)
        for uid in GANGS:
            seats.take([uid])
        for uid in sorted(set(GANGS) - gone):
            seats.give_back([uid])
        assert seats.found() == fits
        if near is None or not near.slice_size:
            assert may == fits


def test_nothing_is_kept_of_what_gangs_held_that_are_gone() -> None:
    there, kept = Capacity(), Ceilings()
    there.put_node(NodeRecord("n0", {"cpu": 4000}))
    asked = [Asked("main", Shape((("cpu", 4000),)), 1)]
    for port in range(3):
        there.bind("pod", Bound("n0", {"cpu": 1000, f"TCP/{port}": 1000}, "a", "main"))
        assert kept.may_hold(there, asked, "kind", ["a"], "gang")
        there.unbind("pod")
        assert kept.may_hold(there, asked, "kind", [], "gang")
        assert kept._decided.gone["kind"].more == {}


KINDS = 12
MEMBERS = 7


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sets(st.integers(0, KINDS - 1), min_size=1),
    st.lists(st.tuples(st.permutations(range(KINDS)), st.sets(st.integers(0, KINDS - 1))), min_size=1, max_size=8),
    st.lists(st.integers(0, KINDS * MEMBERS - 1), max_size=40),
)
def test_each_kind_that_asks_in_every_cycle_is_answered_whatever_others_ask_and_whatever_changes(
    monkeypatch: pytest.MonkeyPatch,
    steady: set[int],
    cycles: list[tuple[list[int], set[int]]],
    changed: list[int],
) -> None:
    monkeypatch.setattr(ceilings, "COUNTED_AT_ONCE", 2)
    there, kept, unanswered = Capacity(), Ceilings(), set(steady)
    there.put_node(NodeRecord("n0", {"cpu": 1000}))
    asked = [Asked("main", Shape((("cpu", 1000),)), 1)]
    for number in range(KINDS * MEMBERS):
        there.bind(f"pod-{number}", Bound("n0", {"cpu": 1}, f"g{number}", "main"))
    most = KINDS * (MEMBERS + 1)
    for cycle in range(most):
        order, others = cycles[cycle % len(cycles)]
        # They give up after a while.
        others = others if cycle < len(cycles) else set()
        for number in changed:
            there.bind(f"pod-{number}", Bound("n0", {"cpu": 2 + cycle}, f"g{number}", "main"))
        kept.begin_cycle()
        for kind in order:
            gangs = [f"g{number}" for number in range(kind * MEMBERS, (kind + 1) * MEMBERS)]
            if kind in steady | others and kept.may_hold(there, asked, kind, gangs, f"of {kind}") is not None:
                unanswered.discard(kind)
    assert not unanswered
