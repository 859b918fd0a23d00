"""A job that fails is tried in each other member once, also in one that is silent meanwhile."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, Side, fleet, pytorch_job, tutti
from tests.unit.fleet.failing import TOLERATION, fail_all, failed_in, failover_policy, once
from tests.unit.fleet.test_dead_man import PATIENCE, SEED
from tests.unit.fleet.test_failover import has_failed, true_conditions
from tests.unit.fleet.test_hub import given_up
from webhook.config import Config
from webhook.core.fleet.dispatch import Dispatch
from webhook.core.notation import names
from webhook.errors import Forbidden
from webhook.fleet.dead_man import RENEW_SECONDS
from webhook.fleet.jobs.asking.failed import SILENT_SECONDS
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
SOON_SECONDS = 15.0
"""Within which a job starts that a member may have again, and one that has ended says so."""


async def record(world: Fleet) -> Dispatch:
    return dispatch_of(await world.hub.get(*SEED) or {})


def started(world: Fleet) -> list[str]:
    """Return a list that grows by the name of each member that lets a copy start."""
    found: list[str] = []
    known: set[str] = set()

    def watch(side: Side) -> None:
        def note(event: Any) -> None:
            stored = event.current
            if not stored.object["spec"]["runPolicy"].get("suspend") and stored.uid not in known:
                known.add(stored.uid)
                found.append(side.name)

        side.cluster.server.store.subscribe(note, ("kubeflow.org", "pytorchjobs"))

    for each in world.members.values():
        watch(each)
    return found


async def begins_in_a(world: Fleet, runtime: str, *, renewed: bool = True) -> None:
    """Submit a job that fails in the first member at the end of its time, and may be tried in the other."""
    await world.hub.cluster.create(failover_policy())
    await fail_all(world.members["a"])
    if renewed:
        await asyncio.sleep(3 * RENEW_SECONDS)
    await world.hub.cluster.create(once(pytorch_job(runtime=runtime)))
    await world.until(lambda: world.places(*SEED))


async def fails_in_a(world: Fleet) -> None:
    """Wait until the first member shows that it has failed there."""

    async def failed() -> bool:
        return "Failed" in true_conditions(await world.members["a"].get(*SEED))

    await world.until(failed, 100)


async def succeeds(world: Fleet, seconds: float = 100) -> None:
    await world.until(lambda: world.over(*SEED), seconds)
    assert "Succeeded" in true_conditions(await world.hub.get(*SEED))


@pytest.mark.parametrize("is_back", [True, False])
async def test_one_that_has_left_for_a_member_that_falls_silent_waits_for_it_and_says_so(is_back: bool) -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        ran = started(world)
        await begins_in_a(world, "20s")

        async def left() -> bool:
            return failed_in(await record(world)) == ["a"]

        await world.until(left, 100)
        world.links["b"].freeze()
        await asyncio.sleep(600)
        assert ran == ["a"], "it is not tried a second time where it has failed"
        assert (await record(world)).elsewhere[-1] == "b has not heard from this hub for a while"
        if is_back:
            world.links["b"].thaw()
            await succeeds(world)
            assert ran == ["a", "b"]
        else:
            await given_up(world, "b", force=True)
            await world.until(lambda: has_failed(world, *SEED), 100)
            assert ran == ["a", "a"], "what has failed is shown by a copy"


async def test_one_that_fails_while_the_other_member_is_silent_is_tried_there_when_it_is_back() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await begins_in_a(world, "60s")
        await asyncio.sleep(25)
        world.links["b"].freeze()
        await fails_in_a(world)
        assert world.running_hub.fleet.silent == {"b"}
        await asyncio.sleep(10)
        world.links["b"].thaw()
        await world.until(lambda: _runs_in_b(world), TOLERATION - 10 + 5 + 2)
        await succeeds(world)


async def _runs_in_b(world: Fleet) -> bool:
    return await world.members["b"].running() == 3


async def test_a_member_that_stays_silent_keeps_it_no_longer_than_a_minute() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await begins_in_a(world, "60s")
        world.links["b"].freeze()
        await fails_in_a(world)
        await asyncio.sleep(TOLERATION + SOON_SECONDS)
        assert (await record(world)).waits.endswith("; others may have it, and do not answer: b")
        await world.until(lambda: has_failed(world, *SEED), SILENT_SECONDS + SOON_SECONDS)


async def test_nor_does_one_that_answers_and_whose_lease_cannot_be_renewed() -> None:
    """It would leave its member for one that is offered nothing, and wait there for good."""
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        honest = world.links["b"].request

        async def request(method: str, path: str, **how: Any) -> bytes:
            if names.HUB_LEASE in path and method == "PATCH":
                raise Forbidden(403, "Forbidden", "leases may not be patched")
            return await honest(method, path, **how)

        await begins_in_a(world, "60s")
        world.links["b"].request = request  # type: ignore[method-assign]
        await fails_in_a(world)
        assert world.running_hub.fleet.silent == {"b"}
        await asyncio.sleep(TOLERATION + SOON_SECONDS)
        said = (await record(world)).waits
        assert said.endswith("; others may have it, and do not hear this hub, or do not answer: b")
        await world.until(lambda: has_failed(world, *SEED), SILENT_SECONDS + SOON_SECONDS)
        assert await world.members["b"].all("PyTorchJob") == []


async def test_one_that_waits_in_its_member_is_not_ended_by_a_hub_that_has_renewed_no_lease_yet() -> None:
    """A member that promises nothing, as this one, counts as silent for longer."""
    async with (
        fleet("a", "b", silent_hub_seconds=PATIENCE, without_tutti=("b",)) as world,
        tutti(world.members["b"].cluster, "b", Config()),
    ):
        await begins_in_a(world, "20s")
        await fails_in_a(world)
        await asyncio.sleep(5)
        await world.stop()
        world.start()
        await succeeds(world)


async def test_a_member_that_was_declared_lost_is_not_waited_for() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await begins_in_a(world, "60s")
        world.links["b"].freeze()
        await given_up(world, "b", force=True)
        await world.until(lambda: has_failed(world, *SEED), 60 + SOON_SECONDS)
