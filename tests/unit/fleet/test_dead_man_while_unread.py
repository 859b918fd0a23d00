"""One kind of the hub's jobs that cannot be read keeps the dead-man switch from none of the others."""

import asyncio
from random import Random
from typing import Any

import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job, pytorch_job, template, tutti
from tests.unit.fleet.test_dead_man import LATE_SECONDS, PATIENCE, SURELY_SECONDS
from webhook.config import Config
from webhook.core.notation import names
from webhook.errors import Unavailable
from webhook.fleet.dead_man import RENEW_SECONDS, DeadMan
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time

WAITS_SECONDS = 30.0
"""Until the hub's API server gives up what hangs behind it."""


def tf_job(name: str = "train") -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.QUEUE_LABELS[0]: "research"}},
        "spec": {
            "runPolicy": {"managedBy": names.HUB_MANAGER},
            "tfReplicaSpecs": {"Worker": {"replicas": 2, "template": template("6000s")}},
        },
    }


def unread(world: Fleet, plural: str, *, hangs: bool = False) -> None:
    """Let the hub's API server not answer for jobs of a kind from now on."""
    request = world.own.request

    async def asked(method: str, path: str, **how: Any) -> bytes:
        if f"/{plural}" in path:
            await asyncio.sleep(WAITS_SECONDS if hangs else 0)
            raise Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")
        return await request(method, path, **how)

    world.own.request = asked  # type: ignore[method-assign]


async def test_gangs_of_other_kinds_in_a_silent_member_are_given_up() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await asyncio.sleep(3 * RENEW_SECONDS)
        await world.hub.cluster.create(pytorch_job("other", workers=1, runtime="6000s"))
        await world.until(lambda: world.places("PyTorchJob", "other"))
        await world.hub.cluster.create(tf_job())
        await world.until(lambda: world.places("TFJob", "train"))
        assert await world.places("TFJob", "train") == ["a"]
        await asyncio.sleep(10)
        unread(world, "pytorchjobs")
        world.links["a"].freeze()
        await asyncio.sleep(SURELY_SECONDS + LATE_SECONDS + 60)
        assert await world.places("TFJob", "train") == ["b"]
        assert dispatch_of(await world.hub.get("PyTorchJob", "other") or {}).member == "a"


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_member_that_stops_its_gangs_later_by_now_is_renewed_and_offered_others(*, hangs: bool) -> None:
    async with fleet("a", silent_hub_seconds=PATIENCE, without_tutti=("a",)) as world:
        cluster = world.members["a"].cluster
        async with tutti(cluster, "a", Config(silent_hub_seconds=PATIENCE)):
            await asyncio.sleep(3 * RENEW_SECONDS)
            for name in ("other", "another"):
                await world.hub.cluster.create(pytorch_job(name, workers=0, runtime="6000s"))
                await world.until(lambda name=name: world.places("PyTorchJob", name))
            await asyncio.sleep(10)
        unread(world, "pytorchjobs", hangs=hangs)
        longer = PATIENCE + 5
        async with tutti(cluster, "a", Config(silent_hub_seconds=longer)):
            await asyncio.sleep(10)
            world.links["a"].freeze()
            await asyncio.sleep(2 * LATE_SECONDS)
            world.links["a"].thaw()
            await asyncio.sleep(60)
            await world.hub.cluster.create(plain_job("train", runtime="6000s"))
            await asyncio.sleep(60)
            said = dispatch_of(await world.hub.get("Job", "train") or {}).elsewhere
            assert await world.places("Job", "train") == ["a"], said
            shared, began = world.running_hub.fleet, asyncio.get_running_loop().time()
            await DeadMan(shared, world.running_hub._jobs, Random(1)).lengthen(shared.members["a"])
            assert asyncio.get_running_loop().time() - began <= WAITS_SECONDS, "one that hangs stands for its kind"
