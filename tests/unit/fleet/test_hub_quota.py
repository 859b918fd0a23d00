"""A hub's own queue: a job is offered when the queue has given it a slot, which it keeps while a member may run it."""

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from tests.unit.controllers.stage import POLICY
from tests.unit.fleet.clusters import NAMESPACE, Fleet, Make, Side, fleet, plain_job, pytorch_job, suspend
from webhook.commands.show.dispatched import lines
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.controllers.nodes import FATE

pytestmark = pytest.mark.virtual_time
EXAMPLES = Path(__file__).parents[3] / "examples" / "ack-fleet-queue"


def one_at_a_time() -> list[Mapping[str, Any]]:
    """The seed's tree, its leaf for our namespace."""
    tree = yaml.safe_load((EXAMPLES / "elasticquotatree.yaml").read_text())
    tree["spec"]["root"]["children"][0]["namespaces"] = [NAMESPACE]
    return [tree]


def as_written(job: dict[str, Any]) -> dict[str, Any]:
    """A job of the hub as the seed writes it: without a queue's name or a manager."""
    del job["metadata"]["labels"]
    (job["spec"].get("runPolicy") or job["spec"]).pop("managedBy")
    return job


async def with_default_queues(world: Fleet) -> None:
    """Have the jobs that name no queue wait in one in each member."""
    for side in world.members.values():
        queue = next(item for item in POLICY if item["kind"] == "LocalQueue")
        await side.cluster.create({**queue, "metadata": {"name": "default", "namespace": NAMESPACE}})
        gated = orjson.dumps({"metadata": {"labels": {names.GATED_NAMESPACE: "true"}}})
        path = f"/api/v1/namespaces/{NAMESPACE}"
        await side.admin.request("PATCH", path, body=gated, content_type=MERGE_PATCH)
    await asyncio.sleep(1)


@asynccontextmanager
async def queueing_fleet() -> AsyncIterator[Fleet]:
    """Yield a hub with the seed's tree, and two members whose jobs without a queue's name wait in one."""
    async with fleet("a", "b", hub_policy=one_at_a_time()) as world:
        await with_default_queues(world)
        yield world


async def phases(world: Fleet, kind: str, *jobs: str) -> list[DispatchPhase]:
    return [dispatch_of(await world.hub.get(kind, name) or {}).phase for name in jobs]


@pytest.mark.parametrize("make", [pytorch_job, plain_job])
async def test_one_job_at_a_time_is_offered_and_the_next_when_nothing_is_left_of_it(make: Make) -> None:
    kind = make()["kind"]
    async with queueing_fleet() as world:
        for name in ("one", "two"):
            await world.hub.cluster.create(as_written(make(name, runtime="30s")))
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        assert await phases(world, kind, "one", "two") == [DispatchPhase.GRANTED, DispatchPhase.NOWHERE]
        assert await world.hub.reserved() == 1
        assert await world.hub.pods() == []
        await world.until(lambda: world.over(kind, "two"), 200)
        await asyncio.sleep(5)
        assert await world.hub.reserved() == 0
        assert await world.empty(kind)


async def test_a_slot_is_kept_while_a_pod_is_left_in_the_member() -> None:
    async with queueing_fleet() as world:
        for name in ("one", "two"):
            await world.hub.cluster.create(as_written(pytorch_job(name, runtime="20s")))
            await asyncio.sleep(5)
        for pod in await world.members["a"].pods():
            await world.members["a"].keep_pod(pod, ["example.org/slow"])
        await world.hub.delete("PyTorchJob", "one")
        await asyncio.sleep(60)
        assert await phases(world, "PyTorchJob", "one", "two") == [DispatchPhase.RECALLED, DispatchPhase.NOWHERE]
        assert await world.hub.reserved() == 1
        for pod in await world.members["a"].pods():
            await world.members["a"].keep_pod(pod, [])
        await world.until(lambda: world.over("PyTorchJob", "two"), 200)


@pytest.mark.parametrize("make", [pytorch_job, plain_job])
async def test_a_job_that_is_stopped_in_the_hub_gives_its_slot_back_and_runs_again(make: Make) -> None:
    kind = make()["kind"]
    async with queueing_fleet() as world:
        for name in ("one", "two"):
            await world.hub.cluster.create(as_written(make(name, runtime="40s")))
            await asyncio.sleep(5)
        await world.hub.patch(kind, "one", suspend(make, True))
        await world.until(lambda: world.over(kind, "two"), 200)
        await world.hub.patch(kind, "one", suspend(make, False))
        await world.until(lambda: world.over(kind, "one"), 200)
        assert await world.empty(kind)


async def test_a_job_that_runs_again_asks_for_all_its_pods_though_some_had_ended_before() -> None:
    """A Job's count of ended pods never goes down in the hub, but its next copy runs them all."""
    async with queueing_fleet() as world:
        await world.hub.cluster.create(as_written(plain_job(runtime="60s")))
        side = world.members["a"]
        await world.until(lambda: _run(side, 2))
        fails = orjson.dumps({"metadata": {"annotations": {FATE: "fails"}}})
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{(await side.pods())[0]}"
        await side.admin.request("PATCH", path, body=fails, content_type=MERGE_PATCH)
        await asyncio.sleep(85)
        before = await world.hub.get("Job", "train")
        assert before is not None
        assert (before["status"]["succeeded"], before["status"]["active"]) == (1, 1)
        await world.hub.patch("Job", "train", suspend(plain_job, True))
        await asyncio.sleep(10)
        await world.hub.patch("Job", "train", suspend(plain_job, False))
        await world.until(lambda: _run(side, 2))
        again = await world.hub.get("Job", "train")
        assert again is not None
        assert orjson.loads(again["metadata"]["annotations"][names.ADMISSION])["counts"] == {"main": 2}
        assert await world.hub.reserved() == 1


async def test_a_flavor_of_the_hub_says_nothing_of_a_members_nodes() -> None:
    policy = copy.deepcopy(list(POLICY))
    labelled = {"nodeLabels": {"pool": "of-the-hub"}, "tolerations": [{"key": "of-the-hub", "operator": "Exists"}]}
    next(each for each in policy if each["kind"] == "ResourceFlavor")["spec"] = labelled
    async with fleet("a", hub_policy=policy) as world:
        await world.hub.cluster.create(plain_job())
        await world.until(lambda: _run(world.members["a"], 2))
        made = await world.members["a"].get("Job", "train")
        assert made is not None
        assert not {"nodeSelector", "tolerations"} & made["spec"]["template"]["spec"].keys()
        await world.until(lambda: world.over("Job", "train"))


async def _run(side: Side, pods: int) -> bool:
    return await side.running() == pods


async def test_a_gang_that_no_member_takes_gives_its_slot_to_the_next_and_waits_again() -> None:
    async with queueing_fleet() as world:
        await world.hub.cluster.create(as_written(pytorch_job("one", workers=6)))
        await asyncio.sleep(5)
        await world.hub.cluster.create(as_written(pytorch_job("two")))
        await world.until(lambda: world.over("PyTorchJob", "two"), 900)
        assert await phases(world, "PyTorchJob", "one") != [DispatchPhase.GRANTED]


@pytest.mark.parametrize(("strategy", "passes"), [("StrictFIFO", False), ("BestEffortFIFO", True)])
async def test_a_queue_of_the_hub_that_blocks_lets_nobody_pass_its_head(strategy: str, passes: bool) -> None:
    policy = [copy.deepcopy(item) for item in POLICY]
    policy[1]["spec"]["queueingStrategy"] = strategy
    async with fleet("a", "b", hub_policy=policy) as world:
        for name, pods in (("holds", 2), ("head", 4), ("small", 2)):
            await world.hub.cluster.create(plain_job(name, pods=pods, runtime="600s"))
            await asyncio.sleep(5)
        await asyncio.sleep(10)
        small = DispatchPhase.GRANTED if passes else DispatchPhase.NOWHERE
        assert await phases(world, "Job", "holds", "head", "small") == [
            DispatchPhase.GRANTED,
            DispatchPhase.NOWHERE,
            small,
        ]


def without_a_queue(name: str) -> dict[str, Any]:
    """A job that its owner gives to the hub himself, and to none of its queues."""
    made = plain_job(name, runtime="600s")
    del made["metadata"]["labels"]
    return made


async def events_of(world: Fleet, reason: str) -> list[dict[str, Any]]:
    listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
    return [each for each in orjson.loads(listed)["items"] if each["reason"] == reason]


async def test_a_job_of_no_queue_does_not_run_past_the_quota_of_a_hub_with_queues() -> None:
    async with fleet("a", "b", hub_policy=POLICY) as world:
        await with_default_queues(world)
        await world.hub.cluster.create(without_a_queue("loose"))
        await world.hub.cluster.create(plain_job("queued", runtime="600s"))
        await world.until(lambda: world.places("Job", "queued"))
        await asyncio.sleep(30)
        found = await world.hub.get("Job", "loose")
        assert not [side for side in world.members.values() if await side.get("Job", "loose")]
        said = dict(lines(KINDS["Job.batch"], found or {}))["member"]
        assert said.startswith(
            "none yet: the hub has queues for this namespace, and the job names none: suspend it, then label it "
        )
        (event,) = await events_of(world, "QueueMissing")
        assert event["involvedObject"]["name"] == "loose"
        assert event["message"].endswith("Suspend it, then label it tutti.dev/queue-name, or create it again")
        await world.hub.delete("Job", "queued")
        await world.hub.patch("Job", "loose", {"spec": {"suspend": True}})
        labels = plain_job("queued")["metadata"]["labels"]
        await world.hub.patch("Job", "loose", {"metadata": {"labels": labels}})
        await world.until(lambda: world.places("Job", "loose"))


@pytest.mark.parametrize("policy", [[], POLICY[:-1]], ids=["anywhere", "for the namespace"])
async def test_a_hub_without_queues_counts_nothing_and_places_a_job_of_no_queue(
    policy: list[Mapping[str, Any]],
) -> None:
    async with fleet("a", "b", hub_policy=policy) as world:
        await with_default_queues(world)
        await world.hub.cluster.create(without_a_queue("loose"))
        await world.until(lambda: world.places("Job", "loose"))


async def test_a_job_of_no_queue_whose_namespace_has_one_is_counted_there_and_placed() -> None:
    async with fleet("a", "b", hub_policy=[*one_at_a_time(), *POLICY]) as world:
        await with_default_queues(world)
        await world.hub.cluster.create(without_a_queue("loose"))
        await world.until(lambda: world.places("Job", "loose"))
        assert await world.hub.reserved() == 1
