"""A whole reconciler whose ledger is on pages: no queue is oversubscribed between any two of its writes."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import orjson
import pytest

from tests.unit.controllers.ledger.test_full_ledger import finished, job, led
from tests.unit.controllers.stage import LEDGER
from webhook.cluster.ledger_book import LedgerBook
from webhook.core.ledger import pages, text
from webhook.core.ledger.pages import Found
from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.objects.store import Event

pytestmark = pytest.mark.virtual_time
CPU = 3


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each entry fill an object."""
    monkeypatch.setattr(pages, "INDEX_BYTES", 300)
    monkeypatch.setattr(pages, "PAGE_BYTES", 300)


class Watching:
    """What the ledger says after each write of one of its objects."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        resource = cluster.server.registry.of_kind("v1", "ConfigMap")
        assert resource is not None
        self._storage = resource.storage
        self._book = LedgerBook()
        self.most_held = 0
        self.most_pages = 0
        cluster.server.store.subscribe(self._stored)

    def _stored(self, event: Event) -> None:
        if event.storage != self._storage or event.current is None:
            return
        document = event.current.copy()
        metadata, data = document["metadata"], document.get("data") or {}
        if metadata["name"] == names.LEDGER_NAME:
            self._book.index = data
        elif names.LEDGER_PAGE in (metadata.get("labels") or {}):
            self._book.pages[metadata["name"]] = Found(metadata["uid"], data)
        ledger = self._book.read()
        if ledger is not None:
            self.most_held = max(self.most_held, len(ledger.entries))
            self.most_pages = max(self.most_pages, len(ledger.pages))


async def test_what_one_page_gives_back_another_takes_only_once_that_is_stored() -> None:
    """Each job asks one cpu and runs for a minute; those that wait start as the others end."""
    async with led(cpu=CPU) as (cluster, parts):
        watching = Watching(cluster)
        for number in range(12):
            await cluster.create(job(number))
            await asyncio.sleep(7)
        await asyncio.sleep(400)
        assert await finished(cluster) == 12
        assert watching.most_pages > 1
        assert watching.most_held == CPU
        assert not parts.view.ledger.entries


async def test_pages_of_an_index_that_was_lost_are_gone_before_a_new_ledger_stands() -> None:
    """Whatever their leader sent them late rests on a ledger that is no more."""
    async with led(*(job(number) for number in range(6))) as (cluster, parts):
        await asyncio.sleep(5)
        before = parts.view.ledger
        assert len(before.pages) > 1
        await cluster.api().request("DELETE", LEDGER)
        await asyncio.sleep(15)
        after = parts.view.ledger
        assert after.entries.keys() == before.entries.keys()
        assert after.pages.keys().isdisjoint(before.pages)
        found = orjson.loads(await cluster.api().request("GET", LEDGER.rpartition("/")[0]))["items"]
        beside = {item["metadata"]["name"] for item in found if "page" in item["metadata"]["name"]}
        assert beside == after.pages.keys()


async def test_a_page_that_somebody_deletes_is_noticed_though_nothing_on_it_changes() -> None:
    """Or the webhooks would go on with what they read before, for as long as its gangs run."""
    async with led(*(job(number) for number in range(6))) as (cluster, parts):
        await asyncio.sleep(5)
        before = parts.view.ledger
        await cluster.api().request("DELETE", f"{LEDGER.rpartition('/')[0]}/{min(before.pages)}")
        await asyncio.sleep(15)
        assert parts.view.ledger.epoch > before.epoch or parts.view.ledger.pages.keys().isdisjoint(before.pages)
        assert parts.view.ledger.entries.keys() == before.entries.keys()


async def test_a_page_that_somebody_puts_back_is_noticed_though_nothing_on_it_changes() -> None:
    """It is well-formed, and of this epoch: only who wrote it last knows that it is not what stands there."""
    async with led(*(job(number) for number in range(6))) as (cluster, parts):
        await asyncio.sleep(5)
        before, admin = parts.view.ledger, cluster.api()
        path = f"{LEDGER.rpartition('/')[0]}/{min(before.pages)}"
        page = orjson.loads(await admin.request("GET", path))
        page["data"] = text.encode(replace(text.decode(page["data"]), entries={}))
        del page["metadata"]["resourceVersion"]
        await admin.request("PUT", path, body=orjson.dumps(page))
        await asyncio.sleep(15)
        assert parts.view.ledger.epoch > before.epoch
        assert parts.view.ledger.entries.keys() == before.entries.keys()


async def test_a_small_clusters_ledger_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    async with led(*(job(number) for number in range(20))) as (_, parts):
        await asyncio.sleep(10)
        assert len(parts.view.ledger.entries) == 20
        assert not parts.view.ledger.pages


async def test_a_leader_compares_its_own_writes_with_nothing_that_goes_on_running() -> None:
    """It knows what it changed, and what it then reads of its ledger says no more."""
    async with led(cpu=100) as (cluster, parts):
        for number in range(6):
            await cluster.create(job(number))
        await asyncio.sleep(10)
        compared: list[int] = []
        whole = parts.view.fences.set_reservations

        def noted(reservations: Iterable[Reservation]) -> list[Reservation]:
            compared.append(1)
            return whole(reservations)

        parts.view.fences.set_reservations = noted  # type: ignore[method-assign]
        for number in range(6, 12):
            await cluster.create(job(number))
            await asyncio.sleep(2)
        assert len(parts.view.ledger.entries) == 12
        assert not compared
