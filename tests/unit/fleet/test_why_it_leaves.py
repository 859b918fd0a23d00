"""The record of a gang that leaves its member says why: of each reason its own words."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job, pytorch_job, suspend
from tests.unit.fleet.test_hub import SEED, runs_in
from tests.unit.fleet.test_hub_quota import events_of
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase, Offer
from webhook.core.fleet.sight import Copy
from webhook.core.fleet.steps import why_recalled
from webhook.errors import Forbidden, Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
RUN_SECONDS = 30
GONE = "no longer has its copy: it was deleted there, or the hub or that cluster was restored from a backup"


async def is_let_run(world: Fleet) -> None:
    await asyncio.sleep(RUN_SECONDS)


async def is_suspended(world: Fleet) -> None:
    await world.hub.patch(*SEED, suspend(pytorch_job, True))


async def is_deleted(world: Fleet) -> None:
    await world.hub.delete(*SEED)


async def loses_its_copy(world: Fleet) -> None:
    await world.members["a"].delete(*SEED)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (is_let_run, "it has ended in a"),
        (is_suspended, "it is suspended in the hub"),
        (is_deleted, "it is being deleted in the hub"),
        (loses_its_copy, f"a {GONE}"),
    ],
)
async def test_a_gang_that_leaves_its_member_says_why(what: Callable[[Fleet], Awaitable[None]], why: str) -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(pytorch_job(runtime=f"{RUN_SECONDS}s"))
        await runs_in(world, 3)
        pods = await world.members["a"].pods()
        for pod in pods:
            await world.members["a"].keep_pod(pod, ["example.org/slow"])
        await what(world)
        await asyncio.sleep(10)
        record = dispatch_of(await world.hub.get(*SEED) or {})
        assert (record.phase, record.why) == (DispatchPhase.RECALLED, why)
        for pod in pods:
            await world.members["a"].keep_pod(pod, [])


GRANTED = Dispatch(DispatchPhase.GRANTED, Offer(1, 1), "a", "cluster", "copy", "1")
COPY = Copy("copy", "2", "hub", "job", Offer(1, 1), permitted=False)


@pytest.mark.parametrize(
    ("copy", "why"),
    [
        (None, GONE),
        ({"uid": "another"}, GONE),
        ({"given_up": True}, "had heard nothing from the hub for too long, and stopped it"),
        ({"deleting": True}, "is deleting its copy"),
        ({"permitted": True}, "stopped it, and did not start it again in time"),
        ({}, "gave its room back before the permit arrived"),
    ],
    ids=str,
)
def test_each_state_of_a_copy_by_which_a_gang_is_recalled_has_its_words(copy: dict[str, Any] | None, why: str) -> None:
    seen = None if copy is None else replace(COPY, **copy)
    assert why_recalled(GRANTED, seen) == why


async def test_a_creation_that_was_refused_before_is_not_told_as_why_a_permit_was_lost() -> None:
    async with fleet("a") as world:
        await asyncio.sleep(10)
        honest, creations, permits, since = world.links["a"].request, 0, 0, 0.0

        async def request(method: str, path: str, **how: Any) -> bytes:
            nonlocal creations, permits, since
            now = asyncio.get_running_loop().time()
            if method == "POST" and path.endswith("/jobs") and creations < 2:
                creations += 1
                raise Forbidden(403, "Forbidden", "no creations on Thursdays")
            if method == "PATCH" and path.endswith("/jobs/train"):
                since = since or now
                if now < since + 45:
                    permits += 1
                    raise Unavailable(0, "ConnectionReset", "connection reset by peer")
            return await honest(method, path, **how)

        world.links["a"].request = request  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        said = set()
        for _ in range(180):
            await asyncio.sleep(0.5)
            said.add(dispatch_of(await world.hub.get("Job", "train") or {}).waits)
        told = [each["message"] for each in await events_of(world, "LeavesMember")]
        assert creations == 2
        assert permits
        wrong = [each for each in (*said, *told) if "its permit (403 Forbidden: no creations" in each]
        assert not wrong, (wrong, await world.places("Job", "train"))
