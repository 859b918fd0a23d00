"""What one member says, or one job's record, ends nothing of the hub: the other gangs are placed."""

import asyncio
import itertools
import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job
from webhook.core.notation import names
from webhook.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from webhook.fleet.jobs.allowance import AT_ONCE, EACH_SECONDS
from webhook.fleet.jobs.asking.refusal import REFUSED_SECONDS
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


def lie(world: Fleet, member: str, about: Callable[[str], bool], answer: bytes) -> None:
    """Have a member answer so where ``about`` says so of the path."""
    link = world.links[member]
    honest = link.request

    async def request(method: str, path: str, **how: Any) -> bytes:
        return answer if method == "GET" and about(path) else await honest(method, path, **how)

    link.request = request  # type: ignore[method-assign]


ORPHAN = b'{"items":[{"metadata":{"ownerReferences":[5]}}]}'


@pytest.mark.parametrize("answer", [b'{"items":5}', b'{"items":[5]}', ORPHAN])
async def test_a_member_that_answers_with_no_list_of_objects_keeps_no_gang_from_another(answer: bytes) -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(plain_job("first", runtime="600s"))

        async def runs_in_a() -> bool:
            return await world.members["a"].running() == 2

        await world.until(runs_in_a)
        lie(world, "a", lambda path: not path.endswith("/kube-system"), answer)
        await asyncio.sleep(20)
        await world.hub.cluster.create(plain_job("second", runtime="600s"))

        async def runs_in_b() -> bool:
            assert world.process is not None
            assert not world.process.done()
            return await world.members["b"].running() == 2

        await world.until(runs_in_b)


async def test_a_member_whose_ledger_never_ends_keeps_no_gang_from_another() -> None:
    async with fleet("a", "b") as world:
        await asyncio.sleep(10)
        link, number = world.links["a"], itertools.count()
        honest = link.request

        async def request(method: str, path: str, **how: Any) -> bytes:
            if not (method == "GET" and path.endswith("/configmaps")):
                return await honest(method, path, **how)
            await asyncio.sleep(4)
            one = f"page-{next(number)}"
            return orjson.dumps({"metadata": {"continue": one}, "items": [{"metadata": {"name": one}}]})

        link.request = request  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        await world.until(lambda: world.places("Job", "train"), 40)


async def test_a_job_whose_record_was_broken_by_hand_keeps_no_other_from_being_placed() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(plain_job("broken", runtime="600s"))

        async def placed() -> bool:
            return sum([await side.running() for side in world.members.values()]) == 2

        await world.until(placed)
        await world.hub.patch("Job", "broken", {"metadata": {"annotations": {names.DISPATCH: "[]"}}})
        await asyncio.sleep(20)
        await world.hub.cluster.create(plain_job("sane", runtime="600s"))

        async def both() -> bool:
            assert world.process is not None
            assert not world.process.done()
            return sum([await side.running() for side in world.members.values()]) == 4

        await world.until(both)


async def test_a_hub_that_starts_with_a_broken_record_places_others_and_finds_the_gang_once_it_is_mended() -> None:
    async with fleet("a", "b", starts=False) as world:
        world.away.add("a")
        world.start()
        await world.hub.cluster.create(plain_job("broken", runtime="6000s"))

        async def placed() -> bool:
            return sum([await side.running() for side in world.members.values()]) == 2

        await world.until(placed)
        await world.hub.patch("Job", "broken", {"metadata": {"annotations": {names.DISPATCH: "[]"}}})
        world.kill()
        world.away.clear()
        world.start()
        await world.hub.cluster.create(plain_job("sane", runtime="6000s"))

        async def both() -> bool:
            return sum([await side.running() for side in world.members.values()]) == 4

        await world.until(both)
        events = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
        told = [each for each in orjson.loads(events)["items"] if each["reason"] == "DispatchUnreadable"]
        assert [(each["involvedObject"]["name"], each["type"]) for each in told] == [("broken", "Warning")]
        assert REGISTRY.get_sample_value("tutti_fleet_unreadable_dispatches") == 1
        await world.hub.patch("Job", "broken", {"metadata": {"annotations": {names.DISPATCH: None}}})
        await asyncio.sleep(20)
        assert await world.places("Job", "broken") == ["b"]
        assert dispatch_of(await world.hub.get("Job", "broken") or {}).member == "b"
        assert REGISTRY.get_sample_value("tutti_fleet_unreadable_dispatches") == 0


REFUSALS = [
    Forbidden(403, "Forbidden", 'admission webhook "their.policy" denied the request: no jobs on Thursdays'),
    Invalid(422, "Invalid", "spec.template: field is immutable on Thursdays"),
    Unavailable(500, "InternalError", 'failed calling webhook "their.policy": it is down on Thursdays'),
    Unavailable(504, "Timeout", "request did not complete within the allotted timeout on Thursdays"),
    NotFound(404, "NotFound", 'namespaces "team-a" not found on Thursdays'),
    Conflict(409, "Conflict", 'admission webhook "their.policy" denied the request: no copies on Thursdays'),
    Conflict(409, "AlreadyExists", 'admission webhook "their.policy" denied the request: one is enough on Thursdays'),
    Unavailable(429, "TooManyRequests", 'admission webhook "their.policy" denied the request: not on Thursdays'),
    Unavailable(503, "ServiceUnavailable", 'admission webhook "their.policy" denied the request: not on Thursdays'),
    Forbidden(401, "Unauthorized", 'admission webhook "their.policy" denied the request: not on Thursdays'),
]
WHY = [
    "by a policy",
    "by a schema",
    "for want of a webhook",
    "for a webhook that hangs",
    "for want of a namespace",
    "as if it had moved on",
    "as if it were there",
    "as if there were too many",
    "as if nobody answered",
    "as if nobody knew the hub",
]
REFUSED = pytest.mark.parametrize("answer", REFUSALS, ids=WHY)


def refuse(world: Fleet, member: str, answer: ApiError) -> list[str]:
    """Have a member refuse every new copy; return what it was asked to create."""
    link, asked = world.links[member], list[str]()
    honest = link.request

    async def request(method: str, path: str, **how: Any) -> bytes:
        if method == "POST" and path.endswith("/jobs"):
            asked.append(path)
            raise answer
        return await honest(method, path, **how)

    link.request = request  # type: ignore[method-assign]
    return asked


def unreachable(member: str) -> float | None:
    return REGISTRY.get_sample_value("tutti_fleet_member_unreachable", {"member": member})


@REFUSED
async def test_a_member_that_refuses_a_copy_answers_and_the_gang_goes_to_another_at_once(answer: ApiError) -> None:
    async with fleet("a", "b") as world:
        await asyncio.sleep(10)
        asked = refuse(world, "a", answer)
        await world.hub.cluster.create(plain_job(runtime="600s"))

        async def runs_in_b() -> bool:
            assert unreachable("a") == 0, "it answers"
            return await world.members["b"].running() == 2

        await world.until(runs_in_b, 10)
        assert len(asked) == 1


@REFUSED
async def test_where_every_member_refuses_a_copy_its_words_are_told_and_it_is_tried_now_and_then(
    answer: ApiError,
) -> None:
    async with fleet("a") as world:
        await asyncio.sleep(10)
        asked = refuse(world, "a", answer)
        await world.hub.cluster.create(plain_job())
        for _ in range(60):
            await asyncio.sleep(1)
            assert unreachable("a") == 0, "it answers"
        assert len(asked) <= 60 / REFUSED_SECONDS + 2, "now and then"
        assert len(asked) > 1, "it may have been mended"
        assert "on Thursdays" in dispatch_of(await world.hub.get("Job", "train") or {}).waits


async def says(member: str, value: int, seconds: int) -> None:
    """Look again and again whether it is shown so of a member, as who scrapes metrics does."""
    for _ in range(4 * seconds):
        assert unreachable(member) == value
        await asyncio.sleep(0.25)


async def test_a_member_with_more_copies_than_one_can_have_is_shown_until_it_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(plain_job("first", pods=1, runtime="6000s"))
        await world.hub.cluster.create(plain_job("second", pods=1, runtime="6000s"))
        await world.until(lambda: runs(world))
        await says("a", 0, 10)
        with monkeypatch.context() as few:
            few.setattr("webhook.fleet.members.member.COPIES_MAX", 1)
            await asyncio.sleep(10)
            await says("a", 1, 20)
            assert "more than 1 copies" in world.running_hub.fleet.members["a"].health.trouble
        await asyncio.sleep(10)
        await says("a", 0, 10)


async def test_a_member_whose_ledger_cannot_be_used_is_shown_until_it_can_though_no_gang_waits_for_it() -> None:
    async with fleet("a", "b") as world:
        await asyncio.sleep(10)
        honest = world.links["a"].request
        lie(world, "a", lambda path: path.endswith("/configmaps"), b'{"items":5}')
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await world.until(lambda: world.places("Job", "train"))
        await says("a", 1, 20)
        world.links["a"].request = honest  # type: ignore[method-assign]
        await asyncio.sleep(10)
        await says("a", 0, 10)


async def test_a_member_in_which_one_object_cannot_be_used_is_one() -> None:
    """Whoever may make a job there could have every gang's member called silent."""
    async with fleet("a", "b") as world:
        await asyncio.sleep(10)
        lie(world, "a", lambda path: path.endswith("/train"), b"<html>")
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await world.until(lambda: world.places("Job", "train"))
        await says("a", 0, 20)


async def test_a_copy_that_is_changed_all_the_time_is_looked_at_now_and_then() -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await world.until(lambda: runs(world))
        link, looks = world.links["a"], list[str]()
        honest = link.request

        async def request(method: str, path: str, **how: Any) -> bytes:
            if method == "GET" and path.endswith("/jobs/train"):
                looks.append(path)
            return await honest(method, path, **how)

        link.request = request  # type: ignore[method-assign]
        for number in range(1000):
            await world.members["a"].patch("Job", "train", {"metadata": {"annotations": {"x.dev/y": str(number)}}})
            await asyncio.sleep(0.01)
        assert len(looks) <= AT_ONCE + 20 / EACH_SECONDS


async def runs(world: Fleet) -> bool:
    return await world.members["a"].running() == 2


async def test_a_long_refusal_is_told_with_its_end() -> None:
    async with fleet("a", "b") as world:
        why = f"spec.template: Invalid value: {'PodSpec{}, ' * 100}: field is immutable on Thursdays"
        refuse(world, "a", Invalid(422, "Invalid", why))
        await world.hub.cluster.create(plain_job())
        await world.until(lambda: world.places("Job", "train"))
        (said,) = dispatch_of(await world.hub.get("Job", "train") or {}).elsewhere
        assert re.fullmatch(r"a says 422 Invalid: spec.template: .* \.\.\. .*: field is immutable on Thursdays", said)


@pytest.mark.parametrize("said", ["running", ["running"], 5])
async def test_a_copy_whose_status_is_no_object_breaks_no_step_of_its_job(said: Any) -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        await world.until(lambda: world.places("Job", "train"))
        await asyncio.sleep(10)
        link = world.links["a"]
        honest = link.request

        async def request(method: str, path: str, **how: Any) -> bytes:
            answer = await honest(method, path, **how)
            if method == "GET" and path.endswith("/jobs/train"):
                return orjson.dumps({**orjson.loads(answer), "status": said})
            return answer

        link.request = request  # type: ignore[method-assign]
        with capture_logs() as logs:
            await asyncio.sleep(130)
        assert "fleet.job_broken" not in {each["event"] for each in logs}
