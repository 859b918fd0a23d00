"""Objects of the ledger that somebody puts back as they once were, while a reconciler leads or while none runs."""

import asyncio
from contextlib import nullcontext, suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import orjson

from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.text import LedgerCorrupt
from webhook.core.model import names
from webhook.core.model.names import LEDGER_NAME, SYSTEM_NAMESPACE
from webhook.errors import ApiError, NotFound
from webhook.laboratory.simulated.api import SimulatedApi
from webhook.laboratory.simulated.cluster import SimulatedCluster

if TYPE_CHECKING:
    from tests.simulation.world import World

CONFIG_MAPS: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"
INDEX: Final = f"{CONFIG_MAPS}/{LEDGER_NAME}"


async def ledger_pages(cluster: SimulatedCluster) -> list[str]:
    """Return the paths of the ledger's pages."""
    query = {"labelSelector": names.LEDGER_PAGE}
    listed = orjson.loads(await cluster.api().request("GET", CONFIG_MAPS, query=query))
    return sorted(f"{CONFIG_MAPS}/{item['metadata']['name']}" for item in listed["items"])


async def put_back(world: "World", busy_seconds: float) -> None:
    """Put something back as often as the weather of ``world`` says."""
    chance, admin, weather = Random(world.seed), world.cluster.api(), world.weather
    for _ in range(weather.set_back):
        await asyncio.sleep(chance.uniform(0, busy_seconds / weather.set_back))
        with suppress(ApiError, LedgerCorrupt):
            path = chance.choice([INDEX, *await ledger_pages(world.cluster)])
            kept = await _read(admin, path)
            await asyncio.sleep(chance.uniform(0, busy_seconds / weather.set_back))
            if chance.random() < 0.2:
                path, kept = INDEX, await _with_a_page_that_never_was(admin)
            ended = world.end_reconcilers() if chance.random() < weather.nobody_leads else []
            try:
                await _put_one_back(world, path, kept)
            finally:
                for name in ended:
                    world.restart_later(name)


async def _put_one_back(world: "World", path: str, kept: dict[str, Any]) -> None:
    """Do what `kubectl replace`, or `create` where it is gone, does with an object of a backup."""
    admin, metadata = world.cluster.api(), kept["metadata"]
    listed = {LEDGER_NAME, *ledger_text.decode((await _read(admin, INDEX)).get("data") or {}).pages}
    with suppress(NotFound):
        if "data" not in kept or (await _read(admin, path)).get("data") == kept["data"]:
            return
    for given in ("resourceVersion", "uid", "creationTimestamp"):
        metadata.pop(given, None)
    # A page that is not listed is looked at by nobody before another process leads.
    matters = path.rpartition("/")[2] in listed
    with world.invariants.ledger_not_believed() if matters else nullcontext():
        try:
            await admin.request("PUT", path, body=orjson.dumps(kept))
        except NotFound:
            await admin.request("POST", CONFIG_MAPS, body=orjson.dumps(kept))


async def _read(admin: SimulatedApi, path: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(await admin.request("GET", path))
    return found


async def _with_a_page_that_never_was(admin: SimulatedApi) -> dict[str, Any]:
    """Return the index, well-formed, with one more page in its list."""
    index = await _read(admin, INDEX)
    ledger = ledger_text.decode(index.get("data") or {})
    index["data"] = ledger_text.encode(replace(ledger, pages={**ledger.pages, f"{LEDGER_NAME}-page-0-0": "none"}))
    return index
