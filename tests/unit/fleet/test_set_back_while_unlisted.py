"""A hub that is set back while one kind cannot be listed goes on with the others, or says what it waits for."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, plain_job, suspend
from tests.unit.fleet.test_hub_quota import events_of
from webhook.errors import Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_hub_that_is_set_back_while_a_kind_cannot_be_listed_holds_up_no_other_without_a_word(
    fails: bool,
) -> None:
    async with fleet("a", "b") as world:
        await asyncio.sleep(20)
        request = world.own.request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if fails and path.endswith("/v1/pytorchjobs"):
                raise BROKEN
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        await world.hub.patch("Job", "train", suspend(plain_job, True))
        await world.until(lambda: world.empty("Job"))
        await asyncio.sleep(5)
        backup = world.hub.cluster.server.store.backup()
        for number in range(30):
            note = {"name": f"note-{number}", "namespace": "tutti-system"}
            await world.hub.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": note})
        await asyncio.sleep(5)
        world.hub.cluster.restore(backup)
        await asyncio.sleep(30)
        assert world.running_hub.fleet.set_backs
        await world.hub.patch("Job", "train", suspend(plain_job, False))
        await asyncio.sleep(600)
        elsewhere = dispatch_of(await world.hub.get("Job", "train") or {}).elsewhere
        told = [each["message"] for each in await events_of(world, "NoMember")]
        said = [*told, *elsewhere, *world.running_hub.problems]
        assert await world.places("Job", "train") or any("pytorchjobs" in each for each in said), said
