"""The rules of the fleet's protocol, P1 to P7, and of its fail-over: each removed in one place."""

from typing import Final

from tests.mutants.mutant import UNIT, Mutant

FLEET: Final = "webhook/core/fleet"
FLEET_TESTS: Final = f"{UNIT}/core/fleet/test_protocol_machine.py"

FLEET_MUTANTS: Final = (
    Mutant(
        "P1",
        "a copy starts by a permit alone",
        f"{FLEET}/permit.py",
        "return bool(offer) and permit == permit_text(offer, copy_uid)",
        "return bool(offer)",
        FLEET_TESTS,
    ),
    Mutant(
        "P1",
        "a member starts no copy that has just been reserved for",
        "webhook/controllers/loop/reconciler.py",
        " and not job.awaits_permit:\n",
        ":\n",
        f"{UNIT}/controllers/gangs/test_copies_from_a_hub.py",
    ),
    Mutant(
        "P1",
        "a permit is sent for what was granted and no longer",
        f"{FLEET}/steps.py",
        "    copy = sight.copy\n    return Step.DELETE if",
        "    copy = sight.copy\n    if copy is not None and not (copy.permitted or copy.deleting):\n"
        "        return Step.PERMIT\n    return Step.DELETE if",
        FLEET_TESTS,
    ),
    Mutant(
        "P2",
        "a copy is gone when its own object is",
        f"{FLEET}/proof.py",
        "    COPY = 0\n    RESERVATION = 1\n    PODS = 2\n    COMPLETE = 3\n",
        "    COPY = 0\n    RESERVATION = 2\n    PODS = 3\n    COMPLETE = 1\n",
        FLEET_TESTS,
    ),
    Mutant(
        "P2",
        "no pod is left of it",
        f"{FLEET}/proof.py",
        "    PODS = 2\n    COMPLETE = 3\n",
        "    PODS = 3\n    COMPLETE = 2\n",
        FLEET_TESTS,
    ),
    Mutant(
        "P2",
        "pods are listed when no reservation lets one pass",
        f"{FLEET}/proof.py",
        "    RESERVATION = 1\n    PODS = 2\n",
        "    PODS = 1\n    RESERVATION = 2\n",
        f"{UNIT}/core/fleet/test_proof.py",
    ),
    Mutant(
        "P2",
        "what was granted is left on proof",
        f"{FLEET}/proof.py",
        "        return this and placement.phase is Phase.RECALLED and self.wanted is Evidence.COMPLETE\n",
        "        return placement.phase is Phase.RECALLED\n",
        FLEET_TESTS,
    ),
    Mutant(
        "P2",
        "the hub's quota is held while a member may run the job",
        "webhook/controllers/gangs/assess.py",
        "    if job is not None and job.placed:\n",
        "    if False:\n",
        f"{UNIT}/fleet/test_hub_quota.py",
    ),
    Mutant(
        "P3",
        "a member that does not answer is not believed to be gone",
        f"{FLEET}/steps.py",
        "    if placement.phase is Phase.OFFERED:\n",
        "    if placement.phase is Phase.OFFERED or (sight is None and wish.runs):\n",
        FLEET_TESTS,
    ),
    Mutant(
        "P4",
        "nothing is offered or granted before each member was swept",
        f"{FLEET}/steps.py",
        "    if placement.phase is Phase.NOWHERE:\n",
        "    complete = True\n    if placement.phase is Phase.NOWHERE:\n",
        FLEET_TESTS,
    ),
    Mutant(
        "P4",
        "a member is swept when nothing without a record is left in it",
        f"{FLEET}/strays.py",
        "    return leftovers == 0 and all(each is Verdict.KEEP for each in verdicts)\n",
        "    return True\n",
        FLEET_TESTS,
    ),
    Mutant(
        "P4",
        "a copy that a late permit may reach is swept",
        f"{FLEET}/strays.py",
        "Verdict.KEEP if current and complete else Verdict.SWEEP",
        "Verdict.KEEP",
        FLEET_TESTS,
    ),
    Mutant(
        "P5",
        "what another cluster does not have proves nothing",
        f"{FLEET}/steps.py",
        "    if sight is None or sight.cluster != placement.cluster:\n        # P3",
        "    if sight is None:\n        # P3",
        FLEET_TESTS,
    ),
    Mutant(
        "P6",
        "somebody else's object of that name is not touched",
        f"{FLEET}/steps.py",
        "    return copy.hub == wish.hub and bool(copy.job)\n",
        "    return True\n",
        FLEET_TESTS,
    ),
    Mutant(
        "P7",
        "a member that knows no permits gets nothing",
        f"{FLEET}/steps.py",
        "    if not sight.knows_permits:\n",
        "    if False:\n",
        FLEET_TESTS,
    ),
    Mutant(
        "F",
        "a gang that failed in a member is not asked for there again",
        "webhook/fleet/job.py",
        "        if untried := allowed - set(placement.failed):\n",
        "        if untried := allowed:\n",
        "tests/simulation/fleet -k tried",
    ),
    Mutant(
        "F",
        "a failure is not shown before nobody is left to try",
        "webhook/fleet/job.py",
        "        if copy is None or copy.finished or failing(",
        "        if copy is None or failing(",
        f"{UNIT}/fleet/test_failover.py",
    ),
)
