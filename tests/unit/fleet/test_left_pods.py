"""Pods that are left in a member when copy and record are gone: their gang is offered to nobody before they are."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet import clusters
from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, template
from webhook.core.notation import names
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
def _job_sets_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(clusters.PLURALS, "JobSet", "jobsets")
    monkeypatch.setitem(clusters.PATHS, "JobSet", "/apis/jobset.x-k8s.io/v1alpha2")


def job_set(name: str) -> dict[str, Any]:
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template("6000s")}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.QUEUE_LABELS[0]: "research"}},
        "spec": {
            "managedBy": names.HUB_MANAGER,
            "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}],
        },
    }


async def leave_pods(world: Fleet, name: str) -> list[str]:
    """Have a JobSet run in a member, and go there and from its record while no hub runs; return pods that stay."""
    await world.hub.cluster.create(job_set(name))
    member = world.members["a"]

    async def runs() -> bool:
        return await member.running() == 2

    await world.until(runs)
    await asyncio.sleep(5)
    kept = await member.pods()
    for pod in kept:
        await member.keep_pod(pod, ["example.org/slow"])
    world.kill()
    await member.delete("JobSet", name)
    await world.hub.patch("JobSet", name, {"metadata": {"annotations": {names.DISPATCH: None}}})
    await asyncio.sleep(10)
    assert not await member.all("Job"), "what it made has gone before its pods"
    assert not await member.reserved()
    return kept


async def test_a_job_set_waits_for_the_pods_that_its_jobs_had() -> None:
    async with fleet("a", "b") as world:
        kept = await leave_pods(world, "stuck")
        world.start()
        await asyncio.sleep(60)
        assert not await world.members["b"].pods()
        assert await world.members["a"].pods() == kept
        said = dispatch_of(await world.hub.get("JobSet", "stuck") or {}).elsewhere
        assert said == ("a still has pods of an earlier copy, or room reserved for it",)
        for pod in kept:
            await world.members["a"].keep_pod(pod, [])

        async def runs_again() -> bool:
            return 2 in [await side.running() for side in world.members.values()]

        await world.until(runs_again, 30)


async def test_one_with_a_similar_name_waits_for_none_of_them() -> None:
    async with fleet("a", "b") as world:
        await leave_pods(world, "train-2")
        await world.hub.cluster.create(job_set("train"))
        world.start()
        await asyncio.sleep(30)
        pods = [pod for side in world.members.values() for pod in await side.pods()]
        assert len([pod for pod in pods if pod.startswith("train-w-0")]) == 2
