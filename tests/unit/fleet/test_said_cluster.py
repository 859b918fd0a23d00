"""A member that only says it is another one's cluster has none of that one's gangs, and keeps none from moving on."""

import asyncio
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import Fleet, fleet, pytorch_job
from tests.unit.fleet.test_dead_man import LATE_SECONDS, PATIENCE, SEED, SURELY_SECONDS, starts_in_a
from tests.unit.fleet.test_hub_quota import events_of
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.errors import Unavailable
from webhook.fleet.dead_man import DeadMan
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


async def says_it_is(world: Fleet, liar: str, member: str, *, shows_jobs: bool = True) -> None:
    """Let a member say that it is another one's cluster."""
    admin = world.members[member].admin
    uid = orjson.loads(await admin.request("GET", "/api/v1/namespaces/kube-system"))["metadata"]["uid"]
    await says_uid(world, liar, uid, shows_jobs=shows_jobs)


async def says_uid(world: Fleet, liar: str, uid: str, *, shows_jobs: bool = True) -> None:
    """Let a member say that its cluster has this uid."""
    request = world.links[liar].request

    async def lies(method: str, path: str, **how: Any) -> bytes:
        if not shows_jobs and path.endswith(SEED[1]):
            raise Unavailable(500, "InternalError", "it shows no jobs")
        answer = await request(method, path, **how)
        if not path.endswith("/namespaces/kube-system"):
            return answer
        found = orjson.loads(answer)
        found["metadata"]["uid"] = uid
        return orjson.dumps(found)

    world.links[liar].request = lies  # type: ignore[method-assign]
    await asyncio.sleep(10)


async def test_a_gang_is_not_followed_to_a_member_that_does_not_show_its_copy_and_its_owner_is_told() -> None:
    async with fleet("a", "b", "c") as world:
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await world.until(world.members["a"].running)
        await asyncio.sleep(10)
        await says_it_is(world, "b", "a")
        world.running_hub.leave("a")
        await asyncio.sleep(120)
        record = dispatch_of(await world.hub.get(*SEED) or {})
        assert (record.phase, record.member) == (DispatchPhase.GRANTED, "a")
        assert await world.places(*SEED) == ["a"]
        (told,) = await events_of(world, "MemberSilent")
        assert "a is not a member of this hub, and b in its place shows no copy of it" in told["message"]


async def test_a_gang_of_a_silent_member_is_given_up_though_another_says_it_is_that_cluster() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        await says_it_is(world, "b", "a")
        world.links["a"].freeze()
        await asyncio.sleep(SURELY_SECONDS + LATE_SECONDS)
        assert await world.places(*SEED) == ["b"]


async def test_a_gang_is_not_given_up_while_what_may_be_its_cluster_does_not_say_whether_it_has_it() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        await says_it_is(world, "b", "a", shows_jobs=False)
        world.links["a"].freeze()
        await asyncio.sleep(SURELY_SECONDS + LATE_SECONDS + 60)
        record = dispatch_of(await world.hub.get(*SEED) or {})
        assert (record.phase, record.member) == (DispatchPhase.GRANTED, "a")


async def test_what_a_member_promises_that_says_it_is_another_cluster_is_no_promise_of_that_one() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        await says_it_is(world, "b", "a")
        member = world.running_hub.fleet.members["b"]
        member.stops_after_seconds = 10 * int(PATIENCE)
        await DeadMan(world.running_hub.fleet, world.running_hub._jobs, Random(1)).lengthen(member)
        assert dispatch_of(await world.hub.get(*SEED) or {}).stops_after_seconds == PATIENCE
