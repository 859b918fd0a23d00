"""What keeps a recalled gang in its member is named where its owner looks; a refused deletion is tried now and then."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job
from webhook.commands.show.dispatched import lines
from webhook.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from webhook.fleet.jobs.asking.refusal import REFUSED_SECONDS
from webhook.fleet.jobs.leaving import AGAIN_SECONDS, LONG_SECONDS, LOOK_SECONDS, kept_by
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time
REFUSALS = [
    Forbidden(403, "Forbidden", 'jobs.batch "train" is forbidden: no deletions on Thursdays'),
    Invalid(422, "Invalid", 'jobs.batch "train" is forbidden: no deletions on Thursdays'),
    Unavailable(500, "InternalError", 'failed calling webhook "their.policy": it is down on Thursdays'),
    Unavailable(504, "Timeout", "request did not complete within the allotted timeout on Thursdays"),
    Conflict(409, "Conflict", 'admission webhook "their.policy" denied the request: no deletions on Thursdays'),
    NotFound(404, "NotFound", 'admission webhook "their.policy" denied the request: no deletions on Thursdays'),
    Unavailable(429, "TooManyRequests", 'admission webhook "their.policy" denied the request: none on Thursdays'),
    Unavailable(503, "ServiceUnavailable", 'admission webhook "their.policy" denied the request: none on Thursdays'),
    Forbidden(401, "Unauthorized", 'admission webhook "their.policy" denied the request: none on Thursdays'),
]
WHY = [
    "by a policy",
    "by a schema",
    "for want of a webhook",
    "for a webhook that hangs",
    "as if it had moved on",
    "as if it were gone",
    "as if there were too many",
    "as if nobody answered",
    "as if nobody knew the hub",
]
REFUSED = pytest.mark.parametrize("answer", REFUSALS, ids=WHY)


async def runs(world: Fleet) -> bool:
    return await world.members["a"].running() == 2


async def gone(world: Fleet) -> bool:
    return await world.hub.get("Job", "train") is None


async def told(world: Fleet) -> list[str]:
    listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
    return [each["message"] for each in orjson.loads(listed)["items"] if each["reason"] == "MemberKeepsJob"]


async def explained(world: Fleet) -> str:
    return dict(lines(KINDS["Job.batch"], await world.hub.get("Job", "train") or {}))["member"]


def refuse(world: Fleet, method: str, answer: ApiError) -> list[str]:
    """Have the member refuse a method on the copy; return what it was asked."""
    link, asked = world.links["a"], list[str]()
    honest = link.request

    async def request(used: str, path: str, **how: Any) -> bytes:
        if used == method and path.endswith("/jobs/train"):
            asked.append(path)
            raise answer
        return await honest(used, path, **how)

    link.request = request  # type: ignore[method-assign]
    return asked


@REFUSED
async def test_a_refused_deletion_is_told_at_once_and_tried_now_and_then_until_it_is_not(answer: ApiError) -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        await world.until(lambda: runs(world))
        honest, asked = world.links["a"].request, refuse(world, "DELETE", answer)
        await world.hub.delete("Job", "train")
        await asyncio.sleep(5)
        (message,) = await told(world)
        assert message.startswith(f"a refuses to delete its copy ({answer}")
        assert "kubectl amc describe job train -n team-a -m a" in message
        assert (await explained(world)).startswith("it leaves a: it is being deleted in the hub; a refuses to delete")
        await asyncio.sleep(60)
        assert 1 < len(asked) <= 65 / REFUSED_SECONDS + 2
        world.links["a"].request = honest  # type: ignore[method-assign]
        await world.until(lambda: gone(world), 60)


@REFUSED
async def test_a_refused_permit_is_tried_now_and_then(answer: ApiError) -> None:
    async with fleet("a") as world:
        asked = refuse(world, "PATCH", answer)
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        await asyncio.sleep(60)
        assert 1 < len(asked) <= 60 / REFUSED_SECONDS + 4


@REFUSED
async def test_a_gang_whose_permit_is_refused_goes_to_another_member_and_says_why(answer: ApiError) -> None:
    async with fleet("a", "b") as world:
        asked = refuse(world, "PATCH", answer)
        await world.hub.cluster.create(plain_job(runtime="6000s"))

        async def elsewhere() -> bool:
            return await world.places("Job", "train") == ["b"]

        await world.until(elsewhere, 90)
        assert asked
        assert f"a refused its permit ({answer}" in dispatch_of(await world.hub.get("Job", "train") or {}).elsewhere[0]


async def test_a_gang_whose_permit_is_refused_says_so_where_it_is_granted_and_no_longer_once_it_is_not() -> None:
    async with fleet("a") as world:
        honest, _ = world.links["a"].request, refuse(world, "PATCH", REFUSALS[0])
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        await asyncio.sleep(10)
        again = f"and is asked again every {REFUSED_SECONDS:.0f} s"
        assert await explained(world) == f"it is granted to a, which refuses its permit ({REFUSALS[0]}), {again}"
        world.links["a"].request = honest  # type: ignore[method-assign]
        await world.until(lambda: runs(world))
        await asyncio.sleep(5)
        assert await explained(world) == "a has it"


async def test_the_pods_and_finalizers_that_keep_a_gang_are_named() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        await world.until(lambda: runs(world))
        first, second = pods = await world.members["a"].pods()
        for pod in pods:
            await world.members["a"].keep_pod(pod, ["example.org/slow"])
        await world.hub.delete("Job", "train")
        await asyncio.sleep(LONG_SECONDS / 2)
        assert await told(world) == [], "pods take their time to end"
        await asyncio.sleep(LONG_SECONDS)
        kept = f"still has pod {first}, which has finalizer example.org/slow; pod {second}, which has finalizer"
        assert (await told(world))[0].startswith(f"a {kept}")
        assert (await told(world))[0].endswith("kubectl amc get pod -n team-a -m a"), "the copy itself is gone"
        assert kept in await explained(world)
        await world.members["a"].keep_pod(first, [])
        await asyncio.sleep(70)
        assert dispatch_of(await world.hub.get("Job", "train") or {}).waits == (
            f"still has pod {second}, which has finalizer example.org/slow"
        )
        await world.members["a"].keep_pod(second, [])
        await world.until(lambda: gone(world), 60)


async def test_a_gang_that_is_kept_long_is_looked_at_now_and_then_and_seen_to_go_within_seconds() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        await world.until(lambda: runs(world))
        (first, *_), link = await world.members["a"].pods(), world.links["a"]
        await world.members["a"].keep_pod(first, ["example.org/slow"])
        await world.hub.delete("Job", "train")
        await asyncio.sleep(LONG_SECONDS)
        honest, looks = link.request, list[str]()

        async def request(used: str, path: str, **how: Any) -> bytes:
            looks.extend([path] if path.endswith("/jobs/train") else [])
            return await honest(used, path, **how)

        link.request = request  # type: ignore[method-assign]
        await asyncio.sleep(60)
        assert 60 / AGAIN_SECONDS <= len(looks) <= 60 / LOOK_SECONDS + 60 / AGAIN_SECONDS + 2
        await world.members["a"].keep_pod(first, [])
        await world.until(lambda: gone(world), LOOK_SECONDS + 2)


async def test_the_finalizer_that_keeps_a_copy_is_named() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        await world.until(lambda: runs(world))
        side = world.members["a"]
        await side.patch("Job", "train", {"metadata": {"finalizers": ["example.org/audit"]}})
        await world.hub.delete("Job", "train")
        await asyncio.sleep(LONG_SECONDS + 30)
        assert "a still has its copy, which has finalizer example.org/audit" in await explained(world)
        await side.patch("Job", "train", {"metadata": {"finalizers": []}})
        await world.until(lambda: gone(world), 60)


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"nodeName": "n1"}}


OWNED = {"ownerReferences": [{"kind": "Job", "name": "train"}]}


@pytest.mark.parametrize(
    ("copy", "pods", "words"),
    [
        (None, [], "still has its reservation, which that member's Tutti has not dropped"),
        ({"metadata": {}}, [], ""),
        ({"metadata": {"finalizers": [*"xyzuv"]}}, [], "still has its copy, which has finalizer x, y, z, 2 more"),
        (None, [pod("p")], "still has pod p, which nothing deletes because no job owns it: delete it there"),
        (None, [pod("p", **OWNED)], "still has pod p, which nothing deletes"),
        (
            None,
            [pod("p", deletionTimestamp="2026-01-01T00:00:30Z")],
            "still has pod p, which node n1 must end by 2026-01-01T00:00:30Z",
        ),
        (
            None,
            [pod(name, **OWNED) for name in "abcd"],
            f"still has {'; '.join(f'pod {name}, which nothing deletes' for name in 'abc')}; more pods",
        ),
        (None, [{"metadata": 5}], "still has pod , which nothing deletes because no job owns it: delete it there"),
        (None, [{"spec": [], "metadata": {"name": ["x"], "finalizers": [5]}}], "still has pod , which has finalizer "),
    ],
)
def test_what_is_left_is_said_in_words_whatever_a_member_says(copy: Any, pods: Any, words: str) -> None:
    assert kept_by(copy, pods) == words


async def test_a_gang_that_an_earlier_copy_keeps_waiting_says_which_member_refuses_to_let_it_go() -> None:
    async with fleet("a", "b") as world:
        for side in world.members.values():
            await side.cluster.create(filling())
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        refuse(world, "DELETE", REFUSALS[0])

        async def offered_to_b() -> bool:
            return dispatch_of(await world.hub.get("Job", "train") or {}).member == "b"

        await world.until(offered_to_b, 30)
        world.kill()
        world.start()
        honest, asked = world.links["a"].request, refuse(world, "DELETE", REFUSALS[0])
        await asyncio.sleep(60)
        assert asked
        assert f"a refuses to let an earlier copy of it go: {REFUSALS[0]}" in await explained(world)
        world.links["a"].request = honest  # type: ignore[method-assign]
        await world.members["b"].delete("Job", "full")

        async def elsewhere() -> bool:
            return await world.places("Job", "train") == ["b"]

        await world.until(elsewhere, 90)


def filling() -> dict[str, Any]:
    """A member's own job, which takes all that its queue has."""
    made = plain_job("full", pods=4, runtime="6000s")
    del made["spec"]["managedBy"]
    return made
