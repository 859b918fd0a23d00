"""The record of one gang: what may follow what, and numbers that only grow."""

import pytest

from webhook.core.fleet.permit import permit_text, permits
from webhook.core.fleet.placement import TRANSITIONS, Event, Offer, Phase, Placement

OFFERED = Placement().offered(3, "a", "cluster-a")
GRANTED = OFFERED.granted("copy", "17")


def test_a_gang_that_may_have_pods_is_left_by_proof_or_somebodys_word_alone() -> None:
    may_have_pods = {Phase.GRANTED, Phase.RECALLED}
    out = {
        event
        for (before, event), after in TRANSITIONS.items()
        if before in may_have_pods and after not in may_have_pods
    }
    assert out == {Event.PROVE, Event.LOSE}


def test_a_permit_is_for_one_copy_at_a_time() -> None:
    with pytest.raises(AssertionError, match="granted to copy, not to another"):
        GRANTED.granted("another", "18")
    assert GRANTED.granted("copy", "18").copy_version == "18"


@pytest.mark.parametrize(
    ("placement", "again"),
    [
        (OFFERED, OFFERED.offered(3, "b", "cluster-b")),
        (OFFERED, OFFERED.withdrawn("stopped").offered(3, "a", "cluster-a")),
        (GRANTED, GRANTED.recalled("over").proven_gone().offered(3, "a", "cluster-a")),
        (GRANTED, GRANTED.recalled("over").proven_gone().offered(4, "a", "cluster-a")),
    ],
    ids=["moved", "withdrawn", "proven gone", "in a new epoch"],
)
def test_no_offer_bears_the_number_of_another(placement: Placement, again: Placement) -> None:
    assert again.offer > placement.offer


def test_an_adopted_copy_keeps_numbers_growing() -> None:
    adopted = OFFERED.adopted(Offer(2, 9), "b", "cluster-b", "copy")
    assert adopted.offer == OFFERED.offer
    assert (adopted.phase, adopted.member, adopted.copy_uid) == (Phase.GRANTED, "b", "copy")


@pytest.mark.parametrize(
    ("permit", "offer", "uid"),
    [
        ("", "", "copy"),
        ("", "3.1", "copy"),
        ("3.1 copy", "3.2", "copy"),
        ("3.1 copy", "3.1", "other"),
        (" copy", "", "copy"),
    ],
)
def test_a_permit_is_useless_on_any_other_copy_or_offer(permit: str, offer: str, uid: str) -> None:
    assert not permits(permit, offer, uid)


def test_a_permit_lets_the_copy_start_that_it_was_written_for() -> None:
    assert permits(permit_text(str(OFFERED.offer), "copy"), str(OFFERED.offer), "copy")
