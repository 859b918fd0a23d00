"""People who edit objects of the ledger, as `kubectl edit` and `kubectl annotate` do: `meta` stays as it is.

What they change is chosen by a generator of its own, so that no other story is another one for it.
"""

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

import orjson

from tests.simulation.backups import INDEX, ledger_pages
from webhook.core.ledger import text as ledger_text
from webhook.errors import ApiError
from webhook.kube.api import MERGE_PATCH
from webhook.kube.election import leader_of
from webhook.laboratory.simulated.objects.store import Event

if TYPE_CHECKING:
    from tests.simulation.world import World

NOTE: Final = "note"
BESIDE: Final = frozenset({ledger_text.META, ledger_text.PAGES, ledger_text.CLAIMS, ledger_text.BOOKINGS, NOTE})
"""Keys of an object that are no entries. Nobody takes back what was added: while a new ledger is made, the old one
would seem whole again, of a version that nobody had read."""


async def edit(world: "World", busy_seconds: float) -> None:
    """Edit something as often as the weather of ``world`` says, half of the time just when another leads."""
    chance, admin, times = Random(f"{world.seed} edits"), world.cluster.api(), world.weather.edited
    for _ in range(times):
        await asyncio.sleep(chance.uniform(0, 2 * busy_seconds / times))
        if chance.random() < 0.5:
            await _another_leads(world, busy_seconds / times)
            await asyncio.sleep(chance.uniform(0, 0.3))
        with suppress(ApiError):
            path = chance.choice([INDEX, INDEX, *await ledger_pages(world.cluster)])
            found = orjson.loads(await admin.request("GET", path))
            what, body = _edit(chance, found.get("data") or {})
            await admin.request("PATCH", path, body=orjson.dumps(body), content_type=MERGE_PATCH)
            world.edited[what] += 1


def _edit(chance: Random, data: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Return what is done to an object that holds ``data``, in a word and as a patch."""
    entries = sorted(data.keys() - BESIDE)
    match chance.choice(["annotated", "added", "changed", "removed"]):
        case "changed" if entries:
            uid = chance.choice(entries)
            return "changed", {"data": {uid: data[uid].replace('"count":', '"count":1')}}
        case "removed" if entries:
            return "removed", {"data": {chance.choice(entries): None}}
        case "annotated":
            return "annotated", {"metadata": {"annotations": {NOTE: str(chance.random())}}}
        case _:
            return "added", {"data": {NOTE: str(chance.random())}}


async def _another_leads(world: "World", most_seconds: float) -> None:
    """Return when the lease has another holder, after so long at the latest."""
    moved = asyncio.Event()

    def stored(event: Event) -> None:
        before = None if event.previous is None else leader_of(event.previous.object)
        now = None if event.current is None else leader_of(event.current.object)
        if now is not None and now.holder and (before is None or before.holder != now.holder):
            moved.set()

    stop = world.cluster.server.store.subscribe(stored)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(most_seconds):
                await moved.wait()
    finally:
        stop()
