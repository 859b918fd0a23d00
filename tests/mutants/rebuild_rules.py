"""Rule 1: what is rebuilt comes after all that was, of whatever is stored instead."""

from typing import Final

from tests.mutants.mutant import UNIT, Mutant
from tests.mutants.release_rules import RECOVERY

PAGES_TESTS: Final = f"{UNIT}/controllers/ledger/test_ledger_pages.py"

REBUILD_MUTANTS: Final = (
    Mutant(
        "1",
        "pages are deleted before a new ledger is made of what is read",
        RECOVERY,
        "        await self._delete_pages()\n",
        "",
        f"{UNIT}/controllers/ledger/test_paged_cycles.py",
    ),
    Mutant(
        "1",
        "an old index says how far the ledger had come before its pages are deleted",
        "webhook/controllers/ledger/keeper.py",
        "        await self._outbid(",
        "        0 and await self._outbid(",
        PAGES_TESTS,
    ),
    Mutant(
        "1",
        "a number that no ledger comes to says nothing",
        "webhook/core/ledger/text.py",
        '        return number(json.loads(data[META])["epoch"])\n',
        '        return int(json.loads(data[META])["epoch"])\n',
        "tests/fuzz/test_texts.py -k impossible_number",
    ),
    Mutant(
        "1",
        "an index that cannot be believed says how far the ledger had come",
        "webhook/controllers/ledger/keeper.py",
        "(ledger_text.epoch_of(stored.data if stored else {}), 0)",
        "(0, 0)",
        PAGES_TESTS,
    ),
    Mutant(
        "1",
        "an old index is not believed once its pages are deleted",
        "webhook/controllers/ledger/leased_writer.py",
        "ledger_text.checksum(stored.data) ^ 1)",
        "ledger_text.checksum(stored.data))",
        PAGES_TESTS,
    ),
    Mutant(
        "1",
        "who was stopped proves how far the ledger had come",
        "webhook/cluster/rebuild.py",
        "(start := job.last_start) is not None)",
        "(start := job.admission) is not None)",
        "tests/unit/cluster/test_rebuild.py",
    ),
    Mutant(
        "1",
        "a start of which nothing is left proves nothing",
        "webhook/cluster/rebuild.py",
        "return _present(job, view) > 0 or (",
        "return True or (",
        "tests/unit/cluster/test_rebuild.py tests/unit/controllers/gangs/test_run_again.py",
    ),
    Mutant(
        "1",
        "a job that runs proves its start also between two of its pods",
        "webhook/cluster/rebuild.py",
        "(runs or ledger.seq < start.seq)",
        "(ledger.seq < start.seq)",
        "tests/unit/cluster/test_rebuild.py",
    ),
    Mutant(
        "1",
        "a number far above all others is not counted on from",
        "webhook/cluster/rebuild.py",
        "        if number - top > SKIPPED_MAX:\n",
        "        if False:\n",
        "tests/unit/cluster/test_forged_notes.py",
    ),
    Mutant(
        "1",
        "nobody holds less than nothing",
        "webhook/jobs/reading/annotations.py",
        "    if any(count < 0 for count in counts.values()):\n",
        "    if False:\n",
        "tests/unit/cluster/test_forged_notes.py",
    ),
)
