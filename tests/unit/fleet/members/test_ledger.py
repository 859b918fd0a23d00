"""What a member's ledger says of a copy."""

from unittest.mock import Mock

import pytest

from webhook.core.fleet.dispatch import NO_OFFER
from webhook.core.fleet.sight import Copy
from webhook.fleet.members.ledger import MemberLedger, reserves


@pytest.mark.parametrize(("uid", "expected"), [("copy", True), ("other", False), ("", False)])
def test_no_room_is_reserved_for_a_copy_without_a_uid_whatever_the_ledger_says(uid: str, expected: bool) -> None:
    """No API server has such a copy, and no grant could name it."""
    ledger = MemberLedger(True, True, {"copy": Mock(), "": Mock()})
    assert reserves(ledger, Copy(uid, "4", "hub", "job", NO_OFFER, permitted=False)) is expected
