"""A take-over that cannot be completed: it stops at the first page that fails, and when its lease is not renewed."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.controllers.ledger.keepers import PATH, LossyApi, Stage
from tests.unit.controllers.ledger.test_ledger_pages import COLLECTION, filled, stored
from webhook.clock import LoopClock
from webhook.cluster.ledger_book import LedgerBook
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.raised_pages import AT_ONCE
from webhook.errors import ApiError, Conflict, Forbidden, Unavailable
from webhook.kube.api import MERGE_PATCH
from webhook.kube.election import Elector

pytestmark = [pytest.mark.virtual_time, pytest.mark.usefixtures("small_pages")]
LOST = Unavailable(0, "Timeout", "no answer in 2 s", outcome_unknown=True)


class Slow(LossyApi):
    """A connection on which each page takes a while to be written, and some writes fail, as a test says."""

    def __init__(self, api: Any) -> None:
        super().__init__(api)
        self.index: tuple[float, ApiError] | None = None
        """After so many seconds a write of the index fails so."""
        self.page: tuple[float, ApiError] | None = None
        self.page_seconds = 0.0
        self.raised_at: list[float] = []

    async def request(self, method: str, path: str, **more: Any) -> Any:
        more.pop("timeout_seconds", None)
        if method != "PATCH":
            return await super().request(method, path, **more)
        failure = self.index
        if path != PATH:
            self.raised_at.append(asyncio.get_running_loop().time())
            await asyncio.sleep(self.page_seconds)
            failure = self.page
        if failure is not None:
            await asyncio.sleep(failure[0])
            raise failure[1]
        return await super().request(method, path, **more)


async def candidate(stage: Stage, book: LedgerBook | None = None) -> tuple[LedgerKeeper, Slow]:
    """Return one that may take the lease of a leader with a hundred pages, and may watch the ledger by ``book``."""
    await filled(stage, 200)
    api, decoder = Slow(stage.cluster.api()), (book or LedgerBook()).decoder
    keeper = LedgerKeeper(api, Elector("new"), now=LoopClock().now, decoder=decoder)
    assert not await keeper.campaign()
    await asyncio.sleep(6)
    return keeper, api


@pytest.mark.parametrize("failure", [(2.0, LOST), (0.0, Conflict(409, "Conflict", "late"))], ids=["lost", "conflict"])
async def test_a_take_over_raises_no_more_pages_once_one_has_failed(
    stage: Stage, failure: tuple[float, ApiError]
) -> None:
    """Two thousand of them may take 2 s each, in which nobody else can lead."""
    keeper, api = await candidate(stage)
    api.page = failure
    assert not await keeper.campaign()
    assert len(api.raised_at) == AT_ONCE


async def test_a_take_over_that_is_forbidden_is_told_at_once(stage: Stage) -> None:
    keeper, api = await candidate(stage)
    api.page = 0.0, Forbidden(403, "Forbidden", "no")
    with pytest.raises(Forbidden):
        await keeper.campaign()
    assert len(api.raised_at) == AT_ONCE


async def test_who_takes_over_and_cannot_renew_the_lease_raises_no_page_after_its_deadline(stage: Stage) -> None:
    """A second later another one may take over, who is not to meet pages that were written since it read them."""
    keeper, api = await candidate(stage)
    began, api.page_seconds = asyncio.get_running_loop().time(), 1.5
    taking = asyncio.create_task(keeper.campaign())
    await asyncio.sleep(1)
    api.index = 2.0, LOST
    assert not await taking
    assert 2 * AT_ONCE < len(api.raised_at) < 100
    assert max(api.raised_at) < began + 4.1


async def test_a_page_that_the_watch_shows_newer_than_it_was_listed_was_written_late_and_not_put_back(
    stage: Stage,
) -> None:
    """Such as by a campaign of our own whose answer was lost: taken for an old copy, it had the ledger rebuilt."""
    book = LedgerBook()
    keeper, api = await candidate(stage, book)
    late = sorted(name for name in await stored(stage) if "page" in name)[-1]
    api.page_seconds = 0.1
    taking = asyncio.create_task(keeper.campaign())
    await asyncio.sleep(0.5)
    page = (await stored(stage))[late]
    meta = page.data["meta"].replace('"epoch":1', '"epoch":2')
    body = orjson.dumps({"data": {"meta": meta}})
    await stage.admin.request("PATCH", f"{COLLECTION}/{late}", body=body, content_type=MERGE_PATCH)
    book.decoder(late).decode_newest((await stored(stage))[late].data)
    assert not await taking, "all is read once more"
    assert await keeper.campaign()
    assert keeper.ledger is not None, "and nothing is rebuilt"
    assert len(keeper.ledger.entries) == 200
