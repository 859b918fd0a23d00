"""What a hub cannot read is said first, however many members there are."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, plain_job
from tests.unit.fleet.test_hub_quota import events_of
from webhook.errors import Forbidden
from webhook.fleet.jobs.asking.choice import TOLD_MAX
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
KARMADA = "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies"


@pytest.mark.parametrize("others", [1, TOLD_MAX])
async def test_a_job_is_told_what_its_hub_cannot_read_though_its_policy_leaves_many_members_out(others: int) -> None:
    members = [f"m{number:02}" for number in range(others + 1)]
    async with fleet(*members, starts=False, watched=False) as world:
        spec = {
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "placement": {"clusterAffinity": {"clusterNames": members[:1]}},
        }
        metadata = {"name": "first", "namespace": "team-a"}
        kind = {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy"}
        await world.hub.cluster.create({**kind, "metadata": metadata, "spec": spec})
        world.start()
        request = world.own.request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if path == KARMADA:
                raise Forbidden(403, "Forbidden", "tutti-hub cannot list it")
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job("train"))
        await asyncio.sleep(90)
        elsewhere = dispatch_of(await world.hub.get("Job", "train") or {}).elsewhere
        told = [each["message"] for each in await events_of(world, "NoMember")]
        assert any("cannot read clusterpropagationpolicies" in each for each in elsewhere), elsewhere
        assert any("cannot read clusterpropagationpolicies" in each for each in told), told
