"""A kind that a hub, or a member, comes to list late is offered though a member keeps a stray copy of another kind."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, pytorch_job
from webhook.core.notation import names
from webhook.errors import Forbidden, Unavailable
from webhook.kube.api import Api

pytestmark = pytest.mark.virtual_time
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")


@pytest.mark.parametrize("by_a_member", [False, True])
async def test_jobs_of_that_kind_are_offered_whether_they_were_there_before_or_not(by_a_member: bool) -> None:
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(pytorch_job("before", workers=1, runtime="6000s"))
        world.start()
        link = world.links["b"] if by_a_member else world.own
        mended = without(link, "/v1/pytorchjobs")
        await asyncio.sleep(60)
        assert not world.running_hub.fleet.swept.due, "each was swept"
        for name in world.links:
            keep_stray(world, name)
        await asyncio.sleep(20)
        mended.set()
        await asyncio.sleep(60)
        await world.hub.cluster.create(pytorch_job("after", workers=1, runtime="6000s"))
        await asyncio.sleep(60)
        assert await world.places("PyTorchJob", "before")
        assert await world.places("PyTorchJob", "after")


def without(link: Api, path_end: str) -> asyncio.Event:
    """Have a cluster not list one kind until what is returned is set."""
    request, mended = link.request, asyncio.Event()

    async def asked(method: str, path: str, **how: Any) -> bytes:
        if not mended.is_set() and path.endswith(path_end):
            raise BROKEN
        return await request(method, path, **how)

    link.request = asked  # type: ignore[method-assign]
    return mended


def keep_stray(world: Fleet, member: str) -> None:
    """Let a member list a copy of a Job that the hub does not have, and not let it be deleted."""
    link = world.links[member]
    request, uid = link.request, "11111111-2222-3333-4444-555555555555"
    copy = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "old",
            "namespace": NAMESPACE,
            "uid": uid,
            "resourceVersion": "5",
            "labels": {names.ORIGIN_LABEL: world.running_hub.fleet.uid},
            "annotations": {names.OFFER: f"{uid} 1.1"},
        },
        "spec": {"suspend": True},
    }
    listed = {"kind": "JobList", "apiVersion": "batch/v1", "metadata": {"resourceVersion": "9"}, "items": [copy]}

    async def asked(method: str, path: str, **how: Any) -> bytes:
        if path.endswith("/jobs/old"):
            if method == "DELETE":
                raise Forbidden(403, "Forbidden", "a policy of this member keeps Jobs")
            return orjson.dumps(copy)
        if method == "GET" and path == "/apis/batch/v1/jobs":
            return orjson.dumps(listed)
        return await request(method, path, **how)

    link.request = asked  # type: ignore[method-assign]
