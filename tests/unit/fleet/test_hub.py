"""A hub places its jobs whole in one of its members, in simulated clusters with a Tutti each."""

import asyncio
from typing import Any

import orjson
import pytest
import structlog.testing

from tests.unit.controllers.stage import waiting_job
from tests.unit.fleet.clusters import Fleet, fleet, plain_job, pytorch_job
from webhook.clock import LoopClock
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.ledger import pages
from webhook.core.notation import names
from webhook.errors import ApiError, Forbidden, NotFound, Unavailable, WrongName
from webhook.fleet.jobs.job import REST_SECONDS
from webhook.fleet.lost import give_up, noted, take_back
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.laboratory.simulated.api import WritePoint

pytestmark = pytest.mark.virtual_time
SEED = "PyTorchJob", "pytorch-test"


async def runs_in(world: Fleet, *pods: int) -> None:
    """Wait until the members run so many pods, in their order."""

    async def reached() -> bool:
        return [await side.running() for side in world.members.values()] == list(pods)

    await world.until(reached)


async def test_a_pytorch_job_runs_whole_in_one_member_and_its_status_comes_back() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job())
        await runs_in(world, 3, 0)
        assert await world.hub.pods() == []
        assert await world.places(*SEED) == ["a"]
        await asyncio.sleep(2)
        job = await world.hub.get(*SEED)
        assert job is not None
        assert "Running" in {each["type"] for each in job["status"]["conditions"] if each["status"] == "True"}


async def test_an_event_says_in_which_member_all_its_pods_run() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        await asyncio.sleep(1)
        listed = orjson.loads(await world.hub.admin.request("GET", "/api/v1/namespaces/team-a/events"))["items"]
        said = [each["message"] for each in listed if each["reason"] == "ScheduleBindingSucceed"]
        assert said == ["Binding has been scheduled successfully. Result: {a:0,[{master 1} {worker 2}]}"]


@pytest.mark.parametrize("job", [pytorch_job(), plain_job()], ids=["PyTorchJob", "Job"])
async def test_what_has_ended_shows_its_end_and_leaves_nothing_in_its_member(job: dict[str, Any]) -> None:
    kind, name = job["kind"], job["metadata"]["name"]
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(job)
        await world.until(lambda: world.over(kind, name), 300)
        assert await world.empty(kind)
        stored = await world.hub.get(kind, name)
        assert stored is not None
        assert not stored["metadata"].get("finalizers")


async def test_a_reservation_is_found_wherever_the_members_ledger_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "INDEX_BYTES", 0)
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job())
        await runs_in(world, 3, 0)
        assert await world.members["a"].reserved() == 1
        await world.until(lambda: world.over(*SEED), 120)
        assert await world.empty("PyTorchJob")


async def test_gangs_that_one_member_has_no_room_for_go_to_the_next() -> None:
    async with fleet("a", "b") as world:
        for name in ("one", "two"):
            await world.hub.cluster.create(pytorch_job(name, runtime="600s"))
        await runs_in(world, 3, 3)


async def test_what_fits_nowhere_waits_and_starts_when_a_member_frees() -> None:
    async with fleet("a", "b") as world:
        for side in world.members.values():
            await side.cluster.create(waiting_job("local", pods=4))
        await runs_in(world, 4, 4)
        await world.hub.cluster.create(pytorch_job())
        await asyncio.sleep(60)
        assert await world.places(*SEED) == []
        await world.members["b"].delete("Job", "local")
        await runs_in(world, 4, 3)


async def test_a_member_whose_watches_say_nothing_costs_its_gangs_seconds_only() -> None:
    async with fleet("a", starts=False) as world:
        world.start()
        world.silence("a")
        await world.hub.cluster.create(pytorch_job(runtime="10s"))
        await world.until(lambda: world.over(*SEED), 120)
        assert await world.empty("PyTorchJob")


@pytest.mark.parametrize("how", ["deleted", "suspended"])
async def test_a_job_that_is_stopped_in_the_hub_leaves_its_member(how: str) -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        if how == "deleted":
            await world.hub.delete(*SEED)
        else:
            await world.hub.patch(*SEED, {"spec": {"runPolicy": {"suspend": True}}})
        await world.until(lambda: world.empty("PyTorchJob"))
        await asyncio.sleep(2)
        job = await world.hub.get(*SEED)
        assert job is None if how == "deleted" else dispatch_of(job or {}).phase is DispatchPhase.NOWHERE
        if how == "suspended":
            await world.hub.patch(*SEED, {"spec": {"runPolicy": {"suspend": False}}})
            await runs_in(world, 3, 0)


async def test_somebody_elses_job_of_that_name_is_left_alone() -> None:
    async with fleet("a", "b", starts=False) as world:
        theirs = await world.members["a"].cluster.create(waiting_job())
        world.start()
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await runs_in(world, 2, 2)
        stored = await world.members["a"].get("Job", "train")
        assert stored is not None
        assert stored["metadata"]["uid"] == theirs.uid
        assert names.ORIGIN_LABEL not in stored["metadata"]["labels"]


async def test_a_member_whose_tutti_knows_no_permits_gets_nothing() -> None:
    async with fleet("a", "b", without_tutti=("a",)) as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 0, 3)
        assert await world.members["a"].all("PyTorchJob") == []


async def test_the_record_says_of_each_member_why_a_gang_is_not_there() -> None:
    async with fleet("a", "b", starts=False, without_tutti=("a",)) as world:
        await world.members["b"].cluster.create(waiting_job())
        world.start()
        await world.hub.cluster.create(plain_job())
        told = "a has no Tutti, or its ledger is not there", "b has another job with this name"

        async def said() -> bool:
            return dispatch_of(await world.hub.get("Job", "train") or {}).elsewhere == told

        await world.until(said)
        before = (await world.hub.get("Job", "train") or {})["metadata"]["resourceVersion"]
        await asyncio.sleep(30)
        assert (await world.hub.get("Job", "train") or {})["metadata"]["resourceVersion"] == before, "said once"
        await world.members["b"].delete("Job", "train")
        await world.until(lambda: world.over("Job", "train"), 120)


async def filled(world: Fleet) -> None:
    """Let a job of its own take all of each member."""
    for side in world.members.values():
        await side.cluster.create(waiting_job("local", pods=4))
    await runs_in(world, *(4 for _ in world.members))


async def runs_now(world: Fleet, *pods: int) -> bool:
    return [await side.running() for side in world.members.values()] == list(pods)


async def test_the_record_says_in_each_members_words_and_numbers_why_a_gang_waits() -> None:
    async with fleet("a", "b", "c") as world:
        await filled(world)
        await world.hub.cluster.create(pytorch_job())

        async def said() -> bool:
            told = dispatch_of(await world.hub.get(*SEED) or {}).elsewhere
            words = "says WaitingForQuota: asks for 3 cpu; queue research has 4, 4 used"
            return len([each for each in told if words in each]) == 2

        await world.until(said)


async def test_a_gang_comes_to_the_one_member_with_room_without_waiting_in_the_others() -> None:
    async with fleet("a", "b", "c", "d") as world:
        await filled(world)
        await world.members["d"].delete("Job", "local")
        await runs_in(world, 4, 4, 4, 0)
        await world.hub.cluster.create(pytorch_job())
        # Three offers that are given up only for want of an answer would take 45 s.
        await world.until(lambda: runs_now(world, 4, 4, 4, 3), 20)


async def test_an_offer_that_moves_on_leaves_no_copy_that_could_take_the_room_of_others() -> None:
    async with fleet("a", "b") as world:
        for name in world.members:
            await world.members[name].cluster.create(waiting_job(f"theirs-{name}", pods=4))
        await asyncio.sleep(5)
        await world.hub.cluster.create(pytorch_job())
        moved, before = 0, ""
        for _ in range(200):
            await asyncio.sleep(0.1)
            member = dispatch_of(await world.hub.get(*SEED) or {}).member
            moved, before = moved + (before not in ("", member)), member
            there = [name for name, side in world.members.items() if await side.get(*SEED) is not None]
            assert set(there) <= {member}
        assert moved


@pytest.mark.parametrize("which", ["a", "b", "c"])
async def test_a_waiting_gang_goes_where_something_ends_first(which: str) -> None:
    async with fleet("a", "b", "c") as world:
        await filled(world)
        await world.hub.cluster.create(pytorch_job())
        await asyncio.sleep(40)
        await world.members[which].delete("Job", "local")
        pods = [3 if name == which else 4 for name in world.members]
        await world.until(lambda: runs_now(world, *pods), 8)


async def test_a_member_that_hangs_keeps_what_runs_there_and_delays_nobody_else() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job("one", runtime="40s"))
        await runs_in(world, 3, 0)
        world.links["a"].freeze()
        await world.hub.cluster.create(pytorch_job("two", runtime="40s"))
        await runs_in(world, 3, 3)
        await world.until(lambda: world.over("PyTorchJob", "two"), 120)
        first = await world.hub.get("PyTorchJob", "one")
        assert dispatch_of(first or {}).phase is DispatchPhase.GRANTED
        world.links["a"].thaw()
        await world.until(lambda: world.over("PyTorchJob", "one"), 120)
        assert await world.empty("PyTorchJob")


async def test_a_member_that_refuses_the_hubs_credentials_keeps_what_runs_there_and_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(method: str, path: str, **how: Any) -> bytes:
        raise Forbidden(401, "Unauthorized", "the token has expired")

    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job("one", runtime="40s"))
        await runs_in(world, 3, 0)
        with structlog.testing.capture_logs() as logged, monkeypatch.context() as expired:
            expired.setattr(world.links["a"], "request", refused)
            await world.hub.cluster.create(pytorch_job("two", runtime="40s"))
            await runs_in(world, 3, 3)
            await asyncio.sleep(60)
            first = await world.hub.get("PyTorchJob", "one")
            assert dispatch_of(first or {}).phase is DispatchPhase.GRANTED
        said = {each["error"] for each in logged if each["event"] == "fleet.not_answered"}
        assert "a: 401 Unauthorized: the token has expired" in said
        await world.until(lambda: world.over("PyTorchJob", "one"), 120)
        assert await world.empty("PyTorchJob")


async def test_an_offer_that_a_member_does_not_answer_goes_to_the_next() -> None:
    async with fleet("a", "b") as world:
        await asyncio.sleep(10)
        world.links["a"].freeze()
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 0, 3)


async def test_nothing_is_offered_before_each_member_was_swept() -> None:
    async with fleet("a", "b", starts=False) as world:
        world.start()
        world.links["b"].freeze()
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await asyncio.sleep(60)
        assert await world.places(*SEED) == []
        world.links["b"].thaw()
        await runs_in(world, 3, 0)


async def test_a_kind_that_the_hub_does_not_serve_for_a_while_costs_no_gang_its_copy() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        asked, copy = world.own.request, await world.members["a"].get(*SEED)

        async def not_served(method: str, path: str, **more: Any) -> bytes:
            if "pytorchjobs" in path:
                raise NotFound(404, "NotFound", "the server could not find the requested resource")
            return await asked(method, path, **more)

        world.own.request = not_served  # type: ignore[method-assign]
        await asyncio.sleep(60)
        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(20)
        kept = await world.members["a"].get(*SEED)
        assert (kept or {})["metadata"]["uid"] == (copy or {})["metadata"]["uid"]


async def test_a_record_that_was_lost_is_found_again_in_the_member() -> None:
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(pytorch_job(runtime="60s"))
        world.start()
        await runs_in(world, 3, 0)
        world.kill()
        await world.hub.patch(*SEED, {"metadata": {"annotations": {names.DISPATCH: None}}})
        world.start()
        await asyncio.sleep(20)
        job = await world.hub.get(*SEED)
        assert dispatch_of(job or {}).phase is DispatchPhase.GRANTED
        assert await world.places(*SEED) == ["a"]
        await world.until(lambda: world.over(*SEED), 200)
        assert await world.empty("PyTorchJob")


async def test_a_hub_whose_cluster_is_set_back_while_it_runs_finds_its_gangs_again() -> None:
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(pytorch_job(runtime="90s"))
        backup = world.hub.cluster.server.store.backup()
        world.start()
        await runs_in(world, 3, 0)
        world.hub.cluster.restore(backup)
        await asyncio.sleep(40)
        job = await world.hub.get(*SEED)
        assert dispatch_of(job or {}).phase is DispatchPhase.GRANTED
        assert await world.places(*SEED) == ["a"]
        await world.until(lambda: world.over(*SEED), 200)
        assert await world.empty("PyTorchJob")


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "created since the hub began"])
async def test_a_hub_that_is_set_back_by_less_than_is_written_at_once_begins_again_too(*, listed: bool) -> None:
    async with fleet("a", "b", starts=False) as world:
        if not listed:
            world.start()
            await asyncio.sleep(5)
        await world.hub.cluster.create(pytorch_job(runtime="90s"))
        backup = world.hub.cluster.server.store.backup()
        if listed:
            world.start()
        await runs_in(world, 3, 0)
        world.links["a"].freeze()
        world.hub.cluster.restore(backup)
        for number in range(50):
            note = {"name": f"note-{number}", "namespace": "tutti-system"}
            await world.hub.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": note})
        await asyncio.sleep(40)
        assert await world.members["b"].pods() == [], "what runs in a is not known yet"
        world.links["a"].thaw()
        await world.until(lambda: world.over(*SEED), 200)
        assert await world.empty("PyTorchJob")


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 8))
async def test_a_hub_that_dies_at_any_write_is_followed_by_one_that_goes_on(number: int, phase: str) -> None:
    async with fleet("a", "b", starts=False) as world:
        seen = 0

        def count(point: WritePoint) -> None:
            nonlocal seen
            if "/status" in point.path:
                return
            seen += point.phase == phase
            if seen == number and point.phase == phase:
                world.kill()

        world.start(count)
        await world.hub.cluster.create(pytorch_job())
        async with asyncio.timeout(300):
            while not world.dead and not await world.over(*SEED):
                await asyncio.sleep(0.2)
        assert world.dead, "it writes that often"
        world.start()
        await world.until(lambda: world.over(*SEED), 300)
        assert await world.empty("PyTorchJob")
        assert world.watchers.writes > 0


@pytest.mark.parametrize("make", [pytorch_job, plain_job])
async def test_a_gang_whose_copy_is_deleted_in_its_member_runs_again_and_shows_its_end(make: Any) -> None:
    job = make(runtime="20s")
    kind, name = job["kind"], job["metadata"]["name"]
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(job)
        await world.until(lambda: ran(world, 3 if make is pytorch_job else 2))
        await asyncio.sleep(5)
        await world.members["a"].delete(kind, name)
        await world.until(lambda: world.over(kind, name), 120)
        assert await world.empty(kind)


@pytest.mark.parametrize("answer", [Unavailable(503, "ServiceUnavailable", "busy"), Forbidden(403, "Forbidden", "no")])
async def test_a_copy_that_cannot_be_read_is_not_taken_for_gone(
    answer: ApiError, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        answered, refused = world.links["a"].request, []

        async def request(method: str, path: str, **how: Any) -> bytes:
            if path.endswith("/pytorch-test"):
                refused.append(path)
                raise answer
            return await answered(method, path, **how)

        monkeypatch.setattr(world.links["a"], "request", request)
        await asyncio.sleep(REST_SECONDS + 10)
        assert refused, "a gang that runs is looked at, though seldom"
        assert dispatch_of(await world.hub.get(*SEED) or {}).phase is DispatchPhase.GRANTED


async def given_up(world: Fleet, member: str, *, dry_run: bool = False, force: bool = False) -> list[str]:
    gangs = give_up(world.hub.admin, KINDS, member, LoopClock(), dry_run=dry_run, force=force)
    return [gang async for gang in gangs]


async def test_a_member_without_gangs_is_declared_lost_by_force_alone_and_that_is_taken_back() -> None:
    async with fleet("a", starts=False) as world:
        with pytest.raises(WrongName, match="no gang is in leftt: is that its name"):
            await given_up(world, "leftt")
        assert await noted(world.hub.admin) == {}
        assert await given_up(world, "leftt", force=True) == []
        with pytest.raises(WrongName, match="right was not declared lost; these were: leftt"):
            await take_back(world.hub.admin, "right")
        await take_back(world.hub.admin, "leftt")
        assert await noted(world.hub.admin) == {}


async def test_what_a_lost_member_had_runs_elsewhere_and_its_copy_ends_when_it_comes_back_all_the_same() -> None:
    async with fleet("a", "b") as world:
        world.watchers.forgiven = "a"
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        world.links["a"].freeze()
        assert await given_up(world, "b", dry_run=True) == []
        assert await given_up(world, "a", dry_run=True) == ["PyTorchJob team-a/pytorch-test"]
        await asyncio.sleep(30)
        assert await world.places(*SEED) == ["a"], "the hub concludes nothing by itself"
        assert await given_up(world, "a") == ["PyTorchJob team-a/pytorch-test"]
        await runs_in(world, 3, 3)
        world.links["a"].thaw()
        await runs_in(world, 0, 3)


async def test_a_hub_that_starts_does_not_wait_for_a_lost_member_and_sweeps_it_when_it_comes_back() -> None:
    async with fleet("a", "b") as world:
        world.watchers.forgiven = "a"
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        world.kill()
        world.start()
        world.links["a"].freeze()
        await world.hub.cluster.create(plain_job(runtime="20s"))
        await asyncio.sleep(30)
        assert await world.members["b"].pods() == [], "it waits for a member that may be back"
        await given_up(world, "a")
        await world.until(lambda: world.over("Job", "train"))
        assert (await world.hub.get(*SEED) or {})["metadata"]["annotations"][names.DISPATCH].count('"b"')
        world.links["a"].thaw()
        await runs_in(world, 0, 3)
        await asyncio.sleep(10)
        assert await noted(world.hub.admin) == {}
        await world.hub.cluster.create(plain_job("next", runtime="600s"))
        await runs_in(world, 2, 3)


async def test_a_pod_that_does_not_go_keeps_its_gang_from_running_elsewhere() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        await world.members["a"].keep_pod("pytorch-test-worker-0", ["example.org/slow"])
        await world.hub.patch(*SEED, {"spec": {"runPolicy": {"suspend": True}}})
        await asyncio.sleep(3)
        await world.hub.patch(*SEED, {"spec": {"runPolicy": {"suspend": False}}})
        await asyncio.sleep(60)
        assert await world.places(*SEED) == []
        job = await world.hub.get(*SEED)
        assert dispatch_of(job or {}).phase is DispatchPhase.RECALLED
        await world.members["a"].keep_pod("pytorch-test-worker-0", [])
        await world.until(lambda: ran(world))


async def ran(world: Fleet, pods: int = 3) -> bool:
    return sorted([await side.running() for side in world.members.values()]) == [0, pods]
