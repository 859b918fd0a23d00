"""What the leader remembers of the ledger is what everybody reads of it."""

import asyncio
from random import Random

import orjson
import pytest

from tests.unit.controllers.stage import LEDGER, queued_cluster, waiting_job
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.ledger import text as ledger_text

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("adopted", [False, True], ids=["admitted", "adopted"])
async def test_an_entry_that_is_read_again_is_no_other_than_the_one_written(adopted: bool) -> None:
    """Times have no more digits than the ledger keeps; else every entry would look changed at every write."""
    async with queued_cluster() as cluster:
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(1.2345678)
        job = waiting_job()
        if adopted:
            job["spec"]["suspend"] = False
            del job["spec"]["template"]["metadata"]
        await cluster.create(job)
        await asyncio.sleep(10)
        stored = ledger_text.decode(orjson.loads(await cluster.api().request("GET", LEDGER))["data"])
        assert parts.terms.keeper.ledger is not None
        assert stored.entries
        assert stored.entries == parts.terms.keeper.ledger.entries
        running.cancel()
