"""A wrong name that is given while a hub cannot read its set-up keeps nobody waiting, as at any time while it runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, plain_job, suspend
from tests.unit.fleet.test_roster import World, kubeconfig
from webhook.errors import Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("fails", [False, True])
async def test_a_file_of_a_cluster_that_never_answers_stops_nobody_though_it_came_while_the_set_up_was_unread(
    tmp_path: Path, fails: bool
) -> None:
    (tmp_path / "a").write_text(kubeconfig("a"))
    async with fleet("a", "b", starts=False) as whole:
        await whole.hub.cluster.create(plain_job(runtime="6000s"))
        await whole.hub.patch("Job", "train", suspend(plain_job, True))
        again = World(whole, tmp_path)
        again.cut("b")
        request = again.hub.fleet.api.request
        broken = fails

        async def unread(method: str, path: str, **how: Any) -> bytes:
            if broken and "kueue.x-k8s.io" in path:
                raise Unavailable(500, "InternalError", "conversion webhook for kueue.x-k8s.io failed")
            return await request(method, path, **how)

        again.hub.fleet.api.request = unread  # type: ignore[method-assign]
        running = [asyncio.create_task(again.hub.run()), asyncio.create_task(again.members.run())]
        try:
            await asyncio.sleep(60)
            (tmp_path / "b").write_text(kubeconfig("b"))
            await asyncio.sleep(60)
            broken = False
            await asyncio.sleep(60)
            await whole.hub.patch("Job", "train", suspend(plain_job, False))
            await asyncio.sleep(120)
            said = dispatch_of(await whole.hub.get("Job", "train") or {}).elsewhere
            assert await whole.places("Job", "train") == ["a"], (said, again.hub.fleet.swept.due)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
