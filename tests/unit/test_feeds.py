"""What a process that only reads makes of a ledger that went back."""

import asyncio
from random import Random

import pytest

from tests.unit.controllers.test_ledger_keeper import Stage, reservation
from webhook.assembly import webhook
from webhook.clock import LoopClock
from webhook.config import Config

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("bumped", [False, True], ids=["revisions go back", "revisions go on"])
async def test_a_webhook_goes_by_the_ledger_of_a_backup_that_was_restored(bumped: bool) -> None:
    """It refused the pods of every gang that started since, until somebody restarted it."""
    stage = Stage()
    async with stage.cluster as cluster:
        keeper, _ = await stage.leader()
        parts = webhook(cluster.api(), Config(audit_seconds=60), identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await keeper.commit([reservation("a")])
        backup = cluster.server.store.backup()
        for uid in ("b", "c", "d"):
            await keeper.commit([reservation(uid)])
        await asyncio.sleep(2)
        assert parts.view.ledger.entries.keys() == {"a", "b", "c", "d"}
        cluster.restore(backup, bumped=bumped)
        await asyncio.sleep(90)
        assert parts.view.ledger == await stage.stored()
        running.cancel()
