"""Every command of the pages for researchers, administrators and who is on call, run in its order as that person."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import member
from tests.e2e.controlplane.cluster import Cluster
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.shell import Shell

pytestmark = pytest.mark.own_cluster
# There are no Deployments here, which it says, and ends with 1.
STATUS = re.compile(r"^tutti status$", re.MULTILINE)


def blocks(page: str) -> list[str]:
    """Return the blocks of shell commands of a page."""
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def this_tutti(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command ``tutti`` is that of this checkout."""
    for name in ("tutti", "kubectl-tutti"):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m webhook "$@"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


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
                tolerated = STATUS.sub("tutti status || test $? = 1", command)
                said[command] = shell(tolerated)

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
