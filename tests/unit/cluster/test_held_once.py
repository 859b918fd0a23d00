"""What thousands of gangs have alike, and what several parts of a process know of one of them, is held once."""

import asyncio

import orjson
import pytest

from tests.unit.controllers.stage import JOB, Stage, stage, waiting_job
from webhook.core.quota.allocations import Allocations
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time


def allocations_of(play: Stage) -> Allocations:
    return play.parts.reconciler.engine._engine.state.allocations


async def test_of_a_gang_that_was_started_one_copy_is_held_however_often_its_job_is_written() -> None:
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(waiting_job())
        await asyncio.sleep(5)
        for number in range(3):
            note = {"metadata": {"annotations": {"note": str(number)}}}
            await play.admin.request("PATCH", JOB, body=orjson.dumps(note), content_type=MERGE_PATCH)
            await asyncio.sleep(1)
        view = play.parts.view
        (job,), (key,) = view.jobs.values(), view.job_names
        assert job.admission is not None
        assert job.gang is allocations_of(play).by_uid[job.uid].gang
        assert [job.namespace, job.name] == [*key[1:]]
        assert job.namespace is key[1]
        assert job.name is key[2]


async def test_what_equal_gangs_are_charged_is_held_once() -> None:
    async with stage() as play:
        await play.take_over()
        for name in ("train", "eval"):
            await play.cluster.create(waiting_job(name))
        await asyncio.sleep(5)
        one, other = allocations_of(play).by_uid.values()
        assert one.amounts is other.amounts


async def test_a_job_that_asks_for_something_else_is_read_as_it_is() -> None:
    async with stage() as play:
        await play.cluster.create({**waiting_job(), "spec": {**waiting_job()["spec"], "parallelism": 9}})
        await play.take_over()
        fewer = {"spec": {"parallelism": 8}}
        await play.admin.request("PATCH", JOB, body=orjson.dumps(fewer), content_type=MERGE_PATCH)
        await asyncio.sleep(1)
        (job,) = play.parts.view.jobs.values()
        assert job.gang is not None
        assert job.gang.counts == {"main": 2}
