"""The ledger rules that are about writing: compare-and-swap, epochs, unknown outcomes, lost leases."""

import asyncio

import pytest

from tests.unit.controllers.ledger.keepers import Stage, elect, reservation
from webhook.controllers.ledger.errors import LeaseLost, LedgerBroken, SetBack
from webhook.controllers.ledger.stored import project
from webhook.core.ledger.record import Ledger
from webhook.kube.election import Elector

pytestmark = pytest.mark.virtual_time
PATH = "/api/v1/namespaces/tutti-system/configmaps/tutti-ledger"


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


async def test_a_leader_counts_from_when_that_renewal_was_sent_which_is_stored(stage: Stage) -> None:
    """Its answer was lost: others count from then too, and the next one, which conflicted, is stored nowhere."""
    keeper, api = await stage.leader()
    await asyncio.sleep(2)
    api.lose_replies, elector, sent = 1, stage.electors["one"], asyncio.get_running_loop().time()
    await keeper.renew()
    assert asyncio.get_running_loop().time() > sent
    assert elector.quit_at == sent + elector.renew_seconds
    stored = project(await stage.admin.request("GET", PATH)).lease
    rival = Elector("two")
    rival.observe(stored, sent)
    assert rival.may_acquire_in(sent) > elector.quit_at - sent


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


async def test_who_followed_the_ledger_by_a_watch_alone_sees_that_etcd_was_set_back(stage: Stage) -> None:
    """It was refused whenever it asked itself, and then took what was restored for an old copy of the ledger alone."""
    keeper, _ = await stage.leader()
    rival, _ = stage.keeper("rival")
    assert not await rival.campaign()
    backup = stage.cluster.server.store.backup()
    await keeper.commit([reservation("a")])
    (index,) = stage.cluster.server.store.items(("", "configmaps"))
    rival.index_seen(index.revision, None)
    stage.cluster.restore(backup)
    with pytest.raises(SetBack, match="backup"):
        await rival.campaign()


async def test_what_the_watch_shows_before_an_older_answer_comes_in_is_no_restored_backup(stage: Stage) -> None:
    """A busy leader writes while a standby asks: its watch may be faster than the answer."""
    keeper, _ = await stage.leader()
    rival, api = stage.keeper("rival")

    async def overtaken() -> None:
        await keeper.commit([reservation("a")])
        (index,) = stage.cluster.server.store.items(("", "configmaps"))
        rival.index_seen(index.revision, None)

    api.before_answering = overtaken
    assert not await rival.campaign()
    assert not await rival.campaign()


async def test_what_a_watch_shows_late_of_a_lease_is_no_sign_of_life(stage: Stage) -> None:
    """A standby that was just started takes in thousands of jobs: its own reads were seconds ahead of its watch."""
    keeper, _ = await stage.leader()
    (before,) = stage.cluster.server.store.items(("", "configmaps"))
    lease = project(await stage.admin.request("GET", PATH)).lease
    await asyncio.sleep(1)
    await keeper.renew()
    rival, _ = stage.keeper("rival")
    assert not await rival.campaign()
    await asyncio.sleep(3)
    rival.index_seen(before.revision, lease)
    await asyncio.sleep(2.1)
    assert await rival.campaign(), "5 s after it saw the last renewal"
