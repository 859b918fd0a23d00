"""The walkthrough of a queue of training jobs: one leaf of an ElasticQuotaTree for a namespace, one job at a time."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.conftest import AnyCluster, member
from tests.e2e.controlplane.install import ROOT
from tests.e2e.facts import CREATION_SECONDS, partly_created, told, uid_of
from tests.e2e.kubectl import Kubectl, condition, stays, wait_until
from tests.e2e.objects import job, jobset, pod_template
from tests.e2e.queues import reservations
from tests.e2e.shell import Shell
from tests.e2e.watching import Watch
from webhook.core.notation import names
from webhook.jobs.reading.ours import OWN_ANNOTATIONS

pytestmark = pytest.mark.usefixtures("tutti")

EXAMPLE: Final = "examples/ack-fleet-queue"
JOB: Final = "training.kubeflow.org/job-name"


@pytest.fixture
def team(kubectl: Kubectl, cluster: AnyCluster) -> Iterator[Kubectl]:
    """The walkthrough's user in the namespace default, once its ElasticQuotaTree is in force."""
    Shell(kubectl)(f"kubectl apply -f {EXAMPLE}/elasticquotatree.yaml")
    user = member(cluster, kubectl, "default", "default-owner")
    probe = job("probe", 1, pod_template())
    wait_until(lambda: '"suspend": true' in user.create(probe, "--dry-run=server", "-o", "json"), what="it is gated")
    yield user
    user.delete("pytorchjob", "--all")
    user.delete("jobset", "--all")
    user.delete("job", "--all")
    kubectl("delete", "rolebinding", "default-owner-jobs", "default-owner-edit")
    wait_until(lambda: not user_pods(kubectl), what="its pods are gone")
    delete = f"kubectl delete -f {EXAMPLE}/elasticquotatree.yaml"
    wait_until(lambda: Shell(kubectl)(delete), what="the tree holds no job any more")
    wait_until(lambda: names.GATED_NAMESPACE not in labels(kubectl), what="the namespace is free again")


def labels(kubectl: Kubectl) -> dict[str, Any]:
    """Return the labels of the namespace default."""
    found: dict[str, Any] = kubectl.get("namespace", "default")["metadata"]["labels"]
    return found


def while_the_first_runs(team: Kubectl) -> dict[str, Any]:
    """Return both jobs of the walkthrough, as they are in one moment, while the first runs; nothing otherwise."""
    jobs = {each["metadata"]["name"]: each for each in team.items("pytorchjobs")}
    return jobs if condition(jobs["pytorch-test"], "Running") == "True" else {}


def user_pods(kubectl: Kubectl) -> list[dict[str, Any]]:
    """Return the pods of the namespace default."""
    return kubectl.in_namespace("default").items("pods")


def test_of_two_pytorchjobs_the_second_starts_only_after_the_first_has_ended(team: Kubectl) -> None:
    with Watch(team) as watch:
        for name in ("pytorchjob-1", "pytorchjob-2"):
            team.apply((ROOT / EXAMPLE / f"{name}.yaml").read_text())
        wait_until(lambda: len(team.pods(f"{JOB}=pytorch-test", "Running")) == 3, what="the first runs")
        jobs = wait_until(lambda: while_the_first_runs(team), what="both are read while the first runs")
        assert jobs["pytorch-test-2"]["spec"]["runPolicy"]["suspend"] is True
        reason = wait_until(lambda: told(team, "pytorch-test-2", "Queued"), what="the second says why it waits")[-1]
        assert "asks for 1 job; queue root/child-2 has 1, 1 used" in reason
        assert "default/pytorch-test (1)" in reason
        wait_until(lambda: team.pods(f"{JOB}=pytorch-test-2"), timeout_seconds=60, what="the second starts")
        assert condition(team.get("pytorchjob", "pytorch-test"), "Succeeded") == "True"
        second = uid_of(team, "pytorchjob", "pytorch-test-2")
        succeeded = "the second succeeds"
        wait_until(lambda: condition(team.get("pytorchjob", "pytorch-test-2"), "Succeeded") == "True", 60, succeeded)
        for _, pods in watch.live():
            jobs = {pod["metadata"]["labels"][JOB] for pod in pods.values() if running(pod)}
            assert len(jobs) <= 1, "one job at a time"
        watch.settle()
        assert partly_created(watch, {second: 3})[second] < CREATION_SECONDS


def test_the_queues_of_the_tree_are_listed_where_kube_queue_lists_them(kubectl: Kubectl, team: Kubectl) -> None:
    team.apply((ROOT / EXAMPLE / "pytorchjob-1.yaml").read_text())
    wait_until(lambda: len(team.pods(f"{JOB}=pytorch-test", "Running")) == 3, what="the first runs")
    lines = wait_until(lambda: Shell(kubectl)("kubectl get queue -n kube-queue").splitlines(), what="the queues")
    assert lines[0].split()[0] == "NAME"
    assert "AGE" in lines[0].split()
    found = sorted(line.split()[0] for line in lines[1:])
    assert len(found) == 2
    assert found[0].startswith("root-")
    assert any(name.startswith("root-child-2-") for name in found)


def running(pod: dict[str, Any]) -> bool:
    """Return whether a pod exists and has not ended."""
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def test_the_child_jobs_of_a_jobset_in_a_gated_namespace_are_not_gated_again(kubectl: Kubectl, team: Kubectl) -> None:
    team.apply(jobset("set", 2, pod_template()))
    wait_until(lambda: len(team.pods(phase="Running")) == 2, what="it runs although one job at a time may")
    child = team.items("jobs")[0]
    assert child["spec"]["suspend"] is False
    assert not [key for key in child["metadata"].get("annotations", {}) if key in OWN_ANNOTATIONS]
    assert list(reservations(kubectl.in_namespace("default"))) == ["set"]
    team.apply(jobset("next", 1, pod_template()))
    stays(lambda: len(team.pods()) == 2, 1, "the next waits")
