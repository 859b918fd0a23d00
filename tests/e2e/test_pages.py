"""Every command of the pages for researchers, administrators and who is on call, run in its order as that person."""

import re

import pytest

from tests.e2e.conftest import member
from tests.e2e.controlplane.cluster import Cluster
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.shell import Shell

pytestmark = pytest.mark.own_cluster


def blocks(page: str) -> list[str]:
    """Return the blocks of shell commands of a page."""
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


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
    assert "Owned" in said["tutti queues vision"]
    assert "admits nothing" in said["tutti status"] or "queues" in said["tutti status"]
    assert "Job team-vision/evaluation" in said["tutti explain job/evaluation -n team-vision"]
    assert "Limit" in said["tutti queues gpus -n team-vision"]
    assert "is deleted" in said["tutti cancel job/evaluation -n team-vision"]
    kubectl("delete", "--ignore-not-found", "namespace", "team-vision", "team-speech")
    wait_until(lambda: kubectl("delete", "--ignore-not-found", "clusterqueue", "vision", "speech"), what="none is held")
