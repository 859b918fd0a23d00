"""What an owner does to a Job that a JobSet has made: it neither waits nor stops by itself, and they are told so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import Stage, stage, waiting_job
from webhook.commands.owner_verbs import Verb, cancel, hold, release, top
from webhook.core.notation import names
from webhook.errors import WrongName
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time
PART = "job/train-w-0"


@asynccontextmanager
async def jobset(*, runs: bool) -> AsyncIterator[Stage]:
    """Yield a stage with the JobSet ``train`` of two Jobs, which waits or runs."""
    async with stage() as play:
        template = waiting_job()["spec"]["template"]
        template["metadata"]["labels"][names.POD_SET_LABEL] = "w"
        spec = {"parallelism": 1, "completions": 1, "template": template}
        made = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "train", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}},
            "spec": {"suspend": True, "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": spec}}]},
        }
        await play.cluster.create(made)
        await asyncio.sleep(5)
        if runs:
            await play.take_over()
            await asyncio.sleep(20)
            assert await play.running_pods() == 2
        yield play


async def part(play: Stage) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(
        await play.admin.request("GET", "/apis/batch/v1/namespaces/team-a/jobs/train-w-0")
    )
    return found


@pytest.mark.parametrize("runs", [False, True], ids=["waiting", "running"])
@pytest.mark.parametrize("verb", [hold, release, top])
async def test_a_part_of_a_gang_is_not_written_to_and_its_owner_is_named(verb: Verb, runs: bool) -> None:
    async with jobset(runs=runs) as play:
        before = await part(play)
        with pytest.raises(
            WrongName, match="job/train-w-0 is a part of JobSet train, which starts and stops as a whole"
        ):
            await verb(play.admin, PART, "team-a", KINDS)
        assert await part(play) == before


async def test_the_owner_of_such_a_part_is_held_with_all_that_it_made() -> None:
    async with jobset(runs=True) as play:
        assert "all its pods stop" in await hold(play.admin, "jobset/train", "team-a", KINDS)
        await asyncio.sleep(60)
        assert await play.running_pods() == 0
        assert (await part(play))["spec"]["suspend"]


async def test_who_cancels_a_part_is_told_that_it_may_come_back() -> None:
    async with jobset(runs=True) as play:
        said = await cancel(play.admin, PART, "team-a", KINDS)
        assert said == (
            "job/train-w-0: is deleted, but may be made again: it is a part of JobSet train; cancel that to be rid of "
            "all of it"
        )
        await asyncio.sleep(20)
        assert (await part(play))["metadata"]["name"] == "train-w-0"
