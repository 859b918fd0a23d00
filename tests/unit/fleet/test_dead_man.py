"""A member that is silent for long enough has stopped by itself what its hub permitted, and its gangs run elsewhere."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from tests.unit.fleet.clusters import HUB_ACCOUNT, NAMESPACE, Fleet, Side, fleet, pytorch_job, tutti
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.cluster.view import View
from webhook.config import Config
from webhook.controllers.gangs.silent_hubs import COUNTED_SECONDS, LEASES, LOOK_SECONDS, Hubs
from webhook.core.fleet.silence import SLACK_SECONDS
from webhook.core.notation import names
from webhook.core.reasons.eviction import HUB_SILENT
from webhook.errors import Conflict
from webhook.fleet.dead_man import FAILING_SECONDS, RENEW_SECONDS
from webhook.fleet.hub import Hub
from webhook.fleet.lost import SILENT, noted
from webhook.fleet.members.copies import dispatch_of
from webhook.fleet.members.member import ANSWER_SECONDS, Member
from webhook.fleet.policies.propagation import VERSIONS
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.api import SimulatedApi
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
SEED = "PyTorchJob", "pytorch-test"
PATIENCE = 20.0
STOPPED_SECONDS = PATIENCE + RENEW_SECONDS + 2 * LOOK_SECONDS
GRACE_SECONDS = 30.0
SURELY_SECONDS = PATIENCE + SLACK_SECONDS + GRACE_SECONDS
LATE_SECONDS = FAILING_SECONDS + 3 * (RENEW_SECONDS + ANSWER_SECONDS)
"""Until a silence is noted, and the next look after its end, where each look waits for an answer."""


async def runs_in(world: Fleet, *pods: int, seconds: float = 60) -> None:
    """Wait until the members run so many pods, in their order."""

    async def reached() -> bool:
        return [await side.running() for side in world.members.values()] == list(pods)

    await world.until(reached, seconds)


async def starts_in_a(world: Fleet) -> None:
    """Submit the seed's job, which comes to the first member, and let that member hear of its hub."""
    await asyncio.sleep(3 * RENEW_SECONDS)
    await world.hub.cluster.create(pytorch_job(runtime="6000s"))
    await runs_in(world, 3, 0)
    assert dispatch_of(await world.hub.get(*SEED) or {}).stops_after_seconds == PATIENCE


async def test_a_gang_of_a_silent_member_runs_elsewhere_when_it_has_surely_stopped_there() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        began = asyncio.get_running_loop().time()
        world.links["a"].freeze()
        await runs_in(world, 0, 0, seconds=STOPPED_SECONDS)
        await asyncio.sleep(began + SURELY_SECONDS - asyncio.get_running_loop().time())
        assert await world.places(*SEED) == [], "the hub does not know how long its last word was on its way"
        await runs_in(world, 0, 3, seconds=LATE_SECONDS)
        world.links["a"].thaw()
        await asyncio.sleep(30)
        assert await world.members["a"].get(*SEED) is None, "what is left of it goes at the first contact"
        assert await noted(world.hub.admin) == await noted(world.hub.admin, SILENT) == {}
        assert await world.places(*SEED) == ["b"]
        await world.hub.cluster.create(pytorch_job("next", runtime="6000s"))
        await runs_in(world, 3, 3)


async def test_a_gang_that_cannot_be_given_up_because_its_record_is_refused_is_told() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        request = world.own.request

        async def refuses(method: str, path: str, **how: Any) -> bytes:
            if method == "PATCH" and path.endswith("/pytorchjobs/pytorch-test"):
                raise Conflict(409, "Conflict", 'admission webhook "their.policy" denied the request')
            return await request(method, path, **how)

        world.own.request = refuses  # type: ignore[method-assign]
        world.links["a"].freeze()

        async def told() -> bool:
            listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
            return "DispatchRefused" in {each["reason"] for each in orjson.loads(listed)["items"]}

        await world.until(told, SURELY_SECONDS + 2 * LATE_SECONDS)
        world.own.request = request  # type: ignore[method-assign]
        await runs_in(world, 0, 3, seconds=LATE_SECONDS)


async def test_the_event_of_a_silent_member_says_that_it_stops_its_gang_by_itself() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        world.links["a"].freeze()
        await asyncio.sleep(SURELY_SECONDS)
        listed = orjson.loads(await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events"))["items"]
        (said,) = {each["message"] for each in listed if each["reason"] == "MemberSilent"}
        assert f"promised to stop the job after {PATIENCE:.0f} s" in said


async def test_a_member_that_is_back_in_time_keeps_its_gang() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        world.links["a"].freeze()
        await asyncio.sleep(PATIENCE - 2 * RENEW_SECONDS)
        world.links["a"].thaw()
        await asyncio.sleep(3 * SURELY_SECONDS)
        assert await world.places(*SEED) == ["a"]
        assert await world.members["a"].running() == 3


async def test_a_gang_that_its_member_stopped_is_offered_again_when_the_member_is_back_before_it_was_given_up() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        world.links["a"].freeze()
        await asyncio.sleep(PATIENCE + 3 * RENEW_SECONDS)
        assert await world.places(*SEED) == []
        world.links["a"].thaw()

        async def whole_again() -> bool:
            return sorted([await side.running() for side in world.members.values()]) == [0, 3]

        await world.until(whole_again, 60)


@pytest.mark.parametrize("later_seconds", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
async def test_what_a_hub_permits_when_it_is_back_is_not_stopped_for_its_silence(later_seconds: float) -> None:
    """The member looks at the hub's Lease every few seconds only, and starts at once what is permitted."""
    async with fleet("a", silent_hub_seconds=PATIENCE) as world:
        await asyncio.sleep(3 * RENEW_SECONDS)
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await runs_in(world, 3)
        world.links["a"].freeze()
        with capture_logs() as logs:
            await asyncio.sleep(PATIENCE + 3 * RENEW_SECONDS + later_seconds)
            world.links["a"].thaw()
            await runs_in(world, 3)
            await asyncio.sleep(PATIENCE)
        assert [each["why"] for each in logs if each["event"] == "gang.stopped"] == [HUB_SILENT]


async def test_a_hub_that_starts_again_meanwhile_counts_for_itself() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        world.links["a"].freeze()
        await asyncio.sleep(SURELY_SECONDS)
        world.kill()
        world.start()
        world.links["a"].freeze()
        began = asyncio.get_running_loop().time()
        await runs_in(world, 0, 3, seconds=SURELY_SECONDS + LATE_SECONDS)
        assert asyncio.get_running_loop().time() - began >= SURELY_SECONDS


async def test_one_hub_process_that_is_cut_off_silences_no_member_that_another_hears() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        links = {name: side.cluster.api(HUB_ACCOUNT) for name, side in world.members.items()}
        other = Hub(world.hub.cluster.api(HUB_ACCOUNT), links, KINDS, clock=LoopClock(), rng=Random(5), dead_man=True)
        running = asyncio.create_task(other.run())
        await asyncio.sleep(10)
        world.links["a"].freeze()
        for _ in range(60):
            await asyncio.sleep(5)
            assert await world.members["a"].running() == 3
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_promise_counts_for_two_processes_of_a_hub_whose_clocks_are_minutes_apart() -> None:
    """Each hears what the member says of the other's renewals too, and grants gangs that it could else not give up."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        side, leader = await leased(cluster), Leader(cluster.api())
        processes = {0.0: Member("a", side.admin), 120.0: Member("a", cluster.api())}
        for renewal in range(8):
            for ahead, member in processes.items():
                await member.renew("hub", LoopClock().now() + ahead)
                promised = member.stops_after_seconds
                assert renewal < 2 or promised == PATIENCE, "it is heard all the time"
                await asyncio.sleep(LOOK_SECONDS)
                assert not await leader.silent()
        for _ in range(14):
            await processes[0.0].renew("hub", LoopClock().now())
            await asyncio.sleep(RENEW_SECONDS)
        assert processes[0.0].stops_after_seconds == 0, "its Tutti has said nothing for a minute"


@pytest.mark.parametrize("promises", [True, False])
async def test_only_a_member_that_promised_it_is_believed_to_have_stopped(promises: bool) -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE if promises else None, starts=False) as world:
        world.dead_man = True
        world.start()
        await asyncio.sleep(3 * RENEW_SECONDS)
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await runs_in(world, 3, 0)
        world.links["a"].freeze()
        await asyncio.sleep(2 * SURELY_SECONDS)
        assert await world.places(*SEED) == (["b"] if promises else ["a"])


async def test_a_gang_whose_member_stops_later_since_it_was_granted_is_given_up_later() -> None:
    longer = 10 * PATIENCE
    async with fleet("a", "b", silent_hub_seconds=PATIENCE, without_tutti=("a",)) as world:
        side = world.members["a"]
        async with tutti(side.cluster, "a", Config(silent_hub_seconds=PATIENCE)):
            await starts_in_a(world)
        async with tutti(side.cluster, "a", Config(silent_hub_seconds=longer)):

            async def written() -> bool:
                return dispatch_of(await world.hub.get(*SEED) or {}).stops_after_seconds == longer

            await world.until(written, 30 + 2 * RENEW_SECONDS)
            began = asyncio.get_running_loop().time()
            world.links["a"].freeze()
            await runs_in(world, 0, 3, seconds=SURELY_SECONDS + longer + LATE_SECONDS)
            assert asyncio.get_running_loop().time() - began >= SURELY_SECONDS - PATIENCE + longer


async def renewed(side: Side, renewal: str) -> None:
    """Renew the Lease of a hub in a member."""
    lease = {"spec": {"renewTime": renewal}}
    await side.admin.request(
        "PATCH", f"{LEASES}/{names.HUB_LEASE}hub", body=orjson.dumps(lease), content_type=MERGE_PATCH
    )


class Leader:
    """What one leader of a member hears of one hub, its clock apart from that of others."""

    def __init__(self, api: SimulatedApi, ahead: float = 0.0) -> None:
        self.hubs = Hubs(api, View(), PATIENCE)
        self._ahead = ahead

    async def silent(self) -> bool:
        await self.hubs.look(LoopClock().now() + self._ahead)
        return "hub" in self.hubs.silent


async def watched(side: Side, seconds: float, leader: Callable[[], Leader]) -> float:
    """Return after how many seconds a hub counts as silent, while leaders follow one another every few seconds."""
    current = leader()
    for passed in range(int(seconds)):
        current = leader() if passed % 7 == 0 else current
        if await current.silent():
            return float(passed)
        await asyncio.sleep(1)
    return seconds


@pytest.mark.parametrize("patience", [PATIENCE, None])
async def test_a_member_says_in_its_log_that_it_stops_what_a_silent_hub_has(patience: float | None) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        with capture_logs() as logs:
            Hubs(cluster.api(), View(), patience)
    said = [(each["event"], each["stops_after_seconds"]) for each in logs]
    assert said == ([] if patience is None else [("hub.dead_man", PATIENCE)])


async def test_a_silence_goes_on_counting_when_another_leads() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        side = Side("a", cluster)
        lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        await cluster.create({**lease, "metadata": {"name": f"{names.HUB_LEASE}hub", "namespace": "tutti-system"}})
        await renewed(side, "2026-01-01T00:00:00.000000Z")
        after = await watched(side, 60, lambda: Leader(side.admin))
        assert PATIENCE <= after <= PATIENCE + 2 * LOOK_SECONDS
        await renewed(side, "2026-01-01T00:01:00.000000Z")
        assert not await Leader(side.admin).silent()


async def test_a_clock_of_an_earlier_leader_that_was_ahead_makes_no_silence_longer_than_it_is_allowed() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        side = Side("a", cluster)
        lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        await cluster.create({**lease, "metadata": {"name": f"{names.HUB_LEASE}hub", "namespace": "tutti-system"}})
        await renewed(side, "2026-01-01T00:00:00.000000Z")
        assert not await Leader(side.admin, ahead=3600).silent()
        next_leader = Leader(side.admin)
        after = await watched(side, 60, lambda: next_leader)
        assert after <= PATIENCE + 2 * LOOK_SECONDS


async def heard_by(side: Side, leader: Leader, seconds: int) -> None:
    """Let one leader look for so long, which is shorter than its patience."""
    for _ in range(seconds):
        assert not await leader.silent()
        await asyncio.sleep(1)


async def leased(cluster: SimulatedCluster) -> Side:
    """Return a member in which a hub has a Lease, renewed just now."""
    side = Side("a", cluster)
    lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    await cluster.create({**lease, "metadata": {"name": f"{names.HUB_LEASE}hub", "namespace": "tutti-system"}})
    await renewed(side, "2026-01-01T00:00:00.000000Z")
    return side


async def test_a_silence_is_as_long_as_leaders_whose_clocks_differ_have_counted_it_together() -> None:
    """Their hub gives the gangs up after a minute more, and would start them again while they still run here."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        side = await leased(cluster)
        await heard_by(side, Leader(side.admin, ahead=3600), 17)
        next_leader = Leader(side.admin)
        after = 17 + await watched(side, 60, lambda: next_leader)
        assert PATIENCE <= after <= PATIENCE + COUNTED_SECONDS + LOOK_SECONDS


async def test_a_clock_of_an_earlier_leader_that_was_behind_makes_no_hub_silent_that_is_not() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        side = await leased(cluster)
        assert not await Leader(side.admin, ahead=-3600).silent()
        next_leader = Leader(side.admin)
        await heard_by(side, next_leader, int(RENEW_SECONDS))
        await renewed(side, "2026-01-01T00:00:05.000000Z")
        await heard_by(side, next_leader, int(PATIENCE))


class Recorded:
    """A connection that notes what was asked for."""

    def __init__(self, api: SimulatedApi) -> None:
        self._api = api
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        self.asked.add(path)
        return await self._api.request(method, path, **how)

    def watch(self, path: str, **how: Any) -> Any:
        self.asked.add(path)
        return self._api.watch(path, **how)


@pytest.mark.parametrize(("config", "more"), [(Config(), set()), (Config(silent_hub_seconds=20), {LEASES})])
async def test_a_cluster_without_the_switch_asks_for_nothing_that_only_fleets_have(
    config: Config, more: set[str]
) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        line = Recorded(cluster.api())
        parts = reconciler(line, config, identity="first", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(30)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        ours = [f"/apis/{version}" for version in VERSIONS] + ["leases", "tutti-fleet"]
        assert {path for path in line.asked if any(each in path for each in ours)} == more
        assert len(line.asked) > 20
