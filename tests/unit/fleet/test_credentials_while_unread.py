"""New credentials of a member are taken though the hub cannot read MultiKueue's objects: all else goes on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fleet.test_roster import World, kubeconfig, world
from webhook.errors import Unavailable

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("fails", [False, True])
async def test_a_hub_that_cannot_read_multikueues_objects_takes_new_credentials_of_its_directory(
    tmp_path: Path, fails: bool
) -> None:
    (tmp_path / "b").write_text(kubeconfig("b"))
    async with world(tmp_path, "a", "b", first=kubeconfig("a")) as it:
        again = World(it.whole, tmp_path)
        request = again.hub.fleet.api.request

        async def unread(method: str, path: str, **how: Any) -> bytes:
            if fails and "kueue.x-k8s.io" in path:
                raise Unavailable(500, "InternalError", "conversion webhook for kueue.x-k8s.io failed")
            return await request(method, path, **how)

        again.hub.fleet.api.request = unread  # type: ignore[method-assign]
        running = [asyncio.create_task(again.hub.run()), asyncio.create_task(again.members.run())]
        try:
            await asyncio.sleep(60)
            (tmp_path / "b").write_text(kubeconfig("b-2"))
            await asyncio.sleep(60)
            assert "b-2" in again.asked
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def test_new_credentials_may_lead_to_the_cluster_of_another_member_that_was_not_swept(tmp_path: Path) -> None:
    (tmp_path / "b").write_text(kubeconfig("b"))
    async with world(tmp_path, "a", "b", first=kubeconfig("a")) as it:
        await asyncio.sleep(20)
        shared = it.hub.fleet
        assert not shared.swept.due
        shared.swept.make_due(["elsewhere"])
        shared.unjoined = ["elsewhere"]
        (tmp_path / "b").write_text(kubeconfig("b-2"))
        await it.members.look()
        assert "b" in shared.swept.due
