"""Which page takes which entry, in which order pages are written, and which index and pages belong together."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.ledger import pages
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import INDEX, Change, Found, Layout, PagesMismatch
from webhook.core.ledger.record import Ledger, Reservation, ReservedPodSet
from webhook.core.ledger.text import Decoder, LedgerCorrupt
from webhook.core.model.gang import PodPrice

PAGE_NAMES = st.sampled_from([INDEX, "page-1", "page-2", "page-3"])


def entry(uid: str, pods: int = 1, stopping: str | None = None) -> Reservation:
    sets = (ReservedPodSet("main", pods, PodPrice({"cpu": 1000})),)
    return Reservation(uid, "Job.batch", "team-a", f"job-{uid}", "research", sets, 1, 0.0, stopping=stopping)


CHANGES = st.builds(
    lambda before, after: Change(
        None if before is None else entry("x", before), None if after is None else entry("x", after)
    ),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 4),
)
BATCHES = st.dictionaries(PAGE_NAMES, st.dictionaries(st.text("abcdef", min_size=1, max_size=2), CHANGES, max_size=4))


@given(BATCHES, st.booleans())
def test_whatever_is_given_is_stored_after_all_that_is_taken(
    batch: dict[str, dict[str, Change]], index_takes: bool
) -> None:
    """Between any two writes too much is counted, never too little: those of one round come in any order."""
    rounds = pages.stages(batch, index_takes)
    written = [(page, uid) for each in rounds for page, uids in each.items() for uid in uids]
    assert sorted(written) == sorted((page, uid) for page, changes in batch.items() for uid in changes)
    first = {page: number for number, each in reversed(list(enumerate(rounds))) for page in each}
    taking = {page for page, changes in batch.items() if any(each.takes for each in changes.values())}
    taking |= {INDEX} if index_takes else set()
    for number, each in enumerate(rounds):
        for page, uids in each.items():
            if any(not batch[page][uid].takes for uid in uids):
                # Whatever takes was stored by an earlier round, or is in this very write.
                assert all(first[other] < number or other == page for other in taking)


@given(BATCHES, st.booleans(), st.sets(st.text("abcdef", min_size=1, max_size=2)))
def test_after_the_named_round_all_of_some_entries_are_stored_and_not_before(
    batch: dict[str, dict[str, Change]], index_takes: bool, asked: set[str]
) -> None:
    rounds = pages.stages(batch, index_takes)
    last = pages.stored_by(asked, rounds)
    later = {uid for each in rounds[last + 1 :] for uids in each.values() for uid in uids}
    assert not later & asked
    assert last == 0 or any(not uids.isdisjoint(asked) for uids in rounds[last].values())


def test_what_a_gang_grows_by_is_taken_and_a_stop_is_given() -> None:
    assert Change(entry("a", 2), entry("a", 3)).takes
    assert Change(None, entry("a")).takes
    assert not Change(entry("a", 2), entry("a", 2, "Preempted")).takes
    assert not Change(entry("a", 3), entry("a", 2)).takes
    assert not Change(entry("a"), None).takes


@given(st.lists(st.tuples(st.integers(1, 20_000), st.integers(0, 12)), max_size=60), st.randoms())
def test_entries_stay_where_they_were_put_and_no_page_takes_more_than_it_may(
    arrivals: list[tuple[int, int]], chance: random.Random
) -> None:
    """Gangs come, some with others that they join, and end in any order."""
    layout, sizes, groups, made = Layout(), dict[str, int](), dict[int, list[str]](), 0
    for number, (size, group) in enumerate(arrivals):
        uid, joined = str(number), [each for each in groups.get(group, ()) if each in layout.page_of]
        (page,) = layout.assign([(size, joined)])
        if isinstance(page, int):
            made += 1
            page = layout.open = f"page-{made}"
            layout.bytes_of[page] = 0
        elif joined:
            assert page == layout.page_of[joined[0]]
        if not joined:
            limit, before = pages.INDEX_BYTES if page == INDEX else pages.PAGE_BYTES, layout.bytes_of[page]
            assert before + size <= limit or (before < pages.REFILLED_BELOW * limit and page != INDEX)
        layout.put(uid, page, 0, size)
        sizes[uid] = size
        groups.setdefault(group, []).append(uid)
        if chance.random() < 0.4:
            gone = chance.choice(sorted(layout.page_of))
            layout.drop(gone, sizes.pop(gone))
    for page, size in layout.bytes_of.items():
        assert size == sum(sizes[uid] for uid, where in layout.page_of.items() if where == page)
    assert all(not layout.bytes_of[page] for page in layout.empty())


LENGTHS = st.integers(200, 300) | st.integers(1, pages.PAGE_BYTES) | st.integers(16_000, 17_000)


@given(st.lists(st.tuples(LENGTHS, st.booleans(), st.randoms()), max_size=120))
def test_there_are_never_more_than_two_pages_for_each_that_was_ever_filled(
    story: list[tuple[int, bool, random.Random]],
) -> None:
    """Whatever the lengths of gangs, and in whatever order they end: nobody can have pages pile up until none is left.

    A gang that is long and ends leaves short ones behind on its page, again and again.
    """
    layout, sizes, made, most = Layout(), dict[str, int](), 0, 0
    for number, (size, ends_long, chance) in enumerate(story):
        uid = str(number)
        (page,) = layout.assign([(size, [])])
        if isinstance(page, int):
            made += 1
            page = layout.open = f"page-{made}"
            layout.bytes_of[page] = 0
        layout.put(uid, page, 0, size)
        sizes[uid] = size
        most = max(most, sum(sizes.values()))
        assert len(layout.bytes_of) - 1 <= 1 + most / (pages.REFILLED_BELOW * pages.PAGE_BYTES)
        if sizes and chance.random() < 0.5:
            gone = max(sizes, key=lambda each: sizes[each]) if ends_long else chance.choice(sorted(sizes))
            layout.drop(gone, sizes.pop(gone))
            for empty in layout.empty():
                del layout.bytes_of[empty]


@given(st.lists(LENGTHS, min_size=1, max_size=60))
def test_of_the_pages_that_come_to_be_at_once_each_is_filled_before_the_next(sizes: list[int]) -> None:
    layout = Layout()
    layout.put("first", INDEX, 0, pages.INDEX_BYTES)
    found = layout.assign([(size, []) for size in sizes])
    shares: dict[int, list[int]] = {}
    for size, page in zip(sizes, found, strict=True):
        assert isinstance(page, int)
        shares.setdefault(page, []).append(size)
    assert list(shares) == list(range(len(shares)))
    for share in shares.values():
        assert sum(share) <= pages.PAGE_BYTES or len(share) == 1
    for number in range(1, len(shares)):
        assert sum(shares[number - 1]) + shares[number][0] > pages.PAGE_BYTES


def test_long_gangs_that_end_leave_no_page_each_behind() -> None:
    """With each a short one comes that runs on; the next long one must not need another page."""
    layout = Layout()
    layout.put("index", INDEX, 0, pages.INDEX_BYTES)
    for number in range(50):
        for uid, size in ((f"long-{number}", pages.PAGE_BYTES - 250 * (50 - number) // 50), (f"short-{number}", 5)):
            (page,) = layout.assign([(size, [])])
            if isinstance(page, int):
                page = layout.open = f"page-{number}"
                layout.bytes_of[page] = 0
            layout.put(uid, page, 0, size)
        layout.drop(f"long-{number}", pages.PAGE_BYTES - 250 * (50 - number) // 50)
    assert len(layout.bytes_of) <= 3


def test_a_page_that_was_half_emptied_is_filled_again_before_another_comes_to_be() -> None:
    layout = Layout()
    layout.put("first", INDEX, 0, pages.INDEX_BYTES)
    layout.put("second", "page-1", 0, pages.PAGE_BYTES)
    layout.open = "page-1"
    assert layout.assign([(100, [])]) == [0]
    layout.drop("first", pages.INDEX_BYTES)
    assert layout.assign([(100, [])]) == [INDEX]


def stored(ledger: Ledger, uid: str = "uid") -> Found:
    return Found(uid, ledger_text.encode(ledger))


INDEX_OF_ONE = Ledger(3, 9, {"a": entry("a")}, pages={"page-1": "uid"})


def test_index_and_pages_make_one_ledger() -> None:
    page = Ledger(2, 12, {"b": entry("b")})
    found = {"page-1": stored(page), "late": Found("other", {})}
    assert pages.unlisted(INDEX_OF_ONE, found) == ["late"]
    whole = pages.merged(INDEX_OF_ONE, {"page-1": pages.read(INDEX_OF_ONE, "page-1", found["page-1"], Decoder())})
    assert whole.entries.keys() == {"a", "b"}
    assert whole.version == (3, 12)


def both_of(found: dict[str, Found]) -> Ledger:
    """Return what the one page says, after the look at how all of them are placed."""
    pages.unlisted(INDEX_OF_ONE, found)
    return pages.read(INDEX_OF_ONE, "page-1", found["page-1"], Decoder())


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "listed and missing"),
        ({"page-1": stored(Ledger(3, 1), "restored")}, "not the one that is listed"),
        ({"page-1": stored(Ledger(4, 1))}, "of epoch 4"),
        ({"page-1": stored(Ledger(3, 1)), "page-2": stored(Ledger(3, 1, {"c": entry("c")}))}, "not listed"),
    ],
    ids=["missing", "another of its name", "of a later leader", "an old list"],
)
def test_index_and_pages_of_different_times_are_told_apart(found: dict[str, Found], why: str) -> None:
    with pytest.raises(PagesMismatch, match=why):
        both_of(found)


def test_a_page_edited_by_hand_is_not_believed() -> None:
    text = ledger_text.encode(Ledger(3, 1, {"b": entry("b")}))
    lacking = {key: each for key, each in text.items() if key != "b"}
    with pytest.raises(LedgerCorrupt):
        pages.read(INDEX_OF_ONE, "page-1", Found("uid", lacking), Decoder())


def test_a_gang_on_two_pages_is_counted_by_nobody() -> None:
    with pytest.raises(PagesMismatch, match="another page as well"):
        pages.merged(INDEX_OF_ONE, {"page-1": Ledger(3, 1, {"a": entry("a")})})


def test_an_index_without_pages_is_what_earlier_releases_read() -> None:
    assert '"schema":1' in ledger_text.encode(Ledger(3, 9, {"a": entry("a")}))["meta"]
    assert '"schema":2' in ledger_text.encode(INDEX_OF_ONE)["meta"]
    assert ledger_text.decode(ledger_text.encode(INDEX_OF_ONE)) == INDEX_OF_ONE


@given(st.lists(st.integers(1, 40), max_size=40))
def test_a_rebuilt_ledger_is_spread_whole_over_index_and_pages(sizes: list[int]) -> None:
    gangs = [[entry(f"{number}-{part}") for part in range(size)] for number, size in enumerate(sizes)]
    shares = pages.distribute(gangs)
    assert sum(map(len, shares)) == sum(sizes)
    for gang in gangs:
        assert sum(not share.keys().isdisjoint(each.uid for each in gang) for share in shares) == 1


def test_an_ensemble_goes_to_one_page_as_long_as_an_object_can_hold_it() -> None:
    layout = Layout()
    layout.put("first", "page-1", 0, pages.GANG_BYTES_MAX - 100)
    assert layout.assign([(50, ["first"]), (60, ["first"])]) == ["page-1", INDEX]


def test_an_ensemble_that_no_object_could_hold_is_spread_entry_by_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 300)
    monkeypatch.setattr(pages, "INDEX_BYTES", 300)
    monkeypatch.setattr(pages, "GANG_BYTES_MAX", 1000)
    gang = [entry(f"uid-{number}") for number in range(40)]
    shares = pages.distribute([gang])
    assert sum(len(share) for share in shares) == 40
    assert len(shares) > 1
