"""Uninstalling on a real API server: jobs are left as their owners wrote them, by the steps that the documents give."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import create_namespace
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import job, jobset, pod_template
from tests.e2e.queues import QUEUE, give_queue
from webhook.core.notation import names
from webhook.jobs.reading.ours import OWN_ANNOTATIONS

pytestmark = pytest.mark.own_cluster

REGISTRATIONS = "mutatingwebhookconfiguration,validatingwebhookconfiguration"


@pytest.fixture(scope="module")
def doomed() -> Iterator[Installation]:
    """Tutti on a cluster of its own."""
    with Cluster(Shape(nodes=1)) as started:
        yield Installation(started, replicas=1).install()


def uninstall(kubectl: Kubectl, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an administrator does."""
    command = [sys.executable, "-m", "webhook", "uninstall", "--kubeconfig", str(kubectl.kubeconfig), *flags]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_every_job_is_given_back_once_tutti_is_gone(doomed: Installation) -> None:
    cluster = doomed.cluster
    root = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
    create_namespace(root, "team-a")
    team = root.in_namespace("team-a")
    give_queue(team, 2)
    team.create(job("running", 2, pod_template(), QUEUE))
    wait_until(lambda: len(team.pods("job-name=running", "Running")) == 2, what="one runs")
    waiting = job("waiting", 4, pod_template(), QUEUE)
    wished = job("wished", 4, pod_template(), QUEUE, suspend=True)
    for manifest in (waiting, wished):
        team.apply(manifest)
    team.create(jobset("set", 4, pod_template(), QUEUE))
    wait_until(lambda: len(team.items("workloads")) == 4, what="all are known")

    assert "still registered" in uninstall(root).stderr
    team("delete", REGISTRATIONS, "tutti")
    assert "holds the lease" in uninstall(root).stderr
    for replica in doomed.replicas:
        replica.component.stop()
    team("delete", "apiservice", "v1alpha1.visibility.tutti.dev")
    said = uninstall(root)
    assert said.returncode == 0, said.stderr

    assert team.get("job", "waiting")["spec"]["suspend"] is False
    assert team.get("job", "wished")["spec"]["suspend"] is True
    assert team.get("jobset", "set")["spec"].get("suspend") is False
    assert len(team.pods("job-name=running", "Running")) == 2
    for kind in ("job", "jobset"):
        for item in team.items(kind):
            assert not OWN_ANNOTATIONS & item["metadata"].get("annotations", {}).keys()
            assert item["metadata"]["name"] == "running" or names.GANG_LABEL not in json.dumps(item["spec"])
    wait_until(lambda: len(team.pods("job-name=waiting")) == 4, what="its controller creates the waiting one's pods")
