"""A ledger that is read, or written, costs each process what changed: none looks at gangs that only go on running."""

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controllers.ledger.keepers import Stage, reservation
from webhook.cluster.ledger_book import LedgerBook
from webhook.cluster.view import View
from webhook.core.ledger import pages
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import Found, PagesMismatch
from webhook.core.ledger.record import Ledger, Reservation

PLACES = ("index", "page-1", "page-2", "page-3")


def book_of(held: dict[str, dict[str, Reservation]], seq: int) -> tuple[dict[str, str], dict[str, Found]]:
    """Return index and pages as they are stored; a page that holds nothing is not listed."""
    listed = {name: f"uid-{name}" for name in PLACES[1:] if held[name]}
    index = ledger_text.encode(Ledger(1, seq, held["index"], pages=listed))
    return index, {name: Found(uid, ledger_text.encode(Ledger(1, seq, held[name]))) for name, uid in listed.items()}


@given(
    steps=st.lists(
        st.lists(
            st.tuples(st.integers(0, 7), st.sampled_from([*PLACES, "gone"]), st.sampled_from(["", "q", "r"])),
            max_size=4,
        ),
        max_size=8,
    )
)
def test_what_follows_from_changes_is_what_follows_from_all(
    steps: list[list[tuple[int, str, str]]],
) -> None:
    held: dict[str, dict[str, Reservation]] = {place: {} for place in PLACES}
    book, view, deleted = LedgerBook(), View(), set[str]()
    for seq, step in enumerate(steps, start=1):
        for number, place, queue in step:
            uid = f"gang-{number}"
            if queue == "r":
                view.drop_controller(uid)
                deleted |= view.ledger.entries.keys() & {uid}
            for entries in held.values():
                entries.pop(uid, None)
            if place != "gone":
                held[place][uid] = replace(reservation(uid), queue=queue or None)
        book.index, book.pages = book_of(held, seq)
        ledger, before = book.read(), view.ledger.entries
        assert ledger is not None
        view.moved = {}
        view.set_ledger(ledger, book.changes)
        differ = {uid for uid in before.keys() | ledger.entries if before.get(uid) is not ledger.entries.get(uid)}
        assert differ <= view.moved.keys()
        fresh, whole = View(), LedgerBook(book.index, book.pages).read()
        fresh.set_ledger(whole)
        assert ledger == whole
        assert view.holding == fresh.holding
        deleted &= ledger.entries.keys()
        assert {uid for uid in ledger.entries if view.is_deleted(uid)} == deleted
        for number in range(8):
            uid = f"gang-{number}"
            assert view.fences.reservation("ns", uid) == fresh.fences.reservation("ns", uid)


def test_a_gang_that_stands_on_two_pages_is_noticed_and_forgotten_once_it_does_not() -> None:
    held: dict[str, dict[str, Reservation]] = {place: {} for place in PLACES}
    held["page-1"]["a"] = reservation("a")
    book = LedgerBook(*book_of(held, 1))
    assert book.read() is not None
    held["page-2"]["a"] = reservation("a")
    book.index, book.pages = book_of(held, 2)
    with pytest.raises(PagesMismatch):
        book.read()
    del held["page-1"]["a"]
    book.index, book.pages = book_of(held, 3)
    ledger = book.read()
    assert ledger is not None
    assert ledger.entries.keys() == {"a"}


def test_what_was_doubted_is_compared_whole() -> None:
    held = {place: dict[str, Reservation]() for place in PLACES} | {"index": {"a": reservation("a")}}
    book, view = LedgerBook(*book_of(held, 1)), View()
    view.set_ledger(book.read(), book.changes)
    view.fences.put_reservation(reservation("b"))
    view.doubt()
    book.index, book.pages = book_of(held, 2)
    view.set_ledger(book.read(), book.changes)
    assert view.fences.reservation("ns", "b") is None


# -- what it costs -----------------------------------------------------------------------------------------------------


class Calls:
    """Counts calls of Python functions; what runs in C, like the copy of a dictionary, is one step."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Calls":
        sys.setprofile(self.note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def note(self, _frame: FrameType, event: str, _about: Any) -> None:
        self.count += event in ("call", "c_call")


def paged(running: int) -> dict[str, dict[str, Reservation]]:
    """Return so many gangs on pages of 50."""
    held: dict[str, dict[str, Reservation]] = {}
    for number in range(running):
        held.setdefault(f"page-{number // 50}", {})[f"gang-{number}"] = reservation(f"gang-{number}")
    return held


def calls_of_reading(running: int) -> int:
    """Return how many calls it takes a follower to take in one admission."""
    held = paged(running)
    index = ledger_text.encode(Ledger(1, 1, {}, pages={name: name for name in held}))
    book, view = LedgerBook(index), View()
    book.pages = {name: Found(name, ledger_text.encode(Ledger(1, 1, entries))) for name, entries in held.items()}
    view.set_ledger(book.read(), book.changes)
    changed = held["page-0"] | {"new": reservation("new")}
    book.pages["page-0"] = Found("page-0", ledger_text.encode(Ledger(1, 2, changed)))
    with Calls() as calls:
        view.set_ledger(book.read(), book.changes)
    assert view.fences.reservation("ns", "new") is not None
    return calls.count


def test_a_follower_looks_at_what_changed_whatever_runs() -> None:
    """A page is looked for by its name, and no gang on it that goes on as before."""
    few, many = calls_of_reading(100), calls_of_reading(3_000)
    assert many - few < 0.2 * (3_000 - 100)


@pytest.mark.virtual_time
async def test_a_leader_writes_and_takes_in_what_changed_whatever_runs() -> None:
    async def calls_of_writing(running: int) -> int:
        stage = Stage()
        async with stage.cluster:
            keeper, api = await stage.leader("old")
            await keeper.replace(Ledger(1, 1, {f"gang-{n}": reservation(f"gang-{n}") for n in range(running)}))
            # Whatever the simulated server does is not counted: it answers what it always answers.
            request = api.request

            async def quiet(*args: Any, **options: Any) -> Any:
                sys.setprofile(None)
                try:
                    return await request(*args, **options)
                finally:
                    sys.setprofile(calls.note)

            api.request = quiet  # type: ignore[method-assign]
            with Calls() as calls:
                await keeper.commit([reservation("new")])
            return calls.count

    few, many = await calls_of_writing(200), await calls_of_writing(3_000)
    assert 100 * len(ledger_text.encode_entry(reservation("new"))) < pages.PAGE_BYTES
    assert many - few < 0.2 * (3_000 - 200)
