"""A copy that its member has stopped is taken back for another member, and no other copy is for that."""

from dataclasses import replace
from typing import Any

import pytest

from webhook.core.fleet.dispatch import NOWHERE
from webhook.core.fleet.sight import Copy, Sight
from webhook.core.fleet.steps import HubStep, Wish, next_step, rests

WISH = Wish("hub", "job", runs=True)
GRANTED = NOWHERE.offered(1, "a", "cluster-a").granted("copy", "18")
STOPPED = Copy("copy", "19", "hub", "job", GRANTED.offer, permitted=True)


def step(copy: Copy, *, reserved: bool = False, moves: bool = True) -> HubStep:
    return next_step(WISH, GRANTED, Sight("cluster-a", True, copy, reserved), moves=moves, complete=True)


def test_it_is_recalled_for_another_member_alone() -> None:
    assert step(STOPPED) is HubStep.RECALL
    assert step(STOPPED, moves=False) is HubStep.NOTHING


@pytest.mark.parametrize(
    ("fields", "reserved", "expected"),
    [
        ({"suspended": False}, False, HubStep.NOTHING),
        ({}, True, HubStep.NOTHING),
        ({"finished": True}, False, HubStep.REPORT),
        ({"deleting": True}, False, HubStep.RECALL),
        ({"permitted": False}, True, HubStep.GRANT),
    ],
    ids=["it runs", "it starts again", "it has ended", "it is being deleted", "it was never permitted"],
)
def test_what_else_may_be_seen_goes_its_own_way(fields: dict[str, Any], reserved: bool, expected: HubStep) -> None:
    assert step(replace(STOPPED, **fields), reserved=reserved) is expected


def test_it_does_not_rest_while_it_stands_still() -> None:
    sight = Sight("cluster-a", True, STOPPED)
    assert not rests(WISH, GRANTED, sight)
    assert rests(WISH, GRANTED, replace(sight, copy=replace(STOPPED, suspended=False)))
