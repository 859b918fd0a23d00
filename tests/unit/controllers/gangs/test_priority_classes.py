"""By which classes a gang has others stopped, and what keeps it from that."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import KUEUE, Stage, stage, waiting_job
from webhook.cluster.waiting import waiting_gang
from webhook.core.notation import names
from webhook.core.reasons.reasons import Code, Reason
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
CRITICAL = "system-node-critical"


async def run_one_of_class_high(play: Stage) -> None:
    """Have a job fill the queue, in which others may stop it for a higher priority."""
    await play.cluster.create(
        {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000}
    )
    change = orjson.dumps({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
    path = f"/apis/{KUEUE}/clusterqueues/research"
    await play.admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)
    job = waiting_job(pods=4)
    job["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "high"
    await play.cluster.create(job)
    await play.take_over()
    await asyncio.sleep(10)
    assert not await play.suspended()


async def reason_of(play: Stage, job: dict[str, Any]) -> Reason | None:
    """Create a job beside it, and return why it is not considered after a while."""
    await play.cluster.create(job)
    await asyncio.sleep(60)
    view = play.parts.view
    record = next(each for each in view.jobs.values() if each.name == job["metadata"]["name"])
    waiting = waiting_gang(record, view)
    return waiting if isinstance(waiting, Reason) else None


async def test_a_label_with_the_name_of_a_built_in_class_stops_nobody_and_is_told_missing() -> None:
    async with stage() as play:
        await run_one_of_class_high(play)
        job = waiting_job("mine", pods=4)
        job["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = CRITICAL
        reason = await reason_of(play, job)
        assert reason is not None
        assert reason.code is Code.PRIORITY_CLASS_NOT_FOUND
        assert not await play.suspended()


@pytest.mark.parametrize("allowed", [True, False])
async def test_pods_of_a_built_in_class_stop_others_unless_a_resource_quota_allows_none(allowed: bool) -> None:
    """What the threat model says of it."""
    async with stage() as play:
        await run_one_of_class_high(play)
        scopes = {"scopeName": "PriorityClass", "operator": "In", "values": [CRITICAL, "system-cluster-critical"]}
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "no-critical-pods", "namespace": "team-a"},
            "spec": {"hard": {"pods": "4" if allowed else "0"}, "scopeSelector": {"matchExpressions": [scopes]}},
        }
        await play.cluster.create(quota)
        job = waiting_job("mine", pods=4)
        job["spec"]["template"]["spec"]["priorityClassName"] = CRITICAL
        assert await reason_of(play, job) is None
        assert await play.suspended() is allowed
