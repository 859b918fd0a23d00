"""Two processes of one hub that do not reach the same members: they agree by the record, and do not quarrel over it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, fleet, plain_job, pytorch_job
from tests.unit.fleet.test_hub import filled
from tests.unit.fleet.test_stopping_others import job, members, runs
from webhook.clock import LoopClock
from webhook.core.notation import names
from webhook.errors import Unavailable
from webhook.fleet.hub import Hub
from webhook.fleet.jobs.job import REST_SECONDS, UNSEEN_SECONDS
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import Api
from webhook.laboratory.simulated.controllers.base import Pace
from webhook.laboratory.simulated.objects.store import Event

pytestmark = pytest.mark.virtual_time
LONG_SECONDS = 120.0


def cut(link: Api) -> None:
    """Let a member refuse every connection that is made by this link."""

    async def refused(method: str, path: str, **how: object) -> bytes:
        raise Unavailable(0, "Refused", f"{method} {path}: connection refused")

    link.request = refused  # type: ignore[method-assign]


@asynccontextmanager
async def second_process(world: Fleet, *, cut_from: str = "", after_seconds: float = 10) -> AsyncIterator[None]:
    """Run another process of the hub, which does not reach this member any more after so long."""
    links: dict[str, Api] = {name: side.cluster.api(HUB_ACCOUNT) for name, side in world.members.items()}
    other = Hub(world.hub.cluster.api(HUB_ACCOUNT), links, KINDS, clock=LoopClock(), rng=Random(5))
    running = asyncio.create_task(other.run())
    await asyncio.sleep(after_seconds)
    if cut_from:
        cut(links[cut_from])
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def records_written(world: Fleet) -> list[str]:
    """Return the records of the hub's jobs as they are written from now on."""
    written: list[str] = []

    def note(event: Event) -> None:
        record = (event.current.object["metadata"].get("annotations") or {}).get(names.DISPATCH)
        if record is not None and record not in written[-1:]:
            written.append(record)

    for storage in (("batch", "jobs"), ("kubeflow.org", "pytorchjobs")):
        world.hub.cluster.server.store.subscribe(note, storage)
    return written


async def test_they_do_not_take_turns_in_saying_why_a_gang_is_nowhere() -> None:
    async with fleet("a") as world:
        theirs = plain_job()
        theirs["spec"] = {**theirs["spec"], "suspend": True}
        del theirs["spec"]["managedBy"], theirs["metadata"]["labels"]
        await world.members["a"].cluster.create(theirs)
        async with second_process(world):
            cut(world.links["a"])
            await asyncio.sleep(10)
            written = records_written(world)
            await world.hub.cluster.create(plain_job())
            await asyncio.sleep(LONG_SECONDS)
        assert written, "one of them says it"
        assert len(written) <= 2 + 2 * LONG_SECONDS / REST_SECONDS, written


async def test_they_do_not_pass_an_offer_to_and_fro_that_either_cannot_follow() -> None:
    async with fleet("a", "b") as world, second_process(world, cut_from="b"):
        await filled(world)
        cut(world.links["a"])
        await asyncio.sleep(10)
        written = records_written(world)
        await world.hub.cluster.create(pytorch_job())
        await asyncio.sleep(LONG_SECONDS)
        assert written, "it is offered"
        went = [json.loads(record)["member"] for record in written]
        moves = sum(one != other for one, other in pairwise(went))
        assert moves <= LONG_SECONDS / UNSEEN_SECONDS, written
        # Whoever reaches the member may ask there once more, for room at the cost of others.
        assert len(written) <= 1 + 2 * LONG_SECONDS / UNSEEN_SECONDS, written


async def test_they_stop_others_in_one_member_only_while_each_moves_a_gang_that_the_other_cannot_follow() -> None:
    # Pods end later than an offer is moved away from a member that one of them does not reach.
    slow = Pace(pod_stop_seconds=8 * UNSEEN_SECONDS)
    async with members("a", "b", pace=slow) as world, second_process(world, cut_from="b"):
        for name in ("usual-a", "usual-b"):
            await world.hub.cluster.create(job(name))
            await runs(world, name)
        before = {name: set(await side.pods()) for name, side in world.members.items()}
        cut(world.links["a"])
        await asyncio.sleep(10)
        await world.hub.cluster.create(job("urgent", "urgent"))
        where = await runs(world, "urgent")
        await asyncio.sleep(LONG_SECONDS)
        assert await runs(world, "urgent") == where
        (other,) = world.members.keys() - {where}
        assert set(await world.members[other].pods()) == before[other], "nobody was stopped there"


async def test_one_that_starts_and_does_not_reach_a_member_leaves_the_others_offers_in_the_rest_alone() -> None:
    async with fleet("a", "b") as world:
        await filled(world)
        taken = plain_job("waits")
        taken["spec"] = {"suspend": True, **taken["spec"]}
        del taken["spec"]["managedBy"], taken["metadata"]["labels"]
        await world.members["b"].cluster.create(taken)
        async with second_process(world, cut_from="b", after_seconds=0):
            await asyncio.sleep(10)
            await world.hub.cluster.create(plain_job("waits"))
            copies = set()
            for _ in range(60):
                await asyncio.sleep(0.5)
                found = await world.members["a"].get("Job", "waits")
                copies |= {found["metadata"]["uid"]} if found else set()
        # The first one may only have room that is free; the next may stop others for it.
        assert len(copies) <= 2
