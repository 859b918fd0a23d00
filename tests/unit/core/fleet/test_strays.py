"""What becomes of a copy whose permit its record does not name: it may be one that the record has lost, or forged."""

import pytest

from webhook.core.fleet.dispatch import NOWHERE, Dispatch, Offer
from webhook.core.fleet.sight import Copy
from webhook.core.fleet.strays import Verdict, verdict

ASKED = NOWHERE.offered(5, "a", "cluster-a")
MOVED = ASKED.offered(5, "b", "cluster-b")
LEFT = MOVED.withdrawn("it is suspended in the hub")
LATER = Offer(6, 1)


def of(dispatch: Dispatch, offer: Offer, *, swept: bool = True, left_out: bool = False) -> Verdict:
    copy = Copy("copy", "19", "hub", "job", offer, permitted=True)
    return verdict(copy, "cluster-a", dispatch, swept=swept, complete=True, left_out=left_out)


@pytest.mark.parametrize("dispatch", [MOVED, LEFT])
@pytest.mark.parametrize("offer", [ASKED.offer, MOVED.offer])
def test_a_record_names_no_copy_again_that_it_has_left(dispatch: Dispatch, offer: Offer) -> None:
    assert of(dispatch, offer) is Verdict.END


@pytest.mark.parametrize("dispatch", [ASKED, MOVED, LEFT])
@pytest.mark.parametrize("offer", [ASKED.offer, MOVED.offer, LATER])
def test_a_record_may_have_been_set_back_until_the_member_is_swept(dispatch: Dispatch, offer: Offer) -> None:
    assert of(dispatch, offer, swept=False, left_out=True) is Verdict.ADOPT


@pytest.mark.parametrize("left_out", [False, True])
def test_the_copy_that_is_asked_for_is_adopted(left_out: bool) -> None:
    """What the grant has written may be lost, and nobody has noticed."""
    assert of(ASKED, ASKED.offer, left_out=left_out) is Verdict.ADOPT


def test_a_later_offer_than_the_record_knows_is_believed_of_a_member_that_may_have_the_gang() -> None:
    assert of(MOVED, LATER) is Verdict.ADOPT
    assert of(MOVED, LATER, left_out=True) is Verdict.END
