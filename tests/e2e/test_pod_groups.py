"""Gangs that start by their scheduling gates: plain pods of a PodGroup, and Volcano Jobs, which cannot be suspended."""

import json
from typing import Any, Final

import pytest
import yaml

from tests.e2e.conftest import AnyCluster
from tests.e2e.facts import told, uid_of
from tests.e2e.kubectl import Kubectl, KubectlError, condition, stays, wait_until
from tests.e2e.objects import pod, pod_template, resource_quota
from tests.e2e.queues import QUEUE, cluster_queue_of, give_queue, reservations, reserved, set_gpus
from tests.e2e.shell import Shell
from webhook.core.notation import names

pytestmark = pytest.mark.usefixtures("tutti")

GROUP: Final = "scheduling.x-k8s.io"
LABEL: Final = f"{GROUP}/pod-group"
GATE: Final = {"name": names.SCHEDULING_GATE}
VOLCANO: Final = "system:serviceaccount:volcano-system:volcano-controllers"
CREW: Final = {LABEL: "crew", "tutti.dev/queue-name": QUEUE}


def pod_group(name: str, least: int) -> dict[str, Any]:
    """Return a PodGroup of scheduler-plugins."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": least},
    }


def create_crew(owner: Kubectl, pods: range, labels: dict[str, str] | None = None, runtime: str = "") -> None:
    """Create plain pods of one GPU each that belong to the PodGroup ``crew``, in one call.

    Who waits for more pods is told once, after two seconds, how many there are.
    """
    template = pod_template(runtime=runtime, labels=CREW if labels is None else labels)
    owner.create(yaml.safe_dump_all(pod(f"crew-{number}", template) for number in pods))


def gated(found: dict[str, Any]) -> bool:
    """Return whether a pod waits behind our gate, as the scheduler sees it."""
    return GATE in found["spec"].get("schedulingGates", []) and condition(found, "PodScheduled") == "False"


def running(owner: Kubectl) -> int:
    """Return how many pods run."""
    return len(owner.pods(phase="Running"))


def waiting(owner: Kubectl) -> int:
    """Return how many pods wait behind their gates."""
    return sum(map(gated, owner.pods()))


def counted(owner: Kubectl) -> dict[str, Any]:
    """Return the status of the PodGroup."""
    status: dict[str, Any] = owner.get(f"podgroup.{GROUP}", "crew").get("status", {})
    return status


def says(owner: Kubectl, name: str, part: str) -> str:
    """Wait until an event says with these words why a group waits; while its pods are made it may have said others."""
    return wait_until(
        lambda: next((said for said in told(owner, name, "Queued") if part in said), ""), what=f"{name} says {part!r}"
    )


def test_three_plain_pods_stay_gated_while_there_is_room_for_two_and_run_when_there_is_for_all(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 2)
    owner.apply(pod_group("crew", 3))
    create_crew(owner, range(3))
    wait_until(lambda: waiting(owner) == 3, what="all three wait")

    assert "2" in says(owner, "crew", "asks for 3 nvidia.com/gpu")
    workload = owner.items("workloads")[0]
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
    assert condition(workload, "QuotaReserved") == "False"
    stays(lambda: waiting(owner) == 3, 2, "none is scheduled")
    set_gpus(admin, 3)
    wait_until(lambda: running(owner) == 3, what="all three run")
    assert reserved(admin) == 3
    wait_until(
        lambda: owner.get(f"podgroup.{GROUP}", "crew").get("status", {}).get("running") == 3,
        what="the PodGroup says so",
    )
    owner("delete", "pods", "--all", "--wait=false")
    wait_until(lambda: not reservations(admin), what="what they held is returned when the last is gone")


def test_a_fourth_pod_waits_until_its_gang_has_grown(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 3)
    owner.apply(pod_group("crew", 3))
    create_crew(owner, range(3))
    wait_until(lambda: running(owner) == 3, what="three run")
    create_crew(owner, range(3, 4))
    stays(lambda: (running(owner), waiting(owner)) == (3, 1), 3, "the fourth waits")
    set_gpus(admin, 4)
    wait_until(lambda: running(owner) == 4, what="the fourth follows")
    assert reserved(admin) == 4


def test_behind_a_resource_quota_for_two_the_third_is_refused_and_the_two_wait(owner: Kubectl, admin: Kubectl) -> None:
    admin.apply(resource_quota("hard", pods="2"))
    # What the quota controller has stored is what the API server refuses by.
    wait_until(lambda: admin.get("resourcequota", "hard").get("status", {}).get("hard"), what="it is in force")
    owner.apply(pod_group("crew", 3))
    create_crew(owner, range(2), {LABEL: "crew"})
    with pytest.raises(KubectlError, match=r"exceeded quota|no unreserved room"):
        create_crew(owner, range(2, 3), {LABEL: "crew"})
    assert says(owner, "crew", "it needs 3 pods, and 2 exist")
    stays(lambda: waiting(owner) == 2, 2, "neither is scheduled")
    admin.apply(resource_quota("hard", pods="3"))
    wait_until(lambda: _created(owner, 2), what="there is room for the third")
    wait_until(lambda: running(owner) == 3, what="all three run: what waits is not counted twice")


def _created(owner: Kubectl, number: int) -> bool:
    create_crew(owner, range(number, number + 1), {LABEL: "crew"})
    return True


def test_pods_wait_for_a_pod_group_that_does_not_exist_yet(owner: Kubectl) -> None:
    create_crew(owner, range(2), {LABEL: "crew"})
    stays(lambda: waiting(owner) >= 1, 3, "they wait")
    assert running(owner) == 0
    owner.apply(pod_group("crew", 2))
    wait_until(lambda: running(owner) == 2, what="both run")


def test_the_lightweight_labels_need_no_pod_group_object(owner: Kubectl) -> None:
    light = {"pod-group.scheduling.sigs.k8s.io/name": "crew", names.MIN_AVAILABLE_LABEL: "2"}
    create_crew(owner, range(1), light)
    stays(lambda: running(owner) == 0, 2, "one is too few")
    create_crew(owner, range(1, 2), light)
    wait_until(lambda: running(owner) == 2, what="both run")


def counted_pod(name: str, count: str | None = "3", **labels: str) -> dict[str, Any]:
    """Return a pod of the group ``crew`` as it is written for Kueue."""
    template = pod_template(labels={names.KUEUE_POD_GROUP: "crew", "kueue.x-k8s.io/queue-name": QUEUE} | labels)
    template["metadata"]["annotations"] = {} if count is None else {names.KUEUE_POD_COUNT: count}
    return pod(name, template)


def test_pods_written_for_kueue_start_whole_and_a_failed_ones_place_is_its_replacements(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 2)
    owner.create(yaml.safe_dump_all(counted_pod(f"crew-{number}") for number in range(2)))
    assert says(owner, "crew-0", "it needs 3 pods, and 2 exist")

    def refused(obj: dict[str, Any]) -> str:
        return owner.refused("create", "-f", "-", stdin=json.dumps(obj))

    assert f"annotation {names.KUEUE_POD_COUNT}: absent" in refused(counted_pod("odd", None))
    assert "0: is not a number of pods" in refused(counted_pod("odd", "0"))
    assert "a different gang from PodGroup 'other'" in refused(counted_pod("odd", **{LABEL: "other"}))
    relabel = owner.refused("label", "pod", "crew-0", f"{names.KUEUE_POD_GROUP}-")
    assert "PodGroup of a pod cannot change (it is crew)" in relabel
    owner.create(counted_pod("crew-2"))
    assert says(owner, "crew-0", "asks for 3 nvidia.com/gpu")
    assert "has all of its 3 pods" in refused(counted_pod("crew-3"))
    stays(lambda: (running(owner), waiting(owner)) == (0, 3), 2, "none is scheduled")
    set_gpus(admin, 3)
    wait_until(lambda: running(owner) == 3, what="all three run")
    assert reserved(admin) == 3
    recount = owner.refused("annotate", "pod", "crew-0", f"{names.KUEUE_POD_COUNT}=1", "--overwrite")
    assert "of an admitted pod cannot change" in recount
    owner("delete", "pod", "crew-1", "--wait=false")
    wait_until(lambda: len(owner.items("pods")) == 2, what="one is gone")
    wait_until(lambda: owner.create(counted_pod("crew-3")), what="that is seen, and another may come")
    wait_until(lambda: running(owner) == 3, what="another has its place")
    assert reserved(admin) == 3
    loose = pod("loose", pod_template(labels={names.KUEUE_POD_GROUP: "alone"}))
    owner.create(loose)
    wait_until(lambda: running(owner) == 4, what="a group without a queue passes, as in Kueue")
    owner("delete", "pods", "--all", "--wait=false")
    wait_until(lambda: not reservations(admin), what="what they held is returned when the last is gone")


def test_a_queue_that_drains_takes_its_plain_pods_away_and_those_that_wait_stay(owner: Kubectl, admin: Kubectl) -> None:
    queue = give_queue(admin, 2)
    owner.apply(pod_group("crew", 2))
    create_crew(owner, range(3))
    wait_until(lambda: (running(owner), waiting(owner)) == (2, 1), what="two run and one waits")
    draining = cluster_queue_of(queue, 2)
    draining["spec"]["stopPolicy"] = "HoldAndDrain"
    admin.apply(draining)
    wait_until(lambda: (running(owner), waiting(owner), len(owner.items("pods"))) == (0, 1, 1), what="two are deleted")
    wait_until(lambda: not reservations(admin), what="their quota is returned")
    assert told(owner, "crew", "Evicted")


def test_the_gate_the_group_and_the_labels_are_not_for_users_to_change(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 1)
    owner.apply(pod_group("crew", 2))
    create_crew(owner, range(2))
    lifting = '--patch=[{"op":"remove","path":"/spec/schedulingGates/0"}]'
    assert names.SCHEDULING_GATE in owner.refused("patch", "pod", "crew-0", "--type=json", lifting)
    assert "PodGroup of a pod cannot change" in owner.refused("label", "pod", "crew-0", f"{LABEL}=other", "--overwrite")
    assert names.GANG_LABEL in owner.refused("label", "pod", "crew-0", f"{names.GANG_LABEL}=x", "--overwrite")
    forged = pod("forged", pod_template(labels=CREW | {names.GANG_LABEL: "x"}))
    assert "not admitted" in owner.refused("create", "-f", "-", stdin=json.dumps(forged))
    preset = pod("preset", pod_template(labels=CREW))
    preset["spec"]["nodeName"] = "node-0"
    assert "nodeName" in owner.refused("create", "-f", "-", stdin=json.dumps(preset))
    assert running(owner) == 0


def test_the_account_that_deletes_plain_pods_reaches_no_other_pod(owner: Kubectl, admin: Kubectl) -> None:
    owner.create(pod("loose", pod_template()))
    account = "--as=system:serviceaccount:tutti-system:tutti-reconciler"
    assert "belongs to no gang" in admin.refused(account, "delete", "pod", "loose", "--wait=false")
    assert "belongs to no gang" in admin.refused(account, "label", "pod", "loose", "a=b")


# -- Volcano ----------------------------------------------------------------------------------------------------------


def volcano_job(name: str, replicas: int) -> dict[str, Any]:
    """Return a Volcano Job of one task."""
    task = {"name": "worker", "replicas": replicas, "template": pod_template()}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"tutti.dev/queue-name": QUEUE}},
        "spec": {"minAvailable": replicas, "schedulerName": "default-scheduler", "tasks": [task]},
    }


def made_by_volcano(admin: Kubectl, job: dict[str, Any], number: int) -> None:
    """Create a pod of a Volcano Job from its stored template, as its controller would: none runs in these tests."""
    made = pod(f"{job['metadata']['name']}-worker-{number}", job["spec"]["tasks"][0]["template"])
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": job["apiVersion"],
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
    ]
    admin("create", "-f", "-", f"--as={VOLCANO}", stdin=json.dumps(made))


@pytest.fixture
def volcano(cluster: AnyCluster, admin: Kubectl) -> None:
    """The real definition of a Volcano Job, and its controller's account with the rights to create pods here."""
    cluster.install_kinds("volcano")
    admin("create", "rolebinding", "volcano", "--clusterrole=edit", f"--user={VOLCANO}")
    wait_until(lambda: admin("auth", "can-i", "create", "pods", f"--as={VOLCANO}"), what="rights of Volcano")


@pytest.mark.usefixtures("volcano")
def test_a_volcano_job_is_stored_with_gates_and_its_pods_go_when_it_is_admitted(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 1)
    kind = "jobs.batch.volcano.sh"
    admin.create(volcano_job("sim", 2))
    stored = admin.get(kind, "sim")
    template = stored["spec"]["tasks"][0]["template"]
    assert template["spec"]["schedulingGates"] == [GATE]
    assert template["metadata"]["labels"][names.GANG_LABEL] == names.GANG_PENDING
    for number in range(2):
        made_by_volcano(admin, stored, number)
    stays(lambda: waiting(owner) >= 1 and running(owner) == 0, 3, "both wait")
    set_gpus(admin, 2)
    wait_until(lambda: running(owner) == 2, timeout_seconds=60, what="both run")
    uid = uid_of(admin, kind, "sim")
    assert {found["metadata"]["labels"][names.GANG_LABEL] for found in owner.pods()} == {uid}
    assert reserved(admin) == 2
    made_by_volcano(admin, stored, 2)
    stays(lambda: (running(owner), waiting(owner)) == (2, 1), 2, "a third has no place")
    assert "is written only by Tutti" in owner.refused(
        "create", "-f", "-", stdin=json.dumps(pod("forged", template | {"metadata": template["metadata"]}))
    )
    admin("delete", kind, "sim", "--wait=false")
    wait_until(lambda: not reservations(admin), what="its quota returns with its last pod")


@pytest.mark.usefixtures("volcano")
@pytest.mark.parametrize("annotation", names.POD_GROUP_ANNOTATIONS)
def test_plain_pods_join_a_pod_group_of_volcano_by_its_annotations(
    owner: Kubectl, admin: Kubectl, annotation: str
) -> None:
    give_queue(admin, 1)
    group = pod_group("crew", 2) | {"apiVersion": "scheduling.volcano.sh/v1beta1"}
    owner.apply(group)
    template = pod_template(labels={"tutti.dev/queue-name": QUEUE})
    template["metadata"]["annotations"] = {annotation: "crew"}
    for number in range(2):
        owner.create(pod(f"crew-{number}", template))
    assert says(owner, "crew", "asks for 2 nvidia.com/gpu")
    stays(lambda: (running(owner), waiting(owner)) == (0, 2), 2, "neither is scheduled")
    set_gpus(admin, 2)
    wait_until(lambda: running(owner) == 2, what="both run")
    assert reserved(admin) == 2


@pytest.mark.usefixtures("this_tutti")
def test_a_pod_groups_own_time_out_stops_a_gang_that_does_not_come_up(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 4)
    owner.apply(pod_group("crew", 2) | {"spec": {"minMember": 2, "scheduleTimeoutSeconds": 12}})
    template = pod_template(labels=CREW)
    beside = {"labelSelector": {"matchLabels": {"no-such": "pod"}}, "topologyKey": "kubernetes.io/hostname"}
    template["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}
    for number in range(2):
        owner.create(pod(f"crew-{number}", template))
    explain = Shell(owner)
    said = wait_until(
        lambda: "2 found no node: 0/" in (text := explain(f"tutti explain pg/crew -n {owner.namespace}")) and text,
        what="the scheduler's word and the moment of the stop are told while it starts",
    )
    assert "is stopped at" in said
    evicted = wait_until(lambda: told(owner, "crew", "Evicted"), timeout_seconds=60, what="it is stopped")[-1]
    assert "within 12 s after its admission" in evicted
    assert "2 found no node: 0/" in evicted
    wait_until(lambda: not reservations(admin), what="its quota is returned")
