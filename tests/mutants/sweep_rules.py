"""What must hold of what a sweep could not read, and of what it ends."""

from typing import Final

from tests.mutants.mutant import Mutant

UNIT: Final = "tests/unit/fleet"

SWEEP_MUTANTS: Final = (
    Mutant(
        "P4",
        "jobs of a kind that a member did not list when it was swept are not offered",
        "webhook/fleet/swept.py",
        " if time > came_after}\n",
        " if False}\n",
        f"{UNIT}/test_swept_but_for_one_kind.py -k from_before",
    ),
    Mutant(
        "P4",
        "a copy of a job that has ended is not adopted",
        "webhook/fleet/sweeping.py",
        " and dispatch is not None and _is_over(kind, own, copy, dispatch):\n",
        " and False:\n",
        f"{UNIT}/test_ended_before_it_comes_back.py",
    ),
    Mutant(
        "P5",
        "what is left in a cluster is not gone because another one by its name has none of it",
        "webhook/fleet/swept.py",
        "if kept := [*others, ",
        "if kept := [",
        f"{UNIT}/test_left_in_another_cluster.py",
    ),
    Mutant(
        "P4",
        "a member that gets new credentials is swept again while another one is still to be swept",
        "webhook/fleet/jobs/fleet.py",
        "        self.swept.make_due_with_others(name)\n",
        "",
        f"{UNIT}/test_swapped_names_of_a_silent_cluster.py -k never_swept",
    ),
    Mutant(
        "P5",
        "a cluster that did not list a kind is waited for by whatever name",
        "webhook/fleet/swept.py",
        "        self._note_in(self.unseen, member, cluster, left)\n",
        "        self.unseen[member] = {cluster: left}\n",
        f"{UNIT}/test_swapped_names_while_a_kind_is_unseen.py",
    ),
)
