"""A granted job is not permitted without what it refers to while the hub cannot read the policy that brings that."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet
from tests.unit.fleet.jobs.dependencies.test_dependencies import get, give, needy, refuse
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.errors import Forbidden, Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")


@pytest.mark.parametrize("unread", [False, True])
async def test_a_job_that_was_granted_before_starts_only_with_what_its_policy_brings(unread: bool) -> None:
    async with fleet("a") as world:
        await give(world, propagateDeps=True)
        # For a moment the member takes no ConfigMap, and the process that was told so ends.
        refuse(world, world.members["a"], Forbidden(403, "Forbidden", "quota"), {"POST"}, {"configmaps"})
        await world.hub.cluster.create(needy(runtime="6000s"))

        async def granted() -> bool:
            return dispatch_of(await world.hub.get("Job", "train") or {}).phase is DispatchPhase.GRANTED

        await world.until(granted)
        await world.stop()
        world.start()
        request = world.own.request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if unread and path.endswith("/policy.one.alibabacloud.com/v1alpha1/propagationpolicies"):
                raise BROKEN
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        for _ in range(600):
            await asyncio.sleep(0.5)
            if await world.places("Job", "train"):
                break
        there = await get(world.members["a"], "ConfigMap", "settings")
        assert not await world.places("Job", "train") or there is not None, "it was permitted without its ConfigMap"
