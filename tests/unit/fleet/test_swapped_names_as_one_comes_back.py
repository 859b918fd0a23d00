"""A lost member gets the credentials of another cluster just as its sweep ends the note that it is lost."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, fleet
from tests.unit.fleet.test_swapped_names_of_a_silent_cluster import JOB, record, runs_in_a
from webhook.core.notation import names
from webhook.fleet import lost

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("half", ["before", "after"])
async def test_the_cluster_to_which_its_name_leads_now_is_waited_for(
    half: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world, "6000s")
        world.kill()
        await world.hub.patch(*JOB, {"metadata": {"annotations": {names.DISPATCH: None}}})
        await lost.note(world.hub.admin, "b", "a while ago")
        links = {name: side.cluster.api(HUB_ACCOUNT) for name, side in world.members.items()}
        links["a"].freeze()
        ends_note, ended = lost.came_back, asyncio.Event()

        async def came_back(*which: Any) -> None:
            if half == "after":
                await ends_note(*which)
            world.running_hub.fleet.reach("a", links["b"])
            world.running_hub.fleet.reach("b", links["a"])
            ended.set()
            if half == "before":
                await ends_note(*which)

        monkeypatch.setattr(lost, "came_back", came_back)
        await asyncio.sleep(5)
        world.start()
        world.links["a"].freeze()
        await ended.wait()
        await asyncio.sleep(60)
        assert await world.places(*JOB) == ["a"], "it ran there all the time, and its record was lost"
        assert not (await record(world)).member
        links["a"].thaw()
        await asyncio.sleep(30)
        assert (await record(world)).member == "b"
        assert not world.running_hub.fleet.swept.due
