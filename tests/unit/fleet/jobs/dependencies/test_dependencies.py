"""What a job refers to is brought into the member that runs it, where its policy says ``propagateDeps``."""

import asyncio
import copy
import re
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, Side, fleet, plain_job
from tests.unit.fleet.failing import failover_policy
from webhook.core.notation import names
from webhook.errors import ApiError, Forbidden, NotFound
from webhook.fleet.jobs.dependencies import bringing, holding
from webhook.fleet.jobs.dependencies.bringing import AT_ONCE, BROUGHT_MAX
from webhook.fleet.jobs.fleet import TURNS
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.api import WritePoint

pytestmark = pytest.mark.virtual_time
PLURALS = {"ConfigMap": "configmaps", "Secret": "secrets", "ServiceAccount": "serviceaccounts"}


def needy(name: str = "train", runtime: str = "30s", maps: int = 1, pods: int = 2, **fields: Any) -> dict[str, Any]:
    """A job that mounts a ConfigMap and runs as a ServiceAccount."""
    job = copy.deepcopy(plain_job(name, pods, runtime))
    volumes = [{"name": f"v{at}", "configMap": {"name": f"settings-{at}" if at else "settings"}} for at in range(maps)]
    job["spec"]["template"]["spec"] |= {"volumes": volumes, "serviceAccountName": "trainer", **fields}
    return job


def path(kind: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/{PLURALS[kind]}{f'/{name}' if name else ''}"


async def make(side: Side, kind: str, name: str, **fields: Any) -> None:
    metadata = {"name": name, "namespace": NAMESPACE, **fields.pop("metadata", {})}
    await side.cluster.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})


async def get(side: Side, kind: str, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = orjson.loads(await side.admin.request("GET", path(kind, name)))
    except NotFound:
        return None
    return found


async def change(side: Side, kind: str, name: str, what: dict[str, Any]) -> None:
    await side.admin.request("PATCH", path(kind, name), body=orjson.dumps(what), content_type=MERGE_PATCH)


async def remove(side: Side, kind: str, name: str) -> None:
    await side.admin.request("DELETE", path(kind, name))


async def give(world: Fleet, **policy: Any) -> None:
    """Make what jobs refer to in the hub, and the policy."""
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept", "tutti.dev/x": "1"}
    marks = {"labels": {"team": "a", "kueue.x-k8s.io/queue-name": "x"}, "annotations": notes}
    await make(world.hub, "ConfigMap", "settings", data={"rate": "0.1"}, metadata=marks)
    await make(world.hub, "ServiceAccount", "trainer", imagePullSecrets=[{"name": "registry"}], secrets=[{"name": "x"}])
    await make(
        world.hub, "Secret", "registry", type="kubernetes.io/dockerconfigjson", data={".dockerconfigjson": "e30="}
    )
    await world.hub.cluster.create(failover_policy("Job", **policy))
    await asyncio.sleep(1)


async def told(world: Fleet) -> list[str]:
    listed = orjson.loads(await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events"))["items"]
    return [each["message"] for each in listed if each["reason"] == "DependencyMissing"]


def runs_in(world: Fleet, member: str, name: str = "train") -> Any:
    async def runs() -> bool:
        return await world.places("Job", name) == [member]

    return runs


async def gone(world: Fleet, member: str = "a") -> bool:
    side = world.members[member]
    found = [("ConfigMap", "settings"), ("ServiceAccount", "trainer"), ("Secret", "registry")]
    return not any([await get(side, *each) for each in found])


def refuse(world: Fleet, side: Side, error: ApiError, methods: set[str], plurals: set[str]) -> None:
    """Have one cluster refuse the hub some requests for objects of these kinds in the tenants' namespace."""
    link = world.own if side is world.hub else world.links[side.name]
    request = link.request

    async def asked(method: str, where: str, **how: Any) -> bytes:
        if method in methods and any(f"/{NAMESPACE}/{plural}" in where for plural in plurals):
            raise error
        return await request(method, where, **how)

    link.request = asked  # type: ignore[method-assign]


async def test_what_a_job_refers_to_is_there_before_it_starts_and_gone_after_it() -> None:
    async with fleet("a") as world:
        await give(world)
        job = needy()
        await world.hub.cluster.create(job)
        await world.until(runs_in(world, "a"))
        side = world.members["a"]
        found, placed = await get(side, "ConfigMap", "settings"), await side.get("Job", "train")
        hub = world.running_hub.fleet.uid
        assert found is not None
        assert placed is not None
        assert found["data"] == {"rate": "0.1"}
        meta = found["metadata"]
        assert meta["labels"] == {"team": "a", names.ORIGIN_LABEL: hub}
        assert meta["annotations"] == {"note": "kept"}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": placed["metadata"]["uid"]}
        assert meta["ownerReferences"] == [owner]
        account = await get(side, "ServiceAccount", "trainer")
        assert account is not None
        assert account["imagePullSecrets"] == [{"name": "registry"}]
        assert "secrets" not in account
        pulls = await get(side, "Secret", "registry")
        assert pulls is not None
        assert pulls["type"] == "kubernetes.io/dockerconfigjson"
        await world.until(lambda: world.over("Job", "train"), 120)
        await world.until(lambda: gone(world))
        assert await told(world) == []


@pytest.mark.parametrize("policy", [{"propagateDeps": False}, None])
async def test_without_a_policy_that_says_so_nothing_is_read_or_brought(policy: dict[str, Any] | None) -> None:
    async with fleet("a") as world:
        await give(world, **(policy or {"resourceSelectors": []}))
        refuse(world, world.hub, AssertionError("read"), {"GET"}, {*PLURALS.values()})  # type: ignore[arg-type]
        await world.hub.cluster.create(needy())
        await world.until(runs_in(world, "a"))
        assert await gone(world)
        await world.until(lambda: world.over("Job", "train"), 120)


async def test_jobs_that_share_an_object_own_it_together_and_the_last_takes_it_along() -> None:
    async with fleet("a") as world:
        await give(world)
        for name, runtime in (("one", "10s"), ("two", "60s")):
            await world.hub.cluster.create(needy(name, runtime))
        await world.until(runs_in(world, "a", "two"))
        await world.until(lambda: world.over("Job", "one"))
        await asyncio.sleep(5)
        found = await get(world.members["a"], "ConfigMap", "settings")
        assert found is not None
        assert [each["name"] for each in found["metadata"]["ownerReferences"]] == ["two"]
        await world.until(lambda: world.over("Job", "two"), 120)
        await world.until(lambda: gone(world))


async def test_what_changed_in_the_hub_is_brought_up_to_date_with_the_next_job() -> None:
    async with fleet("a") as world:
        await give(world)
        side = world.members["a"]
        await world.hub.cluster.create(needy("one", "100s"))
        await world.until(runs_in(world, "a", "one"))
        await change(
            world.hub, "ConfigMap", "settings", {"data": {"rate": None, "speed": "2"}, "binaryData": {"b": "AA=="}}
        )
        await change(side, "ServiceAccount", "trainer", {"imagePullSecrets": [{"name": "of-the-member"}]})
        await world.hub.cluster.create(needy("two"))
        await world.until(lambda: started(world, "two"))
        found, account = await get(side, "ConfigMap", "settings"), await get(side, "ServiceAccount", "trainer")
        assert found is not None
        assert (found["data"], found["binaryData"]) == ({"speed": "2"}, {"b": "AA=="})
        assert [each["name"] for each in found["metadata"]["ownerReferences"]] == ["one", "two"]
        assert account is not None
        assert [each["name"] for each in account["imagePullSecrets"]] == ["of-the-member", "registry"]


async def started(world: Fleet, name: str) -> bool:
    return await world.places("Job", name) == ["a"]


async def test_what_the_member_has_of_its_own_is_used_as_it_is() -> None:
    async with fleet("a") as world:
        await give(world)
        side = world.members["a"]
        await make(side, "ConfigMap", "settings", data={"rate": "of the member"})
        theirs = {"labels": {names.ORIGIN_LABEL: "another-hub"}}
        await make(side, "ServiceAccount", "trainer", metadata=theirs)
        before = await get(side, "ConfigMap", "settings"), await get(side, "ServiceAccount", "trainer")
        await world.hub.cluster.create(needy(runtime="5s"))
        await world.until(lambda: world.over("Job", "train"), 60)
        await asyncio.sleep(5)
        assert (await get(side, "ConfigMap", "settings"), await get(side, "ServiceAccount", "trainer")) == before


async def test_what_is_in_neither_cluster_is_told_and_what_the_member_alone_has_is_not() -> None:
    async with fleet("a") as world:
        await give(world)
        await make(world.members["a"], "ConfigMap", "settings-1", data={})
        spared = {
            "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "spare", "key": "x", "optional": True}}}]
        }
        await world.hub.cluster.create(needy(maps=3, initContainers=[{"name": "i", "image": "i:1", **spared}]))
        await world.until(runs_in(world, "a"))
        await asyncio.sleep(1)
        assert await told(world) == [
            "In a: ConfigMap settings-2 is not in the hub, and a has none of its own: create it in the hub, or in a"
        ]


async def test_a_service_account_is_made_only_if_the_jobs_own_namespace_has_one_of_that_name() -> None:
    """A name that waits in a member for somebody to use it is not had by naming it."""
    async with fleet("a") as world:
        await give(world)
        await make(world.hub, "ServiceAccount", "awaited", metadata={"namespace": names.SYSTEM_NAMESPACE})
        await world.hub.cluster.create(needy(serviceAccountName="awaited"))
        await asyncio.sleep(10)
        assert await get(world.members["a"], "ServiceAccount", "awaited") is None
        assert "ServiceAccount awaited is not in the hub, and a has none of its own" in (await told(world))[0]


async def test_a_secret_that_the_hub_may_not_read_is_passed_over_and_told_with_the_fix() -> None:
    async with fleet("a") as world:
        await give(world)
        refuse(world, world.hub, Forbidden(403, "Forbidden", "no"), {"GET"}, {"secrets"})
        await world.hub.cluster.create(needy())
        await world.until(runs_in(world, "a"))
        await asyncio.sleep(1)
        assert await told(world) == [
            "In a: Secret registry may not be read by this hub: bind the ClusterRole tutti-hub-secrets to it in this "
            "namespace, in the hub and in a"
        ]
        assert await get(world.members["a"], "ServiceAccount", "trainer") is not None


async def test_a_token_of_a_service_account_is_never_brought() -> None:
    async with fleet("a") as world:
        await give(world)
        await change(world.hub, "Secret", "registry", {"type": "kubernetes.io/service-account-token"})
        await world.hub.cluster.create(needy())
        await world.until(runs_in(world, "a"))
        await asyncio.sleep(1)
        assert await get(world.members["a"], "Secret", "registry") is None
        assert "is a token of a ServiceAccount" in (await told(world))[0]


async def test_an_object_that_nobody_can_change_stays_and_is_told() -> None:
    async with fleet("a") as world:
        await give(world)
        hub, side = world.running_hub.fleet.uid, world.members["a"]
        await make(
            side,
            "ConfigMap",
            "settings",
            data={"rate": "9"},
            immutable=True,
            metadata={"labels": {names.ORIGIN_LABEL: hub}},
        )
        await world.hub.cluster.create(needy())
        await world.until(runs_in(world, "a"))
        await asyncio.sleep(1)
        found = await get(side, "ConfigMap", "settings")
        assert found is not None
        assert found["data"] == {"rate": "9"}
        assert len(found["metadata"]["ownerReferences"]) == 1
        assert "ConfigMap settings is immutable there, and differs from the hub's" in (await told(world))[0]


@pytest.mark.parametrize("methods", [{"POST"}, {"GET"}], ids=str)
async def test_a_member_that_refuses_one_is_left_for_another(methods: set[str]) -> None:
    async with fleet("a", "b") as world:
        await give(world)
        refuse(world, world.members["a"], Forbidden(403, "Forbidden", "not here"), methods, {"configmaps"})
        await world.hub.cluster.create(needy(runtime="10s"))
        await world.until(runs_in(world, "b"), 90)
        assert not await world.members["a"].pods()
        stored = await world.hub.get("Job", "train")
        assert stored is not None
        assert "ConfigMap settings: 403 Forbidden: not here" in stored["metadata"]["annotations"][names.DISPATCH]
        await world.until(lambda: world.over("Job", "train"), 60)
        for member in world.members:
            await world.until(lambda member=member: gone(world, member))


async def test_a_member_that_refuses_one_is_asked_again_and_has_it_once_it_takes_it() -> None:
    async with fleet("a") as world:
        await give(world)
        request = world.links["a"].request
        refuse(world, world.members["a"], Forbidden(403, "Forbidden", "not here"), {"POST"}, {"configmaps"})
        await world.hub.cluster.create(needy(runtime="10s"))
        await asyncio.sleep(12)
        assert await world.places("Job", "train") == []
        assert world.running_hub.fleet.members["a"].health.failure == "", "it answers"
        world.links["a"].request = request  # type: ignore[method-assign]
        await world.until(runs_in(world, "a"), 10)


async def test_a_member_that_refuses_one_for_good_is_asked_ever_more_rarely_and_said_when() -> None:
    """It keeps the room for half a minute each time, which others could use."""
    async with fleet("a") as world:
        await give(world)
        refuse(world, world.members["a"], Forbidden(403, "Forbidden", "exceeded quota"), {"POST"}, {"configmaps"})
        await world.hub.cluster.create(needy(runtime="10s"))
        held, said = 0, set[str]()
        for _ in range(60):
            await asyncio.sleep(30)
            held += await world.members["a"].reserved()
            stored = await world.hub.get("Job", "train") or {}
            said |= set(re.findall(r"exceeded quota\), and is asked again at [-0-9T:]+Z", str(stored["metadata"])))
        assert held <= 8
        assert 4 <= len(said) <= 7
        assert await world.places("Job", "train") == []


async def test_a_job_that_is_suspended_and_resumed_is_asked_for_at_once_where_it_was_refused() -> None:
    async with fleet("a") as world:
        await give(world)
        request = world.links["a"].request
        refuse(world, world.members["a"], Forbidden(403, "Forbidden", "exceeded quota"), {"POST"}, {"configmaps"})
        await world.hub.cluster.create(needy(runtime="10s"))
        await asyncio.sleep(600)
        world.links["a"].request = request  # type: ignore[method-assign]
        for suspended in (True, False):
            await world.hub.patch("Job", "train", {"spec": {"suspend": suspended}})
            await asyncio.sleep(5)
        await world.until(runs_in(world, "a"), 10)


async def dies_at(number: int) -> bool:
    """Run a job under a hub that dies before its write of this number is answered; return whether it came to that."""
    async with fleet("a", starts=False) as world:
        writes, bare = list[WritePoint](), list[str]()
        store = world.members["a"].cluster.server.store

        def dies(point: WritePoint) -> None:
            writes.append(point)
            if len(writes) == number:
                world.kill()

        def look(_: object) -> None:
            if store.items(("", "pods"), NAMESPACE) and not store.items(("", "configmaps"), NAMESPACE):
                bare.append("a pod without what it needs")

        store.subscribe(look, ("", "pods"))
        world.start(dies)
        await give(world)
        await world.hub.cluster.create(needy(runtime="10s"))
        async with asyncio.timeout(120):
            while not await world.over("Job", "train"):
                await asyncio.sleep(1)
                if world.dead:
                    world.start()
        await world.until(lambda: gone(world))
        assert not bare
        return len(writes) >= number


async def test_a_hub_that_dies_at_any_write_brings_all_before_the_permit() -> None:
    number = 1
    while await dies_at(number):
        number += 1
    assert number > 10


async def test_what_cannot_be_brought_for_its_number_or_length_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet("a") as world:
        await give(world)
        for at in range(1, BROUGHT_MAX + 4):
            await make(world.hub, "ConfigMap", f"settings-{at}", data={})
        await world.hub.cluster.create(needy(maps=BROUGHT_MAX + 4, runtime="5s"))
        await world.until(lambda: world.over("Job", "train"), 60)
        assert "and what comes after it are not brought: 32 objects is the most for one job" in (await told(world))[0]
        monkeypatch.setattr(bringing, "BYTES_MAX", 10)
        await world.hub.cluster.create(needy("second", maps=3))
        await world.until(lambda: started(world, "second"))
        await asyncio.sleep(1)
        assert any("0 MiB is the most for one job" in each for each in await told(world))


async def test_an_object_that_too_many_use_refuses_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "OWNERS_MAX", 1)
    async with fleet("a") as world:
        await give(world)
        await world.hub.cluster.create(needy("one", "60s"))
        await world.until(lambda: started(world, "one"))
        await world.hub.cluster.create(needy("two"))
        await asyncio.sleep(10)
        stored = await world.hub.get("Job", "two")
        assert stored is not None
        assert "1 jobs there use it" in stored["metadata"]["annotations"][names.DISPATCH]
        await world.until(lambda: world.over("Job", "two"), 200)


async def test_few_objects_of_a_namespace_are_under_way_to_a_member_together() -> None:
    """A tenant has thousands of jobs start, each with as much as may be: the hub holds none of the rest in memory."""
    async with fleet("a") as world:
        await give(world)
        asked, under_way, most = world.own.request, 0, 0

        async def slow(method: str, path: str, **more: Any) -> bytes:
            nonlocal under_way, most
            if "/configmaps/settings" not in path:
                return await asked(method, path, **more)
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.1)
            under_way -= 1
            return await asked(method, path, **more)

        world.own.request = slow  # type: ignore[method-assign]
        for at in range(1, 8):
            await make(world.hub, "ConfigMap", f"settings-{at}", data={})
        for number in range(4):
            await world.hub.cluster.create(needy(f"job-{number}", runtime="600s", pods=1, maps=8))

        async def all_run() -> bool:
            return await world.members["a"].running() == 4

        await world.until(all_run, 30)
        assert AT_ONCE < most <= TURNS
        assert not world.running_hub.fleet.turns


async def test_a_job_whose_turn_does_not_come_is_looked_at_meanwhile() -> None:
    """It may have been deleted since it was granted, and its member keeps its room no longer than half a minute."""
    async with fleet("a") as world:
        await give(world)
        turns = world.running_hub.fleet.turn("a", NAMESPACE)
        for _ in range(TURNS):
            await turns.acquire()
        await world.hub.cluster.create(needy())
        await asyncio.sleep(5)
        await world.hub.delete("Job", "train")
        await asyncio.sleep(bringing.BRINGING_SECONDS)
        assert await world.hub.get("Job", "train") is None
        assert await world.empty("Job")
