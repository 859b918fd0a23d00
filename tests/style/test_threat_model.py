"""The threat model names what was tried: each test that it names is there, and each attack of the suite is in it."""

import re
from pathlib import Path

from tests.simulation import shapes
from webhook.core.model import gang
from webhook.jobs.plain_pods import groups
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


TOLD = (
    f"freed {tally.BEHIND_SECONDS:.0f} s after the review, or {tally.EXPIRY_SECONDS:.0f} s after it where",
    f"is silent it is kept; at most {tally.ENTRIES_MAX:,} pods per namespace",
    f"per namespace and {tally.ENTRIES_IN_ALL_MAX:,} in all",
    f"read no deeper than {LEVELS_MAX} levels",
    f"one of more than {groups.PODS_MAX:,} pods waits",
    "limits it to an hour" if gang.GRACE_SECONDS_MAX == 3600 else "a grace period that the page does not tell",
    "A ResourceQuota of 0 for the resources that queues manage",
    f"each of the {('seven', 'eight', 'nine')[len(shapes.KINDS) - 7]} kinds that the simulated cluster runs",
)
"""What holds an attack off, or may be relied upon, with its number as the code has it."""


def numbers_of(text: str) -> list[str]:
    plain = re.sub(r"`[^`]*`|\[decision \d+\]\([^)]*\)|\]\([^)]*\)", "", text)
    return re.findall(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?\b", plain)


def test_the_bounds_that_the_threat_model_tells_are_those_of_the_code() -> None:
    flowing = " ".join(TEXT.split())
    assert [told for told in TOLD if told not in flowing] == []


def test_no_other_number_is_told_than_one_of_the_code() -> None:
    """What was tried may have any; what stops it, and all prose, has those that a change of the code changes, too."""
    told = []
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        told += numbers_of(cells[-2] if line.startswith("|") and len(cells) > 2 else line)
    known = [number for text in TOLD for number in numbers_of(text)]
    assert len(told) > 5
    assert sorted(set(told) - set(known)) == []


YAML_OF_OPERATORS = {
    "config.py": "the configuration",
    "jobs/compute_class/catalog.py": "the catalog of compute classes",
    "controllers/reporting/registration_faults.py": "the shipped registrations",
    "dialects/config_map.py": "the ConfigMap `tutti-policy`",
    "fleet/credentials/account.py": "a process's own kubeconfig",
    "fleet/credentials/kubeconfig.py": "the kubeconfigs of a hub's members",
}
"""Of the processes that serve: terminals and the laboratory read what their user gives them."""


def test_yaml_is_read_of_operators_alone_and_the_page_names_all_of_it() -> None:
    """It takes some microseconds a byte: a tenant's would block a loop."""
    product = ROOT / "webhook"
    own = ("commands", "laboratory", "untyped")
    reads = re.compile(r"^\s*(?:import yaml\b|from yaml\b|from webhook\.untyped.*\byaml_text\b)", re.MULTILINE)
    found = {
        str(path.relative_to(product))
        for path in product.rglob("*.py")
        if path.relative_to(product).parts[0] not in own and reads.search(path.read_text())
    }
    assert found == YAML_OF_OPERATORS.keys()
    assert [told for told in YAML_OF_OPERATORS.values() if told not in " ".join(TEXT.split())] == []
