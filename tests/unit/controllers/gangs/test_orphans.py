"""A JobSet that is deleted from above its Jobs: what they run stays charged to it until it is gone."""

import asyncio
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import JOB, LEDGER, PODS, POLICY, Stage, pod_group, stage, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.cluster.queue_counts import QueueCounts
from webhook.config import Config
from webhook.core.notation.amounts import FlavorResource
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
GATED = pytest.mark.parametrize("gated", [False, True], ids=["anywhere", "in a gated namespace"])
JOB_SET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets/train"


def job_set(*, suspend: bool) -> dict[str, Any]:
    """Return a JobSet of two Jobs of two pods each; a suspended one as the webhook would have stored it."""
    spec = waiting_job(pods=2)["spec"]
    del spec["suspend"]
    if not suspend:
        del spec["template"]["metadata"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": waiting_job()["metadata"],
        "spec": {"suspend": suspend, "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": spec}}]},
    }


def plain_job(*, suspend: bool) -> dict[str, Any]:
    """Return a Job of four pods."""
    job = waiting_job(pods=4)
    job["spec"]["suspend"] = suspend
    if not suspend:
        del job["spec"]["template"]["metadata"]
    return job


async def prepare(cluster: SimulatedCluster, *, gated: bool = False) -> None:
    """Create a node and a queue of four cpu; ``gated``: all jobs of the namespace wait."""
    await cluster.add_node("node")
    for item in POLICY:
        await cluster.create(item)
    if gated:
        label = b'{"metadata": {"labels": {"tutti.dev/gated": "true"}}}'
        await cluster.api().request("PATCH", "/api/v1/namespaces/team-a", body=label, content_type=MERGE_PATCH)


@GATED
@pytest.mark.parametrize("before_tutti", [False, True], ids=["one that was started", "one that ran before Tutti came"])
async def test_its_quota_is_held_while_pods_of_its_orphaned_jobs_run(before_tutti: bool, gated: bool) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster, gated=gated)
        await cluster.create(job_set(suspend=not before_tutti))
        await asyncio.sleep(5)
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        assert [entry.adopted for entry in parts.view.ledger.entries.values()] == [before_tutti]
        await cluster.create(waiting_job("other", pods=4))
        await cluster.api().request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(30)
        assert len(orjson.loads(await cluster.api().request("GET", PODS))["items"]) == 4, "never four more beside them"
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["train"]
        for number in range(2):
            job = f"/apis/batch/v1/namespaces/team-a/jobs/train-w-{number}"
            await cluster.api().request("DELETE", job, body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(60)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["other"]
        running.cancel()


PYTORCH_JOB = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs/train"


def pytorch_job(*, suspend: bool) -> dict[str, Any]:
    """Return a PyTorchJob of four pods, which bear its name and not its uid."""
    template = waiting_job()["spec"]["template"]
    if not suspend:
        del template["metadata"]
    replicas = {"Master": {"replicas": 1, "template": template}, "Worker": {"replicas": 3, "template": template}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": waiting_job()["metadata"],
        "spec": {"runPolicy": {"suspend": suspend}, "pytorchReplicaSpecs": replicas},
    }


PATH_OF = {job_set: JOB_SET, plain_job: JOB, pytorch_job: PYTORCH_JOB}


def leader(cluster: SimulatedCluster, identity: str) -> ReconcilerParts:
    return reconciler(cluster.api(), Config(), identity=identity, clock=LoopClock(), rng=Random(1))


async def pods_of(cluster: SimulatedCluster) -> list[Any]:
    found: list[Any] = orjson.loads(await cluster.api().request("GET", PODS))["items"]
    return found


@GATED
@pytest.mark.parametrize("before_tutti", [False, True], ids=["started", "adopted"])
@pytest.mark.parametrize("made", PATH_OF, ids=["a JobSet", "a Job", "a PyTorchJob"])
async def test_its_quota_is_held_though_nobody_saw_how_it_was_orphaned(
    made: Any, before_tutti: bool, gated: bool
) -> None:
    """Whoever leads next never saw the object: what it made says whose it was."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster, gated=gated)
        await cluster.create(made(suspend=not before_tutti))
        await asyncio.sleep(5)
        first = leader(cluster, "first")
        running = asyncio.create_task(first.run())
        await asyncio.sleep(10)
        assert [entry.adopted for entry in first.view.ledger.entries.values()] == [before_tutti]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await cluster.api().request("DELETE", PATH_OF[made], body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(10)
        second = leader(cluster, "second")
        running = asyncio.create_task(second.run())
        await asyncio.sleep(20)
        await cluster.create(waiting_job("other", pods=4))
        await asyncio.sleep(60)
        assert len(await pods_of(cluster)) == 4, "never four more beside them"
        assert [entry.name for entry in second.view.ledger.entries.values()] == ["train"]
        for number in range(2):
            job = f"/apis/batch/v1/namespaces/team-a/jobs/train-w-{number}"
            if made is job_set:
                await cluster.api().request("DELETE", job, body=b'{"propagationPolicy": "Background"}')
        if made is not job_set:
            await cluster.api().request("DELETE", PODS)
        await asyncio.sleep(60)
        assert [entry.name for entry in second.view.ledger.entries.values()] == ["other"]
        running.cancel()


async def test_no_later_leader_takes_the_ledger_for_an_old_copy_because_orphans_run_on() -> None:
    """Nothing tells what they hold once the ledger was lost too. Each would admit nobody for half a minute."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster)
        epochs = []
        for number in range(4):
            parts = leader(cluster, f"leader-{number}")
            running = asyncio.create_task(parts.run())
            await asyncio.sleep(60)
            epochs.append(parts.view.ledger.epoch)
            if number == 0:
                await cluster.create(job_set(suspend=True))
                await asyncio.sleep(10)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            if number == 0:
                await cluster.api().request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Orphan"}')
                await cluster.api().request("DELETE", LEDGER)
                await asyncio.sleep(10)
        assert len(await pods_of(cluster)) == 4
        assert epochs[1:] == [epochs[1], epochs[1] + 1, epochs[1] + 2], "a term each, and no rebuild"
        events = orjson.loads(await cluster.api().request("GET", "/api/v1/namespaces/tutti-system/events"))["items"]
        assert "LedgerRebuilt" not in {event["reason"] for event in events}


ORPHAN = "/apis/batch/v1/namespaces/team-a/jobs/train-w-0"


async def is_suspended(cluster: SimulatedCluster) -> bool:
    """Return whether the first Job of the JobSet is."""
    return bool(orjson.loads(await cluster.api().request("GET", ORPHAN))["spec"]["suspend"])


async def test_an_orphan_of_what_waited_does_not_start_without_the_queue_in_which_it_waited() -> None:
    """A namespace where every job is given a queue when it is made would be left by it."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster, gated=True)
        parts = leader(cluster, "me")
        running = asyncio.create_task(parts.run())
        await cluster.create(waiting_job("other", pods=4))
        await asyncio.sleep(5)
        await cluster.create(job_set(suspend=True))
        await asyncio.sleep(5)
        await cluster.api().request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(30)
        assert await is_suspended(cluster)
        uid = orjson.loads(await cluster.api().request("GET", ORPHAN))["metadata"]["uid"]
        assert "names no queue of its own; label it with" in str(parts.reconciler.reason(uid))
        other = JOB.replace("train", "other")
        await cluster.api().request("DELETE", other, body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(30)
        assert await is_suspended(cluster)
        label = b'{"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "research"}}}'
        await cluster.api().request("PATCH", ORPHAN, body=label, content_type=MERGE_PATCH)
        await asyncio.sleep(30)
        assert not await is_suspended(cluster), "it has a queue, and its turn"
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["train-w-0"]
        running.cancel()


async def test_an_orphan_whose_pods_are_gone_is_not_given_others() -> None:
    """Its gang's room is somebody else's by then."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster, gated=True)
        parts = leader(cluster, "me")
        running = asyncio.create_task(parts.run())
        await cluster.create(job_set(suspend=True))
        await asyncio.sleep(10)
        await cluster.create(waiting_job("other", pods=4))
        await cluster.api().request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(10)
        assert not await is_suspended(cluster), "it runs on"
        for number in range(2):
            limit = b'{"spec": {"parallelism": 0}}'
            path = ORPHAN.replace("w-0", f"w-{number}")
            await cluster.api().request("PATCH", path, body=limit, content_type=MERGE_PATCH)
        await asyncio.sleep(60)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["other"]
        running.cancel()
        later = leader(cluster, "later")
        running = asyncio.create_task(later.run())
        await asyncio.sleep(30)
        assert await is_suspended(cluster)
        assert [entry.name for entry in later.view.ledger.entries.values()] == ["other"]
        running.cancel()


@pytest.mark.parametrize("before_tutti", [False, True], ids=["started", "adopted"])
async def test_pods_of_a_job_that_was_orphaned_below_its_set_hold_the_quota_of_the_set(before_tutti: bool) -> None:
    """Nobody saw that: the set was there before and after, and in the end it goes without them."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster)
        await cluster.create(job_set(suspend=not before_tutti))
        await asyncio.sleep(5)
        first = leader(cluster, "first")
        running = asyncio.create_task(first.run())
        await asyncio.sleep(10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        orphans = {pod["metadata"]["name"] for pod in await pods_of(cluster) if "w-0" in pod["metadata"]["name"]}
        await cluster.api().request("DELETE", ORPHAN, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(10)
        second = leader(cluster, "second")
        running = asyncio.create_task(second.run())
        await cluster.create(waiting_job("other", pods=4))
        await asyncio.sleep(20)
        await cluster.api().request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(60)
        assert {pod["metadata"]["name"] for pod in await pods_of(cluster)} == orphans
        assert [entry.name for entry in second.view.ledger.entries.values()] == ["train"]
        await cluster.api().request("DELETE", PODS)
        await asyncio.sleep(60)
        assert [entry.name for entry in second.view.ledger.entries.values()] == ["other"]
        running.cancel()


@GATED
async def test_its_jobs_run_on_though_they_name_a_queue_and_wait_there_once_they_are_stopped(gated: bool) -> None:
    """Controllers copy labels: KubeRay those of a RayJob to its RayCluster. All pods died, to be admitted once more."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster, gated=gated)
        made = job_set(suspend=True)
        label = {"labels": {"kueue.x-k8s.io/queue-name": "research"}}
        made["spec"]["replicatedJobs"][0]["template"]["metadata"] = label
        await cluster.create(made)
        parts = leader(cluster, "me")
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(20)
        before = {pod["metadata"]["uid"] for pod in await pods_of(cluster)}
        assert len(before) == 4
        await cluster.api().request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(30)
        assert {pod["metadata"]["uid"] for pod in await pods_of(cluster)} == before
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["train"]
        running.cancel()
        later = leader(cluster, "later")
        running = asyncio.create_task(later.run())
        await asyncio.sleep(30)
        assert {pod["metadata"]["uid"] for pod in await pods_of(cluster)} == before, "nor does who leads next stop them"
        assert QueueCounts(later.view).take().queues["research"].pending == 0, "they run"
        for number in range(2):
            path = ORPHAN.replace("w-0", f"w-{number}")
            await cluster.api().request("PATCH", path, body=b'{"spec": {"suspend": true}}', content_type=MERGE_PATCH)
        await asyncio.sleep(60)
        names = {entry.name for entry in later.view.ledger.entries.values()}
        assert names == {"train-w-0", "train-w-1"}, "each is a gang of its own, in the queue that it names"
        assert len(await pods_of(cluster)) == 4
        running.cancel()


async def test_nothing_in_another_namespace_keeps_the_quota_of_a_gang_that_is_deleted() -> None:
    """Whoever may create Jobs anywhere named the gang as the owner of one, and nobody got its room any more."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a", "team-b")) as cluster:
        await prepare(cluster)
        await cluster.create(job_set(suspend=False))
        await asyncio.sleep(5)
        parts = leader(cluster, "me")
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        gang = orjson.loads(await cluster.api().request("GET", JOB_SET))
        owner = {"apiVersion": gang["apiVersion"], "kind": "JobSet", "name": "train", "uid": gang["metadata"]["uid"]}
        pin = waiting_job("pin", pods=1)
        del pin["spec"]["template"]["metadata"]
        pin["spec"]["suspend"] = False
        pin["metadata"] = {"name": "pin", "namespace": "team-b", "ownerReferences": [owner | {"controller": True}]}
        await cluster.create(pin)
        await cluster.create(waiting_job("other", pods=4))
        await asyncio.sleep(5)
        # As the garbage collector does where something else owns it too.
        let_go = b'{"metadata": {"ownerReferences": []}}'
        path = JOB.replace("team-a", "team-b").replace("train", "pin")
        await cluster.api().request("PATCH", path, body=let_go, content_type=MERGE_PATCH)
        await cluster.api().request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(60)
        assert orjson.loads(await cluster.api().request("GET", path))["spec"]["suspend"] is False, "it runs on"
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["other"]
        running.cancel()


async def let_three_succeed(play: Stage) -> None:
    for pod in (await pods_of(play.cluster))[:3]:
        status = orjson.dumps({"status": {"phase": "Succeeded"}})
        path = f"{PODS}/{pod['metadata']['name']}/status"
        await play.admin.request("PATCH", path, body=status, content_type=MERGE_PATCH)
    await asyncio.sleep(20)


async def test_what_a_job_had_given_back_no_later_leader_charges_once_it_is_orphaned() -> None:
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(waiting_job(pods=4))
        await asyncio.sleep(20)
        await let_three_succeed(play)
        (entry,) = (await play.ledger()).entries.values()
        assert entry.counts == {"main": 4}
        await play.admin.request("DELETE", JOB, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(5)
        assert (await play.ledger()).entries[entry.uid].counts == {"main": 1}, "written down while somebody knows it"
        await play.hand_over()
        await asyncio.sleep(20)
        assert play.parts.reconciler.engine.usage("research")[FlavorResource("any", "cpu")] == 1000
        await play.cluster.create(waiting_job("other", pods=3))
        await asyncio.sleep(20)
        assert await play.running_pods() == 4, "it has the others' room, and one of them runs on"


async def test_what_a_gang_with_a_quorum_had_given_back_it_does_not_take_again_once_its_job_is_gone() -> None:
    """Its entry was made smaller and larger again in every cycle: one ledger write after the other."""
    async with stage() as play:
        await play.take_over()
        group = pod_group()
        group["spec"]["minMember"] = 4
        await play.cluster.create(group)
        job = waiting_job(pods=4)
        job["spec"]["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "train"
        await play.cluster.create(job)
        await asyncio.sleep(20)
        await let_three_succeed(play)
        await play.admin.request("DELETE", JOB, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(5)
        before = (await play.ledger()).version
        await play.cluster.create(waiting_job("other", pods=9))
        await asyncio.sleep(20)
        ledger = await play.ledger()
        assert [entry.counts for entry in ledger.entries.values()] == [{"main": 1}]
        assert ledger.version[1] - before[1] < 20, "no more than renewals of the lease"


async def test_a_gang_that_started_in_part_grows_no_more_once_its_job_is_gone() -> None:
    """Nobody makes the pods that the room would be for, and it was held until the others had ended."""
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(waiting_job("first", pods=2))
        await asyncio.sleep(5)
        job = waiting_job(pods=4)
        job["spec"]["template"]["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io/min-available"] = "2"
        await play.cluster.create(job)
        await asyncio.sleep(10)
        await play.admin.request("DELETE", JOB, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(5)
        first = JOB.replace("train", "first")
        await play.admin.request("DELETE", first, body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(20)
        assert [entry.counts for entry in (await play.ledger()).entries.values()] == [{"main": 2}]
        await play.cluster.create(waiting_job("other", pods=2))
        await asyncio.sleep(20)
        assert len((await play.ledger()).entries) == 2, "others have that room"
