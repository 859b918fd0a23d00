"""The threat model names what was tried: each test that it names is there, and each attack of the suite is in it."""

import re
from pathlib import Path

from webhook.server.pods import tally
from webhook.wire.nesting import LEVELS_MAX

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text()
SUITE = ROOT / "tests" / "e2e"


def attacks() -> set[str]:
    return {
        f"{path.stem.removeprefix('test_attacks_')}::{name}"
        for path in SUITE.glob("test_attacks_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }


def test_the_table_of_attacks_names_every_test_of_the_suite_and_no_other() -> None:
    assert set(re.findall(r"`(\w+::test_\w+)`", TEXT)) == attacks()


def test_every_file_that_the_threat_model_names_is_there() -> None:
    named = [name for name in re.findall(r"`((?:tests|webhook|manifests|docs)/[\w./-]+)`", TEXT) if "*" not in name]
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_each_attack_in_the_tables_names_its_test() -> None:
    tried = TEXT.partition("## What was tried")[2].partition("### By chance")[0]
    rows = [line for line in tried.splitlines() if line.startswith("|") and not set(line) <= set("|- ")]
    attacks = [row for row in rows if not row.startswith(("| who could try", "| tried"))]
    assert len(attacks) > 50
    assert [row for row in attacks if not re.search(r"`tests/|::test_|the same[ ,|]", row.rpartition(" | ")[2])] == []


def test_the_bounds_that_the_threat_model_tells_are_those_of_the_code() -> None:
    for told in (
        f"told of anything {tally.EXPIRY_SECONDS:.0f} s later; at most {tally.ENTRIES_MAX:,} pods per namespace",
        f"per namespace and {tally.ENTRIES_IN_ALL_MAX:,} in all",
        f"read no deeper than {LEVELS_MAX} levels",
    ):
        assert told in TEXT
