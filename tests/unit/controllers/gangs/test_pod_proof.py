"""That a gang is gone is looked up until it is so, whatever arrives meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from webhook.cluster.view import View
from webhook.controllers.gang_record import GangRecords
from webhook.controllers.gangs.pod_proof import PodProof
from webhook.core.notation import names

pytestmark = pytest.mark.virtual_time


class Pods:
    """An API server that lists the pods of one gang as they were when it was asked, and takes a second to answer."""

    def __init__(self) -> None:
        self.phase = "Running"
        self.metadata: dict[str, str] = {}
        self.spec: dict[str, Any] = {"containers": []}

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        pod = {
            "metadata": {"name": "p", "namespace": "ns", "uid": "p", "labels": {names.GANG_LABEL: "gang"}}
            | self.metadata,
            "spec": self.spec,
            "status": {"phase": self.phase},
        }
        await asyncio.sleep(1)
        return orjson.dumps({"metadata": {"resourceVersion": "1"}, "items": [pod]})


async def test_a_pod_that_ends_while_its_gang_is_looked_up_is_looked_up_again() -> None:
    pods, told = Pods(), list[str]()
    feeds = SimpleNamespace(view=View(), informers={})
    proof = PodProof(pods, feeds, GangRecords(), told.append)  # type: ignore[arg-type]
    assert not proof.holds("gang", "Job.batch")
    await asyncio.sleep(0.5)
    pods.phase = "Succeeded"
    # The watch told of its end, but what is on its way says that it runs.
    assert not proof.holds("gang", "Job.batch")
    await asyncio.sleep(5)
    assert told == ["gang"], "it is to be looked at again"
    assert not proof.holds("gang", "Job.batch")
    await asyncio.sleep(5)
    assert proof.holds("gang", "Job.batch")


@pytest.mark.parametrize("node", ["", "node-1"])
async def test_a_pod_that_was_deleted_before_it_had_a_node_is_none_though_a_finalizer_keeps_it(node: str) -> None:
    """As the view counts pods: else a gang without any would keep its room for ever."""
    pods = Pods()
    pods.phase, pods.metadata = "Pending", {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    pods.spec |= {"nodeName": node} if node else {}
    feeds = SimpleNamespace(view=View(), informers={})
    proof = PodProof(pods, feeds, GangRecords(), lambda uid: None)  # type: ignore[arg-type]
    assert not proof.holds("gang", "Job.batch")
    await asyncio.sleep(5)
    assert proof.holds("gang", "Job.batch") == (not node)


async def test_a_job_that_the_leader_before_knew_is_not_gone_before_its_kind_is_read_again() -> None:
    asked = []

    async def reread(kind: str) -> None:
        asked.append(kind)
        await asyncio.sleep(1)

    feeds = SimpleNamespace(reread_jobs=reread)
    proof = PodProof(Pods(), feeds, GangRecords(), lambda uid: None)  # type: ignore[arg-type]
    assert proof.caught_up("Job.batch"), "a follower waits for nothing"
    proof.expect()
    assert not proof.caught_up("Job.batch")
    assert not proof.caught_up("Job.batch")
    await asyncio.sleep(2)
    assert proof.caught_up("Job.batch")
    assert asked == ["Job.batch"]
    proof.expect()
    assert not proof.caught_up("Job.batch"), "a new leadership asks again"
    await proof.stop()


async def test_versions_of_jobs_prove_nothing_of_pods() -> None:
    """Each resource counts by itself: pods may be kept in an etcd of their own, whose numbers are far ahead."""
    pods, told = Pods(), list[str]()
    ahead = SimpleNamespace(position=1_000_000)
    feeds = SimpleNamespace(view=View(), informers={"pods": ahead}, jobs_position=lambda kind: 7)
    proof = PodProof(pods, feeds, GangRecords(), told.append)  # type: ignore[arg-type]
    assert not proof.holds("gang", "Job.batch"), "its pods may not have been seen yet"
    pods.phase = "Succeeded"
    await asyncio.sleep(5)
    assert told == ["gang"]
    assert proof.holds("gang", "Job.batch")


async def test_what_one_leadership_proved_is_proved_again_in_the_next() -> None:
    pods = Pods()
    pods.phase = "Succeeded"
    proof = PodProof(pods, SimpleNamespace(view=View()), GangRecords(), lambda uid: None)  # type: ignore[arg-type]
    assert not proof.holds("gang", "Job.batch")
    await asyncio.sleep(5)
    assert proof.holds("gang", "Job.batch")
    proof.expect()
    assert not proof.holds("gang", "Job.batch")
    await proof.stop()
