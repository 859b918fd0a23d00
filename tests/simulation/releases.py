"""Another release that is installed while all is busy, and the one before again."""

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.backups import CONFIG_MAPS, ledger_pages
from tests.simulation.scale import scaled
from webhook.core.notation.names import LEDGER_NAME
from webhook.errors import ApiError

if TYPE_CHECKING:
    from tests.simulation.world import World

SMALL_PAGE_BYTES: Final = 300


async def install(world: "World", busy_seconds: float) -> None:
    """Install a release that spreads the ledger over pages, and one that does not, in turn."""
    chance, admin = Random(world.seed), world.cluster.api()
    for turn in range(world.weather.releases):
        await asyncio.sleep(chance.uniform(0, 2 * busy_seconds / world.weather.releases))
        reconcilers = world.end_reconcilers()
        if turn % 2 == 0:
            world.release.enter_context(scaled(SMALL_PAGE_BYTES))
        else:
            world.release.close()
            for path in [f"{CONFIG_MAPS}/{LEDGER_NAME}", *await ledger_pages(world.cluster)]:
                with suppress(ApiError):  # No leader may have made one yet.
                    await admin.request("DELETE", path)
        for name in reconcilers:
            world.start_reconciler(name)
