"""That a gang is gone is looked up until it is so, whatever arrives meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from webhook.cluster.view import View
from webhook.controllers.gang_record import GangRecords
from webhook.controllers.gangs.pod_proof import PodProof
from webhook.core.model import names

pytestmark = pytest.mark.virtual_time


class Pods:
    """An API server that lists the pods of one gang as they were when it was asked, and takes a second to answer."""

    def __init__(self) -> None:
        self.phase = "Running"

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        pod = {
            "metadata": {"name": "p", "namespace": "ns", "uid": "p", "labels": {names.GANG_LABEL: "gang"}},
            "spec": {"containers": []},
            "status": {"phase": self.phase},
        }
        await asyncio.sleep(1)
        return orjson.dumps({"metadata": {"resourceVersion": "1"}, "items": [pod]})


async def test_a_pod_that_ends_while_its_gang_is_looked_up_is_looked_up_again() -> None:
    pods, told = Pods(), list[str]()
    feeds = SimpleNamespace(view=View(), informers={"pods": SimpleNamespace(position=0)}, jobs_position=lambda kind: 1)
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


async def test_a_job_that_the_leader_before_knew_is_not_gone_before_its_kind_is_read_as_far() -> None:
    position, asked = 7, []

    async def reread(kind: str) -> None:
        asked.append(kind)
        await asyncio.sleep(1)

    feeds = SimpleNamespace(jobs_position=lambda kind: position, reread_jobs=reread)
    proof = PodProof(Pods(), feeds, GangRecords(), lambda uid: None)  # type: ignore[arg-type]
    assert proof.jobs_caught_up("Job.batch"), "a follower waits for nothing"
    proof.expect(9)
    assert not proof.jobs_caught_up("Job.batch")
    assert not proof.jobs_caught_up("Job.batch")
    position = 9
    assert proof.jobs_caught_up("Job.batch")
    position = 7
    await asyncio.sleep(2)
    # What is not served has no version: that it was asked for since is enough.
    assert proof.jobs_caught_up("Job.batch")
    assert asked == ["Job.batch"]
    proof.expect(11)
    assert not proof.jobs_caught_up("Job.batch"), "a new leadership asks again"
    await proof.stop()


async def test_pods_prove_nothing_while_they_are_not_read_as_far_as_this_leadership_began() -> None:
    feeds = SimpleNamespace(view=View(), informers={"pods": SimpleNamespace(position=5)}, jobs_position=lambda kind: 5)
    proof = PodProof(Pods(), feeds, GangRecords(), lambda uid: None)  # type: ignore[arg-type]
    assert proof.holds("gang", "Job.batch")
    proof.expect(6)
    assert not proof.holds("gang", "Job.batch")
    await proof.stop()
