"""Index and pages are read by two watches: what is made of them while one lags behind the other."""

from dataclasses import replace

import pytest

from tests.unit.core.ledger.test_pages import entry
from webhook.cluster.ledger_book import LedgerBook, newer
from webhook.cluster.view import View
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import Found, PagesMismatch
from webhook.core.ledger.record import Ledger
from webhook.core.ledger.text import LedgerCorrupt

INDEX = Ledger(3, 9, {"a": entry("a")}, pages={"page-1": "uid"})


def test_a_page_that_is_listed_is_waited_for_and_one_that_is_not_is_left_out() -> None:
    book = LedgerBook(ledger_text.encode(INDEX))
    book.pages["late"] = Found("other", ledger_text.encode(Ledger(2, 5, {"x": entry("x")})))
    with pytest.raises(PagesMismatch):
        book.read()
    book.pages["page-1"] = Found("another", {})
    with pytest.raises(PagesMismatch):
        book.read()
    book.pages["page-1"] = Found("uid", ledger_text.encode(Ledger(3, 12, {"b": entry("b")})))
    ledger = book.read()
    assert ledger is not None
    assert (ledger.version, set(ledger.entries)) == ((3, 12), {"a", "b"})


def test_no_index_is_no_ledger() -> None:
    assert LedgerBook().read() is None


def test_a_page_is_decoded_again_only_where_it_changed() -> None:
    book = LedgerBook(ledger_text.encode(INDEX))
    book.pages["page-1"] = Found("uid", ledger_text.encode(Ledger(3, 12, {"b": entry("b")})))
    first = book.read()
    book.index = ledger_text.encode(INDEX)
    second = book.read()
    assert first is not None
    assert second is not None
    assert first.entries["b"] is second.entries["b"]
    assert first.entries["a"] is second.entries["a"]


def test_a_gang_whose_page_was_not_read_yet_is_waited_for_though_the_version_is_reached() -> None:
    """What one commit writes on two pages bears one version."""
    view = View()
    view.set_ledger(Ledger(3, 12, {"a": entry("a")}, pages={"page-1": "uid"}))
    assert view.ledger_lags((3, 13), "a")
    assert view.ledger_lags((3, 12), "b")
    assert not view.ledger_lags((3, 12), "a")
    view.set_ledger(Ledger(3, 12, {"a": entry("a")}))
    assert not view.ledger_lags((3, 12), "b"), "on one object it would be there"


def test_a_page_that_was_wiped_is_not_taken_for_a_new_one() -> None:
    book = LedgerBook(ledger_text.encode(INDEX), {"page-1": Found("uid", {})})
    with pytest.raises(LedgerCorrupt):
        book.read()


def test_a_leader_does_not_take_a_part_of_what_it_wrote_for_all_of_it() -> None:
    """Pages of one commit bear one version, and are read one after another."""
    wrote = Ledger(3, 12, {"a": entry("a"), "b": entry("b")}, pages={"page-1": "uid"})
    assert not newer(replace(wrote, entries={"a": entry("a")}), wrote)
    assert newer(replace(wrote, seq=13), wrote)
    assert newer(Ledger(3, 12), Ledger(3, 12))
    assert not newer(Ledger(3, 11), Ledger(3, 12))
