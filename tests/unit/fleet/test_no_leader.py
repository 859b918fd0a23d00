"""A member whose API server answers, and whose Tutti nobody leads, is passed by; who waits there says so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY

from tests.unit.controllers.stage import KUEUE
from tests.unit.fleet.clusters import Fleet, fleet, plain_job, reconciler, webhook
from tests.unit.fleet.test_hub_quota import events_of
from webhook.commands.show.dispatched import lines
from webhook.config import Config
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.fleet.jobs.asking.choice import OFFER_SECONDS
from webhook.fleet.jobs.leaving import LONG_SECONDS
from webhook.fleet.members.copies import dispatch_of
from webhook.fleet.members.leader import LATE_SECONDS, Leader
from webhook.fleet.sweeping import SWEEP_SECONDS
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
LEASE_SECONDS = Config().lease.lease_seconds
SEEN_SECONDS = LEASE_SECONDS + LATE_SECONDS + 2 * SWEEP_SECONDS
WHY = "has had no Tutti that leads since "
FIX = "see that tutti-reconciler runs there"


@asynccontextmanager
async def whose_reconciler_ends(*others: str) -> AsyncIterator[tuple[Fleet, AsyncExitStack]]:
    """Yield a fleet of ``a`` and others, and the reconciler of ``a``, to be closed."""
    async with fleet("a", *others, without_tutti=("a",), starts=False) as world, AsyncExitStack() as runs:
        cluster = world.members["a"].cluster
        async with webhook(cluster, "a", Config()):
            await runs.enter_async_context(reconciler(cluster, "a", Config()))
            world.start()
            await asyncio.sleep(2 * SWEEP_SECONDS)
            yield world, runs


def shown() -> float | None:
    return REGISTRY.get_sample_value("tutti_fleet_member_unreachable", {"member": "a"})


async def member_line(world: Fleet, name: str) -> str:
    return dict(lines(KINDS["Job.batch"], await world.hub.get("Job", name) or {}))["member"]


async def test_it_is_shown_and_others_get_what_comes_without_asking_it_first() -> None:
    async with whose_reconciler_ends("b") as (world, runs):
        assert shown() == 0
        await runs.aclose()
        await asyncio.sleep(SEEN_SECONDS)
        assert shown() == 1
        # Nobody has asked it for 30 s, after which a member that was slow is asked as any other.
        await asyncio.sleep(60)
        await world.hub.cluster.create(plain_job("train", runtime="600s"))

        async def is_in_b() -> bool:
            return await world.places("Job", "train") == ["b"]

        await world.until(is_in_b, OFFER_SECONDS / 3)
        async with reconciler(world.members["a"].cluster, "again", Config()):
            await asyncio.sleep(SEEN_SECONDS)
            assert shown() == 0


async def test_one_that_waits_in_another_says_it_of_the_one_that_nobody_leads_though_that_was_asked_before() -> None:
    async with whose_reconciler_ends("b") as (world, runs):
        for name in ("full", "more", "train"):
            await world.hub.cluster.create(plain_job(name, pods=4, runtime="600s"))
        await asyncio.sleep(2 * OFFER_SECONDS)
        await runs.aclose()
        await asyncio.sleep(SEEN_SECONDS + 3 * OFFER_SECONDS)
        (waits,) = [name for name in ("full", "more", "train") if not await world.places("Job", name)]
        said = dict(lines(KINDS["Job.batch"], await world.hub.get("Job", waits) or {}))
        assert f"a {WHY}" in said["elsewhere"]
        assert "gave no reason" not in said["elsewhere"]


async def test_a_gang_that_no_other_may_have_says_so_while_it_waits_and_runs_once_somebody_leads() -> None:
    async with whose_reconciler_ends() as (world, runs):
        await runs.aclose()
        await asyncio.sleep(SEEN_SECONDS)
        await world.hub.cluster.create(plain_job("train", runtime="600s"))
        await asyncio.sleep(2 * OFFER_SECONDS)
        said = await member_line(world, "train")
        assert WHY in said
        assert FIX in said
        async with reconciler(world.members["a"].cluster, "again", Config()):

            async def runs_there() -> bool:
                return await world.members["a"].running() == 2

            await world.until(runs_there)
            await asyncio.sleep(SWEEP_SECONDS)
            assert WHY not in await member_line(world, "train")


async def test_a_gang_that_has_ended_there_says_why_its_quota_is_not_free() -> None:
    async with whose_reconciler_ends() as (world, runs):
        await world.hub.cluster.create(plain_job("train", runtime="10s"))

        async def runs_there() -> bool:
            return await world.members["a"].running() == 2

        await world.until(runs_there)
        await runs.aclose()
        await asyncio.sleep(10 + SEEN_SECONDS + LONG_SECONDS)
        job = await world.hub.get("Job", "train") or {}
        assert dispatch_of(job).phase is DispatchPhase.RECALLED
        said = await member_line(world, "train")
        assert "its reservation" in said
        assert WHY in said


async def test_a_member_whose_ledger_is_gone_is_shown_too() -> None:
    async with whose_reconciler_ends() as (world, runs):
        await runs.aclose()
        path = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.LEDGER_NAME}"
        await world.members["a"].admin.request("DELETE", path)
        await asyncio.sleep(2 * SWEEP_SECONDS)
        assert shown() == 1


async def test_a_gang_that_its_member_has_stopped_is_not_taken_from_it_for_one_that_nobody_leads() -> None:
    async with whose_reconciler_ends("b") as (world, runs):
        await runs.aclose()
        await asyncio.sleep(SEEN_SECONDS + 60)
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))

        async def is_in_b() -> bool:
            return await world.places("Job", "train") == ["b"]

        await world.until(is_in_b)
        await asyncio.sleep(10)
        before = (await world.members["b"].get("Job", "train") or {})["metadata"]["uid"]
        path = f"/apis/{KUEUE}/clusterqueues/research"
        for policy, seconds in (("HoldAndDrain", 60), ("None", 30)):
            change = orjson.dumps({"spec": {"stopPolicy": policy}})
            await world.members["b"].admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)
            await asyncio.sleep(seconds)
        told = [each["message"] for each in await events_of(world, "LeavesMember")]
        dispatch = dispatch_of(await world.hub.get("Job", "train") or {})
        there = await world.members["b"].get("Job", "train")
        assert not told, told
        assert (dispatch.phase, dispatch.member) == (DispatchPhase.GRANTED, "b"), dispatch
        assert there is not None
        assert there["metadata"]["uid"] == before


def index(**lease: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": {names.LEASE_ANNOTATION: orjson.dumps(lease).decode()}}}


HELD = {"holderIdentity": "one", "leaseDurationSeconds": 6, "renewTime": "2026-01-01T00:00:00Z"}


def test_a_lease_is_judged_by_how_long_it_was_read_unchanged() -> None:
    leader, late = Leader(), 6 + LATE_SECONDS
    assert not leader.why_none(index(**HELD), 1000)
    assert not leader.why_none(index(**HELD), 1000 + late - 1)
    assert leader.why_none(index(**HELD), 1000 + late) == f"{WHY}2026-01-01T00:00:00Z; {FIX}"
    assert not leader.why_none(index(**HELD | {"renewTime": "2026-01-01T00:01:00Z"}), 1000 + late + 1)


def test_a_process_that_slept_does_not_take_its_own_sleep_for_the_leaders() -> None:
    leader = Leader()
    assert not leader.why_none(index(**HELD), 1000)
    assert not leader.why_none(index(**HELD | {"renewTime": "2026-01-01T01:00:00Z"}), 4600)


def test_of_a_ledger_without_a_lease_nothing_is_known() -> None:
    leader = Leader()
    for now in (0, 1000):
        assert not leader.why_none({"metadata": {}}, now)
        assert not leader.why_none({"metadata": {"annotations": {names.LEASE_ANNOTATION: "{"}}}, now)
