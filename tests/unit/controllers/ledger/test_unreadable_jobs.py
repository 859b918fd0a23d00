"""A job that runs and cannot be read any more holds what it holds until its pods are gone, whoever leads."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.controllers.stage import JOB, Stage, stage, waiting_job
from webhook.jobs.reading import job as reading
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
TREE = {
    "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
    "kind": "ElasticQuotaTree",
    "metadata": {"name": "elasticquotatree", "namespace": "kube-system"},
    "spec": {"root": {"name": "root", "children": [{"name": "leaf", "namespaces": ["team-a"]}]}},
}


@pytest.mark.parametrize("taken_over", [False, True])
async def test_a_running_job_that_becomes_unreadable_stays_charged_until_its_pods_are_gone(
    taken_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = reading.read

    def unreadable(kind: Any, document: Mapping[str, Any], *more: Any) -> Any:
        if document["metadata"]["name"] == "train":
            raise RecursionError("nested too deeply")
        return read(kind, document, *more)

    async def entries(stage: Stage) -> list[str]:
        return sorted(entry.name for entry in (await stage.ledger()).entries.values())

    async with stage() as world:
        world.lead()
        await world.cluster.create(waiting_job())
        await asyncio.sleep(5)
        assert await world.running_pods() == 2
        monkeypatch.setattr(reading, "read", unreadable)
        body = b'{"metadata": {"annotations": {"x": "y"}}}'
        await world.cluster.api().request("PATCH", JOB, body=body, content_type=MERGE_PATCH)
        if taken_over:
            await world.hand_over()
        await world.cluster.create(waiting_job("next", pods=3))
        await asyncio.sleep(12)
        assert await entries(world) == ["train"]
        assert await world.running_pods() in (0, 2)
        await world.cluster.api().request("DELETE", JOB, body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(12)
        assert await entries(world) == ["next"]
        assert await world.running_pods() == 3


@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "by a leaf of an ElasticQuotaTree"])
async def test_one_that_could_never_be_read_waits_with_a_reason_where_its_namespace_is_gated(
    by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: Any) -> Any:
        raise RecursionError("nested too deeply")

    async with stage() as world:
        if by_hand:
            label = b'{"metadata": {"labels": {"tutti.dev/gated": "true"}}}'
            await world.admin.request("PATCH", "/api/v1/namespaces/team-a", body=label, content_type=MERGE_PATCH)
        else:
            await world.cluster.create(TREE)
        await world.take_over()
        monkeypatch.setattr(reading, "read", unreadable)
        await world.cluster.create(waiting_job())
        await asyncio.sleep(5)
        (job,) = world.parts.view.jobs.values()
        assert "failed to read" in str(job.problem)
