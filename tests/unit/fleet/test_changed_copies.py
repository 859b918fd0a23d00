"""Somebody in a member changes what a copy says it is: once, and the hub does not go round and round for it."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, pytorch_job
from tests.unit.fleet.test_hub import SEED, runs_in
from webhook.core.notation import names
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


def writes(world: Fleet, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the hub writes from now on."""
    found: list[str] = []
    for api in (world.own, world.links["a"]):

        async def request(method: str, path: str, *, api: Any = api.request, **how: Any) -> bytes:
            if method != "GET" and "/leases" not in path:
                found.append(f"{method} {path}")
            answer: bytes = await api(method, path, **how)
            return answer

        monkeypatch.setattr(api, "request", request)
    return found


@pytest.mark.parametrize("note", [names.OFFER, names.PERMIT])
async def test_a_changed_annotation_of_a_copy_that_runs_costs_no_writes_for_ever(
    note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await runs_in(world, 3)
        copy = await world.members["a"].get(*SEED) or {}
        before = copy["metadata"]["annotations"][note]
        await world.members["a"].patch(*SEED, {"metadata": {"annotations": {note: f"{before}1"}}})
        await asyncio.sleep(60)
        found = writes(world, monkeypatch)
        await asyncio.sleep(60)
        assert len(found) < 3, found[:9]
        await runs_in(world, 3)


async def test_a_copy_that_waits_and_says_it_is_of_something_else_is_made_again() -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await runs_in(world, 3)
        copy = await world.members["a"].get(*SEED) or {}
        offer = {names.OFFER: f"{copy['metadata']['annotations'][names.OFFER]}1"}
        change = {"metadata": {"annotations": offer}, "spec": {"runPolicy": {"suspend": True}}}
        await world.members["a"].patch(*SEED, change)
        await asyncio.sleep(60)
        assert dispatch_of(await world.hub.get(*SEED) or {}).copy_uid != copy["metadata"]["uid"]
        await runs_in(world, 3)
