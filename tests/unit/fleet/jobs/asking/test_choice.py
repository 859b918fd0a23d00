"""Which member a gang is offered to next, and when an offer is given up."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.fleet.jobs.asking.choice import OFFER_SECONDS, STAYS_SECONDS, Choice
from webhook.fleet.members.told import Waits

MEMBERS = ("a", "b", "c")


def says_no(choice: Choice, member: str, age: float = 3, starts_at: float | None = None, **how: bool) -> bool:
    """Let a member say why it has no room; return whether its offer is given up."""
    choice.hears(member, Waits("asks for 3 cpu", starts_at), 1000)
    return choice.gives_up(member, age, "asks for 3 cpu", MEMBERS, **how)


def after(*said_no: str, freed: str = "") -> Choice:
    choice = Choice()
    for name in said_no:
        says_no(choice, name)
    if freed:
        choice.freed(freed)
    return choice


@pytest.mark.parametrize(
    ("choice", "current", "turn"),
    [
        (after(), "", ["a", "b", "c"]),
        (after(), "b", ["c", "a"]),
        (after("a", "b"), "b", ["c", "a"]),
        (after("c"), "b", ["a", "c"]),
        (after("a", "b", "c", freed="b"), "c", ["b", "a"]),
        (after(), "gone", ["a", "b", "c"]),
    ],
)
def test_members_are_asked_in_turn_those_that_said_no_last_and_one_that_was_freed_first(
    choice: Choice, current: str, turn: list[str]
) -> None:
    assert choice.in_turn(current, MEMBERS) == turn


@pytest.mark.parametrize(
    ("choice", "age", "why", "given_up"),
    [
        (after(), 1, "", False),
        (after(), 3, "asks for 3 cpu", True),
        (after("a", "b"), 3, "asks for 3 cpu", False),
        (after("a", "b", "c", freed="a"), 3, "asks for 3 cpu", True),
        (after("a", "b", freed="c"), 3, "asks for 3 cpu", False),
        (after("a", "b", "c", freed="not one of its members"), 3, "asks for 3 cpu", False),
        (after("a", "b"), OFFER_SECONDS, "asks for 3 cpu", True),
        (after(), OFFER_SECONDS, "", True),
    ],
)
def test_an_offer_is_given_up_for_a_member_that_may_say_yes_or_after_a_while(
    choice: Choice, age: float, why: str, given_up: bool
) -> None:
    choice.hears("c", Waits(why), 1000)
    assert choice.gives_up("c", age, why, MEMBERS) is given_up


def test_the_last_that_said_no_is_asked_for_room_at_the_cost_of_others_and_another_one_in_the_next_round() -> None:
    choice = after("a", "b", freed="not one of its members")
    assert says_no(choice, "c", 3, stopped_nobody=True)
    assert (choice.stops_others, choice.in_turn("c", MEMBERS, told_no=True)) == (True, ["c"])
    assert not says_no(choice, "c", 3)
    assert says_no(choice, "c", OFFER_SECONDS)
    assert (choice.stops_others, choice.in_turn("c", MEMBERS, told_no=True)) == (False, ["a", "b"])
    assert says_no(choice, "a", 3, stopped_nobody=True)
    assert choice.in_turn("a", MEMBERS, told_no=True) == ["b"]
    assert says_no(choice, "b", 3, stopped_nobody=True)
    assert (choice.stops_others, choice.in_turn("b", MEMBERS, told_no=True)) == (True, ["b"])
    assert choice.in_turn("b", MEMBERS) == ["c", "a"], "who does not answer is not asked for it"


def test_room_that_frees_is_asked_for_before_any_at_the_cost_of_others() -> None:
    choice = after("a", "b", "c")
    choice.freed("a")
    assert says_no(choice, "c", 3)
    assert (choice.stops_others, choice.in_turn("c", MEMBERS)[0]) == (False, "a")


def test_nobody_is_stopped_for_a_gang_that_another_process_moves_away() -> None:
    choice = after("a", "b")
    assert not says_no(choice, "c", 3, contested=True)
    assert not choice.stops_others
    assert says_no(choice, "c", 3, stopped_nobody=True)
    assert choice.stops_others, "as soon as it does not any more"


def test_where_one_member_answers_and_says_no_late_it_is_asked_there_for_room_at_the_cost_of_others() -> None:
    choice = Choice()
    assert choice.gives_up("a", OFFER_SECONDS, "", ["a"], stopped_nobody=True)
    assert (choice.stops_others, choice.in_turn("a", ["a"], told_no=True)) == (True, ["a"])


@pytest.mark.parametrize(
    ("choice", "moves"),
    [
        (after("a", freed="b"), True),
        (after("a"), False),
        (after(freed="b"), False),
        (after("a", freed="a"), False),
        (after("a", freed="elsewhere"), False),
    ],
)
def test_who_has_said_no_is_not_heard_again_when_room_frees_in_a_member_that_may_have_the_gang(
    choice: Choice, moves: bool
) -> None:
    assert choice.moves("a", MEMBERS) is moves


@pytest.mark.parametrize("told", [Choice.offered, lambda choice: choice.unfit("b")], ids=["offered", "unfit"])
def test_room_that_frees_is_a_reason_for_one_move(told: Callable[[Choice], None]) -> None:
    choice = after("a", "c", freed="b")
    assert choice.in_turn("a", MEMBERS, told_no=True) == ["b"]
    told(choice)
    assert not choice.moves("a", MEMBERS)


def test_a_member_that_cannot_have_the_gang_is_not_waited_for_in_this_round_and_looked_at_in_the_next() -> None:
    choice = after("a", "b")
    assert says_no(choice, "b", 3)
    assert choice.in_turn("b", MEMBERS, told_no=True) == ["c"]
    choice.unfit("c")
    assert not says_no(choice, "b", 3)
    assert says_no(choice, "b", 3, stopped_nobody=True)
    assert (choice.stops_others, choice.in_turn("b", MEMBERS, told_no=True)) == (True, ["b"])
    assert says_no(choice, "b", OFFER_SECONDS)
    assert choice.in_turn("b", MEMBERS, told_no=True) == ["c", "a"]


@given(st.lists(st.tuples(st.sampled_from(("hears", "freed", "unfit")), st.sampled_from(MEMBERS)), max_size=60))
def test_who_is_told_no_moves_at_most_once_to_each_member_and_once_for_each_room_that_frees(
    story: list[tuple[str, str]],
) -> None:
    """Within one round, whatever happens in whatever order: so no hub goes round and round."""
    choice, current, moves, freed = Choice(), "a", 0, 0
    for what, member in story:
        match what:
            case "freed" if member != current:
                choice.freed(member)
                freed += 1
            case "unfit" if member != current:
                choice.unfit(member)
        if what == "hears" or choice.moves(current, MEMBERS):
            if what == "hears" and not says_no(choice, current, 3):
                continue
            turn = choice.in_turn(current, MEMBERS, told_no=True)
            if turn:
                choice.offered()
                moves, current = moves + (turn[0] != current), turn[0]
    assert moves <= len(MEMBERS) + freed


def test_what_was_said_is_told_of_all_members_but_the_one_that_has_the_offer() -> None:
    choice = after("a", "b")
    assert choice.told({"c": "does not answer"}, MEMBERS, "b") == ("a says asks for 3 cpu", "c does not answer")
    assert choice.told({}, {"b"}, "b") == (), "a is no member any more"
    full = {f"m{number:02}": "is full" for number in range(13)}
    assert Choice().told(full, full)[-2:] == ("m09 is full", "3 more")


def test_when_all_have_said_no_it_goes_where_it_starts_first_and_stays_there_until_that_was_due() -> None:
    choice = Choice()
    starts = {"a": 1600.0, "b": 1120.0, "c": 1400.0}
    for name, at in starts.items():
        says_no(choice, name, starts_at=at, stopped_nobody=True)
    asked = []
    current = choice.in_turn("c", MEMBERS, told_no=True)[0]
    for _ in MEMBERS:
        # For room at the cost of others each is asked once, in the order of their starts.
        asked.append(current)
        assert says_no(choice, current, OFFER_SECONDS, starts[current])
        for other in choice.in_turn(current, MEMBERS, told_no=True):
            assert says_no(choice, other, starts_at=starts[other], stopped_nobody=True)
            last = other
        current = choice.in_turn(last, MEMBERS, told_no=True)[0]
    assert (asked, current) == (["b", "c", "a"], "b")
    assert not says_no(choice, "b", OFFER_SECONDS, starts["b"])
    assert not says_no(choice, "b", 100, starts["b"])
    choice.freed("a")
    assert says_no(choice, "b", 110, starts["b"])
    assert choice.in_turn("b", MEMBERS, told_no=True)[0] == "a"


@pytest.mark.parametrize(("age", "now"), [(100, 1120 + OFFER_SECONDS), (STAYS_SECONDS, 1000)])
def test_it_stays_no_longer_than_its_start_was_due_nor_for_ever(age: float, now: float) -> None:
    choice = Choice()
    for name in MEMBERS:
        says_no(choice, name, OFFER_SECONDS, 1120.0 if name == "b" else 2000.0)
    choice.hears("b", Waits("asks for 3 cpu", 1120.0), now)
    assert choice.gives_up("b", age, "asks for 3 cpu", MEMBERS)


@pytest.mark.parametrize("left", [(), ("b",), ("b", "c")])
def test_a_member_that_is_not_allowed_any_more_is_not_asked_again_for_room_at_the_cost_of_others(
    left: tuple[str, ...],
) -> None:
    choice = after("b", "c")
    choice.hears("a", Waits("asks for 3 cpu"), 1000)
    assert choice.gives_up("a", OFFER_SECONDS, "asks for 3 cpu", left, stopped_nobody=True)
    assert set(choice.in_turn("a", left, told_no=True)) <= set(left)


def grouped(*said_no: str, freed: str = "", **ranks: int) -> Choice:
    choice = after(*said_no, freed=freed)
    choice.ranks = ranks
    return choice


@pytest.mark.parametrize(
    ("choice", "current", "turn"),
    [
        (grouped(a=1, b=1, c=0), "", ["c", "a", "b"]),
        (grouped("c", a=1, b=1, c=0), "", ["a", "b", "c"]),
        (grouped(a=2, b=1, c=0), "c", ["b", "a"]),
        (grouped(freed="a", a=1, b=0, c=0), "", ["b", "c", "a"]),
        (grouped("b", freed="c", a=0, b=0, c=0), "", ["c", "a", "b"]),
    ],
)
def test_members_of_the_preferred_group_are_asked_before_others_unless_they_have_said_no(
    choice: Choice, current: str, turn: list[str]
) -> None:
    assert choice.in_turn(current, MEMBERS) == turn


def test_nobody_is_stopped_in_the_preferred_group_before_all_have_said_no_and_then_there_first() -> None:
    choice, asked = grouped(a=0, b=1, c=1), []
    current = choice.in_turn("", MEMBERS)[0]
    for _ in range(2 * len(MEMBERS)):
        for _ in MEMBERS:
            if choice.stops_others:
                break
            assert says_no(choice, current, 3, stopped_nobody=True)
            current = choice.in_turn(current, MEMBERS, told_no=True)[0]
        asked.append(current)
        assert says_no(choice, current, OFFER_SECONDS)
        current = choice.in_turn(current, MEMBERS, told_no=True)[0]
    assert (asked[0], sorted(asked[1:3])) == ("a", ["b", "c"])


def test_when_all_were_asked_in_either_way_it_stays_where_it_starts_first_whatever_the_group() -> None:
    choice = grouped(a=1, b=0, c=0)
    starts = {"a": 1100.0, "b": 1500.0, "c": 1400.0}
    for name, at in starts.items():
        says_no(choice, name, OFFER_SECONDS, at)
    choice.hears("a", Waits("asks for 3 cpu", starts["a"]), 1000)
    assert not choice.gives_up("a", OFFER_SECONDS, "asks for 3 cpu", MEMBERS)
