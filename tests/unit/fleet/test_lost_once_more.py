"""A member that is declared lost once more a moment before it comes back is a member as before."""

import asyncio

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job
from webhook.clock import LoopClock
from webhook.fleet import lost
from webhook.fleet.lost import give_up
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time


async def test_its_later_note_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet("a") as world:
        await asyncio.sleep(20)
        world.links["a"].freeze()
        await asyncio.sleep(10)
        await lose(world)
        await asyncio.sleep(25)
        assert world.running_hub.fleet.swept.lost
        read, noted = asyncio.Event(), lost.noted

        async def seen(*what: str) -> dict[str, str]:
            found = await noted(*what)  # type: ignore[arg-type]
            read.set()
            return found

        # Just after the hub has read who is lost, which it does every few seconds.
        monkeypatch.setattr(lost, "noted", seen)
        await read.wait()
        monkeypatch.undo()
        await asyncio.sleep(0.2)
        await lose(world)
        world.links["a"].thaw()
        await asyncio.sleep(30)
        assert not world.running_hub.fleet.swept.lost
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        await world.until(lambda: world.places("Job", "train"))


async def lose(world: Fleet) -> None:
    [_ async for _ in give_up(world.hub.admin, KINDS, "a", LoopClock(), dry_run=False, force=True)]
