"""A hub sweeps its members before it offers anything: when that counts, and how soon."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, Make, Side, fleet, plain_job, pytorch_job, suspend
from tests.unit.fleet.test_hub import SEED, runs_in
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.text import encode
from webhook.core.notation import names
from webhook.errors import Conflict, Forbidden
from webhook.fleet.members.copies import JobName, Listed, dispatch_of
from webhook.laboratory.simulated.api import SimulatedApi, WritePoint

pytestmark = pytest.mark.virtual_time
UNSETTLED = "a still has pods of an earlier copy, or room reserved for it"


async def test_a_sweep_that_is_under_way_when_the_hub_is_set_back_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        shared, meanwhile = world.running_hub.fleet, asyncio.Event()
        member = shared.members["a"]
        left = member.leftovers

        async def set_back(jobs: Any) -> set[JobName]:
            found = await left(jobs)
            if not meanwhile.is_set():
                shared.begin_again(1)
                meanwhile.set()
            return found

        monkeypatch.setattr(member, "leftovers", set_back)
        shared.swept.make_due("a")
        await meanwhile.wait()
        await asyncio.sleep(0.1)
        assert shared.swept.due.keys() == {"a", "b"}
        await asyncio.sleep(10)
        assert not shared.swept.due


async def test_a_copy_that_goes_after_a_sweep_has_listed_it_is_not_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gang would be of a member that has nothing of it, and hold nothing in the hub, which has its quota back."""
    async with fleet("a") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3)
        member, settles, phases = world.running_hub.fleet.members["a"], asyncio.Event(), set[DispatchPhase]()
        listed, store = member.copies, world.hub.cluster.server.store

        async def gone() -> bool:
            return dispatch_of(await world.hub.get(*SEED) or {}).phase is DispatchPhase.NOWHERE

        async def list_early(*which: Any) -> Listed:
            if (found := await listed(*which)).copies:
                await world.hub.patch(*SEED, suspend(pytorch_job, True))
                await world.until(gone)
                pytorch_jobs = ("kubeflow.org", "pytorchjobs")
                store.subscribe(lambda event: phases.add(dispatch_of(event.current.object).phase), pytorch_jobs)
                settles.set()
            return found

        monkeypatch.setattr(member, "copies", list_early)
        await settles.wait()
        await asyncio.sleep(10)
        assert DispatchPhase.GRANTED not in phases


async def test_a_hub_that_follows_one_that_died_goes_on_as_soon_as_what_that_one_left_is_gone() -> None:
    async with fleet("a", "b", starts=False) as world:

        def die(point: WritePoint) -> None:
            if (point.method, point.phase) == ("POST", "after") and "pytorchjobs" in point.path:
                world.kill()

        world.start(die)
        await world.hub.cluster.create(pytorch_job(runtime="600s"))

        async def left() -> bool:
            return bool(await world.members["a"].all("PyTorchJob"))

        async def granted() -> bool:
            return dispatch_of(await world.hub.get(*SEED) or {}).phase is DispatchPhase.GRANTED

        await world.until(left)
        world.start()
        await world.until(granted, 4)


async def test_a_hub_that_follows_one_that_died_goes_on_with_the_copy_that_one_made() -> None:
    async with fleet("a", "b", starts=False) as world:

        def die(point: WritePoint) -> None:
            if (point.method, point.phase) == ("POST", "after") and "pytorchjobs" in point.path:
                world.kill()

        world.start(die)
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        made = None

        async def left() -> bool:
            nonlocal made
            made = await world.members["a"].get(*SEED)
            return made is not None

        await world.until(left)
        world.start()
        await runs_in(world, 3, 0)
        found = await world.members["a"].get(*SEED)
        assert made is not None
        assert found is not None
        assert found["metadata"]["uid"] == made["metadata"]["uid"]


async def test_permits_that_were_on_their_way_when_their_hub_was_set_back_reach_no_copy() -> None:
    async with fleet("a", "b", starts=False) as world:
        wire = world.members["a"].cluster.api(HUB_ACCOUNT)
        held: list[Callable[[], Awaitable[bytes]]] = []

        def hold(asked: Callable[..., Awaitable[bytes]]) -> Callable[..., Awaitable[bytes]]:
            async def late(method: str, path: str, **how: Any) -> bytes:
                if method == "PATCH" and b'"value":"none ' not in how["body"]:
                    held.append(partial(wire.request, method, path, **how))
                    await asyncio.Event().wait()
                return await asked(method, path, **how)

            return late

        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        # The second time the copy has been written to before, for the first.
        for number in (1, 2):
            world.start()
            world.links["a"].request = hold(world.links["a"].request)  # type: ignore[method-assign]

            async def sent(number: int = number) -> bool:
                return len(held) == number

            await world.until(sent)
            granted = dispatch_of(await world.hub.get(*SEED) or {})
            # Nobody knows any more that it was granted.
            world.kill()
            offered = Dispatch(DispatchPhase.OFFERED, granted.offer, granted.member, granted.cluster)
            await world.hub.patch(*SEED, {"metadata": {"annotations": {names.DISPATCH: encode(offered)}}})
        world.start()

        async def swept() -> bool:
            return not world.running_hub.fleet.swept.due

        await world.until(swept)
        assert len(held) == 2
        for permit in held:
            with pytest.raises(Conflict):
                await permit()


async def test_a_copy_that_goes_from_a_member_whose_watches_say_nothing_is_missed_by_a_sweep() -> None:
    async with fleet("a", starts=False) as world:
        world.start()
        world.silence("a")
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3)
        await asyncio.sleep(20)
        await world.members["a"].delete(*SEED)

        async def gone() -> bool:
            return await world.members["a"].pods() == []

        await world.until(gone)
        async with asyncio.timeout(25):
            await runs_in(world, 3)


async def test_a_member_that_answers_slowly_is_asked_for_copies_of_all_kinds_at_once() -> None:
    async with fleet("a", starts=False) as world:
        world.start()
        asked, answers_after = world.links["a"].request, 0.5

        async def slow(method: str, path: str, **how: Any) -> bytes:
            await asyncio.sleep(answers_after)
            return await asked(method, path, **how)

        world.links["a"].request = slow  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()

        async def swept() -> bool:
            return not world.running_hub.fleet.swept.due

        await world.until(swept)
        kinds = len(world.running_hub.kinds)
        assert asyncio.get_running_loop().time() - began < kinds * answers_after


@pytest.mark.parametrize("make", [plain_job, pytorch_job])
async def test_pods_that_never_go_keep_no_other_gang_from_being_offered_by_a_hub_that_starts(make: Make) -> None:
    kind = make()["kind"]
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(make("stuck", runtime="600s"))
        await world.until(lambda: world.places(kind, "stuck"))
        await asyncio.sleep(5)
        side = world.members["a"]
        for pod in await side.pods():
            await side.keep_pod(pod, ["example.org/never"])
        world.kill()
        # Its record is lost, and its copy: what is left says only by whose name it is.
        await side.delete(kind, "stuck")
        await world.hub.patch(kind, "stuck", {"metadata": {"annotations": {names.DISPATCH: None}}})
        await asyncio.sleep(5)
        assert await side.pods()
        world.start()
        await world.hub.cluster.create(make("other", runtime="600s"))
        await world.until(lambda: world.places(kind, "other"), 20)
        await asyncio.sleep(20)
        held = dispatch_of(await world.hub.get(kind, "stuck") or {})
        assert (held.phase, held.elsewhere) == (DispatchPhase.NOWHERE, (UNSETTLED,))
        assert await world.places(kind, "stuck") == []
        for pod in await side.pods():
            await side.keep_pod(pod, [])
        await world.until(lambda: world.places(kind, "stuck"), 40)


async def is_placed(world: Fleet, name: str) -> None:
    """Let a gang be submitted, and be placed soon."""
    await world.hub.cluster.create(plain_job(name, runtime="600s"))
    await world.until(lambda: world.places("Job", name), 20)


async def test_copies_of_no_job_that_a_tenant_makes_all_the_time_keep_no_gang_from_being_offered() -> None:
    async with fleet("a", "b") as world:
        await is_placed(world, "first")
        hub = world.running_hub.fleet.uid
        world.kill()

        async def forge() -> None:
            for number in itertools.count():
                forged = plain_job(f"forged-{number}")
                del forged["spec"]["managedBy"]
                forged["spec"]["suspend"] = True
                forged["metadata"]["labels"][names.ORIGIN_LABEL] = hub
                forged["metadata"]["annotations"] = {names.OFFER: f"no-such-job 1.{number}"}
                await world.members["a"].cluster.create(forged)
                await asyncio.sleep(0.3)

        forging = asyncio.create_task(forge())
        world.start()
        await is_placed(world, "other")
        forging.cancel()


async def test_copies_that_a_tenant_keeps_from_going_are_not_asked_of_the_hubs_cluster_at_each_sweep() -> None:
    """A thousand of them would take each sweep some seconds, for which all offers of a hub that starts wait."""
    async with fleet("a") as world:
        await is_placed(world, "first")
        for number in range(20):
            forged = plain_job(f"forged-{number}")
            del forged["spec"]["managedBy"]
            forged["spec"]["suspend"] = True
            forged["metadata"]["labels"][names.ORIGIN_LABEL] = world.running_hub.fleet.uid
            forged["metadata"]["annotations"] = {names.OFFER: f"no-such-job 1.{number}"}
            forged["metadata"]["finalizers"] = ["tenant.dev/keeps"]
            await world.members["a"].cluster.create(forged)
        await asyncio.sleep(15)
        left = [each["metadata"] for each in await world.members["a"].all("Job")]
        assert sum("deletionTimestamp" in each for each in left) == 20
        asked, request = list[str](), world.own.request

        async def counted(method: str, path: str, **how: Any) -> bytes:
            asked.append(path)
            return await request(method, path, **how)

        world.own.request = counted  # type: ignore[method-assign]
        await asyncio.sleep(20)
        assert not [path for path in asked if "/jobs/forged-" in path]


async def test_a_copy_that_is_changed_before_each_write_of_the_hub_keeps_only_its_own_gang_from_being_offered() -> None:
    async with fleet("a", "b") as world:
        for name in ("one", "two"):
            await world.hub.cluster.create(plain_job(name, pods=4, runtime="6000s"))
            await world.until(lambda name=name: world.places("Job", name))
        await world.hub.cluster.create(plain_job("changed", runtime="6000s"))
        await asyncio.sleep(20)
        world.kill()
        world.start()
        for member, link in world.links.items():
            changing(world.members[member], link)
        await world.hub.delete("Job", "one")
        await is_placed(world, "other")
        for _ in range(30):
            await asyncio.sleep(1)
            phase = dispatch_of(await world.hub.get("Job", "changed") or {}).phase
            assert phase is DispatchPhase.OFFERED, "a permit of an earlier time may be on its way"


def changing(side: Side, link: SimulatedApi) -> None:
    """Let a tenant change the copy of his job just before each write of the hub."""
    honest, number = link.request, itertools.count()

    async def request(method: str, path: str, **how: Any) -> bytes:
        if method in ("PATCH", "DELETE") and path.endswith("/changed"):
            await side.patch("Job", "changed", {"metadata": {"annotations": {"x.dev/y": str(next(number))}}})
        return await honest(method, path, **how)

    link.request = request  # type: ignore[method-assign]


async def test_a_job_whose_record_cannot_be_written_keeps_only_itself_from_being_offered() -> None:
    async with fleet("a", "b") as world:
        await is_placed(world, "refused")
        world.kill()
        await world.hub.patch("Job", "refused", {"metadata": {"annotations": {names.DISPATCH: None}}})
        world.start()
        honest = world.own.request

        async def request(method: str, path: str, **how: Any) -> bytes:
            if method == "PATCH" and path.endswith("/refused"):
                raise Forbidden(403, "Forbidden", "no jobs on Thursdays")
            return await honest(method, path, **how)

        world.own.request = request  # type: ignore[method-assign]
        await is_placed(world, "other")
        assert await world.places("Job", "refused") == ["a"]
        world.own.request = honest  # type: ignore[method-assign]

        async def found() -> bool:
            return dispatch_of(await world.hub.get("Job", "refused") or {}).member == "a"

        await world.until(found, 20)
