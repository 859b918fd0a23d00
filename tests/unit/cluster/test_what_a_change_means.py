"""A change costs what it means: API calls and callbacks are counted, never time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from webhook.assembly.reconciler import reconciler
from webhook.assembly.webhook import WebhookParts, webhook
from webhook.clock import LoopClock
from webhook.cluster.listener import Listener
from webhook.config import Config
from webhook.core.model.policy import Policy
from webhook.core.nodes.tiers import tier_label
from webhook.core.notation.names import GATED_NAMESPACE
from webhook.dialects import resource_quota
from webhook.dialects.compiler import PolicyCompiler, PolicyObject
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.requests.router import Answer, Request

pytestmark = pytest.mark.virtual_time


class Heard(Listener):
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def fences_changed(self, namespace: str) -> None:
        self.calls["fences"] += 1

    def namespace_changed(self, name: str) -> None:
        self.calls["namespace"] += 1

    def nodes_changed(self) -> None:
        self.calls["nodes"] += 1

    def pod_group_changed(self, namespace: str, name: str) -> None:
        self.calls["pod group"] += 1


class Followed:
    """One process over a simulated cluster, what it lists from now on, and what its listener hears."""

    def __init__(self, cluster: SimulatedCluster, parts: WebhookParts) -> None:
        self.cluster, self.parts, self.heard = cluster, parts, Heard()
        self.lists: Counter[str] = Counter()
        parts.feeds.listener = self.heard
        handle = cluster.router.handle

        async def counted(request: Request) -> Answer:
            if request.method == "GET" and "limit" in request.query:
                self.lists[request.path.rsplit("/", 1)[-1]] += 1
            return await handle(request)

        cluster.router.handle = counted  # type: ignore[method-assign]

    async def merge(self, path: str, body: bytes) -> None:
        await self.cluster.api().request("PATCH", path, body=body, content_type=MERGE_PATCH)
        await asyncio.sleep(3)


def job(name: str, **pods: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers, **pods}}
    metadata = {"name": name, "namespace": "team-a", "labels": {"tutti.dev/queue-name": "lq"}}
    spec = {"suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def limit_range(number: int, namespace: str) -> dict[str, Any]:
    limits = [{"type": "Container", "max": {"cpu": f"{number + 1}"}}]
    metadata = {"name": f"limits-{number}", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value, **more}


@asynccontextmanager
async def followed() -> AsyncIterator[Followed]:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a", "team-b")) as cluster:
        await cluster.create(job("train"))
        await cluster.create(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "quota", "namespace": "team-a"},
                "spec": {"hard": {"pods": "9"}},
            }
        )
        config = Config(missing_kind_retry_seconds=86_400)
        parts = webhook(cluster.api(), config, identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        yield Followed(cluster, parts)
        running.cancel()


async def test_what_a_resource_quota_uses_concerns_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    compile_object = resource_quota.compile_object
    monkeypatch.setattr(resource_quota, "compile_object", lambda each: read.append(each) or compile_object(each))
    async with followed() as it:
        read.clear()
        path = "/api/v1/namespaces/team-a/resourcequotas/quota"
        for used in range(5):
            await it.merge(f"{path}/status", b'{"status": {"used": {"pods": "%d"}}}' % used)
        await it.merge(path, b'{"metadata": {"labels": {"a": "b"}}}')
        assert it.heard.calls["fences"] == 0
        assert read == []
        await it.merge(path, b'{"spec": {"hard": {"pods": "4"}}}')
        assert it.heard.calls["fences"] == 1
        assert it.parts.view.fences.fences("team-a")[0].hard == {"pods": 4000}


async def test_what_a_queue_has_admitted_compiles_no_policy() -> None:
    """Kueue counts in the status of every ClusterQueue: a thousand of them would have all policy compiled for ever."""
    async with followed() as it:
        queue: dict[str, Any] = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue"}
        await it.cluster.create({**queue, "metadata": {"name": "shared"}, "spec": {"resourceGroups": []}})
        await asyncio.sleep(3)
        compiled: list[int] = []
        compiler = it.parts.feeds._compiler

        class Counting(PolicyCompiler):
            def compile(self, objects: Iterable[PolicyObject]) -> Policy:
                compiled.append(len(kept := list(objects)))
                return compiler.compile(kept)

        it.parts.feeds._compiler = Counting()
        path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/shared"
        for admitted in range(5):
            await it.merge(f"{path}/status", b'{"status": {"admittedWorkloads": %d}}' % admitted)
        assert compiled == []
        assert "shared" in it.parts.view.policy.queues
        await it.merge(path, b'{"spec": {"stopPolicy": "Hold"}}')
        assert compiled == [1]


async def test_what_a_scheduler_counts_in_the_status_of_a_pod_group_concerns_nobody() -> None:
    async with followed() as it:
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 2}}
        await it.cluster.create({**group, "metadata": {"name": "both", "namespace": "team-a"}})
        await asyncio.sleep(3)
        before = it.heard.calls["pod group"]
        path = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team-a/podgroups/both"
        for running in range(5):
            await it.merge(f"{path}/status", b'{"status": {"running": %d}}' % running)
        assert it.heard.calls["pod group"] == before
        await it.merge(path, b'{"spec": {"minMember": 3}}')
        assert it.heard.calls["pod group"] > before


async def test_a_namespace_concerns_who_follows_it_when_its_labels_change() -> None:
    async with followed() as it:
        path = "/api/v1/namespaces/team-a"
        await it.merge(path, b'{"metadata": {"annotations": {"note": "x"}}}')
        assert it.heard.calls["namespace"] == 0
        await it.merge(path, b'{"metadata": {"labels": {"team": "x"}}}')
        assert it.heard.calls["namespace"] == 1


def namespace(name: str, gated: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {GATED_NAMESPACE: gated}}}


async def test_namespaces_that_begin_to_wait_list_the_kinds_that_have_objects_there_and_no_other() -> None:
    async with followed() as it:
        for number in range(5):
            await it.cluster.create(namespace(f"empty-{number}", "true"))
            await asyncio.sleep(1)
        assert it.lists == {}
        await it.merge(
            "/api/v1/namespaces/team-b", b'{"metadata": {"labels": {"%s": "true"}}}' % GATED_NAMESPACE.encode()
        )
        assert it.lists == {}
        await it.merge(
            "/api/v1/namespaces/team-a", b'{"metadata": {"labels": {"%s": "true"}}}' % GATED_NAMESPACE.encode()
        )
        assert it.lists == {"jobs": 1}


async def test_many_limit_ranges_list_the_kind_that_has_jobs_there_and_no_other() -> None:
    async with followed() as it:
        for number in range(20):
            await it.cluster.create(limit_range(number, "team-a"))
        await asyncio.sleep(5)
        assert it.lists == {"jobs": 1}
        record = next(iter(it.parts.view.jobs.values()))
        assert "limits-0" in str(record.out_of_bounds) or "cpu" in str(record.out_of_bounds)


async def test_a_limit_range_whose_labels_alone_change_lists_nothing() -> None:
    async with followed() as world:
        await world.cluster.create(job("a"))
        await world.cluster.create(limit_range(0, "team-a"))
        await asyncio.sleep(3)
        world.lists.clear()
        path = "/api/v1/namespaces/team-a/limitranges/limits-0"
        await world.merge(path, b'{"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}')
        assert not world.lists["jobs"]
        await world.merge(path, b'{"spec": {"limits": [{"type": "Container", "max": {"cpu": "9"}}]}}')
        assert world.lists["jobs"] == 1


async def test_limits_and_classes_that_concern_no_job_list_nothing() -> None:
    async with followed() as it:
        for number in range(5):
            await it.cluster.create(limit_range(number, "team-b"))
        await it.cluster.create(priority_class("high", 1000))
        await it.merge("/apis/scheduling.k8s.io/v1/priorityclasses/high", b'{"description": "said"}')
        metadata = {"metadata": {"name": "plain"}, "handler": "runc"}
        await it.cluster.create({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **metadata})
        await asyncio.sleep(5)
        assert it.lists == {}


async def test_a_class_lists_the_kind_of_whoever_waits_for_it() -> None:
    async with followed() as it:
        await it.cluster.create(job("later", priorityClassName="high"))
        await asyncio.sleep(3)
        record = next(found for found in it.parts.view.jobs.values() if found.name == "later")
        assert record.missing_class is not None
        assert "high" in record.missing_class.label
        await it.cluster.create(priority_class("high", 1000))
        await asyncio.sleep(5)
        assert it.lists == {"jobs": 1}
        read = it.parts.view.jobs[record.uid]
        assert read.gang is not None
        assert (read.missing_class, read.gang.priority) == (None, 1000)


async def test_a_class_that_all_have_by_default_lists_every_kind_that_has_jobs() -> None:
    async with followed() as it:
        await it.cluster.create(priority_class("usual", 7, globalDefault=True))
        await asyncio.sleep(5)
        assert it.lists == {"jobs": 1}
        gang = next(iter(it.parts.view.jobs.values())).gang
        assert gang is not None
        assert gang.priority == 7


async def test_hyper_nodes_with_many_rules_label_the_nodes_in_turns_of_the_loop() -> None:
    async with SimulatedCluster(Random(1)) as cluster:
        parts = reconciler(cluster.api(), Config(), identity="r", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.feeds.run())
        for number in range(100):
            await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}})
        await asyncio.sleep(10)
        nodes, heard = parts.view.nodes, Heard()
        assert nodes is not None
        assert len(nodes.capacity.nodes) == 100
        parts.feeds.listener = heard
        for number in range(120):
            member = {"type": "Node", "selector": {"regexMatch": {"pattern": f"^n{number}$"}}}
            kind = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode"}
            spec = {"tier": 1, "members": [member]}
            await cluster.create({**kind, "metadata": {"name": f"s{number}"}, "spec": spec})
        await asyncio.sleep(3)
        # Each node counts as sixteen with so many rules, and 500 are labelled in one turn; it is told after each.
        assert heard.calls["nodes"] >= 100 * 16 // 500
        assert all(nodes.nodes_in({tier_label(1): f"s{number}"}) == [f"n{number}"] for number in range(100))
        running.cancel()
