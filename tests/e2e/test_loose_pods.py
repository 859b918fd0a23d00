"""Pods outside gangs in a namespace with a ResourceQuota: what a gang has reserved is not theirs."""

import json
import threading
from typing import Any, Final

import pytest
import yaml

from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, KubectlError, condition, stays, wait_until
from tests.e2e.objects import CONTAINER_SECURITY, GPU, deployment, job, pod, pod_template, resource_quota
from tests.e2e.queues import QUEUE, give_queue, reservations, reserved
from tests.e2e.watching import Watch

pytestmark = pytest.mark.usefixtures("tutti")

ROUNDS: Final = 20


def absent_gang(admin: Kubectl, owner: Kubectl, hard: int) -> None:
    """Have a gang of four GPUs admitted that only reserves: Pod Security refuses its pods."""
    give_queue(admin, 4)
    admin.apply(resource_quota("wall", **{f"requests.{GPU}": str(hard)}))
    template = pod_template()
    privileged = CONTAINER_SECURITY | {"allowPrivilegeEscalation": True}
    template["spec"]["containers"][0]["securityContext"] = privileged
    owner.apply(job("gang", 4, template, QUEUE))
    wait_until(lambda: "gang" in reservations(admin), what="the gang is admitted")
    wait_until(lambda: told(owner, "gang", "FailedCreate"), what="its pods are refused")


def refused(owner: Kubectl, name: str) -> str:
    """Create a loose pod of one GPU that must be refused, and return what its owner reads."""
    return owner.refused("create", "-f", "-", stdin=yaml.safe_dump(pod(name, pod_template())))


def let_in(owner: Kubectl, name: str) -> bool:
    """Create a loose pod of one GPU; return whether it was not refused."""
    try:
        owner.create(pod(name, pod_template()))
    except KubectlError:
        return False
    return True


def test_a_loose_pod_cannot_eat_the_reservation_of_a_gang_whose_pods_do_not_exist_yet(
    owner: Kubectl, admin: Kubectl
) -> None:
    absent_gang(admin, owner, hard=4)
    message = refused(owner, "loose")
    assert f"ResourceQuota {owner.namespace}/wall has 4" in message
    assert f"held by {owner.namespace}/gang (4)" in message
    assert not owner.items("pods")
    admin("label", "namespace", owner.namespace, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
    running = "the gang's four pods run in what was kept for them"
    wait_until(lambda: len(owner.pods(phase="Running")) == 4, timeout_seconds=90, what=running)
    assert "gang (4)" in refused(owner, "loose")


def ends(admin: Kubectl, pod: dict[str, Any]) -> None:
    """Have a pod succeed while others of its Job run on."""
    where, ended = pod["metadata"], json.dumps({"status": {"phase": "Succeeded"}})
    admin("patch", "pod", where["name"], "-n", where["namespace"], "--subresource=status", "--type=merge", "-p", ended)


def test_room_of_pods_that_ended_is_free_to_gangs_and_loose_pods_while_their_gang_runs_on(
    owner: Kubectl, admin: Kubectl
) -> None:
    """Also once the ledger was written for others."""
    give_queue(admin, 8)
    admin.apply(resource_quota("wall", pods="3"))
    owner.apply(job("gang", 3, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 3, what="the gang runs")
    assert "ResourceQuota" in refused(owner, "loose")
    for each in owner.pods("job-name=gang")[:2]:
        ends(admin, each)
    owner.apply(job("next", 1, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods("job-name=next", "Running")) == 1, 60, "the next gang has room of what ended")
    wait_until(lambda: let_in(owner, "loose"), what="and a loose pod the rest")
    assert len(owner.pods("job-name=gang", "Running")) == 1
    assert "ResourceQuota" in refused(owner, "another")


def test_of_ten_single_gpu_pods_of_a_deployment_exactly_four_pass_beside_a_reservation_of_four_of_eight(
    owner: Kubectl, admin: Kubectl
) -> None:
    absent_gang(admin, owner, hard=8)
    with Watch(owner) as watch:
        for number in range(ROUNDS):
            one_round(owner, f"round-{number}")
        watch.settle(0.5)
        most = max(len(pods) for _, pods in watch.live())
        created = [change.item["metadata"]["labels"]["app"] for change in watch.changes if change.kind == "ADDED"]
    assert most == 4, "never more than four at any instant"
    # A ReplicaSet controller that has not heard yet that its set is being deleted replaces pods as they go.
    assert {name for name in created if created.count(name) >= 4} == {f"round-{number}" for number in range(ROUNDS)}
    assert reserved(admin) == 4


def one_round(owner: Kubectl, name: str) -> None:
    """Let a Deployment have what it gets, and delete it."""
    owner.apply(deployment(name, 10, pod_template()))
    wait_until(lambda: four_of(owner, name), what=f"four of ten pods run in {name}")
    owner("delete", "deployment", name, "--cascade=foreground", "--wait")
    wait_until(lambda: not owner.items("pods"), what="they are gone")


def four_of(owner: Kubectl, name: str) -> bool:
    """Return whether a Deployment has four pods and was refused a fifth."""
    found: dict[str, Any] = owner.get("deployment", name)
    pods = len(owner.pods(f"app={name}", "Running"))
    return condition(found, "ReplicaFailure") == "True" and pods == 4


def test_a_burst_of_loose_pods_by_many_hands_gets_what_the_reservation_leaves(owner: Kubectl, admin: Kubectl) -> None:
    absent_gang(admin, owner, hard=8)
    verdicts: list[bool] = []

    def create(number: int) -> None:
        try:
            owner.create(pod(f"loose-{number}", pod_template()))
            verdicts.append(True)
        except KubectlError:
            verdicts.append(False)

    hands = [threading.Thread(target=create, args=(number,)) for number in range(12)]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join()
    assert (verdicts.count(True), verdicts.count(False)) == (4, 8)
    stays(lambda: len(owner.pods()) == 4, 1, "four pods exist")
