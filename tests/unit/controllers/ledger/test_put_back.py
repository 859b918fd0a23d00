"""An old copy of the index, or of a page, that is put back while nobody leads: whoever leads next rebuilds."""

import asyncio
from dataclasses import replace

import orjson
import pytest

from tests.unit.controllers.ledger.keepers import LossyApi, Stage, elect, reservation
from tests.unit.controllers.ledger.test_full_ledger import furnished, job, leader
from webhook.clock import LoopClock
from webhook.cluster import rebuild
from webhook.cluster.feeds import Feeds
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.core.ledger import pages, text
from webhook.core.ledger.record import Ledger
from webhook.core.ledger.text import Decoder
from webhook.kube.election import Elector
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
COLLECTION = "/api/v1/namespaces/tutti-system/configmaps"
INDEX = "tutti-ledger"


async def copied(cluster: SimulatedCluster, name: str) -> dict[str, object]:
    """Return an object as a backup has it."""
    found = orjson.loads(await cluster.api().request("GET", f"{COLLECTION}/{name}"))
    del found["metadata"]["resourceVersion"]
    return dict(found)


async def put_back(cluster: SimulatedCluster, copy: dict[str, object]) -> None:
    name = copy["metadata"]["name"]  # type: ignore[index]
    await cluster.api().request("PUT", f"{COLLECTION}/{name}", body=orjson.dumps(copy))


async def renewed(keeper: LedgerKeeper) -> None:
    """Let the lease be renewed, as it is every two seconds."""
    await asyncio.sleep(2)
    await keeper.renew_if_due()


async def paged(stage: Stage) -> tuple[LedgerKeeper, str]:
    """Return a leader of four gangs, and its page."""
    keeper, _ = await stage.leader("old")
    for number in range(4):
        await keeper.commit([reservation(f"gang-{number}")])
    assert keeper.ledger is not None
    (page,) = keeper.ledger.pages
    return keeper, page


def successor(stage: Stage, *, proved_seq: int = 0, decoders: dict[str, Decoder] | None = None) -> LedgerKeeper:
    """Return one that campaigns with what its process has read: jobs and objects of the ledger."""
    known = decoders or {}
    return LedgerKeeper(
        LossyApi(stage.cluster.api()),  # type: ignore[arg-type]
        Elector("new"),
        now=LoopClock().now,
        decoder=lambda name: known.setdefault(name, Decoder()),
        proved_seq=lambda: proved_seq,
    )


@pytest.mark.usefixtures("small_pages")
async def test_a_page_is_known_to_be_old_by_the_index_though_nobody_saw_it_put_back(stage: Stage) -> None:
    keeper, page = await paged(stage)
    copy = await copied(stage.cluster, page)
    await keeper.commit(drop=["gang-2"])
    await renewed(keeper)
    await put_back(stage.cluster, copy)
    new = successor(stage)
    await elect(new)
    assert new.ledger is None
    assert new.unreadable is not None


@pytest.mark.usefixtures("small_pages")
async def test_an_index_is_known_to_be_old_by_a_page_that_was_written_after_it(stage: Stage) -> None:
    keeper, _ = await paged(stage)
    copy = await copied(stage.cluster, INDEX)
    await keeper.commit(drop=["gang-0"])
    await keeper.commit(drop=["gang-2"])
    await put_back(stage.cluster, copy)
    new = successor(stage)
    await elect(new)
    assert new.ledger is None


@pytest.mark.usefixtures("small_pages")
async def test_a_page_is_known_to_be_old_by_another_that_was_written_after_it(stage: Stage) -> None:
    """Before the lease was renewed, and the index with it."""
    keeper, page = await paged(stage)
    await keeper.commit([reservation("gang-4")])
    assert keeper.ledger is not None
    assert len(keeper.ledger.pages) == 2
    copy = await copied(stage.cluster, page)
    await keeper.commit(drop=["gang-2"])
    await keeper.commit(drop=["gang-4"])
    await put_back(stage.cluster, copy)
    new = successor(stage)
    await elect(new)
    assert new.ledger is None


async def test_an_index_that_holds_all_is_known_to_be_old_by_a_job_that_was_started_since(stage: Stage) -> None:
    keeper, _ = await stage.leader("old")
    copy = await copied(stage.cluster, INDEX)
    started = await keeper.commit([reservation("gang")])
    await put_back(stage.cluster, copy)
    new = successor(stage, proved_seq=started.seq)
    await elect(new)
    assert new.ledger is None


async def test_an_index_is_known_to_be_old_by_a_standby_that_has_read_a_newer_one(stage: Stage) -> None:
    keeper, _ = await stage.leader("old")
    copy = await copied(stage.cluster, INDEX)
    newest = await keeper.commit([reservation("gang")])
    standby = Decoder()
    standby.decode((await copied(stage.cluster, INDEX))["data"])  # type: ignore[arg-type]
    await put_back(stage.cluster, copy)
    new = successor(stage, decoders={pages.INDEX: standby})
    await elect(new)
    assert new.ledger is None
    assert new.known is not None
    assert new.known.version >= newest.version, "what replaces it comes after all that was read"


@pytest.mark.usefixtures("small_pages")
async def test_a_page_is_known_to_be_old_by_a_standby_that_has_read_a_newer_one(stage: Stage) -> None:
    keeper, page = await paged(stage)
    copy = await copied(stage.cluster, page)
    await keeper.commit(drop=["gang-2"])
    standby = Decoder()
    standby.decode((await copied(stage.cluster, page))["data"])  # type: ignore[arg-type]
    await put_back(stage.cluster, copy)
    new = successor(stage, decoders={page: standby})
    await elect(new)
    assert new.ledger is None


@pytest.mark.usefixtures("small_pages")
async def test_what_objects_say_of_each_other_costs_no_write_and_stops_no_take_over(stage: Stage) -> None:
    keeper, api = await stage.leader("old")
    for number in range(8):
        await keeper.commit([reservation(f"gang-{number}")])
    before = api.writes
    await keeper.commit(drop=["gang-3"])
    assert api.writes == before + 1
    await renewed(keeper)
    assert api.writes == before + 2
    new = successor(stage, proved_seq=keeper.ledger.seq if keeper.ledger else 0)
    await elect(new)
    assert new.ledger is not None
    assert keeper.ledger is not None
    assert new.ledger.entries == keeper.ledger.entries


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("lost", ["lose_replies", "lose_requests"])
async def test_a_renewal_that_says_something_new_may_be_lost(stage: Stage, lost: str) -> None:
    keeper, api = await stage.leader("old")
    for number in range(5):
        await keeper.commit([reservation(f"gang-{number}")])
        await asyncio.sleep(2)
        setattr(api, lost, 1)
        await keeper.renew_if_due()
    said = text.decode((await copied(stage.cluster, INDEX))["data"])  # type: ignore[arg-type]
    assert len(said.seen) == len(said.pages) == 2
    new = successor(stage)
    await elect(new)
    assert new.ledger is not None


async def test_a_reconciler_that_starts_on_an_index_put_back_adopts_what_its_jobs_say() -> None:
    """Nothing that runs is stopped, or counted as not there."""
    async with furnished(*(job(number) for number in range(6))) as cluster:
        async with leader(cluster) as parts:
            await asyncio.sleep(5)
            before = parts.view.ledger
        assert len(before.entries) == 6
        copy = await copied(cluster, INDEX)
        await put_back(cluster, copy | {"data": text.encode(Ledger(before.epoch, 1))})
        async with leader(cluster, "another") as parts:
            await asyncio.sleep(15)
            after = parts.view.ledger
    since = {uid: entry.since_seconds for uid, entry in before.entries.items()}
    assert {uid: entry.since_seconds for uid, entry in after.entries.items()} == since


async def test_a_ledger_that_says_nothing_of_what_runs_is_an_old_copy_though_all_its_parts_agree() -> None:
    """One page of those that one commit wrote was put back to what it was before: no other is newer."""
    async with furnished(*(job(number) for number in range(6))) as cluster:
        async with leader(cluster) as parts:
            await asyncio.sleep(5)
            before = parts.view.ledger
        lost = min(before.entries)
        left = replace(before, seq=before.seq + 1, entries={u: e for u, e in before.entries.items() if u != lost})
        await put_back(cluster, await copied(cluster, INDEX) | {"data": text.encode(left)})
        async with leader(cluster, "another") as parts:
            await asyncio.sleep(15)
            assert parts.view.ledger.entries[lost].since_seconds == before.entries[lost].since_seconds


async def test_a_ledger_that_is_newer_than_what_was_read_of_its_jobs_is_no_old_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What has ended shows when it is read again, and nothing is rebuilt."""
    everything = furnished(*(job(number) for number in range(3)))
    async with everything as cluster, leader(cluster) as parts, leader(cluster, "standby") as standby:
        await asyncio.sleep(5)
        running = dict(standby.view.jobs)
        pods = [pod for name in standby.view.namespaces for pod in standby.view.fences.pods(name)]
        await asyncio.sleep(120)
        ended, epoch = dict(standby.view.jobs), parts.view.ledger.epoch
        assert not parts.view.ledger.entries

        async def read_again(feeds: Feeds) -> None:
            feeds.view.jobs.update(ended)
            for pod in pods:
                feeds.view.drop_pod(pod.namespace, pod.uid)

        monkeypatch.setattr(Feeds, "relist_all", read_again)
        standby.view.jobs.update(running)
        for pod in pods:
            standby.view.put_pod(pod)
        assert rebuild.unheld(standby.view, standby.view.ledger)
        broken = await standby.reconciler._recovery.doubt(standby.view.ledger)
        assert broken is None
        assert parts.view.ledger.epoch == epoch


async def test_a_ledger_of_an_earlier_write_than_one_that_started_a_job_is_an_old_copy() -> None:
    """It has an entry for each job that runs, which may have grown since."""
    async with furnished(*(job(number) for number in range(3))) as cluster:
        async with leader(cluster) as parts:
            await asyncio.sleep(5)
            before = parts.view.ledger
        await put_back(cluster, await copied(cluster, INDEX) | {"data": text.encode(replace(before, seq=1))})
        async with leader(cluster, "another") as parts:
            await asyncio.sleep(15)
            assert parts.view.ledger.epoch > before.epoch + 1, "it was taken over, and then rebuilt"
            assert parts.view.ledger.entries.keys() == before.entries.keys()
