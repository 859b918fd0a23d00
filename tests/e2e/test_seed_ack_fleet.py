"""The walkthrough of a PyTorchJob in one of several clusters, on a hub without operators and two members with them."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.e2e import objects, queues
from tests.e2e.controlplane.fleet import MEMBERS, FleetClusters
from tests.e2e.controlplane.install import ROOT
from tests.e2e.facts import partly_created, told, uid_of
from tests.e2e.kubectl import Kubectl, condition, stays, wait_until
from tests.e2e.watching import Watch
from webhook.core.notation import names

pytestmark = pytest.mark.own_cluster

PAGE: Final = ROOT / "examples" / "ack-fleet-gang" / "README.md"
POLICY: Final = yaml.safe_load((PAGE.parent / "propagationpolicy.yaml").read_text())
JOB: Final = "pytorch-test"
PODS: Final = [f"{JOB}-master-0", f"{JOB}-worker-0", f"{JOB}-worker-1"]
OF_JOB: Final = "training.kubeflow.org/job-name"
GONE_SECONDS: Final = 5
"""A simulated pod takes to go."""


@pytest.fixture(scope="module")
def world() -> Iterator[FleetClusters]:
    with FleetClusters(training=True) as started:
        yield started


@pytest.fixture(scope="module")
def blocks() -> list[list[str]]:
    """The page's blocks of commands, in its order: whole, what one sees, one at a time."""
    found = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [block.splitlines() for block in found]


@pytest.fixture(scope="module")
def placed(world: FleetClusters, blocks: list[list[str]]) -> str:
    """The member in which the page's job runs after its first block."""
    with Watch(default(world.members["left"])) as left, Watch(default(world.members["right"])) as right:
        for command in blocks[0]:
            world.shell(command)
        (member,) = wait_until(lambda: running(world), 90, what="it runs")
        watch = {"left": left, "right": right}[member]
        watch.settle()
        uid = uid_of(default(world.members[member]), "pytorchjob", JOB)
        assert partly_created(watch, {uid: 3})[uid] < GONE_SECONDS, "whole"
    return member


def default(kubectl: Kubectl) -> Kubectl:
    return kubectl.in_namespace("default")


def running(world: FleetClusters, name: str = JOB) -> list[str]:
    """Return the members in which all three pods of a job run; no pod of it is anywhere else."""
    counts = {}
    for member, kubectl in world.members.items():
        pods = default(kubectl).pods(f"{OF_JOB}={name}")
        if pods:
            counts[member] = sum(pod["status"].get("phase") == "Running" for pod in pods)
    assert not default(world.hub).pods(), "the hub runs nothing"
    assert len(counts) <= 1, f"pods of {name} in {counts}"
    return [member for member, number in counts.items() if number == 3]


def table(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


def end(world: FleetClusters, member: str, name: str, phase: str) -> None:
    """Have the master of a job end in this phase."""
    default(world.members[member]).patch(
        "pod", f"{name}-master-0", {"status": {"phase": phase}}, "--subresource=status"
    )


def job(name: str, priority_class: str = "") -> dict[str, Any]:
    """Return the page's job by another name, as the page of queues has it: nobody writes a manager."""
    found: dict[str, Any] = yaml.safe_load((PAGE.parent / "pytorchjob.yaml").read_text())
    found["metadata"]["name"] = name
    del found["spec"]["runPolicy"]["managedBy"]
    if priority_class:
        for replicas in found["spec"]["pytorchReplicaSpecs"].values():
            replicas["template"]["spec"]["priorityClassName"] = priority_class
    return found


def shows(world: FleetClusters, name: str, kind: str) -> bool:
    return condition(default(world.hub).get("pytorchjob", name), kind) == "True"


def test_what_one_sees_is_as_the_page_of_the_fleet_prints_it(
    world: FleetClusters, blocks: list[list[str]], placed: str
) -> None:
    state, describe, jobs, pods, whole = (command.replace("$MEMBER", placed) for command in blocks[1])
    assert f"Result: {{{placed}:0,[{{master 1}} {{worker 2}}]}}" in world.shell(describe)
    assert "ScheduleBindingSucceed" in world.shell(describe)
    wait_until(lambda: shows(world, JOB, "Running"), 60, what="the hub shows that it runs")
    head, row = table(world.shell(state))
    assert head == ["NAME", "STATE", "AGE"]
    assert row[:2] == [JOB, "Running"]
    head, row = table(world.shell(jobs))
    assert head == ["NAME", "CLUSTER", "STATE", "AGE", "ADOPTION"]
    assert (*row[:3], row[-1]) == (JOB, placed, "Running", "Y")
    head, *rows = table(world.shell(pods))
    assert head == ["NAME", "CLUSTER", "READY", "STATUS", "RESTARTS", "AGE"]
    assert sorted(row[:4] for row in rows) == [[name, placed, "1/1", "Running"] for name in PODS]
    there = yaml.safe_load(world.shell(whole))
    assert there["metadata"]["uid"] == uid_of(default(world.members[placed]), "pytorchjob", JOB)
    assert there["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2


def test_one_that_fails_in_its_member_runs_in_the_other_and_its_end_is_shown_in_the_hub(
    world: FleetClusters, placed: str
) -> None:
    (other,) = set(MEMBERS) - {placed}
    tolerated = POLICY["spec"]["failover"]["application"]["decisionConditions"]["tolerationSeconds"]
    end(world, placed, JOB, "Failed")
    wait_until(lambda: running(world) == [other], tolerated + 90, what="it runs in the other member")
    assert not shows(world, JOB, "Failed")
    end(world, other, JOB, "Succeeded")
    wait_until(lambda: shows(world, JOB, "Succeeded"), 60, what="the hub shows its end")
    for kubectl in world.members.values():
        wait_until(lambda kubectl=kubectl: not default(kubectl).items("pytorchjobs"), 60, what="no copy is left")


KINDS: Final = {
    "TFJob": ("tfReplicaSpecs", "tensorflow", "Chief"),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", "Master"),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", "Master"),
    "JAXJob": ("jaxReplicaSpecs", "jax", ""),
    "MPIJob": ("mpiReplicaSpecs", "mpi", "Launcher"),
}
"""Where a kind has its replicas, what their container is called, and what leads them."""


def of_kind(kind: str) -> dict[str, Any]:
    """Return a job of three pods; nobody writes a manager."""
    if kind == "JobSet":
        return objects.jobset("train", 3, objects.pod_template(), queues.QUEUE)
    field, container, leads = KINDS[kind]
    replicas = {"restartPolicy": "Never", "template": objects.pod_template(container=container)}
    counts = {leads: 1, "Worker": 2} if leads else {"Worker": 3}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "train", "labels": {names.QUEUE_LABELS[0]: queues.QUEUE}},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "All"},
            field: {role: replicas | {"replicas": count} for role, count in counts.items()},
        },
    }


@pytest.mark.parametrize("kind", ["JobSet", *KINDS])
def test_each_kind_runs_whole_in_one_member_and_its_end_is_shown_in_the_hub(world: FleetClusters, kind: str) -> None:
    label = "jobset.sigs.k8s.io/jobset-name" if kind == "JobSet" else OF_JOB

    def pods() -> list[tuple[str, dict[str, Any]]]:
        return [(member, pod) for member in MEMBERS for pod in world.members[member].pods(f"{label}=train")]

    def all_run() -> bool:
        return [pod["status"].get("phase") for _, pod in pods()] == ["Running"] * 3

    with Watch(world.members["left"]) as left, Watch(world.members["right"]) as right:
        world.hub.create(of_kind(kind))
        wait_until(all_run, 90, what="it runs")
        (member,) = {member for member, _ in pods()}
        watch = {"left": left, "right": right}[member]
        watch.settle()
        uid = uid_of(world.members[member], kind, "train")
        assert partly_created(watch, {uid: 3})[uid] < GONE_SECONDS, "whole"
    assert not world.hub.pods(), "the hub runs nothing"
    leads = KINDS[kind][-1].lower() if kind in KINDS else ""
    for name in [pod["metadata"]["name"] for _, pod in pods()]:
        # With the one that leads all has ended, and its operator takes the others away.
        if leads in name:
            ended = {"status": {"phase": "Succeeded"}}
            world.members[member].patch("pod", name, ended, "--subresource=status")
    shown = "Completed" if kind == "JobSet" else "Succeeded"
    wait_until(lambda: condition(world.hub.get(kind, "train"), shown) == "True", 60, what="the hub shows its end")
    for kubectl in world.members.values():
        wait_until(lambda kubectl=kubectl: not kubectl.items(kind), 60, what="no copy is left")
    world.hub.delete(kind, "train")


def test_with_a_queue_of_the_hub_one_job_runs_after_another_those_of_higher_priority_first(
    world: FleetClusters, blocks: list[list[str]]
) -> None:
    hub = default(world.hub)
    for command in blocks[2]:
        world.shell(command)
    first, *rest = wait_until(lambda: table(world.shell("kubectl get queue -n kube-queue")), what="the queues")
    assert first[0] == "NAME"
    assert [name.startswith(("root-child-2-", "root-")) for (name, *_) in rest] == [True, True]
    (member,) = wait_until(lambda: running(world), 90, what="the first runs")
    for name, value in (("low", 1), ("high", 1000)):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        # What a job names must be in the members as well.
        for kubectl in (world.hub, *world.members.values()):
            kubectl.apply(kind | {"value": value})
        hub.create(job(name, name))
        wait_until(lambda name=name: told(hub, name, "Queued"), what=f"{name} says why it waits")
    stays(lambda: not running(world, "low") and not running(world, "high"), 3, "one job at a time")
    end(world, member, JOB, "Succeeded")
    (member,) = wait_until(lambda: running(world, "high"), 90, what="the one of higher priority runs")
    assert not running(world, "low")
    end(world, member, "high", "Succeeded")
    wait_until(lambda: running(world, "low"), 90, what="the last runs")
