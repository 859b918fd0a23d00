"""That no pod of a gang is left is looked up until it is so, whatever arrives meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

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
    feeds = SimpleNamespace(informers={"pods": SimpleNamespace(position=0)}, jobs_position=lambda kind: 1)
    proof = PodProof(pods, feeds, told.append)  # type: ignore[arg-type]
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
