"""An index and pages: each fenced by its own compare-and-swap, whatever comes late, is lost or was edited."""

import asyncio

import orjson
import pytest

from tests.unit.controllers.ledger.keepers import LossyApi, Stage, elect, reservation
from webhook.controllers.ledger import keeper as keeping
from webhook.controllers.ledger.errors import LeaseLost, LedgerBroken, LedgerRefused
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.stored import Objects, Stored
from webhook.core.ledger import pages, text
from webhook.core.ledger.pages import INDEX
from webhook.core.ledger.record import Ledger
from webhook.core.ledger.text import Decoder
from webhook.core.notation import names
from webhook.kube.api import MERGE_PATCH

pytestmark = [pytest.mark.virtual_time, pytest.mark.usefixtures("small_pages")]
COLLECTION = "/api/v1/namespaces/tutti-system/configmaps"


def objects_of(stage: Stage) -> Objects:
    return Objects(stage.admin, attempt_seconds=1.0)


async def stored(stage: Stage) -> dict[str, Stored]:
    """Return every object of the ledger that is stored, by name."""
    objects = objects_of(stage)
    found = {page.name: page async for page in objects.pages()}
    index = await objects.read("tutti-ledger")
    return found if index is None else found | {"tutti-ledger": index}


async def filled(stage: Stage, count: int = 6) -> tuple[LedgerKeeper, LossyApi]:
    """Return a leader that has admitted so many gangs, one after another."""
    keeper, api = await stage.leader("old")
    for number in range(count):
        await keeper.commit([reservation(f"gang-{number}")])
    return keeper, api


async def whole(stage: Stage) -> Ledger:
    """Return the ledger as the next leader finds it."""
    objects = objects_of(stage)
    index = await objects.read("tutti-ledger")
    assert index is not None
    found = {page.name: pages.Found(page.uid, page.data) async for page in objects.pages()}
    said = text.decode(index.data)
    pages.unlisted(said, found)
    return pages.merged(said, {name: pages.read(said, name, found[name], Decoder()) for name in said.pages})


async def test_what_does_not_fit_the_index_stands_on_pages_and_is_one_ledger(stage: Stage) -> None:
    keeper, _ = await filled(stage)
    assert keeper.ledger is not None
    assert len(keeper.ledger.pages) == 2
    assert await whole(stage) == keeper.ledger


async def test_one_admission_writes_one_page_whatever_else_runs(stage: Stage) -> None:
    keeper, api = await filled(stage, 5)
    before, writes = await stored(stage), api.writes
    await keeper.commit([reservation("one-more")])
    after = await stored(stage)
    assert api.writes == writes + 1
    changed = [name for name in after if after[name].resource_version != before[name].resource_version]
    assert len(changed) == 1


async def test_pages_that_come_to_be_together_are_created_at_once_and_listed_by_one_write(stage: Stage) -> None:
    keeper, api = await filled(stage, 3)
    assert keeper.ledger is not None
    before, writes = len(keeper.ledger.pages), api.writes
    await keeper.commit([reservation(f"new-{number}") for number in range(12)])
    made = len(keeper.ledger.pages) - before
    assert made >= 3
    assert await whole(stage) == keeper.ledger
    # Each is created, the index lists them, and each is filled, as is the one that had room.
    assert api.writes - writes <= 2 * made + 2
    api.write_seconds, began = 1.0, asyncio.get_running_loop().time()
    await keeper.commit([reservation(f"newer-{number}") for number in range(12)])
    assert len(keeper.ledger.pages) >= before + made + 3
    assert asyncio.get_running_loop().time() - began < 5, "not one after the other"


@pytest.mark.parametrize("lost", ["lose_requests", "lose_replies"])
async def test_where_one_of_several_creations_is_lost_only_pages_that_are_there_are_listed(
    stage: Stage, lost: str
) -> None:
    keeper, api = await filled(stage, 3)
    setattr(api, lost, 2)
    await keeper.commit([reservation(f"new-{number}") for number in range(12)])
    assert keeper.ledger is not None
    assert await whole(stage) == keeper.ledger
    assert keeper.ledger.pages.keys() <= (await stored(stage)).keys()


async def test_who_starts_waits_for_no_page_on_which_others_have_ended(stage: Stage) -> None:
    keeper, api = await filled(stage, 12)
    assert keeper.ledger is not None
    ended = [
        next(iter(page.data.keys() - {text.META})) for name, page in (await stored(stage)).items() if "-page-" in name
    ]
    assert len(ended) > 2
    api.write_seconds = 1.0
    told: list[Ledger] = []
    writing = asyncio.create_task(keeper.commit([reservation("new")], ended, on_put=told.append))
    while not told:
        await asyncio.sleep(0.01)
    assert not writing.done()
    now = (await whole(stage)).entries.keys()
    assert "new" in now
    assert len(now & set(ended)) >= len(ended) - 1, "one may stand on the page of the new one"
    assert await writing == told[0]
    assert (await whole(stage)).entries == told[0].entries


async def test_what_the_first_page_spends_of_the_same_commit_is_stored_before_anybody_starts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, api = await filled(stage, 1)
    assert not keeper.paged
    monkeypatch.setattr(text, "BYTES_MAX", 2 * pages.INDEX_BYTES)
    api.write_seconds = 1.0
    dropped: list[bool] = []

    def told(ledger: Ledger) -> None:
        stored_index = stage.cluster.server.store.get(("", "configmaps"), "tutti-system", "tutti-ledger")
        assert stored_index is not None
        dropped.append("gang-0" not in stored_index.object["data"])

    new = [reservation(f"new-{number}") for number in range(6)]
    await keeper.commit(new, ["gang-0"], on_put=told)
    assert keeper.ledger is not None
    assert keeper.ledger.pages
    assert dropped == [True]


async def test_an_index_grows_past_its_size_by_no_row_of_commits_that_spend_what_they_give_back(stage: Stage) -> None:
    keeper, _ = await stage.leader("old")
    for number in range(12):
        # Each time one gang ends and two start: as one commit while that may be one write, as two otherwise.
        ended = [f"gang-{number - 1}"] if number else []
        if keeper.paged:
            await keeper.commit(drop=ended)
            ended = []
        await keeper.commit([reservation(f"gang-{number}"), reservation(f"stays-{number}")], ended)
    index = (await stored(stage))["tutti-ledger"]
    entries = {uid: entry for uid, entry in index.data.items() if uid not in (text.META, text.PAGES)}
    assert text.size_bytes(entries) <= 2 * pages.INDEX_BYTES


async def test_an_emptied_page_is_listed_no_more_and_then_deleted(stage: Stage) -> None:
    keeper, _ = await filled(stage)
    await keeper.commit(drop=["gang-2", "gang-3"])
    await asyncio.sleep(2)
    await keeper.commit()
    assert keeper.ledger is not None
    assert len(keeper.ledger.pages) == 1
    assert (await stored(stage)).keys() == {"tutti-ledger", *keeper.ledger.pages}
    assert await whole(stage) == keeper.ledger


@pytest.mark.parametrize("lost", ["lose_replies", "lose_requests"])
async def test_an_unknown_outcome_is_settled_on_pages_as_well(stage: Stage, lost: str) -> None:
    keeper, api = await stage.leader()
    for number in range(7):
        setattr(api, lost, 2)
        await keeper.commit([reservation(f"gang-{number}")], [f"gang-{number - 3}"] if number >= 3 else [])
        assert await whole(stage) == keeper.ledger


async def test_a_take_over_raises_the_epoch_of_each_page_and_fences_its_late_writes(stage: Stage) -> None:
    old, _ = await filled(stage)
    new = await depose(stage, "new")
    assert new.ledger is not None
    assert old.ledger is not None
    assert new.ledger.entries == old.ledger.entries
    late = next(
        uid for name, page in (await stored(stage)).items() if "page" in name for uid in page.data if uid != text.META
    )
    with pytest.raises(LeaseLost):
        await old.commit(drop=[late])
    assert (await whole(stage)).entries.keys() == new.ledger.entries.keys()


async def test_a_page_that_a_deposed_leader_creates_late_is_never_read(stage: Stage) -> None:
    old, _ = await filled(stage, 2)
    new = await depose(stage, "new")
    with pytest.raises(LeaseLost):
        await old.commit([reservation("late")])
    assert new.ledger is not None
    assert await whole(stage) == new.ledger
    third = await depose(stage, "third")
    assert third.ledger is not None
    assert (await stored(stage)).keys() == {"tutti-ledger", *third.ledger.pages}


async def depose(stage: Stage, by: str) -> LedgerKeeper:
    """Let another take over at once, as one whose clock runs too fast would."""
    path = f"{COLLECTION}/tutti-ledger"
    lease = orjson.loads((await stored(stage))["tutti-ledger"].lease or "{}") | {"holderIdentity": ""}
    note = {"metadata": {"annotations": {names.LEASE_ANNOTATION: orjson.dumps(lease).decode()}}}
    await stage.admin.request("PATCH", path, body=orjson.dumps(note), content_type=MERGE_PATCH)
    keeper, _ = stage.keeper(by)
    assert await keeper.campaign()
    return keeper


async def damaged(stage: Stage, how: str) -> None:
    """Do to one page what people and backups do."""
    found = await stored(stage)
    name = min(name for name in found if "page" in name)
    path = f"{COLLECTION}/{name}"
    before = orjson.loads(await stage.admin.request("GET", path))
    if how == "edited":
        body = orjson.dumps({"data": {min(key for key in before["data"] if key != "meta"): None}})
        await stage.admin.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        return
    if how == "wiped":
        await stage.admin.request("PATCH", path, body=b'{"data": null}', content_type=MERGE_PATCH)
        return
    await stage.admin.request("DELETE", path)
    if how == "restored":
        before["metadata"] = {key: before["metadata"][key] for key in ("name", "namespace", "labels")}
        await stage.admin.request("POST", COLLECTION, body=orjson.dumps(before))


@pytest.mark.parametrize("how", ["deleted", "restored", "edited", "wiped"])
async def test_a_page_that_is_not_as_it_was_written_is_not_built_upon(stage: Stage, how: str) -> None:
    """Neither by its leader nor by the next."""
    keeper, _ = await filled(stage, 4)
    await damaged(stage, how)
    with pytest.raises(LedgerBroken):
        await keeper.commit(drop=["gang-2", "gang-3"])
    assert keeper.ledger is None
    rival, _ = stage.keeper("rival")
    await elect(rival)
    assert rival.ledger is None
    assert not rival.missing


@pytest.mark.parametrize("schema", [99, 2.5, 1.5, "3", "1", True])
async def test_a_page_of_another_release_is_left_as_it_is_though_the_index_is_of_one_that_is_known(
    stage: Stage, schema: object
) -> None:
    """Neither its leader nor the next takes it for damage: they would make it again of what they know."""
    keeper, _ = await filled(stage)
    name = max(name for name in await stored(stage) if "page" in name)
    page = (await stored(stage))[name]
    meta = orjson.dumps(orjson.loads(page.data[text.META]) | {"schema": schema}).decode()
    body = orjson.dumps({"data": {text.META: meta}})
    await stage.admin.request("PATCH", f"{COLLECTION}/{name}", body=body, content_type=MERGE_PATCH)
    before = {name: found.data for name, found in (await stored(stage)).items() if "page" in name}
    with pytest.raises(LedgerRefused):
        await keeper.commit(drop=list(page.data.keys() - {text.META}))
    with pytest.raises(LedgerRefused):
        await depose(stage, "next")
    assert {name: found.data for name, found in (await stored(stage)).items() if "page" in name} == before


async def test_a_page_that_is_filled_again_by_the_commit_that_would_unlist_it_stays(stage: Stage) -> None:
    """Two pages have become empty; one commit fills one of them and goes on with the other."""
    keeper, _ = await filled(stage, 8)
    await keeper.commit(drop=[f"gang-{number}" for number in range(2, 8)])
    await asyncio.sleep(2)
    assert keeper.renew_due
    await keeper.commit([reservation(f"more-{number}") for number in range(5)])
    assert await whole(stage) == keeper.ledger
    assert (await depose(stage, "new")).ledger is not None


async def test_a_page_whose_creation_got_lost_in_a_rebuild_is_no_reason_for_another(stage: Stage) -> None:
    keeper, api = await stage.leader("old")
    api.lose_replies = 1
    await keeper.replace(Ledger(1, 1, {f"gang-{number}": reservation(f"gang-{number}") for number in range(6)}))
    assert keeper.ledger is not None
    assert len(await stored(stage)) == len(keeper.ledger.pages) + 2
    new = await depose(stage, "new")
    assert new.ledger is not None
    assert new.ledger.entries == keeper.ledger.entries
    assert (await stored(stage)).keys() == {"tutti-ledger", *keeper.ledger.pages}


async def test_a_rebuild_of_more_pages_than_a_lease_lasts_for_renews_it(stage: Stage) -> None:
    keeper, api = await stage.leader("old")
    api.write_seconds = 1
    await keeper.replace(Ledger(1, 1, {f"gang-{number}": reservation(f"gang-{number}") for number in range(60)}))
    assert await whole(stage) == keeper.ledger


async def test_a_take_over_of_more_pages_than_a_lease_lasts_for_renews_it(stage: Stage, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The leader must be able to lead when it begins to, and nobody else may begin while it takes over."""
    monkeypatch.setattr(keeping, "AT_ONCE", 2)
    old, _ = await filled(stage, 40)
    assert old.ledger is not None
    new, api = stage.keeper("new")
    api.write_seconds = 1
    await elect(new)
    assert new.ledger is not None
    assert len(new.ledger.pages) > 10
    assert not stage.electors["new"].must_quit(asyncio.get_running_loop().time() + 1.5)
    await new.commit([reservation("late")])
    assert await whole(stage) == new.ledger


async def test_a_commit_that_writes_more_pages_than_a_lease_lasts_for_renews_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gangs by the thousand that fail to start are stopped at one time."""
    monkeypatch.setattr(keeping, "AT_ONCE", 4)
    keeper, api = await filled(stage, 100)
    assert keeper.ledger is not None
    assert len(keeper.ledger.pages) > 32
    api.write_seconds = 1.5
    await keeper.commit(drop=[f"gang-{number}" for number in range(0, 100, 2)])
    assert len(keeper.ledger.entries) == 50
    assert await whole(stage) == keeper.ledger


async def test_a_take_over_that_fails_half_way_hands_the_lease_back(stage: Stage) -> None:
    """So nobody has to wait until it runs out."""
    old, _ = await filled(stage)
    new, api = stage.keeper("new")

    api.conflicts = "page"
    while not api.writes:
        assert not await new.campaign()
        await asyncio.sleep(1)
    another, _ = stage.keeper("another")
    assert await another.campaign()
    assert another.ledger is not None
    assert old.ledger is not None
    assert another.ledger.entries == old.ledger.entries


async def test_an_old_list_of_pages_is_noticed(stage: Stage) -> None:
    """The index alone was restored from a backup."""
    keeper, _ = await filled(stage, 2)
    backup = orjson.loads(await stage.admin.request("GET", f"{COLLECTION}/tutti-ledger"))
    for number in range(4):
        await keeper.commit([reservation(f"later-{number}")])
    backup["metadata"].pop("resourceVersion")
    removed = {"pages": None}
    body = orjson.dumps({"data": removed | backup["data"]})
    await stage.admin.request("PATCH", f"{COLLECTION}/tutti-ledger", body=body, content_type=MERGE_PATCH)
    rival, _ = stage.keeper("rival")
    await elect(rival)
    assert rival.ledger is None


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("index", ["old", "old, of no pages", "emptied", "unreadable", "deleted"])
async def test_no_epoch_that_a_page_is_of_is_used_again_once_an_index_is_rebuilt(
    stage: Stage, index: str, followed: bool, dies: bool
) -> None:
    """A page of the ledger before, put back, was taken for one of the new ledger: both had the name and the epoch.

    Who ``followed`` has read how far the ledger had come, and whoever comes after it has not.
    """
    first, _ = await stage.leader("first")
    backups = {"old, of no pages": await data_of_index(stage)}
    for number in range(3):
        await first.commit([reservation(f"gang-{number}")])
    backups["old"] = await data_of_index(stage)
    for name in ("second", "third", "fourth"):
        leader, _ = stage.keeper(name)
        await elect(leader)
    rebuilds, _ = stage.keeper("rebuilds", Decoder() if followed else None)
    newest = await data_of_index(stage)
    if followed:
        rebuilds._decoder(INDEX).decode(newest)
    if index == "deleted":
        await stage.admin.request("DELETE", f"{COLLECTION}/tutti-ledger")
    else:
        data = {"unreadable": newest | {text.META: "{"}}.get(index, backups.get(index, {}))
        body = orjson.dumps({"data": dict.fromkeys(newest) | data})
        await stage.admin.request("PATCH", f"{COLLECTION}/tutti-ledger", body=body, content_type=MERGE_PATCH)
    await elect(rebuilds)
    assert rebuilds.ledger is None
    await rebuilds.delete_pages()
    if dies:
        rebuilds, _ = stage.keeper("comes after it")
        await elect(rebuilds)
        assert rebuilds.ledger is None, "nothing that was put back is believed once its pages are gone"
        await rebuilds.delete_pages()
    assert leader.ledger is not None
    assert rebuilds.known is not None
    assert rebuilds.known.epoch >= leader.ledger.epoch


async def data_of_index(stage: Stage) -> dict[str, str]:
    return dict((await stored(stage))["tutti-ledger"].data)


async def test_a_rebuilt_ledger_replaces_every_page_by_one_write_of_the_index(stage: Stage) -> None:
    keeper, _ = await filled(stage)
    assert keeper.ledger is not None
    old, entries = keeper.ledger, {f"new-{n}": reservation(f"new-{n}") for n in range(7)}
    await keeper.delete_pages()
    await keeper.replace(Ledger(old.epoch + 1, old.seq + 1, entries))
    assert keeper.ledger is not None
    assert (await whole(stage)).entries.keys() == entries.keys()
    assert (await stored(stage)).keys() == {"tutti-ledger", *keeper.ledger.pages}
    await keeper.commit([reservation("more")], ["new-6"])
    assert await whole(stage) == keeper.ledger


async def test_a_large_index_of_an_earlier_release_is_taken_over_as_it_is_and_drains(stage: Stage) -> None:
    keeper, _ = await stage.leader("old")
    entries = [reservation(f"gang-{number}") for number in range(20)]
    await keeper.replace(Ledger(1, 1))
    assert keeper.ledger is not None
    body = orjson.dumps({"data": text.encode(Ledger(1, 2, {each.uid: each for each in entries}))})
    await stage.admin.request("PATCH", f"{COLLECTION}/tutti-ledger", body=body, content_type=MERGE_PATCH)
    new, _ = stage.keeper("new")
    await elect(new)
    assert new.ledger is not None
    assert len(new.ledger.entries) == 20
    await new.commit([reservation("one-more")])
    assert len(new.ledger.pages) == 1
    await new.commit(drop=[each.uid for each in entries])
    assert (await whole(stage)).entries.keys() == {"one-more"}


async def test_what_a_namespace_has_in_it_is_counted_as_entries_come_and_go_and_by_the_next_leader(
    stage: Stage,
) -> None:
    keeper, _ = await filled(stage)
    await keeper.commit([reservation("more")], ["gang-1", "gang-4"])
    assert keeper.bytes_in("ns") == keeper.entries_bytes > 0
    new, _ = stage.keeper("new")
    await elect(new)
    assert new.bytes_in("ns") == keeper.bytes_in("ns")
    await new.commit(drop=list(keeper.ledger.entries if keeper.ledger else ()))
    assert new.bytes_in("ns") == 0
