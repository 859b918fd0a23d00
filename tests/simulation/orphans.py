"""People who may delete nodes, and so anything, delete jobs from above what these have made."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.load import OLD, how_it_ended, stored_job
from tests.simulation.queues import QUEUES
from tests.simulation.shapes import KINDS, PATHS, is_suspended
from webhook.core.notation import names
from webhook.errors import ApiError

if TYPE_CHECKING:
    from tests.simulation.world import World

ORPHAN: Final = b'{"propagationPolicy": "Orphan"}'
Target = tuple[str, str, str]
"""Kind, namespace and name."""


def label_children(seed: int, chance: float) -> Callable[[dict[str, Any], str], None]:
    """Return what labels the Jobs that a JobSet makes, which waits in a queue itself, by that seed."""

    def label(document: dict[str, Any], queue: str) -> None:
        # A generator of its own: what else the seed chooses stays as it is.
        own = Random(f"{seed} {document['metadata']['name']}")
        if document["kind"] != "JobSet" or own.random() >= chance:
            return
        # In ``alone`` what is too large for it would keep all others from their turn.
        labels = {names.QUEUE_LABELS[0]: own.choice((queue, queue, queue, "red", "blue", queue, "nowhere"))}
        for each in document["spec"]["replicatedJobs"]:
            each["template"]["metadata"] = {"labels": labels}

    return label


def old_jobs(seed: int) -> tuple[list[str], int]:
    """Return of which kinds the jobs are that ran before Tutti came, and how many seconds their pods run."""
    chance = Random(seed)
    return [chance.choice((*KINDS, *["JobSet"] * 4)) for _ in QUEUES], 150


async def leave(world: "World", busy_seconds: float) -> None:
    """Delete something that runs from above its pods, as often as the weather says, watched or not."""
    chance = Random(world.seed)
    for _ in range(world.weather.orphaned):
        await asyncio.sleep(chance.uniform(0, 2 * busy_seconds / world.weather.orphaned))
        found = _targets(world)
        if not found:
            continue
        kind, namespace, name = chance.choice(found)
        world.load.quiet.add((namespace, name))
        unseen = chance.random() < 0.6
        reconcilers = world.end_reconcilers() if unseen else []
        with suppress(ApiError):
            await world.cluster.api().request("DELETE", f"{PATHS[kind].format(namespace)}/{name}", body=ORPHAN)
            ours = world.load.lose((namespace, name))
            world.orphaned[kind if ours else f"{kind} of another", unseen] += 1
        if unseen:
            await asyncio.sleep(chance.uniform(0.5, 10))
            world.restart_webhooks()
            for each in reconcilers:
                world.restart_later(each)


def _targets(world: "World") -> list[Target]:
    """Return the jobs that run, and what was made for them; those that wait where nothing runs."""
    reserved = {(entry.namespace, entry.name) for entry in world.invariants.ledger.entries.values()}
    jobs = [
        (kind, *key)
        for key, kind in sorted(world.load.jobs.items())
        # Of one that ran before Tutti came, and that no ledger has yet, nobody could ever say what it held.
        if key not in world.load.quiet and (key in reserved or not key[1].startswith(OLD))
    ]
    children = [
        ("Job", *stored.key)
        for stored in world.cluster.server.store.items(("batch", "jobs"))
        if any(owner["kind"] == "JobSet" for owner in stored.object["metadata"].get("ownerReferences") or ())
        # Of an adopted job another would be made, and more would run than is charged.
        and names.GANG_LABEL in ((stored.object["spec"]["template"].get("metadata") or {}).get("labels") or {})
    ]
    running = [each for each in jobs + children if _runs(world, each)]
    # They fill the queues, so that nobody could start if they hold what they run.
    return [each for each in running if each[2].startswith(OLD)] or running or jobs


def _runs(world: "World", target: Target) -> bool:
    job = stored_job(world.cluster, *target)
    return job is not None and not is_suspended(target[0], job) and how_it_ended(job) is None
