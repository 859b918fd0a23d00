"""Pods that are resized in place: what one was let grow to is given to nobody else before the watch shows it."""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.server.reviews import (
    GPU,
    Answered,
    ask,
    containers,
    pod,
    price,
    reservation,
    review,
    view,
    with_ledger,
    with_quota,
)
from webhook.assembly.webhook import webhook
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.ledger.record import ReservedPodSet
from webhook.jobs.plain_pods.pod import decode
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.server.handler import ReviewHandler
from webhook.server.pods import tally
from webhook.server.pods.tally import ENTRIES_MAX, Tally


def sized(number: int, cpu: int, version: int = 10, **more: Any) -> dict[str, Any]:
    """Return a loose pod that asks ``cpu``, at a version."""
    made = pod(f"p{number}", uid=f"u{number}")
    made["metadata"] |= {"resourceVersion": str(version)} | more
    made["spec"]["containers"] = containers(cpu=str(cpu))
    return made


async def resize(handler: ReviewHandler, number: int, before: int, after: int, at: int = 10, **request: Any) -> bool:
    old, new = sized(number, before, at), sized(number, after, at)
    body = review(new, old=old, operation="UPDATE", subresource="resize", **request)
    return (await ask(handler, "/validate/pods", body)).allowed


async def create(handler: ReviewHandler, number: int, cpu: int) -> Answered:
    return await ask(handler, "/validate/pods", review(sized(number, cpu)))


def show(handler: ReviewHandler, number: int, cpu: int, version: int, **more: Any) -> None:
    """Have the watch tell of a pod."""
    handler.view.put_pod(decode(orjson.dumps(sized(number, cpu, version, **more))))


def fenced(cpu: int = 8, pods: int = 4) -> ReviewHandler:
    """Return a handler of a namespace in which so many loose pods of 1 cpu run."""
    handler = ReviewHandler(with_quota(view(), **{"requests.cpu": cpu}))
    for number in range(pods):
        show(handler, number, 1, 10)
    return handler


async def test_pods_that_are_resized_at_once_do_not_outgrow_the_fence_together() -> None:
    handler = fenced()
    assert [await resize(handler, number, 1, 5) for number in range(4)] == [True, False, False, False]


async def test_what_a_gang_has_reserved_is_left_by_pods_that_are_resized_and_created_at_once() -> None:
    handler = fenced(cpu=12)
    held = replace(reservation(), pod_sets=(ReservedPodSet("main", 4, price(1, cpu=1), {GPU: "default"}),))
    with_ledger(handler.view, held)
    assert await resize(handler, 0, 1, 4)
    assert not await resize(handler, 1, 1, 3)
    assert not (await create(handler, 8, 2)).allowed
    assert (await create(handler, 9, 1)).allowed
    assert not await resize(handler, 1, 1, 2), "a pod that is created beside them counts as well"


async def test_it_counts_once_when_it_is_seen() -> None:
    handler = fenced()
    assert await resize(handler, 0, 1, 4)
    show(handler, 0, 1, 10)
    assert not await resize(handler, 1, 1, 3), "that version is the one that was resized"
    show(handler, 0, 4, 11)
    assert not await resize(handler, 1, 1, 3)
    assert await resize(handler, 1, 1, 2)


async def test_one_that_was_not_stored_is_forgotten_when_the_pod_is_seen_at_a_later_version_or_gone() -> None:
    handler = fenced()
    assert await resize(handler, 0, 1, 5)
    assert not await resize(handler, 1, 1, 2)
    show(handler, 0, 1, 11)
    assert await resize(handler, 1, 1, 5)
    handler.view.drop_pod("team-a", "u1")
    handler.tally.saw("team-a", "u1", 0.0)
    assert await resize(handler, 2, 1, 6)


async def test_of_several_of_one_pod_the_largest_counts_until_the_last_is_seen() -> None:
    handler = fenced()
    assert await resize(handler, 0, 1, 3)
    assert await resize(handler, 0, 3, 5, at=11)
    assert await resize(handler, 0, 5, 1, at=12), "one that shrinks"
    assert not await resize(handler, 1, 1, 2), "it gives nothing back before it is seen"
    show(handler, 0, 3, 11)
    assert not await resize(handler, 1, 1, 2)
    show(handler, 0, 5, 12)
    assert not await resize(handler, 1, 1, 2)
    show(handler, 0, 1, 13)
    assert await resize(handler, 1, 1, 5)


async def test_of_two_of_one_version_either_may_be_stored() -> None:
    handler = fenced()
    assert await resize(handler, 0, 1, 5)
    assert await resize(handler, 0, 1, 2)
    assert not await resize(handler, 1, 1, 2)
    show(handler, 0, 2, 11)
    assert await resize(handler, 1, 1, 4)


async def test_a_pod_may_always_shrink() -> None:
    handler = fenced(cpu=2)
    assert await resize(handler, 0, 1, 0)


async def test_a_pod_that_is_resized_before_it_is_seen_counts_whole_and_once() -> None:
    handler = fenced(pods=0)
    assert (await create(handler, 0, 2)).allowed
    assert not await resize(handler, 0, 2, 9)
    assert await resize(handler, 0, 2, 6)
    assert not (await create(handler, 1, 3)).allowed
    assert (await create(handler, 1, 2)).allowed


async def test_a_dry_run_is_not_remembered() -> None:
    handler = fenced()
    assert await resize(handler, 0, 1, 5, dryRun=True)
    assert await resize(handler, 1, 1, 5)


async def test_a_namespace_that_nobody_has_seen_keeps_none() -> None:
    handler = fenced(pods=0)
    body = review(
        sized(0, 5, namespace="invented"),
        old=sized(0, 1, namespace="invented"),
        operation="UPDATE",
        subresource="resize",
        namespace="invented",
    )
    assert (await ask(handler, "/validate/pods", body)).allowed
    assert len(handler.tally) == 0


async def test_as_many_are_remembered_as_pods_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = fenced(cpu=100)
    monkeypatch.setattr(tally, "ENTRIES_MAX", 2)
    assert [await resize(handler, number, 1, 2) for number in range(3)] == [True, True, False]
    assert await resize(handler, 2, 1, 0), "what shrinks is not remembered"
    assert len(handler.tally) == 2


@pytest.mark.parametrize("names", [[f"a.b/{number}" for number in range(65)], ["a.b/" + "x" * 5000]])
async def test_one_that_names_endless_resources_is_not_kept(names: list[str]) -> None:
    handler = fenced()
    large = sized(0, 1)
    large["spec"]["containers"][0]["resources"] = {"limits": dict.fromkeys(names, "1")}
    body = review(large, old=sized(0, 1), operation="UPDATE", subresource="resize")
    assert (await ask(handler, "/validate/pods", body)).code == 422
    assert len(handler.tally) == 0


def test_many_of_one_pod_name_no_more_resources_than_one() -> None:
    """Nobody resizes what the pod does not have: only forged reviews do."""
    kept = Tally(lambda namespace, uid: None)
    for number in range(200):
        kept.add_resize("team-a", "u0", price(1, **{f"a.b/{number}": 1}), 0.0, 1)
    (only,) = kept.pending("team-a", 0.0)
    assert len(only.price.requests) <= 64
    assert len(kept) == 1 < ENTRIES_MAX


def test_it_expires_fifteen_seconds_later_while_the_watch_speaks() -> None:
    heard = [100.0]
    kept = Tally(lambda namespace, uid: None, lambda: heard[0])
    kept.add_resize("team-a", "u0", price(), 0.0, 1)
    kept.saw("team-b", "made later", 2e9)
    assert len(kept.pending("team-a", 14.9)) == 1, "the watch may be that far behind: no pod tells of it"
    assert kept.pending("team-a", 15.0) == []
    kept.add_resize("team-a", "u0", price(), 99.0, 1)
    assert len(kept.pending("team-a", 200.0)) == 1, "the watch has been silent since"


@pytest.mark.virtual_time
@pytest.mark.parametrize("change", ["PATCH", "DELETE"])
async def test_the_watch_of_pods_ends_it_by_any_change_of_that_pod_and_of_no_other(change: str) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        for number in (0, 1):
            made = sized(number, 1)
            made["metadata"] = {"name": f"p{number}", "namespace": "team-a"}
            await cluster.create(made)
        api, path = cluster.api(), "/api/v1/namespaces/team-a/pods"
        parts = webhook(api, Config(), identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)
        (uid,) = (each.uid for each in parts.view.fences.pods("team-a") if each.name == "p0")
        version = int(orjson.loads(await api.request("GET", f"{path}/p0"))["metadata"]["resourceVersion"])
        parts.handler.tally.add_resize("team-a", uid, price(), asyncio.get_running_loop().time(), version)
        note = orjson.dumps({"metadata": {"annotations": {"note": "a"}}})
        await api.request("PATCH", f"{path}/p1", body=note, content_type=MERGE_PATCH)
        await asyncio.sleep(2)
        assert len(parts.handler.tally) == 1
        if change == "PATCH":
            await api.request("PATCH", f"{path}/p0", body=note, content_type=MERGE_PATCH)
        else:
            await api.request("DELETE", f"{path}/p0", body=orjson.dumps({"gracePeriodSeconds": 0}))
        await asyncio.sleep(2)
        assert len(parts.handler.tally) == 0
        running.cancel()


STEPS = st.tuples(
    st.sampled_from(["resize", "resize and lose", "touch", "show", "create"]), st.integers(0, 2), st.integers(0, 6)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_whatever_is_resized_and_however_late_it_is_seen_the_fence_holds(steps: list[tuple[str, int, int]]) -> None:
    """The watch tells of each pod in its order, as late as it likes."""
    hard, handler = 8, fenced(pods=3)
    stored = {number: [1] for number in range(3)}
    shown = dict.fromkeys(stored, 0)

    async def take(step: str, number: int, cpu: int) -> None:
        versions = stored[number]
        match step:
            case "create" if (await create(handler, len(stored), cpu)).allowed:
                stored[len(stored)], shown[len(shown)] = [cpu], -1
            case "touch":
                versions.append(versions[-1])
            case "show" if shown[number] < len(versions) - 1:
                shown[number] += 1
                show(handler, number, versions[shown[number]], 10 + shown[number])
            case "resize" | "resize and lose":
                allowed = await resize(handler, number, versions[-1], cpu, at=9 + len(versions))
                assert allowed or cpu > versions[-1]
                if allowed and step == "resize":
                    versions.append(cpu)

    async def play() -> None:
        for step in steps:
            await take(*step)
            assert sum(versions[-1] for versions in stored.values()) <= hard

    asyncio.run(play())
