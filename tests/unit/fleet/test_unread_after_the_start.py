"""A kind that the hub has listed at its start and cannot read since holds up no other kind, and its jobs are told."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, NAMESPACE, Fleet, fleet, plain_job, pytorch_job, suspend, template
from webhook.clock import LoopClock
from webhook.core.notation import names
from webhook.errors import Unavailable
from webhook.fleet.lost import give_up
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time
WORDS = "conversion webhook for it failed: no endpoints available"
HUNG = Unavailable(504, "Timeout", "request did not complete within the allotted timeout")


@pytest.mark.parametrize("error", [Unavailable(500, "InternalError", WORDS), HUNG])
async def test_jobs_of_other_kinds_are_offered_when_a_member_joins_again_with_a_copy_of_it(error: Unavailable) -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job("runs", workers=1, runtime="6000s"))
        await world.until(lambda: world.places("PyTorchJob", "runs"))
        await asyncio.sleep(10)
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        await world.hub.patch("Job", "train", suspend(plain_job, True))
        await asyncio.sleep(20)
        breaks(world, error)
        world.running_hub.leave("a")
        await asyncio.sleep(5)
        world.running_hub.join("a", world.members["a"].cluster.api(HUB_ACCOUNT))
        await asyncio.sleep(5)
        await world.hub.patch("Job", "train", suspend(plain_job, False))
        await world.until(lambda: world.places("Job", "train"), 60)
        assert not world.running_hub.fleet.swept.due
        assert await world.places("PyTorchJob", "runs") == ["a"], "nothing is decided without its record"


async def test_a_lost_member_that_comes_back_stops_what_it_has_of_other_kinds_then_what_it_has_of_this_one() -> None:
    async with fleet("a", "b", watched=False) as world:
        await world.hub.cluster.create(pytorch_job("runs", workers=1, runtime="6000s"))
        await world.until(lambda: world.places("PyTorchJob", "runs"))
        await world.hub.cluster.create(tf_job("train"))
        await world.until(lambda: world.places("TFJob", "train"))
        assert await world.places("TFJob", "train") == ["a"]
        await asyncio.sleep(10)
        world.links["a"].freeze()
        await asyncio.sleep(10)
        [_ async for _ in give_up(world.hub.admin, KINDS, "a", LoopClock(), dry_run=False, force=True)]
        await asyncio.sleep(60)
        assert sorted(await world.places("TFJob", "train")) == ["a", "b"]
        mend = breaks(world, Unavailable(500, "InternalError", WORDS))
        await asyncio.sleep(60)
        world.links["a"].thaw()
        await asyncio.sleep(60)
        assert await world.places("TFJob", "train") == ["b"]
        mend()
        await asyncio.sleep(60)
        assert await world.places("PyTorchJob", "runs") == ["b"]


async def test_a_sweep_that_comes_to_no_end_is_told_to_the_jobs_that_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        world.start()

        async def broken(*_: Any) -> Any:
            raise ValueError("no such bug")

        monkeypatch.setattr(world.running_hub.fleet.members["b"], "leftovers", broken)
        await asyncio.sleep(100)
        (said,) = dispatch_of(await world.hub.get("Job", "train") or {}).elsewhere
        assert said.startswith("b ")
        assert "could not be looked through: no such bug" in said


def breaks(world: Fleet, error: Unavailable) -> Any:
    """Let the hub's API server show no PyTorchJob any more; return what mends it."""
    request = world.own.request

    async def asked(method: str, path: str, **how: Any) -> bytes:
        if "/v1/" in path and "pytorchjobs" in path:
            raise error
        return await request(method, path, **how)

    def mend() -> None:
        world.own.request = request  # type: ignore[method-assign]

    world.own.request = asked  # type: ignore[method-assign]
    return mend


def tf_job(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.QUEUE_LABELS[0]: "research"}},
        "spec": {
            "runPolicy": {"managedBy": names.HUB_MANAGER},
            "tfReplicaSpecs": {"Worker": {"replicas": 2, "template": template("6000s")}},
        },
    }
