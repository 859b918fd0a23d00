"""What a process that only reads makes of what it reads: a ledger that went back, one policy object of many."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.ledger.keepers import Stage, reservation
from tests.unit.server.reviews import job, pod, review
from webhook.assembly.reconciler import reconciler
from webhook.assembly.webhook import webhook
from webhook.clock import LoopClock
from webhook.cluster import feeds, unread
from webhook.cluster.lineage import Lineage
from webhook.cluster.listener import Listener
from webhook.cluster.unread import Survey
from webhook.config import Config
from webhook.core.model.pods import PodRecord
from webhook.dialects import config_map
from webhook.dialects.fragment import Fragment
from webhook.dialects.kueue import objects as kueue
from webhook.jobs.reading.record import JobRecord
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.untyped import yaml_text
from webhook.untyped.yaml_text import Measure

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("bumped", [False, True], ids=["revisions go back", "revisions go on"])
async def test_a_webhook_goes_by_the_ledger_of_a_backup_that_was_restored(bumped: bool) -> None:
    """It refused the pods of every gang that started since, until somebody restarted it."""
    stage = Stage()
    async with stage.cluster as cluster:
        keeper, _ = await stage.leader()
        parts = webhook(cluster.api(), Config(audit_seconds=60), identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await keeper.commit([reservation("a")])
        backup = cluster.server.store.backup()
        for uid in ("b", "c", "d"):
            await keeper.commit([reservation(uid)])
        await asyncio.sleep(2)
        assert parts.view.ledger.entries.keys() == {"a", "b", "c", "d"}
        cluster.restore(backup, bumped=bumped)
        await asyncio.sleep(90)
        assert parts.view.ledger == await stage.stored()
        running.cancel()


async def test_a_start_looks_at_each_feed_once_where_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundred feeds it looked a hundred times at each."""
    looked: list[int] = []
    survey = unread.survey

    def counted(*asked: Any) -> Survey:
        looked.append(1)
        return survey(*asked)

    monkeypatch.setattr(feeds, "survey", counted)
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        parts = webhook(cluster.api(), Config(), identity="w", clock=LoopClock(), rng=Random(1))
        assert len(parts.view.unsynced) == len(parts.feeds.informers)
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)
        assert parts.view.synced
        assert not looked
        running.cancel()


async def test_each_feed_is_one_task() -> None:
    """With seventy feeds a start made seventy more, that only waited for these to be read."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        parts = webhook(cluster.api(), Config(), identity="w", clock=LoopClock(), rng=Random(1))
        before = asyncio.all_tasks()
        running = asyncio.create_task(parts.run())
        others: set[str] = set()
        while not parts.view.synced:
            await asyncio.sleep(0)
            tasks = asyncio.all_tasks() - before
            others |= {str(task.get_coro()) for task in tasks if not task.get_name().startswith("feed ")}
        assert not [coroutine for coroutine in others if "Feeds._" in coroutine]
        running.cancel()


async def test_of_many_policy_objects_only_the_one_that_changed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    compile_object = kueue.compile_object

    def counted(obj: Mapping[str, Any]) -> Fragment:
        read.append(obj["metadata"]["name"])
        return compile_object(obj)

    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "spec": {}}
        for number in range(20):
            await cluster.create({**queue, "metadata": {"name": f"q-{number}"}})
        parts = webhook(cluster.api(), Config(), identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)
        assert len(parts.view.policy.queues) == 20
        monkeypatch.setattr(kueue, "compile_object", counted)
        path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q-7"
        body = b'{"spec": {"stopPolicy": "Hold"}}'
        await cluster.api().request("PATCH", path, body=body, content_type=MERGE_PATCH)
        await asyncio.sleep(5)
        assert parts.view.policy.queues["q-7"].stop_policy == "Hold"
        assert read == ["q-7"]
        running.cancel()


async def test_a_change_of_policy_is_judged_beside_no_local_queue_unless_it_may_hold_one_itself() -> None:
    """There are thousands of them, and reading them again for each review took a third of a second."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        version = "kueue.x-k8s.io/v1beta2"
        local = {"name": "lq", "namespace": "team-a"}
        await cluster.create({"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": {}})
        await cluster.create(
            {"apiVersion": version, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": "q"}}
        )
        parts = webhook(cluster.api(), Config(), identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)

        def beside(plural: str) -> set[str]:
            return {str(each["kind"]) for each in parts.feeds.policy_objects_beside(plural)}

        assert beside("clusterqueues") == beside("localqueues") == {"ClusterQueue"}
        assert beside("configmaps") == {"ClusterQueue", "LocalQueue"}
        running.cancel()


async def test_policy_in_a_config_map_is_read_when_it_changes_and_not_for_each_review(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred thousand values of YAML take seconds, in which the webhook answered nobody."""
    read: list[str] = []
    documents = yaml_text.documents

    def counted(text: str, measure: Measure) -> list[Any]:
        read.append(text)
        return documents(text, measure)

    cohort = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "other"}, "spec": {}}
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        written = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\nspec: {}\n"
        metadata = {"name": "tutti-policy", "namespace": "tutti-system"}
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": written}})
        parts = webhook(cluster.api(), Config(), identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)
        assert "q" in parts.view.policy.queues
        monkeypatch.setattr(config_map, "documents", counted)
        for number in range(3):
            review_of = review(cohort, resource="cohorts", namespace="", uid=f"review-{number}")
            assert (await parts.handler.review("/validate/policy", review_of, 1.0))[0] == 200
        assert read == []
        path = "/api/v1/namespaces/tutti-system/configmaps/tutti-policy"
        changed = written.replace("name: q", "name: r")
        await cluster.api().request(
            "PATCH", path, body=orjson.dumps({"data": {"a": changed}}), content_type=MERGE_PATCH
        )
        await asyncio.sleep(5)
        assert "r" in parts.view.policy.queues
        assert read == [changed]
        running.cancel()


@pytest.mark.parametrize("setting", [name for name, each in Config.model_fields.items() if each.annotation is str])
async def test_no_setting_has_policy_read_that_nobody_judges(setting: str) -> None:
    """The API server sends the webhook the ConfigMap of policy by its name: a setting had another one read."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        queue = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\nspec: {}\n"
        metadata = {"name": "other", "namespace": "tutti-system"}
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": queue}})
        config = Config(**{setting: "other"})
        parts = webhook(cluster.api(), config, identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)
        assert parts.feeds.informers["policy-config-map"].synced.is_set()
        assert "q" not in parts.view.policy.queues
        running.cancel()


@pytest.mark.parametrize("setting", [name for name, each in Config.model_fields.items() if each.annotation is str])
async def test_no_setting_has_a_ledger_kept_that_no_policy_judges(setting: str) -> None:
    """Admission policies know the ledger by its name and namespace: another one anybody might have written."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "other")) as cluster:
        config = Config(**{setting: "other"})
        parts = reconciler(cluster.api(), config, identity="r", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)
        found = orjson.loads(await cluster.api().request("GET", "/api/v1/configmaps"))["items"]
        assert [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found] == [
            ("tutti-system", "tutti-ledger")
        ]
        running.cancel()


async def test_a_queue_that_was_deleted_stays_while_it_holds_gangs() -> None:
    """What they held was free for others at once."""
    stage = Stage()
    async with stage.cluster as cluster:
        head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue"}
        await cluster.create({**head, "metadata": {"name": "q"}, "spec": {"cohortName": "all"}})
        keeper, _ = await stage.leader()
        await keeper.commit([replace(reservation("a"), queue="q")])
        parts = webhook(cluster.api(), Config(), identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(1)
        await cluster.api().request("DELETE", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q")
        await asyncio.sleep(1)
        kept = parts.view.policy.queues["q"]
        assert (kept.inactive_reason, kept.cohort) == ("Deleted", "all")
        await keeper.commit(drop=["a"])
        await asyncio.sleep(1)
        assert not parts.view.policy.queues
        running.cancel()


class Told(Listener):
    """Notes what is gone."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    def job_changed(self, old: JobRecord | None, new: JobRecord | None) -> None:
        self.gone += [old.name] if old is not None and new is None else []

    def pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        self.gone += [old.name] if old is not None and new is None else []


async def test_who_listens_is_told_what_is_gone_though_a_part_of_the_view_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No list brings it again: the informer has dropped it."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.create(job("train"))
        await cluster.create(pod("worker", owner=None))
        parts = webhook(cluster.api(), Config(), identity="w", clock=LoopClock(), rng=Random(1))
        parts.feeds.listener = told = Told()
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(1)
        assert [each.name for each in parts.view.jobs.values()] == ["train"]
        monkeypatch.setattr(Lineage, "drop", lambda *_: 1 // 0)
        monkeypatch.setattr(Lineage, "drop_pod", lambda *_: 1 // 0)
        for path in ("/apis/batch/v1/namespaces/team-a/jobs/train", "/api/v1/namespaces/team-a/pods/worker"):
            await cluster.api().request("DELETE", path)
        await asyncio.sleep(1)
        assert sorted(told.gone) == ["train", "worker"]
        assert not parts.view.jobs
        running.cancel()
