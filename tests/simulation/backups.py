"""Objects of the ledger that somebody puts back as they once were, while a reconciler leads or while none runs."""

import asyncio
from contextlib import nullcontext, suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import orjson

from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.text import LedgerCorrupt
from webhook.core.notation import names
from webhook.core.notation.names import LEDGER_NAME, SYSTEM_NAMESPACE
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
            backup = {path: await _read(admin, path) for path in [INDEX, *await ledger_pages(world.cluster)]}
            until = asyncio.get_running_loop().time() + busy_seconds / weather.set_back
            while not await _changed_pages(admin, backup) and asyncio.get_running_loop().time() < until:
                await asyncio.sleep(chance.uniform(0, 4))
            ended = world.end_reconcilers() if chance.random() < weather.nobody_leads else []
            try:
                if chance.random() < 0.2:
                    await _put_one_back(world, INDEX, await _with_a_page_that_never_was(admin))
                else:
                    await _put_any_back(world, chance, backup)
            finally:
                for name in ended:
                    world.restart_later(name)


async def _put_any_back(world: "World", chance: Random, backup: dict[str, dict[str, Any]]) -> None:
    """Put one object of a backup back, a page that has changed since if there is one."""
    changed = await _changed_pages(world.cluster.api(), backup)
    path = chance.choice(changed) if changed and chance.random() < 0.7 else chance.choice(list(backup))
    await _put_one_back(world, path, backup[path])


async def _changed_pages(admin: SimulatedApi, backup: dict[str, dict[str, Any]]) -> list[str]:
    changed = []
    for path, kept in backup.items():
        with suppress(NotFound):
            if path != INDEX and (await _read(admin, path))["data"] != kept["data"]:
                changed.append(path)
    return changed


async def _put_one_back(world: "World", path: str, kept: dict[str, Any]) -> None:
    """Do what `kubectl replace`, or `create` where it is gone, does with an object of a backup."""
    admin, metadata = world.cluster.api(), kept["metadata"]
    listed = {LEDGER_NAME, *ledger_text.decode((await _read(admin, INDEX)).get("data") or {}).pages}
    with suppress(NotFound):
        if "data" not in kept or (await _read(admin, path)).get("data") == kept["data"]:
            return
    for given in ("resourceVersion", "uid", "creationTimestamp"):
        metadata.pop(given, None)
    name = path.rpartition("/")[2]
    # A page that is not listed is looked at by nobody before another process leads.
    with world.invariants.ledger_not_believed(name) if name in listed else nullcontext():
        try:
            await admin.request("PUT", path, body=orjson.dumps(kept))
        except NotFound:
            await admin.request("POST", CONFIG_MAPS, body=orjson.dumps(kept))
    world.put_back[name != LEDGER_NAME, any(parts.reconciler.leading for parts in world.parts.values())] += 1


async def _read(admin: SimulatedApi, path: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(await admin.request("GET", path))
    return found


async def _with_a_page_that_never_was(admin: SimulatedApi) -> dict[str, Any]:
    """Return the index, well-formed, with one more page in its list."""
    index = await _read(admin, INDEX)
    ledger = ledger_text.decode(index.get("data") or {})
    index["data"] = ledger_text.encode(replace(ledger, pages={**ledger.pages, f"{LEDGER_NAME}-page-0-0": "none"}))
    return index
