"""A copy from a hub in its member: room is kept for it, and nothing starts it but its permit."""

import asyncio
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import JOB, LEDGER, Stage, stage, waiting_job
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.controllers.gangs.requeues import PERMIT_SECONDS
from webhook.controllers.loop.reconciler import Reconciler
from webhook.controllers.writes.batch import Batch
from webhook.core.fleet.permit import permits
from webhook.core.ledger.text import META, PERMITS
from webhook.core.notation import names
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
OFFER = "hub-job 7.1"


def copy_from_hub(**more: Any) -> dict[str, Any]:
    """The waiting Job as a hub creates it, offer and all."""
    job = waiting_job(**more)
    job["metadata"]["annotations"] = {names.OFFER: OFFER}
    job["metadata"]["labels"][names.ORIGIN_LABEL] = "hub"
    return job


async def permit(play: Stage, text: str) -> None:
    note = {"metadata": {"annotations": {names.PERMIT: text}}}
    await play.admin.request("PATCH", JOB, body=orjson.dumps(note), content_type=MERGE_PATCH)


async def uid_of(play: Stage) -> str:
    return str(orjson.loads(await play.admin.request("GET", JOB))["metadata"]["uid"])


async def test_a_copy_is_reserved_for_and_starts_when_its_permit_comes() -> None:
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(copy_from_hub())
        await asyncio.sleep(PERMIT_SECONDS / 2)
        assert list((await play.ledger()).entries) == [await uid_of(play)]
        assert await play.suspended()
        await permit(play, f"{OFFER} {await uid_of(play)}")
        await asyncio.sleep(5)
        assert not await play.suspended()
        assert await play.running_pods() == 2


@pytest.mark.parametrize("text", ["", OFFER, f"{OFFER} another", "hub-job 7.2 {uid}", "{uid}"])
async def test_nothing_but_its_own_permit_starts_it(text: str) -> None:
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(copy_from_hub())
        await permit(play, text.format(uid=await uid_of(play)))
        await asyncio.sleep(3 * PERMIT_SECONDS)
        assert await play.suspended()


async def test_room_without_a_permit_goes_back_to_those_who_wait() -> None:
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(copy_from_hub(pods=4))
        await asyncio.sleep(3)
        await play.cluster.create(waiting_job("next", pods=4))
        await asyncio.sleep(PERMIT_SECONDS / 2)
        assert await play.running_pods() == 0
        await asyncio.sleep(PERMIT_SECONDS)
        assert await play.running_pods() == 4
        assert await play.suspended()


async def test_a_permit_that_comes_after_the_room_went_back_starts_nothing_before_there_is_room_again() -> None:
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(copy_from_hub(pods=4))
        await asyncio.sleep(3)
        await play.cluster.create(waiting_job("next", pods=4))
        await asyncio.sleep(PERMIT_SECONDS + 10)
        await permit(play, f"{OFFER} {await uid_of(play)}")
        await asyncio.sleep(60)
        assert await play.suspended()


async def test_a_copy_whose_hub_falls_silent_as_room_comes_free_is_stopped_and_not_started() -> None:
    async with stage() as play:
        config = Config(silent_hub_seconds=400)
        play.parts = reconciler(play.line, config, identity="first", clock=LoopClock(), rng=Random(1))
        play.leader = asyncio.create_task(play.parts.run())
        await play.cluster.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": f"{names.HUB_LEASE}hub", "namespace": "tutti-system"},
                "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"},
            }
        )
        await play.cluster.create(copy_from_hub(pods=4))
        await asyncio.sleep(3)
        await play.cluster.create(waiting_job("next", pods=4))
        await asyncio.sleep(PERMIT_SECONDS + 5)
        assert await play.running_pods() == 4
        await permit(play, f"{OFFER} {await uid_of(play)}")
        _judge_hubs_only_where_something_ended(play.parts.reconciler)
        await asyncio.sleep(600)
        await play.admin.request("DELETE", JOB.replace("train", "next"), body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(20)
        assert not play.leader.done(), play.leader.exception()
        assert await play.suspended()
        stopped = orjson.loads(await play.admin.request("GET", JOB))["metadata"]["annotations"]
        assert "HubSilent" in stopped[names.REQUEUE]


def _judge_hubs_only_where_something_ended(leader: Reconciler) -> None:
    """Have a hub fall silent in the very cycle in which room comes free."""
    absorb = leader._absorb_all

    async def absorb_all(batch: Batch) -> None:
        await absorb(batch)
        if leader._hubs._due:
            leader._last_tick = 0.0 if batch.drop else asyncio.get_running_loop().time()

    leader._absorb_all = absorb_all  # type: ignore[method-assign]


async def test_another_leader_keeps_a_copy_waiting() -> None:
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(copy_from_hub())
        await asyncio.sleep(3)
        await play.hand_over()
        await asyncio.sleep(20)
        assert await play.suspended()


async def test_who_leads_says_that_it_knows_permits() -> None:
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(waiting_job())
        await asyncio.sleep(3)
        ledger = orjson.loads(await play.admin.request("GET", LEDGER))
        assert orjson.loads(ledger["data"][META])[PERMITS] is True


def test_a_job_without_an_offer_needs_no_permit_and_can_use_none() -> None:
    assert not permits("", "", "uid")
    assert not permits(" uid", "", "uid")
