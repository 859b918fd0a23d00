"""The passages that keep the rules are where the table of mutants says: otherwise it tries nothing."""

import pytest

from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.rules import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule} {mutant.without}")
def test_the_passage_that_keeps_a_rule_is_there_once(mutant: Mutant) -> None:
    assert (ROOT / mutant.path).read_text().count(mutant.passage) == 1


@pytest.mark.parametrize("tests", sorted({path for mutant in MUTANTS for path in mutant.tests.split() if "/" in path}))
def test_the_tests_that_are_to_notice_are_there(tests: str) -> None:
    assert (ROOT / tests).exists()


def test_every_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in MUTANTS} == {
        *"12345678",
        "C",
        "N",
        "F",
        "U",
        "R",
        *(f"P{number}" for number in range(1, 8)),
    }
