"""Which member a gang is offered to next, and when an offer is given up."""

import pytest

from webhook.fleet.choice import OFFER_SECONDS, Choice

MEMBERS = ("a", "b", "c")


def after(*said_no: str, freed: str = "") -> Choice:
    choice = Choice()
    for name in said_no:
        choice.gives_up(name, 3, "asks 3 cpu", MEMBERS)
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
        (after(), 3, "asks 3 cpu", True),
        (after("a", "b"), 3, "asks 3 cpu", False),
        (after("a", "b", "c", freed="a"), 3, "asks 3 cpu", True),
        (after("a", "b", freed="c"), 3, "asks 3 cpu", False),
        (after("a", "b"), OFFER_SECONDS, "asks 3 cpu", True),
        (after(), OFFER_SECONDS, "", True),
    ],
)
def test_an_offer_is_given_up_for_a_member_that_may_say_yes_or_after_a_while(
    choice: Choice, age: float, why: str, given_up: bool
) -> None:
    assert choice.gives_up("c", age, why, MEMBERS) is given_up


def test_the_last_that_said_no_is_asked_for_room_at_the_cost_of_others_and_another_one_in_the_next_round() -> None:
    choice = after("a", "b")
    assert choice.gives_up("c", 3, "asks 3 cpu", MEMBERS, stopped_nobody=True)
    assert (choice.stops_others, choice.in_turn("c", MEMBERS)) == (True, ["c"])
    assert not choice.gives_up("c", 3, "asks 3 cpu", MEMBERS)
    assert choice.gives_up("c", OFFER_SECONDS, "asks 3 cpu", MEMBERS)
    assert (choice.stops_others, choice.in_turn("c", MEMBERS)) == (False, ["a", "b"])
    assert choice.gives_up("a", 3, "asks 3 cpu", MEMBERS, stopped_nobody=True)
    assert choice.in_turn("a", MEMBERS) == ["b", "c"]
    assert choice.gives_up("b", 3, "asks 3 cpu", MEMBERS, stopped_nobody=True)
    assert (choice.stops_others, choice.in_turn("b", MEMBERS)) == (True, ["b"])


def test_room_that_frees_is_asked_for_before_any_at_the_cost_of_others() -> None:
    choice = after("a", "b", "c")
    choice.freed("a")
    assert choice.gives_up("c", 3, "asks 3 cpu", MEMBERS)
    assert (choice.stops_others, choice.in_turn("c", MEMBERS)[0]) == (False, "a")


def test_what_was_said_is_told_of_all_members_but_the_one_that_has_the_offer() -> None:
    choice = after("a", "b")
    assert choice.told({"c": "does not answer"}, "b") == "a says asks 3 cpu; c does not answer"
    assert Choice().told({f"m{number:02}": "is full" for number in range(13)}, "").endswith("m09 is full; 3 more")
