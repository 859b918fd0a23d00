"""What a job refers to is brought, or told, though clusters are slow, refuse for a moment, or have what is too long."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, pytorch_job
from tests.unit.fleet.jobs.dependencies.test_dependencies import change, give, make, needy, refuse, told
from webhook.core.notation import names
from webhook.errors import Unavailable

pytestmark = pytest.mark.virtual_time
MANY = 30


def slow(link: Any, seconds: float) -> list[str]:
    """Let ConfigMaps of a member take their time; return what is asked of them."""
    asked, seen = link.request, list[str]()

    async def request(method: str, path: str, **more: Any) -> bytes:
        if f"/{NAMESPACE}/configmaps" in path:
            seen.append(f"{method} {path}")
            await asyncio.sleep(seconds)
        answer: bytes = await asked(method, path, **more)
        return answer

    link.request = request
    return seen


async def give_many(world: Fleet) -> None:
    await give(world)
    for at in range(1, MANY + 1):
        await make(world.hub, "ConfigMap", f"settings-{at}", data={})


async def test_a_member_that_takes_long_for_each_answer_has_all_before_it_gives_the_room_back() -> None:
    async with fleet("a") as world:
        await give_many(world)
        slow(world.links["a"], 0.9)
        await world.hub.cluster.create(needy(maps=MANY, runtime="5s"))
        await world.until(lambda: world.over("Job", "train"), 60)


async def test_a_member_that_takes_longer_is_said_to() -> None:
    async with fleet("a") as world:
        await give_many(world)
        slow(world.links["a"], 3)
        await world.hub.cluster.create(needy(maps=MANY, runtime="5s"))

        async def says() -> bool:
            stored = await world.hub.get("Job", "train") or {}
            return "what the job refers to was not there in 20 s" in stored["metadata"]["annotations"][names.DISPATCH]

        await asyncio.sleep(5)
        await world.until(says, 60)


async def test_a_job_with_many_references_keeps_no_other_of_its_namespace_from_starting() -> None:
    async with fleet("a") as world:
        await give_many(world)
        slow(world.links["a"], 0.7)
        await world.hub.cluster.create(needy("big", maps=MANY, runtime="5s", pods=1))
        await asyncio.sleep(1)
        await world.hub.cluster.create(needy("small", maps=2, runtime="5s", pods=1))
        await world.until(lambda: world.over("Job", "small"), 30)


async def test_an_object_that_is_answered_longer_than_a_hub_reads_is_told_and_keeps_no_job_waiting() -> None:
    """API servers answer some characters with six bytes."""
    async with fleet("a") as world:
        await give(world)
        long = {"rate": "<" * (400 << 10)}
        await change(world.hub, "ConfigMap", "settings", {"data": long})
        marks = {"labels": {names.ORIGIN_LABEL: world.running_hub.fleet.uid}}
        await make(world.members["a"], "ConfigMap", "settings", data=long, metadata=marks)
        for link in (world.own, world.links["a"]):
            asked = link.request

            async def request(method: str, path: str, asked: Any = asked, **more: Any) -> bytes:
                answer: bytes = await asked(method, path, **more)
                return answer.replace(b"<", b"\\u003c") if path.endswith("/configmaps/settings") else answer

            link.request = request  # type: ignore[method-assign]
        await world.hub.cluster.create(needy(runtime="5s"))
        await world.until(lambda: world.over("Job", "train"), 30)
        # The member has one of that name, so nothing is amiss.
        assert await told(world) == []


async def test_one_object_that_the_hubs_api_server_cannot_read_is_told_and_keeps_no_job_waiting() -> None:
    """As a Secret that cannot be decrypted at rest."""
    async with fleet("a") as world:
        await give(world)
        refuse(world, world.hub, Unavailable(500, "InternalError", "unable to transform key"), {"GET"}, {"secrets"})
        await world.hub.cluster.create(needy(runtime="5s"))
        await world.until(lambda: world.over("Job", "train"), 30)
        (said,) = await told(world)
        assert "Secret registry cannot be read in the hub: 500 InternalError: unable to transform key" in said


@pytest.mark.parametrize("status", [429, 503])
async def test_one_object_for_which_the_hubs_api_server_is_always_busy_is_told(status: int) -> None:
    async with fleet("a") as world:
        await give(world)
        busy, asked = Unavailable(status, "TooManyRequests", "storage is (re)initializing"), world.own.request
        refuse(world, world.hub, busy, {"GET"}, {"configmaps"})
        await world.hub.cluster.create(needy(runtime="5s"))
        await asyncio.sleep(15)
        stored = await world.hub.get("Job", "train") or {}
        assert "ConfigMap settings cannot be read in the hub" in stored["metadata"]["annotations"][names.DISPATCH]
        world.own.request = asked  # type: ignore[method-assign]
        await world.until(lambda: world.over("Job", "train"), 30)


async def test_what_only_the_copy_refers_to_is_told() -> None:
    """It was changed in the hub while its member had it, which changes nothing there."""
    async with fleet("a") as world:
        await give(world, resourceSelectors=[{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}])
        await world.hub.cluster.create(pytorch_job("first", 3, runtime="20s"))
        await asyncio.sleep(3)

        def mounting(name: str) -> dict[str, Any]:
            job = pytorch_job("second")
            for role in job["spec"]["pytorchReplicaSpecs"].values():
                role["template"]["spec"]["volumes"] = [{"name": "v", "configMap": {"name": name}}]
            return job

        await world.hub.cluster.create(mounting("settings"))
        await asyncio.sleep(5)
        assert await world.places("PyTorchJob", "second") == []
        replicas = mounting("other")["spec"]["pytorchReplicaSpecs"]
        await world.hub.patch("PyTorchJob", "second", {"spec": {"pytorchReplicaSpecs": replicas}})

        async def tells() -> bool:
            return any("ConfigMap settings is not brought: the job was changed" in each for each in await told(world))

        await world.until(tells, 60)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_member_that_is_asked_too_much_is_left_alone_for_a_moment(status: int) -> None:
    async with fleet("a") as world:
        await give(world)
        refuse(world, world.members["a"], Unavailable(status, "TooManyRequests", "slow down"), {"GET"}, {"configmaps"})
        seen = slow(world.links["a"], 0)
        await world.hub.cluster.create(needy(runtime="5s"))
        await asyncio.sleep(25)
        assert len(seen) <= 25 / 2 + 2
