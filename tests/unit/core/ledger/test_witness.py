"""An old copy that was put back is noticed by what the others say, and nothing else is taken for one."""

from itertools import pairwise
from random import Random

import pytest

from webhook.core.ledger.pages import INDEX, PagesMismatch
from webhook.core.ledger.record import Ledger
from webhook.core.ledger.witness import BESIDE_MAX, Witness, check

OBJECTS = (INDEX, "tutti-ledger-page-1-1", "tutti-ledger-page-1-2", "tutti-ledger-page-2-1")


def written(seed: int, objects: tuple[str, ...] = OBJECTS) -> dict[str, list[Ledger]]:
    """Return every version of index and pages that a leader wrote, one write after another."""
    chance, witness = Random(seed), Witness()
    versions: dict[str, list[Ledger]] = {}
    for seq, name in enumerate([*objects, *chance.choices(objects, k=20)], 1):
        version = Ledger(1, seq, seen=witness.seen_by(name))
        witness.stored(name, seq, version.seen)
        versions.setdefault(name, []).append(version)
    return versions


@pytest.mark.parametrize("seed", range(20))
def test_what_one_leader_wrote_agrees_after_each_write_also_where_that_of_one_object_is_lost(seed: int) -> None:
    """Whatever the last write was, it may not have been stored."""
    versions = written(seed)
    for until in range(len(OBJECTS), 24):
        stored = {n: [each for each in v if each.seq <= until][-1] for n, v in versions.items()}
        check(stored, proved_seq=until)


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_is_old_once_any_other_object_was_written_after_the_next_version_of_it(seed: int) -> None:
    versions = written(seed)
    newest = {name: each[-1] for name, each in versions.items()}
    told = 0
    for name, each in versions.items():
        others = max(last.seq for other, last in newest.items() if other != name)
        for copy, after in pairwise(each):
            if others > after.seq:
                told += 1
                with pytest.raises(PagesMismatch, match="old copy"):
                    check(newest | {name: copy}, proved_seq=0)
    assert told


def test_a_new_leader_goes_on_with_what_it_read() -> None:
    versions = written(3)
    newest = {name: each[-1] for name, each in versions.items()}
    witness = Witness(newest)
    said = witness.seen_by(INDEX)
    assert said == {"1-1": newest[OBJECTS[1]].seq, "1-2": newest[OBJECTS[2]].seq, "2-1": newest[OBJECTS[3]].seq}
    check(newest | {INDEX: Ledger(2, 100, seen=said)}, proved_seq=0)


def test_a_job_that_was_started_by_a_write_proves_that_there_was_one() -> None:
    check({INDEX: Ledger(1, 7)}, proved_seq=7)
    with pytest.raises(PagesMismatch, match="write 8 started a job"):
        check({INDEX: Ledger(1, 7)}, proved_seq=8)


def test_a_page_names_no_more_others_than_is_worth_a_write() -> None:
    pages = tuple(f"tutti-ledger-page-1-{number}" for number in range(3 * BESIDE_MAX))
    said = written(1, (INDEX, *pages))
    assert max(len(version.seen) for page in pages for version in said[page]) == BESIDE_MAX + 1


def test_an_index_names_no_page_that_is_gone() -> None:
    witness = Witness()
    for seq, name in enumerate(OBJECTS):
        witness.stored(name, seq, {})
    witness.gone(OBJECTS[1])
    assert witness.seen_by(INDEX).keys() == {"1-2", "2-1"}
    assert witness.seen_by(OBJECTS[2]).keys() == {"index", "2-1"}
