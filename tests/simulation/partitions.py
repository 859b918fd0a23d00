"""Processes of ours that are cut off from the API server for a while, webhooks too, which answer by what they knew."""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.world import World

SECONDS: Final = (2, 90)
"""How long one lasts, at least and at most."""


async def cut_off(world: "World", busy_seconds: float) -> None:
    """Cut one process after another off, as often as the weather says; some at the same time."""
    chance = Random(world.seed)
    for _ in range(world.weather.cut_off):
        await asyncio.sleep(chance.uniform(0, 2 * busy_seconds / world.weather.cut_off))
        name = chance.choice(sorted(world.replicas))
        replica, parts = world.replicas[name], world.parts.get(name)
        replica.api.freeze()
        world.cut_off["webhook" if parts is None else "leader" if parts.reconciler.leading else "standby"] += 1
        asyncio.get_running_loop().call_later(chance.uniform(*SECONDS), replica.api.thaw)
