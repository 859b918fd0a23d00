"""What must hold of a gang that has ended in its member, above all of one that has failed: when it leaves."""

from typing import Final

from tests.mutants.mutant import UNIT, Mutant

FAILURE_MUTANTS: Final = (
    Mutant(
        "F",
        "a gang that failed does not leave to be offered to nobody",
        "webhook/fleet/jobs/asking/failed.py",
        "        if takes and not left_in:\n",
        "        if takes:\n",
        f"{UNIT}/fleet/test_failed_beside_an_unlisted_member.py",
    ),
    Mutant(
        "F",
        "a gang that failed does not leave for the same cluster by a name that has come to lead there",
        "webhook/fleet/jobs/asking/failed.py",
        "                found.sight.cluster in failed\n",
        "                False\n",
        f"{UNIT}/fleet/test_failed_beside_members_that_start_nothing.py -k another_name",
    ),
    Mutant(
        "F",
        "a gang that failed does not leave for a cluster that was not swept",
        "webhook/fleet/jobs/asking/failed.py",
        "                or self._fleet.swept.why_not_done(name, found.sight.cluster)\n",
        "",
        f"{UNIT}/fleet/test_failed_beside_members_that_start_nothing.py -k never_swept",
    ),
    Mutant(
        "F",
        "what has ended well is shown though it was stopped meanwhile",
        "webhook/core/fleet/steps.py",
        "    if wish.stopped and copy is not None",
        "    if False and copy is not None",
        f"{UNIT}/core/fleet/test_steps.py",
    ),
    Mutant(
        "F",
        "a gang that failed waits for a member whose ledger cannot be read",
        "webhook/fleet/jobs/asking/failed.py",
        "silent = (fit - takes) | unread | {",
        "silent = (fit - takes) | {",
        f"{UNIT}/fleet/test_failed_beside_an_unread_ledger.py -k tried_there",
    ),
    Mutant(
        "F",
        "a gang that failed waits for the hub to list its kind",
        "webhook/fleet/jobs/asking/failed.py",
        "        if hears and HUB in left_in:\n",
        "        if False:\n",
        f"{UNIT}/fleet/test_failed_beside_an_unlisted_member.py -k hub_itself",
    ),
    Mutant(
        "F",
        "a gang that failed waits while its policy suspends dispatching",
        "webhook/fleet/jobs/asking/failed.py",
        "        rules = policy.resumed, namespace, queue\n",
        "        rules = policy, namespace, queue\n",
        f"{UNIT}/fleet/test_failed_while_suspended.py",
    ),
)
