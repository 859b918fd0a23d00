"""The seam under faults: what a caller can see, what it cannot know, and that a seed replays a run."""

import asyncio
import hashlib
from dataclasses import replace
from random import Random
from typing import Any

import async_solipsism
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.laboratory.simulated.clients import CONFIGMAPS, JOBS, Client, config_map, job
from webhook import errors
from webhook.laboratory.simulated.api import WritePoint
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.faults import CALM, ROUGH, FaultPlan, FaultRates

pytestmark = pytest.mark.virtual_time


def faulty(cluster: SimulatedCluster, **rates: float) -> Client:
    return Client(cluster.api(faults=FaultPlan(Random(7), replace(CALM, **rates))))


async def test_a_lost_reply_leaves_the_write_done_and_the_caller_in_doubt(
    cluster: SimulatedCluster, client: Client
) -> None:
    with pytest.raises(errors.Unavailable) as caught:
        await faulty(cluster, reply_lost=1.0).post(CONFIGMAPS, config_map("a"))
    assert caught.value.outcome_unknown
    assert await client.names(CONFIGMAPS) == ["a"]


async def test_a_dropped_request_leaves_the_caller_in_the_same_doubt(cluster: SimulatedCluster, client: Client) -> None:
    with pytest.raises(errors.Unavailable) as caught:
        await faulty(cluster, dropped=1.0).post(CONFIGMAPS, config_map("a"))
    assert caught.value.outcome_unknown
    await asyncio.sleep(60)
    assert await client.names(CONFIGMAPS) == []


async def test_a_late_write_lands_after_its_caller_gave_up(cluster: SimulatedCluster, client: Client) -> None:
    with pytest.raises(errors.Unavailable) as caught:
        await faulty(cluster, late=1.0).post(CONFIGMAPS, config_map("a"))
    assert caught.value.outcome_unknown
    assert await client.names(CONFIGMAPS) == []
    await asyncio.sleep(20)
    assert await client.names(CONFIGMAPS) == ["a"]


async def test_a_late_write_with_a_precondition_cannot_land_on_a_newer_object(
    cluster: SimulatedCluster, client: Client
) -> None:
    made = await client.post(CONFIGMAPS, config_map("a", x="1"))
    with pytest.raises(errors.Unavailable):
        await faulty(cluster, late=1.0).put(f"{CONFIGMAPS}/a", {**made, "data": {"x": "late"}})
    await client.put(f"{CONFIGMAPS}/a", {**made, "data": {"x": "2"}})
    await asyncio.sleep(20)
    assert (await client.get(f"{CONFIGMAPS}/a"))["data"] == {"x": "2"}


async def test_a_duplicated_create_is_stored_once(cluster: SimulatedCluster, client: Client) -> None:
    made = await faulty(cluster, duplicated=1.0).post(CONFIGMAPS, config_map("a"))
    await asyncio.sleep(20)
    assert await client.get(f"{CONFIGMAPS}/a") == made


@pytest.mark.parametrize(
    ("fault", "error"),
    [("throttled", errors.Unavailable), ("unavailable", errors.Unavailable), ("conflicted", errors.Conflict)],
)
async def test_a_refused_write_is_known_not_to_be_done(
    cluster: SimulatedCluster, client: Client, fault: str, error: type[errors.ApiError]
) -> None:
    with pytest.raises(error) as caught:
        await faulty(cluster, **{fault: 1.0}).post(CONFIGMAPS, config_map("a"))
    assert not caught.value.outcome_unknown
    assert await client.names(CONFIGMAPS) == []


async def test_a_request_that_takes_too_long_times_out_and_may_still_be_done(
    cluster: SimulatedCluster, client: Client
) -> None:
    slow = cluster.api(faults=FaultPlan(Random(3), FaultRates(request_delay_seconds=100.0)))
    with pytest.raises(errors.Unavailable) as caught:
        await slow.request("POST", CONFIGMAPS, body=orjson.dumps(config_map("a")), timeout_seconds=1.0)
    assert caught.value.outcome_unknown


async def test_a_severed_process_changes_nothing_more_and_learns_nothing(
    cluster: SimulatedCluster, client: Client
) -> None:
    api = cluster.api()
    dying = asyncio.create_task(Client(api).post(CONFIGMAPS, config_map("a")))
    await asyncio.sleep(0)
    api.sever()
    after = asyncio.create_task(Client(api).post(CONFIGMAPS, config_map("b")))
    await asyncio.sleep(100)
    assert not dying.done()
    assert not after.done()
    assert "b" not in await client.names(CONFIGMAPS)
    dying.cancel()
    after.cancel()


async def test_a_frozen_process_goes_on_where_it_stood(cluster: SimulatedCluster, client: Client) -> None:
    api = cluster.api()
    api.freeze()
    waiting = asyncio.create_task(Client(api).post(CONFIGMAPS, config_map("a")))
    await asyncio.sleep(100)
    assert not waiting.done()
    api.thaw()
    await waiting
    assert await client.names(CONFIGMAPS) == ["a"]


async def test_every_write_has_a_point_before_and_a_point_after(cluster: SimulatedCluster, client: Client) -> None:
    points: list[WritePoint] = []
    api = cluster.api(on_write=points.append)
    watched = Client(api)
    await watched.get(CONFIGMAPS)
    await watched.post(CONFIGMAPS, config_map("a"))
    await watched.delete(f"{CONFIGMAPS}/a")
    expected = [(1, "before", "POST"), (1, "after", "POST"), (2, "before", "DELETE"), (2, "after", "DELETE")]
    assert [(point.number, point.phase, point.method) for point in points] == expected

    def crash(point: WritePoint) -> None:
        api_b.sever()

    api_b = cluster.api(on_write=crash)
    dying = asyncio.create_task(Client(api_b).post(CONFIGMAPS, config_map("b")))
    await asyncio.sleep(1)
    assert not dying.done()
    assert await client.names(CONFIGMAPS) == []
    dying.cancel()


async def history(seed: int) -> str:
    """Return a digest of everything that a small cluster stores in two rough minutes."""
    digest = hashlib.sha256()
    async with SimulatedCluster(Random(seed), namespaces=["team-a"]) as cluster:
        cluster.server.store.subscribe(lambda event: digest.update(event.line(event.type)))
        await cluster.add_node("n1", gpu="8")
        rng = Random(seed)
        client = Client(cluster.api(faults=FaultPlan(rng, ROUGH)))
        for number in range(30):
            body = job(f"j{rng.randrange(12)}", pods=2, runtime="4s", suspend=rng.random() < 0.3)
            name = body["metadata"]["name"]
            writes: list[tuple[str, str, Any]] = [
                ("POST", JOBS, body),
                ("PATCH", f"{JOBS}/{name}", {"spec": {"suspend": number % 2 == 0}}),
                ("DELETE", f"{JOBS}/{name}", {"propagationPolicy": "Background"}),
            ]
            method, path, content = rng.choice(writes)
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            try:
                await client.call(method, path, content, content_type=kind)
            except errors.ApiError as error:
                digest.update(str(error).encode())
            await asyncio.sleep(round(rng.uniform(0, 4), 3))
    return digest.hexdigest()


def in_virtual_time(coroutine: Any) -> Any:
    loop = async_solipsism.EventLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def test_the_same_seed_gives_the_same_history_and_another_seed_another() -> None:
    first, again, other = (in_virtual_time(history(seed)) for seed in (11, 11, 12))
    assert first == again
    assert first != other


@given(st.integers(0, 2**32))
@settings(max_examples=25)
def test_a_reader_that_resumes_and_lists_again_ends_up_with_what_is_stored(seed: int) -> None:
    """The plainest correct client: list, watch from there, resume after an end, list again after 410."""

    async def run() -> None:
        rng = Random(seed)
        async with SimulatedCluster(Random(seed), history=20, namespaces=["team-a"]) as cluster:
            rates = replace(ROUGH, watch_ended=0.2, watch_gone=0.2, watch_paused=0.3)
            seen: dict[str, Any] = {}
            follower = asyncio.create_task(follow(cluster.api(faults=FaultPlan(rng, rates)), seen))
            writer = Client(cluster.api())
            for _ in range(60):
                name = f"m{rng.randrange(6)}"
                stored = await writer.names(CONFIGMAPS)
                if name not in stored:
                    await writer.post(CONFIGMAPS, config_map(name))
                elif rng.random() < 0.3:
                    await writer.delete(f"{CONFIGMAPS}/{name}")
                else:
                    await writer.merge(f"{CONFIGMAPS}/{name}", {"data": {"x": str(rng.random())}})
                await asyncio.sleep(round(rng.uniform(0, 0.5), 3))
            await asyncio.sleep(600)
            follower.cancel()
            assert seen == {item["metadata"]["name"]: item["data"] for item in await writer.items(CONFIGMAPS)}

    in_virtual_time(run())


async def follow(api: Any, seen: dict[str, Any]) -> None:
    client = Client(api)
    position = ""
    while True:
        try:
            if not position:
                listed = await client.get(CONFIGMAPS)
                seen.clear()
                seen.update({item["metadata"]["name"]: item.get("data", {}) for item in listed["items"]})
                position = listed["metadata"]["resourceVersion"]
            query = {"resourceVersion": position, "allowWatchBookmarks": "true", "timeoutSeconds": "60"}
            async for line in api.watch(CONFIGMAPS, query=query, idle_seconds=90):
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    position = ""
                    break
                item = event["object"]
                position = item["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    seen.pop(item["metadata"]["name"], None)
                elif event["type"] != "BOOKMARK":
                    seen[item["metadata"]["name"]] = item.get("data", {})
        except errors.Gone:
            position = ""
        except errors.ApiError:
            await asyncio.sleep(1)
