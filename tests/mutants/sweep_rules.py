"""What must hold of what a sweep could not read, and of what it ends."""

from typing import Final

from tests.mutants.mutant import Mutant

UNIT: Final = "tests/unit/fleet"

SWEEP_MUTANTS: Final = (
    Mutant(
        "P4",
        "jobs of a kind that a member did not list when it was swept are not offered",
        "webhook/fleet/jobs/fleet.py",
        "if due > came_after else {}\n",
        "if False else {}\n",
        f"{UNIT}/test_swept_but_for_one_kind.py -k from_before",
    ),
)
