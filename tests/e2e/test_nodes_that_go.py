"""A node goes while a gang starts on it, or while it runs there: what its owner reads in each moment, how it ends."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from tests.e2e.conftest import Team
from tests.e2e.controlplane.nodes import SILENT_ANNOTATION
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import GPU, job, pod_template
from tests.e2e.own_nodes import on, own_node, own_nodes, running
from tests.e2e.queues import QUEUE, reservations

SECONDS: Final = 60
"""For what takes a node controller, the scheduler, the Job controller and Tutti one after another."""
TAINT: Final = "example.com/repair"
NOT_READY: Final = "node.kubernetes.io/not-ready"


@dataclass(frozen=True, slots=True)
class Fate:
    """What befalls a node, what undoes it, and what is said of it where it counts for nobody."""

    go: Callable[[Kubectl, str], object]
    back: Callable[[Kubectl, str], object]
    counted: str


def deleted(admin: Kubectl, node: str) -> None:
    """Delete a node."""
    admin("delete", "node", node, "--wait=false")


def made_again(admin: Kubectl, node: str) -> None:
    """Make a node that was deleted."""
    admin.apply(own_node(admin, node, {}))


def tainted(admin: Kubectl, node: str) -> None:
    """Taint a node for pods that are still to come."""
    admin("taint", "node", node, f"{TAINT}=now:NoSchedule")


def untainted(admin: Kubectl, node: str) -> None:
    """Take the taint off."""
    admin("taint", "node", node, f"{TAINT}-")


def not_ready(admin: Kubectl, node: str) -> None:
    """Let a node's kubelet report that it cannot run pods; the cluster's own controller taints it for that."""
    admin("annotate", "node", node, f"{SILENT_ANNOTATION}=true")
    said = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no container runtime"}
    admin("patch", "node", node, "--subresource=status", f"--patch={json.dumps({'status': {'conditions': [said]}})}")
    wait_until(lambda: NOT_READY in taints_of(admin, node), SECONDS, "the cluster has taken note")


def ready_again(admin: Kubectl, node: str) -> None:
    """Let it report that it can."""
    admin("annotate", "node", node, f"{SILENT_ANNOTATION}-")
    wait_until(lambda: NOT_READY not in taints_of(admin, node), SECONDS, "the cluster has taken note")


def taints_of(admin: Kubectl, node: str) -> list[str]:
    """Return the keys of a node's taints."""
    return [taint["key"] for taint in admin.get("node", node)["spec"].get("taints", [])]


def has_gpus(gpus: int, admin: Kubectl, node: str) -> None:
    """Let a node say that it has so many GPUs to give."""
    status = {"status": {"allocatable": {GPU: str(gpus)}}}
    admin("patch", "node", node, "--subresource=status", f"--patch={json.dumps(status)}")


def made_smaller(admin: Kubectl, node: str) -> None:
    """Replace a node by one of the same name that has fewer GPUs."""
    admin("delete", "node", node)
    admin.apply(own_node(admin, node, {GPU: "4"}))


def made_larger(admin: Kubectl, node: str) -> None:
    """Replace it by one like the first."""
    admin("delete", "node", node)
    made_again(admin, node)


def taken(admin: Kubectl, node: str) -> None:
    """Put somebody else's pod on a node, past every scheduler."""
    admin.apply(on(node, 4))


def left(admin: Kubectl, node: str) -> None:
    """Take it away."""
    admin.delete("pod", on(node, 4)["metadata"]["name"])


FATES: Final = {
    "deleted": Fate(
        deleted, made_again, "the nodes that could take them (1) hold 1 when nothing else runs there, 1 too few"
    ),
    "tainted": Fate(tainted, untainted, f"1 with taint {TAINT}"),
    "not ready": Fate(not_ready, ready_again, "1 not ready"),
}


LIES: Final = {
    "smaller": Fate(partial(has_gpus, 4), partial(has_gpus, 8), "the nodes that could take them (2) hold 1"),
    "made again smaller": Fate(made_smaller, made_larger, "the nodes that could take them (2) hold 1"),
    "of another rack": Fate(
        lambda admin, node: admin("label", "node", node, "rack-"),
        lambda admin, node: admin("label", "node", node, f"rack={admin.namespace}"),
        "the nodes that could take them (1) hold 1",
    ),
    "taken by another's pod": Fate(taken, left, "1 lacks nvidia.com/gpu (4 free in pieces too small)"),
}
"""Nodes that are there, and are not what they were."""


@pytest.fixture
def nodes(team: Team) -> Iterator[list[str]]:
    """Two nodes of 8 GPUs, which the team's queue has to itself."""
    made = own_nodes(team.admin, 2)
    yield made
    team.admin("delete", "node", "--ignore-not-found", "--wait=false", *made)


def hold_pods(owner: Kubectl) -> None:
    """Let a gang start whose pods have a gate of somebody else's: the scheduler reads what changes before it binds."""
    held = pod_template(8)
    held["spec"]["schedulingGates"] = [{"name": "example.com/held"}]
    owner.apply(job("train", 2, held, QUEUE))
    wait_until(lambda: len(owner.pods("job-name=train")) == 2, SECONDS, "its pods are made and nobody binds them")


def ready_condition(owner: Kubectl) -> str:
    """Return what the workload says of a gang that lacks pods; empty while it says nothing."""
    conditions = [each for item in owner.items("workloads") for each in item["status"]["conditions"]]
    said = [each for each in conditions if each["type"] == "PodsReady" and each["status"] == "False"]
    return "".join(f"{each['reason']}: {each['message']}" for each in said)


def last(owner: Kubectl, reason: str, part: str) -> str:
    """Return the latest event of a reason that contains a text."""
    return next((said for said in reversed(told(owner, "train", reason)) if part in said), "")


@pytest.mark.parametrize("fate", FATES.values(), ids=FATES)
def test_a_gang_whose_node_goes_before_its_pods_are_bound_is_stopped_whole_and_starts_when_there_is_one_again(
    team: Team, nodes: list[str], fate: Fate
) -> None:
    admin, owner = team.admin, team.owner
    hold_pods(owner)
    assert not any("nodeName" in pod["spec"] for pod in owner.pods())
    held = wait_until(lambda: "2 wait" in (said := ready_condition(owner)) and said, SECONDS, "it says what holds them")
    assert "2 exist of 2 pods; not all of them run yet; 2 wait behind scheduling gate example.com/held" in held
    assert "found no node" not in held
    fate.go(admin, nodes[1])
    wait_until(lambda: let_go(owner) == 1, SECONDS, "one has the node that is left")
    starting = wait_until(lambda: "found no node" in (said := ready_condition(owner)) and said, SECONDS, "it says why")
    assert starting.startswith("WaitForStart: 2 exist of 2 pods; not all of them run yet; 1 found no node: 0/")
    assert "it is stopped at 20" in starting
    assert "unless 2 of its pods run by then" in starting
    stopped = wait_until(lambda: last(owner, "Evicted", "NoNodeLeft"), SECONDS, "it is stopped as a whole")
    assert "1 of its pods no longer fits any node: others took the room, or nodes are gone; 1 found no node" in stopped
    wait_until(lambda: owner.pods("job-name=train") == [], SECONDS, "no pod of it holds the node that is left")
    why = wait_until(lambda: last(owner, "Queued", "NodesDoNotFit"), SECONDS, "it waits, and says for what")
    assert "asks for 2 pods of 100m cpu, 8 nvidia.com/gpu" in why
    assert fate.counted in why
    wait_until(lambda: not reservations(admin), SECONDS, "it holds nothing meanwhile")
    fate.back(admin, nodes[1])
    wait_until(lambda: let_go(owner) == 2, SECONDS, "both nodes are there, and so is it")


@pytest.mark.parametrize("how", ["tainted", "not ready"])
def test_a_gang_that_runs_is_left_alone_by_what_keeps_pods_to_come_from_its_node(
    team: Team, nodes: list[str], how: str
) -> None:
    """A node that is not ready may be back before the cluster evicts its pods, after five minutes."""
    admin, owner, fate = team.admin, team.owner, FATES[how]
    owner.apply(job("train", 2, pod_template(8), QUEUE))
    wait_until(lambda: running(owner, "train") == 2, SECONDS, "it runs")
    before = [pod["metadata"]["uid"] for pod in owner.pods()]
    fate.go(admin, nodes[1])
    owner.apply(job("next", 1, pod_template(8), QUEUE))
    stays(lambda: [pod["metadata"]["uid"] for pod in owner.pods("job-name=train")] == before, 5, "it runs on")
    assert told(owner, "train", "Evicted") == []
    assert "train" in reservations(admin)
    fate.back(admin, nodes[1])
    owner.delete("job", "train")
    wait_until(lambda: running(owner, "next") == 1, SECONDS, "who waited has a node when it has gone")


@pytest.mark.parametrize("how", ["deleted", "tainted for those that run too"])
def test_a_gang_that_loses_a_node_while_it_runs_keeps_its_place_there_for_a_while_and_says_what_it_lacks(
    team: Team, nodes: list[str], how: str
) -> None:
    admin, owner = team.admin, team.owner
    owner.apply(job("train", 2, pod_template(8), QUEUE, backoffLimit=20))
    wait_until(lambda: running(owner, "train") == 2, SECONDS, "it runs")
    # Until Tutti has seen that, what it lacks are pods to start with.
    wait_until(lambda: not ready_condition(owner), SECONDS, "it is seen to run whole")
    (lost,) = (pod for pod in owner.pods() if pod["spec"]["nodeName"] == nodes[1])
    if how == "deleted":
        deleted(admin, nodes[1])
        owner("delete", "pod", "--force", "--grace-period=0", lost["metadata"]["name"])
    else:
        admin("taint", "node", nodes[1], f"{TAINT}=now:NoExecute")
    lacking = wait_until(lambda: _lacks(owner), SECONDS, "it says what it lacks")
    assert lacking.startswith("WaitForRecovery: ")
    assert "not all of them run any more; 1 found no node: 0/" in lacking
    assert "it is stopped at 20" in lacking
    owner.apply(job("next", 1, pod_template(8), QUEUE))
    wait_until(lambda: told(owner, "next", "Queued"), SECONDS, "who comes later waits")
    assert owner.pods("job-name=next") == []
    if how == "deleted":
        made_again(admin, nodes[1])
    else:
        untainted(admin, nodes[1])
    wait_until(lambda: running(owner, "train") == 2, SECONDS, "it is whole again, on the node that came back")
    assert told(owner, "train", "Evicted") == []


@pytest.mark.parametrize("fate", LIES.values(), ids=LIES)
def test_a_gang_whose_node_is_no_longer_what_it_was_is_stopped_whole_and_starts_when_it_is_again(
    team: Team, nodes: list[str], fate: Fate
) -> None:
    admin, owner = team.admin, team.owner
    hold_pods(owner)
    fate.go(admin, nodes[1])
    wait_until(lambda: let_go(owner) == 1, SECONDS, "one has the node that is left")
    stopped = wait_until(lambda: last(owner, "Evicted", "NoNodeLeft"), SECONDS, "it is stopped as a whole")
    assert "1 of its pods no longer fits any node" in stopped
    why = wait_until(lambda: last(owner, "Queued", "NodesDoNotFit"), SECONDS, "it waits, and says for what")
    assert fate.counted in why
    wait_until(lambda: owner.pods("job-name=train") == [], SECONDS, "no pod of it is left")
    fate.back(admin, nodes[1])
    wait_until(lambda: let_go(owner) == 2, SECONDS, "both nodes are as they were, and it runs")


def let_go(owner: Kubectl) -> int:
    """Take the gate from all pods that have it; return how many run."""
    for each in owner.pods("job-name=train"):
        if "schedulingGates" in each["spec"]:
            owner.patch("pod", each["metadata"]["name"], {"spec": {"schedulingGates": None}})
    return running(owner, "train")


def _lacks(owner: Kubectl) -> str:
    said = ready_condition(owner)
    return said if "found no node" in said else ""
