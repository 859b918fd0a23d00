"""An object of the ledger that somebody edits while `meta` stays as it is, as `kubectl edit` leaves it."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from tests.unit.controllers.ledger.keepers import PATH, LossyApi, Stage, elect, reservation
from tests.unit.controllers.ledger.test_full_ledger import furnished, job, leader
from tests.unit.controllers.ledger.test_raised_pages import candidate
from webhook.cluster import rebuild
from webhook.cluster.feeds import Feeds
from webhook.cluster.view import View
from webhook.controllers.ledger.errors import LeaseLost, LedgerBroken
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.stored import project
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Ledger
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
Act = Callable[[Stage], Awaitable[None]]
EDITS = {
    "an entry taken out": {"a": None},
    "an entry changed": {"a": "{}"},
    "a key added": {"note": "do not touch"},
}


async def annotate(stage: Stage) -> None:
    body = orjson.dumps({"metadata": {"annotations": {"note": "looked at"}}})
    await stage.admin.request("PATCH", PATH, body=body, content_type=MERGE_PATCH)


async def add_a_key(stage: Stage) -> None:
    await stage.edit(note="do not touch")


async def lease_of(stage: Stage) -> str | None:
    return project(await stage.admin.request("GET", PATH)).lease


async def led(stage: Stage) -> tuple[LedgerKeeper, LossyApi]:
    keeper, api = await stage.leader()
    await keeper.commit([reservation("a"), reservation("c")])
    await asyncio.sleep(1)
    return keeper, api


async def lost_then(stage: Stage, keeper: LedgerKeeper, api: LossyApi, act: Act) -> None:
    """Write an entry whose answer is lost, have something done before it is asked for, and settle it."""
    api.lose_replies = 1
    writing = asyncio.create_task(keeper.commit([reservation("b")]))
    await asyncio.sleep(0.05)
    await act(stage)
    await writing


async def taken_over_while(stage: Stage, act: Act) -> tuple[LedgerKeeper, bool]:
    """Have something done while a candidate raises pages; return it, and whether it leads then."""
    keeper, api = await candidate(stage)
    api.page_seconds = 1.0
    taking = asyncio.create_task(keeper.campaign())
    await asyncio.sleep(0.5)
    await act(stage)
    taken = await taking
    api.page_seconds = 0.0
    return keeper, taken


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
async def test_a_renewal_that_meets_an_edit_is_not_done_though_meta_is_as_we_wrote_it(
    stage: Stage, edit: dict[str, str | None]
) -> None:
    """It counted as our own write, and all that came later was built upon the edit."""
    keeper, _ = await led(stage)
    await stage.edit(**edit)
    with pytest.raises(LedgerBroken) as broken:
        await keeper.renew()
    assert broken.value.stored is not None
    assert keeper.ledger is None


async def test_a_renewal_that_meets_an_annotation_is_sent_again_and_nothing_is_rebuilt(stage: Stage) -> None:
    """It counted as done, and the lease that others saw ran out."""
    keeper, api = await led(stage)
    before, writes = await lease_of(stage), api.writes
    await annotate(stage)
    await keeper.renew()
    assert await lease_of(stage) != before
    assert api.writes == writes + 2, "the one that conflicts, and the one that does not"
    assert (await keeper.commit([reservation("b")])).entries.keys() == {"a", "b", "c"}
    assert await stage.stored() == keeper.ledger


async def test_a_write_that_landed_before_an_annotation_is_our_own(stage: Stage) -> None:
    keeper, api = await led(stage)
    writes = api.writes
    await lost_then(stage, keeper, api, annotate)
    assert api.writes == writes + 2, "what was lost, and what asked for it"
    assert await stage.stored() == keeper.ledger


async def test_a_write_that_landed_before_an_edit_is_not_built_upon(stage: Stage) -> None:
    keeper, api = await led(stage)
    with pytest.raises(LedgerBroken):
        await lost_then(stage, keeper, api, add_a_key)


async def test_a_renewal_after_another_has_taken_over_ends_the_term(stage: Stage) -> None:
    keeper, _ = await led(stage)
    new, _ = stage.keeper("new")
    await elect(new)
    with pytest.raises(LeaseLost):
        await keeper.renew()


@pytest.mark.usefixtures("small_pages")
async def test_an_edit_during_a_take_over_is_noticed_by_who_takes_over(stage: Stage) -> None:
    """What was written of the index is compared, though the ledger is not put together before all pages are read."""
    keeper, taken = await taken_over_while(stage, add_a_key)
    assert not taken
    assert await keeper.campaign()
    assert keeper.ledger is None, "it has to be rebuilt"
    assert keeper.unreadable is not None


@pytest.mark.usefixtures("small_pages")
async def test_an_annotation_during_a_take_over_changes_nothing(stage: Stage) -> None:
    keeper, taken = await taken_over_while(stage, annotate)
    assert taken
    assert keeper.ledger is not None
    assert len(keeper.ledger.entries) == 200


async def test_where_the_ledger_is_doubted_the_index_is_looked_at_too(stage: Stage) -> None:
    keeper, _ = await led(stage)
    await add_a_key(stage)
    with pytest.raises(LedgerBroken):
        await keeper.verify(True, (), {})


async def test_what_is_added_while_a_new_ledger_is_written_does_not_stay_beside_it(stage: Stage) -> None:
    keeper, api = await led(stage)
    keeper.forget()
    api.before_answering = lambda: add_a_key(stage)
    with pytest.raises(LedgerBroken):
        await keeper.replace(Ledger(2, 9, {"a": reservation("a")}))
    await keeper.replace(Ledger(2, 9, {"a": reservation("a")}))
    assert (await stage.stored()).entries.keys() == {"a"}


async def test_a_lease_is_kept_while_somebody_edits_what_is_being_rebuilt(stage: Stage) -> None:
    """Whatever is there is replaced anyway."""
    keeper, _ = await led(stage)
    keeper.forget()
    before = await lease_of(stage)
    await add_a_key(stage)
    await keeper.renew()
    assert await lease_of(stage) != before


async def test_an_edit_that_a_long_cycle_meets_at_a_renewal_is_rebuilt_within_seconds() -> None:
    """Standbys and webhooks could not read the ledger any more, and answered that until somebody deleted it."""
    async with furnished(job(1)) as cluster, leader(cluster) as parts, leader(cluster, "standby") as standby:
        await asyncio.sleep(5)
        keeper, feed = parts.terms.keeper, parts.reconciler._gangs
        assert keeper.ledger is not None
        renewals = list[bool]()

        async def long(_renew: object = None) -> None:
            if not renewals:
                renewals.append(True)
                await cluster.api().request("PATCH", PATH, body=b'{"data":{"note":"1"}}', content_type=MERGE_PATCH)
                await keeper.renew()

        feed.settle_many_nodes = long  # type: ignore[method-assign]
        await asyncio.sleep(5)
        assert renewals
        stored = ledger_text.decode(project(await cluster.api().request("GET", PATH)).data)
        assert parts.reconciler.leading
        assert stored.entries.keys() == parts.view.jobs.keys()
        assert standby.view.ledger_trusted
        assert standby.view.ledger.entries.keys() == stored.entries.keys()


@pytest.mark.parametrize("list_seconds", [3, 60], ids=["a short list", "a long list"])
@pytest.mark.parametrize("deleted", [False, True], ids=["edited", "deleted"])
async def test_what_is_done_to_the_index_while_it_is_doubted_after_a_take_over_is_rebuilt(
    monkeypatch: pytest.MonkeyPatch, deleted: bool, list_seconds: float
) -> None:
    """The process ended, and kept its lease. However long jobs are listed for, that is noticed at the next renewal."""
    unheld, relist, asked = rebuild.unheld, Feeds.relist_all, asyncio.Event()

    def late(view: View, ledger: Ledger) -> list[str]:
        if asked.is_set():
            return unheld(view, ledger)
        asked.set()
        return ["team-a/late"]

    async def slow(feeds: Feeds) -> None:
        await asyncio.sleep(list_seconds)
        await relist(feeds)

    async with furnished(job(1)) as cluster:
        async with leader(cluster):
            await asyncio.sleep(5)
        monkeypatch.setattr(rebuild, "unheld", late)
        monkeypatch.setattr(Feeds, "relist_all", slow)
        async with leader(cluster, "next") as parts:
            await asked.wait()
            keeper, admin = parts.terms.keeper, cluster.api()
            await asyncio.sleep(0.5)
            monkeypatch.setattr(Feeds, "relist_all", relist)
            if deleted:
                await admin.request("DELETE", PATH)
            else:
                await admin.request("PATCH", PATH, body=b'{"data":{"note":"1"}}', content_type=MERGE_PATCH)
            await asyncio.sleep(5)
            assert parts.terms.keeper is keeper, "its term goes on"
            stored = ledger_text.decode(project(await admin.request("GET", PATH)).data)
            assert stored.entries.keys() == parts.view.jobs.keys()
            assert parts.view.ledger_trusted
