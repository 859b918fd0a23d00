"""The ledger rules that are about writing: compare-and-swap, epochs, unknown outcomes, lost leases."""

import asyncio
from random import Random

import orjson
import pytest

from webhook.clock import LoopClock
from webhook.controllers.ledger.errors import LeaseLost, LedgerBroken, SetBack
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.stored import project
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Ledger, Reservation, reserve
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.errors import Conflict, Unavailable
from webhook.kube.api import JSON, MERGE_PATCH, REQUEST_TIMEOUT_SECONDS
from webhook.kube.election import Elector
from webhook.laboratory.simulated.api import SimulatedApi
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
PATH = "/api/v1/namespaces/tutti-system/configmaps/tutti-ledger"


class LossyApi:
    """Applies a write late, loses its reply, or loses or refuses the write, where a test says so."""

    def __init__(self, api: SimulatedApi) -> None:
        self._api = api
        self.lose_replies = 0
        self.lose_requests = 0
        self.writes = 0
        self.write_seconds = 0.0
        """How long each write takes."""
        self.conflicts = ""
        """A write of an object with this in its name conflicts."""

    async def request(
        self,
        method,
        path,
        *,
        query=None,
        body=None,
        content_type=JSON,
        accept=JSON,
        timeout_seconds=REQUEST_TIMEOUT_SECONDS,
    ):  # type: ignore[no-untyped-def]
        if method == "GET":
            return await self._api.request(method, path, query=query)
        if self.lose_requests:
            self.lose_requests -= 1
            raise Unavailable(0, "Timeout", "lost", outcome_unknown=True)
        self.writes += 1
        if self.conflicts and self.conflicts in path:
            raise Conflict(409, "Conflict", "a late write of the leader before")
        await asyncio.sleep(self.write_seconds)
        answer = await self._api.request(method, path, query=query, body=body, content_type=content_type, accept=accept)
        if self.lose_replies:
            self.lose_replies -= 1
            raise Unavailable(0, "ConnectionReset", "lost", outcome_unknown=True)
        return answer


def reservation(uid: str) -> Reservation:
    gang = Gang(uid, "Job.batch", "ns", uid, "q", (PodSet("main", 2, PodPrice({"cpu": 1000})),))
    return reserve(gang, "q", {"main": 2}, {}, epoch=1, now_seconds=0)


class Stage:
    """A cluster and keepers on it."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(Random(1), namespaces=("tutti-system",))
        self.admin = self.cluster.api()
        self.electors: dict[str, Elector] = {}

    def keeper(self, name: str) -> tuple[LedgerKeeper, LossyApi]:
        api = LossyApi(self.cluster.api())
        self.electors[name] = Elector(name)
        keeper = LedgerKeeper(
            api, self.electors[name], namespace="tutti-system", name="tutti-ledger", now=LoopClock().now
        )  # type: ignore[arg-type]
        return keeper, api

    async def leader(self, name: str = "one") -> tuple[LedgerKeeper, LossyApi]:
        keeper, api = self.keeper(name)
        assert await keeper.campaign()
        if keeper.ledger is None:
            await keeper.replace(Ledger(1, 1))
        return keeper, api

    async def stored(self) -> Ledger:
        return ledger_text.decode(project(await self.admin.request("GET", PATH)).data)

    async def edit(self, **data: str | None) -> None:
        await self.admin.request("PATCH", PATH, body=orjson.dumps({"data": data}), content_type=MERGE_PATCH)


@pytest.fixture
async def stage():  # type: ignore[no-untyped-def]
    stage = Stage()
    async with stage.cluster:
        yield stage


async def elect(keeper: LedgerKeeper) -> None:
    while not await keeper.campaign():
        await asyncio.sleep(1)


async def test_decisions_are_one_write_and_read_back(stage: Stage) -> None:
    """A whole plan is one compare-and-swap."""
    keeper, api = await stage.leader()
    before = api.writes
    await keeper.commit([reservation("a"), reservation("b")])
    assert api.writes == before + 1
    await keeper.commit([reservation("c")], ["a"])
    assert (await stage.stored()).entries.keys() == {"b", "c"}
    assert await stage.stored() == keeper.ledger


async def test_rule_1_a_take_over_raises_the_epoch_and_fences_the_old_leader(stage: Stage) -> None:
    """The old leader learns it at its next write, which changes nothing."""
    old, _ = await stage.leader("old")
    await old.commit([reservation("a")])
    new, _ = stage.keeper("new")
    await elect(new)
    assert new.ledger is not None
    assert old.ledger is not None
    assert new.ledger.epoch == old.ledger.epoch + 1
    with pytest.raises(LeaseLost):
        await old.commit([reservation("b")])
    assert (await stage.stored()).entries.keys() == {"a"}


async def test_a_live_lease_is_not_taken(stage: Stage) -> None:
    """A candidate waits out the lease as it sees it."""
    keeper, _ = await stage.leader("old")
    rival, _ = stage.keeper("new")
    assert not await rival.campaign()
    await keeper.commit()


@pytest.mark.parametrize("lost", ["lose_replies", "lose_requests"])
async def test_rule_6_an_unknown_outcome_is_settled_before_going_on(stage: Stage, lost: str) -> None:
    """Applied or not, commit returns only when the write is stored, exactly once."""
    keeper, api = await stage.leader()
    setattr(api, lost, 2)
    ledger = await keeper.commit([reservation("a")])
    assert await stage.stored() == ledger
    ledger = await keeper.commit([reservation("b")], ["a"])
    assert await stage.stored() == ledger


async def test_rule_7_a_lease_that_cannot_be_renewed_ends_the_leadership(stage: Stage) -> None:
    """An API server that does not answer for the renew deadline."""
    keeper, api = await stage.leader()
    api.lose_requests = 10_000
    with pytest.raises(LeaseLost):
        await keeper.commit([reservation("a")])


async def test_an_edit_by_hand_is_not_built_upon(stage: Stage) -> None:
    """It is reported with what is stored, to be kept for people to look at."""
    keeper, _ = await stage.leader()
    await keeper.commit([reservation("a")])
    await stage.edit(a=None)
    with pytest.raises(LedgerBroken) as broken:
        await keeper.commit([reservation("b")])
    assert broken.value.stored is not None
    assert keeper.ledger is None


async def test_a_deleted_ledger_is_missed_and_made_again(stage: Stage) -> None:
    """Absent is not empty: the entries come back from the jobs, by whoever rebuilds."""
    keeper, _ = await stage.leader()
    await keeper.commit([reservation("a")])
    await stage.admin.request("DELETE", PATH)
    with pytest.raises(LedgerBroken) as broken:
        await keeper.commit([reservation("b")])
    assert broken.value.deleted
    await keeper.recreate()
    await keeper.replace(Ledger(2, 9, {"a": reservation("a")}))
    assert (await stage.stored()).entries.keys() == {"a"}


async def test_a_released_lease_is_taken_at_once(stage: Stage) -> None:
    """A hand-over need not wait for the lease to run out."""
    keeper, _ = await stage.leader("old")
    await keeper.step_down()
    rival, _ = stage.keeper("new")
    assert await rival.campaign()


@pytest.mark.parametrize("bumped", [False, True], ids=["revisions go back", "revisions go on"])
async def test_who_sees_that_etcd_was_set_back_neither_goes_on_leading_nor_takes_over(
    stage: Stage, bumped: bool
) -> None:
    """What it remembers of jobs and pods never happened: it has to begin with nothing, as every process that leads."""
    keeper, _ = await stage.leader()
    backup = stage.cluster.server.store.backup()
    await keeper.commit([reservation("a")])
    rival, _ = stage.keeper("rival")
    assert not await rival.campaign()
    stage.cluster.restore(backup, bumped=bumped)
    with pytest.raises(SetBack, match="backup"):
        await keeper.commit([reservation("b")])
    with pytest.raises(SetBack, match="backup"):
        await rival.campaign()
    restarted, _ = stage.keeper("restarted")
    await elect(restarted)
    await restarted.commit([reservation("c")])
    assert (await stage.stored()).entries.keys() == {"c"}
