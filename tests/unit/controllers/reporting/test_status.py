"""Status of policy objects: what is written, by which replica, and how seldom."""

import asyncio
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.visibility.world import World
from webhook.cluster.queue_counts import QueueCounts
from webhook.controllers.reporting.status import StatusWriter
from webhook.core.model.gang import PodPrice
from webhook.core.model.pods import PodRecord
from webhook.dialects.compiler import compile_policy
from webhook.errors import Unavailable
from webhook.jobs.plain_pods.pod_group import PodGroupRecord

pytestmark = pytest.mark.virtual_time
INTERVAL = 5.0


def cluster_queue(name: str, cohort: str = "research") -> dict[str, Any]:
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4", "borrowingLimit": "4"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 3},
        "spec": {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": groups},
    }


def local_queue(namespace: str, queue: str, version: str = "v1beta2") -> dict[str, Any]:
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "LocalQueue",
        "metadata": {"name": "jobs", "namespace": namespace, "uid": f"uid-{namespace}", "generation": 1},
        "spec": {"clusterQueue": queue},
    }


FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default", "uid": "f"}}


class Stored:
    """An API server that takes status patches and keeps when each came."""

    def __init__(self) -> None:
        self.writes: list[tuple[float, str, dict[str, Any]]] = []
        self.fails = False

    async def request(self, method: str, path: str, *, body: bytes, content_type: str, **more: Any) -> bytes:
        assert (method, content_type) == ("PATCH", "application/merge-patch+json")
        if self.fails:
            raise Unavailable(503, "ServiceUnavailable", "busy")
        self.writes.append((asyncio.get_running_loop().time(), path, json.loads(body)["status"]))
        return b"{}"

    def of(self, part: str) -> list[dict[str, Any]]:
        return [status for _, path, status in self.writes if part in path]


class Running:
    """A status writer over a world."""

    def __init__(self, *objects: Mapping[str, Any], **settings: Any) -> None:
        self.objects = list(objects)
        self.world = World(compile_policy(self.objects))
        self.stored = Stored()
        self.leading = True
        self.writer = StatusWriter(
            self.stored,  # type: ignore[arg-type]
            self.world.view,
            QueueCounts(self.world.view),
            leading=lambda: self.leading,
            policy_objects=lambda: self.objects,
            pod_group_object=lambda record: {
                "apiVersion": f"{record.generation}/v1alpha1",
                "metadata": {"name": record.name, "namespace": record.namespace, "uid": f"uid-{record.name}"},
            },
            now=lambda: self.world.now,
            interval_seconds=INTERVAL,
            **settings,
        )

    async def for_seconds(self, seconds: float) -> None:
        task = asyncio.create_task(self.writer.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def two_teams() -> Running:
    return Running(
        FLAVOR,
        cluster_queue("vision"),
        cluster_queue("speech"),
        local_queue("team-vision", "vision"),
        local_queue("team-speech", "speech", "v1beta1"),
    )


async def test_counts_and_usage_are_written_as_kueue_writes_them() -> None:
    running = two_teams()
    running.world.admits(running.world.waits("big", cpu=3, pods=2))
    running.world.waits("late", cpu=8, pods=1)
    await running.for_seconds(3)
    (status,) = running.stored.of("/clusterqueues/vision/status")
    assert (status["pendingWorkloads"], status["reservingWorkloads"], status["admittedWorkloads"]) == (1, 1, 1)
    usage = [{"name": "default", "resources": [{"name": "cpu", "total": "6", "borrowed": "2"}]}]
    assert status["flavorsUsage"] == status["flavorsReservation"] == usage
    (active,) = status["conditions"]
    assert (active["type"], active["status"], active["reason"]) == ("Active", "True", "Ready")
    assert (active["observedGeneration"], active["lastTransitionTime"]) == (3, "2027-01-15T08:00:00Z")
    (handle,) = running.stored.of("/namespaces/team-vision/localqueues/jobs/status")
    assert (handle["pendingWorkloads"], handle["admittedWorkloads"]) == (1, 1)
    assert handle["flavorsUsage"] == [{"name": "default", "resources": [{"name": "cpu", "total": "6"}]}]
    (older,) = running.stored.of("/apis/kueue.x-k8s.io/v1beta1/namespaces/team-speech")
    assert "flavorUsage" in older


async def test_nothing_is_written_twice_and_nothing_that_is_stored_already() -> None:
    running = two_teams()
    await running.for_seconds(20)
    assert len(running.stored.writes) == 4
    for obj in running.objects[1:]:
        place = f"/namespaces/{obj['metadata']['namespace']}/" if "namespace" in obj["metadata"] else "/clusterqueues/"
        name = obj["metadata"]["name"]
        (obj["status"],) = [s for _, path, s in running.stored.writes if place in path and f"/{name}/status" in path]
    running.stored.writes.clear()
    successor = Running(*running.objects)
    await successor.for_seconds(20)
    assert successor.stored.writes == []


async def test_a_change_shows_at_once_and_then_at_most_once_in_the_interval() -> None:
    running = two_teams()
    await running.for_seconds(10)
    running.stored.writes.clear()
    began = asyncio.get_running_loop().time()

    async def busy() -> None:
        for index in range(100):
            running.world.waits(f"j{index}")
            running.writer.touch()
            await asyncio.sleep(0.2)

    await asyncio.gather(busy(), running.for_seconds(30))
    times = [time for time, path, _ in running.stored.writes if "clusterqueues/vision" in path]
    assert times[0] - began < 1
    assert all(later - earlier >= INTERVAL for earlier, later in pairwise(times))
    assert running.stored.of("clusterqueues/vision")[-1]["pendingWorkloads"] == 100


async def test_a_follower_writes_nothing_and_writes_once_it_leads() -> None:
    running = two_teams()
    running.leading = False
    await running.for_seconds(10)
    assert running.stored.writes == []
    running.leading = True
    await running.for_seconds(3)
    assert len(running.stored.writes) == 4


async def test_a_write_that_failed_is_made_again() -> None:
    running = two_teams()
    running.stored.fails = True
    await running.for_seconds(3)
    running.stored.fails = False
    await running.for_seconds(10)
    assert len(running.stored.of("clusterqueues/vision")) == 1


async def test_an_inactive_queue_says_why_and_keeps_the_time_since() -> None:
    running = Running(cluster_queue("vision"), local_queue("team-vision", "vision"))
    await running.for_seconds(3)
    (status,) = running.stored.of("clusterqueues/vision")
    (active,) = status["conditions"]
    assert (active["status"], active["reason"]) == ("False", "FlavorNotFound")
    assert "no ResourceFlavor 'default'" in active["message"]
    (handle,) = running.stored.of("localqueues/jobs")
    assert handle["conditions"][0]["reason"] == "ClusterQueueIsInactive"
    running.world.now += 60
    running.world.waits("late")
    await running.for_seconds(10)
    again = running.stored.of("clusterqueues/vision")[-1]
    assert again["pendingWorkloads"] == 1
    assert again["conditions"][0]["lastTransitionTime"] == active["lastTransitionTime"]


async def test_where_kueue_serves_the_cluster_its_objects_are_left_to_it() -> None:
    running = Running(FLAVOR, cluster_queue("vision"), local_queue("team-vision", "vision"), with_kueue=False)
    await running.for_seconds(10)
    assert running.stored.writes == []


async def test_an_object_of_the_policy_config_map_has_no_status() -> None:
    obj = cluster_queue("vision")
    del obj["metadata"]["uid"]
    running = Running(FLAVOR, obj)
    await running.for_seconds(10)
    assert running.stored.writes == []


async def test_an_elastic_quota_tree_shows_what_each_node_uses() -> None:
    tree = {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "elasticquotatree", "namespace": "kube-system", "uid": "tree"},
        "spec": {
            "root": {
                "name": "root",
                "min": {"cpu": 8},
                "max": {"cpu": 8},
                "children": [{"name": "a", "min": {"cpu": 4}, "max": {"cpu": 8}, "namespaces": ["team-vision"]}],
            }
        },
    }
    running = Running(tree)
    job = running.world.waits("train", cpu=1, pods=2)
    object.__setattr__(job, "queue_label", None)
    running.world.admits(job)
    await running.for_seconds(3)
    (status,) = running.stored.of("/namespaces/kube-system/elasticquotatrees/elasticquotatree/status")
    root = status["root"]
    assert (root["name"], root["used"]) == ("root", {"cpu": "2"})
    assert root["children"] == [{"name": "a", "used": {"cpu": "2"}, "children": [], "namespaces": ["team-vision"]}]


async def test_a_leaf_that_was_given_children_shows_what_still_runs_in_it() -> None:
    def tree(**leaf: Any) -> dict[str, Any]:
        children = [{"name": "a", "min": {"cpu": 4}, "max": {"cpu": 8}, **leaf}]
        return {
            "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
            "kind": "ElasticQuotaTree",
            "metadata": {"name": "elasticquotatree", "namespace": "kube-system", "uid": "tree"},
            "spec": {"root": {"name": "root", "min": {"cpu": 8}, "max": {"cpu": 8}, "children": children}},
        }

    running = Running(tree(namespaces=["team-vision"]))
    job = running.world.waits("train", cpu=1, pods=2)
    object.__setattr__(job, "queue_label", None)
    running.world.admits(job)
    running.objects[:] = [tree(children=[{"name": "inner", "namespaces": ["team-vision"]}])]
    running.world.view.policy = compile_policy(running.objects)
    await running.for_seconds(3)
    (status,) = running.stored.of("/namespaces/kube-system/elasticquotatrees/elasticquotatree/status")
    (a,) = status["root"]["children"]
    assert [status["root"]["used"], a["used"], a["children"][0]["used"]] == [{"cpu": "2"}, {"cpu": "2"}, {"cpu": "0"}]


def pod(name: str, gang: str, phase: str, node: str = "node-1") -> PodRecord:
    return PodRecord(name, "team-vision", name, 1, PodPrice(), gang, "main", phase, node=node)


@pytest.mark.parametrize(
    ("phases", "phase"),
    [
        ([], "Scheduling"),
        (["Pending", "Pending"], "Scheduled"),
        (["Running", "Pending"], "Scheduled"),
        (["Running", "Running"], "Running"),
        (["Running", "Succeeded"], "Running"),
        (["Succeeded", "Succeeded"], "Finished"),
        (["Failed", "Pending"], "Failed"),
    ],
)
async def test_a_pod_group_says_how_far_its_gang_is(phases: list[str], phase: str) -> None:
    running = two_teams()
    job = running.world.waits("train")
    assert job.gang is not None
    object.__setattr__(job.gang, "pod_group", "group")
    running.world.admits(job)
    record = PodGroupRecord("team-vision", "group", 2, generation="scheduling.x-k8s.io")
    running.world.view.pod_groups["team-vision", "group"] = record
    for index, each in enumerate(phases):
        running.world.view.fences.put_pod(pod(f"p{index}", job.uid, each))
    await running.for_seconds(3)
    (status,) = running.stored.of("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team-vision/podgroups/group/status")
    assert status["phase"] == phase
    assert status["running"] == phases.count("Running")
