"""What must hold where several members' names lead, or are said to lead, to one cluster."""

from typing import Final

from tests.mutants.mutant import UNIT, Mutant

NAME_MUTANTS: Final = (
    Mutant(
        "P5",
        "a gang is followed only to a name that shows its copy",
        "webhook/fleet/jobs/cluster_names.py",
        "                if await self.shows(member, dispatch):\n",
        "                if True:\n",
        f"{UNIT}/fleet/test_said_cluster.py -k followed",
    ),
    Mutant(
        "F",
        "a gang is followed also from a name that is silent",
        "webhook/fleet/jobs/cluster_names.py",
        "        answers = now - silent_since < NAME_HOLDS_SECONDS if sight is None else",
        "        answers = True if sight is None else",
        f"{UNIT}/fleet/test_swapped_names_of_a_silent_cluster.py",
    ),
    Mutant(
        "F",
        "a cluster in which a gang failed is known by whatever name",
        "webhook/core/fleet/failed_in.py",
        "if cluster in known}",
        "if cluster in known and name in {each.member for each in failed}}",
        "tests/simulation/fleet -k whatever_its_name",
    ),
    Mutant(
        "F",
        "a member that says it is the cluster in which a gang failed shows its copy",
        "webhook/fleet/jobs/cluster_names.py",
        "            disputed |= not shows\n",
        "",
        f"{UNIT}/fleet/test_two_names_failing.py -k says_that_it_is",
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
