"""No namespace fills the ledger for the others, and one that is alone is not kept from most of it."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.unit.controllers.ledger.keepers import reservation
from webhook.controllers.ledger.ledger_room import SHARE, LedgerRoom
from webhook.core.ledger import pages
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.bounds import STORED_BYTES_MAX, entry_bytes
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import PodPrice
from webhook.core.reasons.reasons import Code

LIMIT = 80_000


class Filled:
    """What a keeper says of a ledger with these entries."""

    ledger = None

    def __init__(self) -> None:
        self.held = Counter[str]()

    @property
    def entries_bytes(self) -> int:
        return self.held.total()

    def bytes_in(self, namespace: str) -> int:
        return self.held[namespace]


@pytest.fixture(autouse=True)
def _small_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGES_MAX", 1)
    monkeypatch.setattr(pages, "PAGE_BYTES", round(LIMIT / ledger_text.FULL_AT))


def gang(namespace: str, number: int) -> Reservation:
    return replace(reservation(f"{namespace}-{number}"), namespace=namespace)


def admitted(keeper: Filled, room: LedgerRoom, namespace: str, count: int) -> int:
    """Have a namespace ask for as many gangs, in cycles of 20; return how many are let in."""
    let_in = 0
    for first in range(0, count, 20):
        room.begin()
        asked = [gang(namespace, number) for number in range(first, first + 20)]
        refused = room.without(asked, (), {})
        for entry in asked:
            if entry.uid not in refused:
                keeper.held[namespace] += entry_bytes(entry)
                let_in += 1
        room.forget_all()
    return let_in


def test_one_namespace_takes_three_quarters_and_leaves_room_for_the_next() -> None:
    keeper = Filled()
    room = LedgerRoom(keeper)  # type: ignore[arg-type]
    assert admitted(keeper, room, "greedy", 1000) > 300
    most = LIMIT * SHARE / (SHARE + 1)
    assert 0.98 * most < keeper.held["greedy"] <= most
    assert admitted(keeper, room, "late", 20) == 20


def test_each_of_several_that_want_all_of_it_finds_some() -> None:
    keeper = Filled()
    room = LedgerRoom(keeper)  # type: ignore[arg-type]
    for number in range(4):
        left = LIMIT - keeper.entries_bytes
        assert admitted(keeper, room, f"team-{number}", 500) > 0
        assert LIMIT - keeper.entries_bytes >= left / (SHARE + 1)
    assert keeper.entries_bytes < LIMIT


def test_who_has_its_share_is_told_so_and_goes_on_when_its_own_have_ended() -> None:
    keeper = Filled()
    room = LedgerRoom(keeper)  # type: ignore[arg-type]
    admitted(keeper, room, "greedy", 1000)
    more = gang("greedy", 5000)
    assert room.without([more], (), {}) == {more.uid}
    reason = room.reason(more.uid)
    assert reason is not None
    assert reason.code is Code.LEDGER_FULL
    assert f"its namespace greedy has {keeper.held['greedy']}" in str(reason)
    assert room.begin() == []
    keeper.held["greedy"] -= 3 * entry_bytes(more)
    assert room.begin() == [more.uid]


def test_what_runs_anyway_is_put_in_beyond_a_share() -> None:
    """It was there before Tutti came: the ledger that says nothing of it would be wrong."""
    keeper = Filled()
    room = LedgerRoom(keeper)  # type: ignore[arg-type]
    admitted(keeper, room, "greedy", 1000)
    room.begin()
    assert room.takes(gang("greedy", 5000))


def test_an_entry_beyond_the_bound_of_one_job_waits_alone_though_the_ledger_has_room_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "PAGES_MAX", 100)
    room = LedgerRoom(Filled())  # type: ignore[arg-type]
    long = gang("team", 1)
    price = PodPrice({f"example.com/{'x' * 240}{number}": 1 for number in range(300)})
    long = replace(long, pod_sets=tuple(replace(each, price=price) for each in long.pod_sets))
    assert STORED_BYTES_MAX < entry_bytes(long) < LIMIT
    beside = gang("team", 2)
    assert room.without([long, beside], (), {}) == {long.uid}
    reason = room.reason(long.uid)
    assert reason is not None
    assert reason.code is Code.ENTRY_TOO_LARGE
    assert room.begin() == [], "it is not tried again as it is"
