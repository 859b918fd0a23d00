"""Every command of the pages for researchers, administrators and who is on call, run in its order as that person."""

import re

import pytest

from tests.e2e.conftest import member
from tests.e2e.controlplane.cluster import Cluster
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.page_commands import NOT_RUN, PAGES, RUN, blocks, others
from tests.e2e.shell import Shell

pytestmark = pytest.mark.own_cluster


def test_every_command_that_a_page_names_is_run_or_it_is_said_why_not() -> None:
    in_blocks = [line for page in PAGES for block in blocks(page) for line in block.strip().splitlines()]
    named = set().union(*(others(page) for page in PAGES))
    # "tutti hold" in a sentence names what a block runs with a job behind it.
    left = {each for each in named if not any(f"{line} ".startswith(f"{each} ") for line in in_blocks)}
    shortened = {each for each in left if any(f"{line} ".startswith(f"{each} ") for line in (*RUN, *NOT_RUN))}
    assert left - shortened == set()
    assert {*RUN, *NOT_RUN} - named == set()
    named_tests = [path for reason in NOT_RUN.values() for path in re.findall(r"tests/[\w/]+(?:\.py)?", reason)]
    assert [path for path in named_tests if not (ROOT / path).exists()] == []


@pytest.mark.usefixtures("this_tutti")
def test_every_command_of_the_pages_by_audience_does_what_it_is_there_for(
    tutti: Installation, cluster: Cluster, kubectl: Kubectl
) -> None:
    said: dict[str, str] = {}

    def follow(page: str, person: Kubectl) -> None:
        shell = Shell(person)
        found = blocks(page)
        assert found, page
        for block in found:
            for command in block.strip().splitlines():
                said[command] = shell(command)

    follow("administrator.md", kubectl)
    follow("researcher.md", member(cluster, kubectl, "team-vision", "researcher"))
    follow("on-call.md", kubectl)
    wait_until(lambda: not kubectl.in_namespace("team-vision").items("jobs"), what="the cancelled are gone")
    Shell(kubectl)("kubectl apply -f examples/researcher/jobs.yaml")
    for written, line in RUN.items():
        said[written] = Shell(kubectl)(line or written)
    assert "Owned" in said["tutti queues vision"]
    assert "admits nothing" in said["tutti status"] or "queues" in said["tutti status"]
    assert "Job team-vision/evaluation" in said["tutti explain job/evaluation -n team-vision"]
    assert "Limit" in said["tutti queues gpus -n team-vision"]
    assert "Job team-vision/training" in said["tutti explain job/train"]
    assert "is deleted" in said["tutti cancel job/evaluation -n team-vision"]
    kubectl("delete", "--ignore-not-found", "namespace", "team-vision", "team-speech")
    wait_until(lambda: kubectl("delete", "--ignore-not-found", "clusterqueue", "vision", "speech"), what="none is held")
