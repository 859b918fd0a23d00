"""The ledger as a process follows it: what one commit writes on many pages is put together once, not for each page."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import orjson
import pytest
from structlog.testing import capture_logs

from tests.unit.controllers.ledger.keepers import reservation
from tests.unit.samples import sample
from webhook.cluster.ledger_book import LedgerBook
from webhook.cluster.ledger_feed import APART_SECONDS_PER_PAGE, LedgerFeed, StoredPage
from webhook.cluster.listener import Listener
from webhook.cluster.view import View
from webhook.core.ledger import text
from webhook.core.ledger.record import Changes, Ledger
from webhook.kube.plain import Plain

PAGES = 100

pytestmark = pytest.mark.virtual_time


class Told(Listener):
    """Counts how often it is told of another ledger."""

    def __init__(self) -> None:
        self.count = 0

    def ledger_changed(self, changes: Changes | None = None) -> None:
        """Count it."""
        self.count += 1


class Stage:
    """A view that follows a ledger of so many pages, one gang on each."""

    def __init__(self) -> None:
        self.view, self.told, self.holding = View(), Told(), 0
        self.feed = LedgerFeed(self.view, lambda: self.told, self._on_holding, lambda version, lease: None)
        names = [f"page-{number}" for number in range(PAGES)]
        self.index = Ledger(1, 1, {}, pages={name: name for name in names})
        self.store("index", text.encode(self.index))
        for name in names:
            self.write(name, 1, [f"gang-{name}"])

    def _on_holding(self) -> None:
        self.holding += 1

    def store(self, name: str, data: Mapping[str, str]) -> None:
        """Have an object read with ``data``."""
        if name == "index":
            self.feed.index_changed("", None, Plain(name, "tutti-system", name, 1, orjson.dumps({"data": data})))
        else:
            self.feed.page_changed("", None, StoredPage(name, "tutti-system", name, 1, data))

    def write(self, page: str, seq: int, uids: list[str], queue: str | None = None) -> None:
        """Have a page read that holds gangs ``uids``."""
        entries = {uid: replace(reservation(uid), queue=queue) for uid in uids}
        self.store(page, text.encode(Ledger(1, seq, entries)))


async def test_pages_of_one_commit_are_put_together_once() -> None:
    stage = Stage()
    assert stage.told.count == 1
    for number in range(PAGES):
        stage.write(f"page-{number}", 2, [f"gang-page-{number}", f"new-{number}"])
    assert stage.told.count == 1
    await asyncio.sleep(PAGES * APART_SECONDS_PER_PAGE + 0.001)
    assert stage.told.count == 2
    assert len(stage.view.ledger.entries) == 2 * PAGES
    await asyncio.sleep(1)
    stage.write("page-0", 3, [])
    assert stage.told.count == 3
    assert len(stage.view.ledger.entries) == 2 * PAGES - 2


async def test_a_process_that_is_not_synced_reads_at_once() -> None:
    stage = Stage()
    stage.view.unsynced.add("pods")
    stage.write("page-0", 2, [])
    assert "gang-page-0" not in stage.view.ledger.entries


async def test_a_leader_puts_nothing_together_until_it_follows_again() -> None:
    stage = Stage()
    known = Ledger(2, 1)
    stage.view.set_ledger(known)
    stage.view.leads = True
    await asyncio.sleep(1)
    stage.write("page-0", 5, ["other"])
    assert stage.view.ledger is known
    stage.feed.follow()
    assert not stage.view.leads
    assert stage.view.ledger is known, "what it knew is newer"
    stage.store("index", text.encode(Ledger(3, 1, {}, pages=stage.index.pages)))
    await asyncio.sleep(1)
    assert stage.view.ledger.epoch == 3
    assert "other" in stage.view.ledger.entries


async def test_a_leader_hears_that_a_page_cannot_be_read() -> None:
    stage = Stage()
    stage.view.leads = True
    await asyncio.sleep(1)
    stage.store("page-0", {"gang": "{"})
    assert not stage.view.ledger_trusted


async def test_a_ledger_that_cannot_be_read_is_logged_once_a_cause_and_shown_until_it_can() -> None:
    stage = Stage()
    assert sample("tutti_ledger_untrusted") == 0
    with capture_logs() as logs:
        for data in ({"gang": "{"}, {"gang": "["}, text.encode(Ledger(1, 2)) | {"gang": "{"}):
            await asyncio.sleep(1)
            stage.store("page-0", data)
            assert sample("tutti_ledger_untrusted") == 1
            await asyncio.sleep(1)
            # As the lease is renewed.
            stage.store("index", text.encode(stage.index))
        stage.write("page-0", 3, [])
        await asyncio.sleep(1)
        assert sample("tutti_ledger_untrusted") == 0
        stage.store("page-0", {"gang": "{"})
    causes = [line["error"] for line in logs if line["event"] == "ledger.corrupt"]
    assert len(causes) == 3
    assert causes[0] == causes[2] != causes[1]
    assert all(line["then"].startswith("what was read before counts") for line in logs)
    stage.store("index", {})
    assert sample("tutti_ledger_untrusted") == 1, "it is gone"


async def test_who_holds_is_told_only_when_a_queue_came_or_went() -> None:
    stage = Stage()
    told = stage.holding
    for seq, (uids, times) in enumerate([(["a"], 1), (["a", "b"], 0), (["b"], 0), ([], 1)], start=2):
        await asyncio.sleep(1)
        stage.write("page-0", seq, uids, queue="research")
        assert stage.holding == told + times
        told = stage.holding


async def test_a_page_that_is_read_again_keeps_the_texts_that_were_known() -> None:
    """Each version of a page comes as new texts for all of its gangs, of which one has changed."""
    stage, kept = Stage(), list[Mapping[str, str]]()
    for seq, uids in ((2, ["a", "b"]), (3, ["a", "b", "c"])):
        entries = {uid: reservation(uid) for uid in uids}
        metadata = {"uid": "page-0", "namespace": "ns", "name": "page-0", "resourceVersion": f"{seq}"}
        page = stage.feed.read_page(orjson.dumps({"metadata": metadata, "data": text.encode(Ledger(1, seq, entries))}))
        kept.append(page.data)
        stage.feed.page_changed("", None, page)
        await asyncio.sleep(1)
    assert stage.view.ledger.entries.keys() >= {"a", "b", "c"}
    assert kept[1]["a"] is kept[0]["a"]
    assert kept[1][text.META] != kept[0][text.META]


async def test_what_index_and_pages_say_is_asked_once_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, asked = Stage(), 0
    parts = LedgerBook.parts

    def counted(book: LedgerBook) -> dict[str, Ledger] | None:
        nonlocal asked
        asked += 1
        return parts(book)

    monkeypatch.setattr(LedgerBook, "parts", counted)
    await asyncio.sleep(1)
    stage.write("page-0", 2, ["new"])
    assert "new" in stage.view.ledger.entries
    assert asked == 1
