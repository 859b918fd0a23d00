"""A person gates the namespaces by hand and takes the label away again, now and then in a bad moment."""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.queues import NAMESPACES, QUEUES
from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.kube.api import MERGE_PATCH

if TYPE_CHECKING:
    from tests.simulation.world import World

MOMENTS: Final = ("any", "starting", "stopping")
"""Of some gang there; half of them name no queue and wait by the label alone."""
PATIENCE_SECONDS: Final = 10


async def gate_and_ungate(world: "World", busy_seconds: float) -> None:
    """Gate all namespaces and un-gate them, by turns, as often as the weather says."""
    chance, turns = Random(world.seed), world.weather.ungated
    holding: list[asyncio.Task[Any]] = []
    for turn in range(turns):
        if turn % 2:
            moment = chance.choice(MOMENTS)
            if moment == "stopping":
                holding.append(world.spawn(world.owners.hold(1, 0, without_queue)))
            await _wait_for(world, moment)
            if chance.random() < 0.3:
                world.spawn(_without_queues(world, chance.choice(NAMESPACES), chance.uniform(0.2, 20)))
        await _label(world, gated=turn % 2 == 0)
        if turn % 2 == 0:
            world.spawn(world.owners.crowd("team-a"))
        await asyncio.sleep(chance.uniform(0, 2 * busy_seconds / turns))
    # Once all of this is over, users let go on what is held: who still holds something then would be surprised.
    await asyncio.gather(*holding)


def without_queue(job: dict[str, Any]) -> bool:
    """Return whether a job waits, or waited, by its namespace alone."""
    return not job["metadata"].get("labels")


def moment_of(world: "World", entry: Reservation) -> str:
    """Return in which of the moments a gang is."""
    if entry.stopping is not None:
        return "stopping"
    missing = not entry.adopted and _pods(world, entry.uid) < sum(each.count for each in entry.pod_sets)
    return "starting" if missing else "any"


async def _wait_for(world: "World", moment: str) -> None:
    for _ in range(PATIENCE_SECONDS * 20):
        entries = world.invariants.ledger.entries.values()
        if moment == "any" or any(moment_of(world, entry) == moment for entry in entries):
            return
        await asyncio.sleep(0.05)


async def _label(world: "World", *, gated: bool) -> None:
    body = b'{"metadata": {"labels": {"tutti.dev/gated": ' + (b'"true"' if gated else b"null") + b"}}}"
    for namespace in NAMESPACES:
        await world.cluster.api().request(
            "PATCH", f"/api/v1/namespaces/{namespace}", body=body, content_type=MERGE_PATCH
        )


async def _without_queues(world: "World", namespace: str, seconds: float) -> None:
    """Delete the LocalQueues of a namespace, and make them again later."""
    await asyncio.gather(*(world.churn.take_local_queue(namespace, queue, seconds) for queue in QUEUES))


def _pods(world: "World", uid: str) -> int:
    found = (stored.object["metadata"].get("labels") or {} for stored in world.cluster.server.store.items(("", "pods")))
    return sum(labels.get(names.GANG_LABEL) == uid for labels in found)
