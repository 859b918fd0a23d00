"""What must hold of a gang that has failed in its member: when it leaves."""

from typing import Final

from tests.mutants.mutant import UNIT, Mutant

FAILURE_MUTANTS: Final = (
    Mutant(
        "F",
        "a gang that failed does not leave to be offered to nobody",
        "webhook/fleet/jobs/asking/failed.py",
        "        if hears and not left_in:\n",
        "        if hears:\n",
        f"{UNIT}/fleet/test_failed_beside_an_unlisted_member.py",
    ),
)
