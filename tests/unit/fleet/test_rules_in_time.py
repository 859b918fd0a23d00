"""What users say about where jobs may run holds for a job that is submitted right after it was said."""

import asyncio
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, fleet, plain_job
from tests.unit.fleet.failing import failover_policy
from webhook.fleet.policies import propagation
from webhook.fleet.policies.propagation import VERSIONS, Propagation
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
SAID_BEFORE = 0.02
"""Seconds: two objects of one file, as kubectl applies them."""
MOMENTS = pytest.mark.parametrize("moment", [0.0, 0.1, 0.2, 0.3, 0.4])
"""Of the hub's own round, in which it looks at what no watch would tell."""


@MOMENTS
async def test_a_policy_that_was_made_just_before_its_job_says_where_it_runs(moment: float) -> None:
    async with fleet("a", "b") as world:
        await asyncio.sleep(10 + moment)
        await world.hub.cluster.create(failover_policy("Job", placement=only("b")))
        await asyncio.sleep(SAID_BEFORE)
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await world.until(lambda: world.places("Job", "train"))
        assert await world.places("Job", "train") == ["b"]


@MOMENTS
async def test_a_policy_that_was_changed_just_before_a_job_says_where_it_runs(moment: float) -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(failover_policy("Job", placement=only("a")))
        await asyncio.sleep(10 + moment)
        path = f"/apis/{VERSIONS[0]}/namespaces/{NAMESPACE}/propagationpolicies/for-job"
        change = orjson.dumps({"spec": {"placement": only("b")}})
        await world.hub.admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)
        await asyncio.sleep(SAID_BEFORE)
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await world.until(lambda: world.places("Job", "train"))
        assert await world.places("Job", "train") == ["b"]


async def test_rules_that_take_a_second_to_read_are_read_again_after_nine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand policies somebody changes one all the time: the others' jobs go on."""
    async with fleet("a") as world:
        running, loop = world.running_hub, asyncio.get_running_loop()
        await asyncio.sleep(1)
        now, read = loop.time(), list[float]()

        def takes_a_second(policies: Iterable[Propagation]) -> dict[str, list[Propagation]]:
            nonlocal now
            read.append(now)
            now += 1.0
            return dict[str, list[Propagation]]()

        with monkeypatch.context() as patched:
            patched.setattr(propagation, "by_namespace", takes_a_second)
            patched.setattr(loop, "time", lambda: now)
            began = now
            while now < began + 25.0:
                running._propagation_changed(None)
                running._take_rules()
                now += 0.125
        assert [moment - began for moment in read] == [0.0, 10.0, 20.0]


def only(member: str) -> dict[str, Any]:
    return {"clusterAffinity": {"clusterNames": [member]}}
