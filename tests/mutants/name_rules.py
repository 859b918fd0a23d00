"""What must hold where several members' names lead, or are said to lead, to one cluster."""

from typing import Final

from tests.mutants.mutant import UNIT, Mutant

NAME_MUTANTS: Final = (
    Mutant(
        "P5",
        "a gang is followed only to a name that shows its copy",
        "webhook/fleet/jobs/fleet.py",
        "                if await self.shows(member, kind, namespace, name, dispatch):\n",
        "                if True:\n",
        f"{UNIT}/fleet/test_said_cluster.py -k followed",
    ),
    Mutant(
        "F",
        "a gang is followed also from a name that is silent",
        "webhook/fleet/jobs/fleet.py",
        "        answers = now - silent_since < NAME_HOLDS_SECONDS if sight is None else",
        "        answers = True if sight is None else",
        f"{UNIT}/fleet/test_swapped_names_of_a_silent_cluster.py",
    ),
    Mutant(
        "P3",
        "a name that does not answer this process may lead another one to the cluster",
        "webhook/fleet/dead_man.py",
        '    return member.uid in ("", cluster) or (since is not None and now - since >= FAILING_SECONDS)\n',
        "    return member.uid == cluster\n",
        f"{UNIT}/fleet/test_dead_man_by_two_names.py -k never_reached",
    ),
)
