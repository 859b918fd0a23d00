"""What users want changes while a gang is offered: it stays where it is, and is offered only where it may be."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import KUEUE
from tests.unit.fleet.clusters import Fleet, fleet, plain_job
from tests.unit.fleet.policies.counting import matches
from tests.unit.fleet.test_hub import runs_in
from tests.unit.fleet.test_preferred_members import WEST, by, named
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.fleet.members.copies import dispatch_of
from webhook.fleet.policies.propagation import VERSIONS
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time


def left_out(*members: str) -> dict[str, Any]:
    spec = {
        "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
        "placement": {"clusterAffinity": {"exclude": list(members)}},
    }
    metadata = {"name": "left-out", "namespace": "team-a"}
    return {"apiVersion": VERSIONS[0], "kind": "PropagationPolicy", "metadata": metadata, "spec": spec}


async def offered(world: Fleet) -> Dispatch:
    return dispatch_of(await world.hub.get("Job", "waits") or {})


@pytest.mark.parametrize("out", [("a",), ("a", "b")])
async def test_no_new_offer_goes_to_a_member_that_is_left_out_since(out: tuple[str, ...]) -> None:
    async with fleet("a", "b") as world:
        for name in ("first", "second"):
            await world.hub.cluster.create(plain_job(name, pods=4, runtime="6000s"))
            await asyncio.sleep(5)
        await runs_in(world, 4, 4)
        await world.hub.cluster.create(plain_job("waits", pods=4))

        async def is_asked() -> bool:
            return (await offered(world)).phase is DispatchPhase.OFFERED

        await world.until(is_asked)
        before = await offered(world)
        await world.hub.cluster.create(left_out(*out))
        for _ in range(120):
            await asyncio.sleep(1)
            found = await offered(world)
            assert found.member not in out or found.offer == before.offer


async def change(world: Fleet, path: str, **to: Any) -> None:
    await world.hub.admin.request("PATCH", path, body=orjson.dumps(to), content_type=MERGE_PATCH)


async def test_jobs_that_wait_compare_no_labels_again_and_yet_hear_of_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fleet("a", "b") as world:
        for each in (by(WEST), named("a", zone="east"), named("b", zone="north")):
            await world.hub.cluster.create(each)
        await asyncio.sleep(5)
        compared = matches(monkeypatch)
        for name in ("first", "second"):
            await world.hub.cluster.create(plain_job(name, pods=4, runtime="6000s"))
        await asyncio.sleep(60)
        assert len([each for each in compared if each.match_labels == {"zone": "west"}]) == 2, "once with each member"
        await change(world, f"/apis/{KUEUE}/multikueueclusters/a", metadata={"labels": {"zone": "west"}})
        await asyncio.sleep(10)
        await runs_in(world, 4, 0)
        north = {"clusterAffinity": {"labelSelector": {"matchLabels": {"zone": "north"}}}}
        policy = f"/apis/{VERSIONS[0]}/namespaces/team-a/propagationpolicies/for-job"
        await change(world, policy, spec={"placement": north})
        await asyncio.sleep(10)
        await runs_in(world, 4, 4)
