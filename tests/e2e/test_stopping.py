"""Gangs that are stopped: by the start time-out, by their owner, by what their operator leaves running."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest

from tests.e2e.configuring import configured
from tests.e2e.controlplane.install import Installation
from tests.e2e.facts import annotation, told
from tests.e2e.kubectl import Kubectl, condition, stays, wait_until
from tests.e2e.objects import CONTAINER_SECURITY, GPU, job, jobset, pod, pod_template, pytorchjob, resource_quota
from tests.e2e.queues import QUEUE, give_queue, reservations, reserved, set_gpus
from tests.e2e.watching import Watch
from webhook.core.notation import names
from webhook.jobs.reading.ours import OWN_ANNOTATIONS

pytestmark = pytest.mark.needs("deployment/tutti-reconciler")

QUICK: Final = {"timeout_seconds": 10, "recovery_seconds": 4, "backoff_seconds": 2, "backoff_max_seconds": 4}
"""How soon a gang that lacks its quorum is stopped, and how long it then rests, while these tests run."""
SMALL: Final = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "small"},
    "spec": {"limits": [{"type": "Container", "max": {GPU: "1"}}]},
}
"""No container with more than one GPU."""


@pytest.fixture(scope="module", autouse=True)
def _quick_time_outs(tutti: Installation | None, kubectl: Kubectl) -> Iterator[None]:
    """Let reconcilers give up on gangs within seconds."""
    with configured(tutti, kubectl, start=QUICK):
        yield


def privileged_template(**template: Any) -> dict[str, Any]:
    """Return a pod template that the restricted level of Pod Security refuses."""
    made = pod_template(**template)
    made["spec"]["containers"][0]["securityContext"] = CONTAINER_SECURITY | {"allowPrivilegeEscalation": True}
    return made


def replacing(training_job: dict[str, Any]) -> dict[str, Any]:
    """Return a PyTorchJob whose lost pods are replaced; by default one of them ends the job."""
    for replicas in training_job["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = "OnFailure"
    return training_job


def suspended(owner: Kubectl, name: str, kind: str = "job") -> bool:
    """Return whether a Job or JobSet is stored suspended."""
    return owner.get(kind, name)["spec"].get("suspend") is True


def running(owner: Kubectl, name: str, pods: int) -> None:
    """Wait until so many pods of a Job run."""
    wait_until(lambda: len(owner.pods(f"job-name={name}", "Running")) == pods, 60, f"{pods} pods of {name} run")


# -- pods that are refused --------------------------------------------------------------------------------------------


def test_a_gang_whose_pods_pod_security_refuses_gives_way_and_returns_with_back_off(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 4)
    owner.apply(job("refused", 4, privileged_template(), QUEUE))
    wait_until(lambda: list(reservations(admin)) == ["refused"], what="it is admitted first")
    shown = wait_until(lambda: _starting(owner), what="its workload says what it lacks and until when")
    assert "if pods are missing, an event of the job" in shown
    assert "unless 4 of its pods run by then" in shown
    owner.apply(job("next", 4, pod_template(), QUEUE))
    running(owner, "next", 4)
    assert suspended(owner, "refused")
    assert list(reservations(admin)) == ["next"]
    evicted = told(owner, "refused", "Evicted")[-1]
    assert "PodsReadyTimeout: only 0 of the 4 pods it needs ran within 10 s after its admission" in evicted
    requeue = annotation(owner, "job", "refused", names.REQUEUE)
    assert (requeue["reason"], requeue["attempts"]) == ("PodsReadyTimeout", 1)
    owner.delete("job", "next")
    wait_until(lambda: list(reservations(admin)) == ["refused"], what="it is admitted again")
    requeued = "it gives up again, and rests longer"
    wait_until(lambda: annotation(owner, "job", "refused", names.REQUEUE).get("attempts") == 2, what=requeued)
    admin("label", "namespace", owner.namespace, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
    running(owner, "refused", 4)


def _starting(owner: Kubectl) -> str:
    """Return what the workload of a gang that is not whole says of that, empty while none is."""
    conditions = [each for item in owner.items("workloads") for each in item["status"]["conditions"]]
    messages = [str(each["message"]) for each in conditions if each["reason"] == "WaitForStart"]
    return next((text for text in messages if "is stopped at" in text), "")


def test_a_training_job_whose_workers_are_refused_while_its_master_runs_is_stopped_whole(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 3)
    half = pytorchjob("half", 2, privileged_template(container="pytorch"), QUEUE)
    half["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = pod_template(container="pytorch")
    owner.apply(half)
    wait_until(lambda: len(owner.pods(phase="Running")) == 1, what="its master runs alone")
    owner.apply(job("next", 3, pod_template(), QUEUE))
    running(owner, "next", 3)
    assert owner.get("pytorchjob", "half")["spec"]["runPolicy"]["suspend"] is True
    assert not owner.pods("training.kubeflow.org/job-name=half")
    assert list(reservations(admin)) == ["next"]


def test_a_gang_whose_pods_a_limit_range_would_refuse_waits_and_does_not_hold_up_the_next(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 4)
    admin.apply(SMALL)
    owner.apply(jobset("refused", 2, pod_template(gpus=2), QUEUE))
    assert "LimitRange" in wait_until(lambda: told(owner, "refused", "Queued"), what="it says why it waits")[-1]
    owner.apply(job("next", 4, pod_template(), QUEUE))
    running(owner, "next", 4)
    assert suspended(owner, "refused", "jobset")
    assert list(reservations(admin)) == ["next"]


def test_a_gang_whose_pods_a_later_limit_range_refuses_is_stopped_whole_and_gives_way_to_the_next(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 4)
    refused = pytorchjob("refused", 1, pod_template(gpus=2, container="pytorch"), QUEUE)
    owner.apply(replacing(refused))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs")
    admin.apply(SMALL)
    large = json.dumps(pod("large", pod_template(gpus=2)))
    by_range = partial(owner.refused, "create", "--dry-run=server", "-f", "-", stdin=large)
    wait_until(lambda: "maximum nvidia.com/gpu usage" in by_range(), what="it is in force")
    owner.delete("pod", "refused-worker-0")
    owner.apply(job("next", 4, pod_template(), QUEUE))
    running(owner, "next", 4)
    assert owner.get("pytorchjob", "refused")["spec"]["runPolicy"]["suspend"] is True
    assert not owner.pods("training.kubeflow.org/job-name=refused")
    assert list(reservations(admin)) == ["next"]


def test_a_gang_that_cannot_be_whole_again_after_its_resource_quota_was_lowered_is_stopped_whole(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 4)
    admin.apply(resource_quota("wall", pods="4"))
    gang = pytorchjob("gang", 3, pod_template(container="pytorch"), QUEUE)
    owner.apply(replacing(gang))
    wait_until(lambda: len(owner.pods(phase="Running")) == 4, what="it runs")
    admin.apply(resource_quota("wall", pods="2"))
    # What the quota controller has stored is what the API server refuses by.
    wait_until(lambda: admin.get("resourcequota", "wall")["status"]["hard"]["pods"] == "2", what="it is in force")
    owner.delete("pod", "gang-worker-0", "gang-worker-1", "gang-worker-2")
    wait_until(lambda: not reservations(admin), what="its quota is returned")
    assert not owner.items("pods"), "it was stopped whole"
    assert owner.get("pytorchjob", "gang")["spec"]["runPolicy"]["suspend"] is True
    assert "of the 4 pods it needs ran within" in told(owner, "gang", "Evicted")[-1]
    owner.apply(job("pair", 2, pod_template(), QUEUE))
    running(owner, "pair", 2)
    owner.delete("job", "pair")
    admin.apply(resource_quota("wall", pods="4"))
    wait_until(lambda: len(owner.pods(phase="Running")) == 4, what="it runs again")


# -- what operators leave running -------------------------------------------------------------------------------------


def test_a_pytorchjob_that_succeeded_holds_its_quota_until_its_workers_are_gone(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 3)
    master, worker = pod_template(container="pytorch", runtime="2s"), pod_template(container="pytorch")
    first = pytorchjob("first", 2, worker, QUEUE, cleanPodPolicy="None")
    first["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = master
    owner.apply(first)
    wait_until(lambda: condition(owner.get("pytorchjob", "first"), "Succeeded") == "True", what="its master ends")
    owner.apply(job("next", 3, pod_template(), QUEUE))
    assert len(owner.pods(phase="Running")) == 2, "two workers run on"
    stays(lambda: suspended(owner, "next") and list(reservations(admin)) == ["first"], 3, "they hold the quota")
    held = f"held by {owner.namespace}/first"
    wait_until(lambda: any(held in said for said in told(owner, "next", "Queued")), what="its owner is told so")
    owner.delete("pod", *(item["metadata"]["name"] for item in owner.pods(phase="Running")))
    running(owner, "next", 3)
    assert list(reservations(admin)) == ["next"]


def test_the_child_jobs_of_a_jobset_are_not_gated_again(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    owner.apply(jobset("set", 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs")
    child = owner.items("jobs")[0]
    assert child["spec"]["suspend"] is False
    assert not [key for key in child["metadata"].get("annotations", {}) if key in OWN_ANNOTATIONS]
    assert list(reservations(admin)) == ["set"]
    assert reserved(admin) == 2


# -- what an owner decides --------------------------------------------------------------------------------------------


def test_an_owners_suspend_stops_an_admitted_job_whole_and_holds_it_and_lifting_it_queues_it_at_its_place(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 2)
    owner.apply(job("first", 2, pod_template(), QUEUE))
    running(owner, "first", 2)
    owner.apply(job("second", 2, pod_template(), QUEUE))
    owner.patch("job", "first", {"spec": {"suspend": True}})
    running(owner, "second", 2)
    assert not owner.pods("job-name=first")
    assert suspended(owner, "first")
    owner.apply(job("third", 2, pod_template(), QUEUE))
    set_gpus(admin, 4)
    running(owner, "third", 2)
    set_gpus(admin, 2)
    stays(lambda: suspended(owner, "first"), 1, "it is held")
    owner.apply(job("fourth", 2, pod_template(), QUEUE))
    owner.patch("job", "first", {"spec": {"suspend": False}})
    assert suspended(owner, "first"), "it waits again"
    owner.delete("job", "second", "third")
    running(owner, "first", 2)
    assert suspended(owner, "fourth"), "its place was before the fourth's"


def test_a_held_job_does_not_start_although_there_is_room(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 4)
    owner.apply(jobset("set", 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs")
    with Watch(owner) as watch:
        owner.patch("jobset", "set", {"spec": {"suspend": True}})
        wait_until(lambda: not owner.items("pods") and not reservations(admin), what="it is stopped whole")
        stays(lambda: suspended(owner, "set", "jobset") and not owner.items("pods"), 3, "it is held")
        assert all(change.kind != "ADDED" for change in watch.changes)
    owner.patch("jobset", "set", {"spec": {"suspend": False}})
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs again")


def test_a_job_that_goes_on_with_a_part_of_its_work_done_holds_no_more_than_what_is_left_needs(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 3)
    owner.apply(job("list", 3, pod_template(runtime="6s"), QUEUE, completions=5))
    wait_until(lambda: owner.get("job", "list")["status"].get("succeeded") == 3, 40, "three of five are done")
    owner.patch("job", "list", {"spec": {"suspend": True}})
    wait_until(lambda: not reservations(admin), what="it is stopped whole")
    assert owner.get("job", "list")["status"]["succeeded"] == 3
    owner.apply(job("other", 1, pod_template(), QUEUE))
    running(owner, "other", 1)
    with Watch(owner) as watch:
        owner.patch("job", "list", {"spec": {"suspend": False}})
        running(owner, "list", 2)
        assert reservations(admin)["list"].counts == {"main": 2}, "with three it would have to wait for the other"
        assert reserved(admin) == 3
        assert annotation(owner, "job", "list", names.ADMISSION)["counts"] == {"main": 2}
        assert owner.get("job", "list")["spec"]["parallelism"] == 3, "what its owner wrote stays"
        wait_until(lambda: condition(owner.get("job", "list"), "Complete") == "True", 40, "it does the rest")
        created = {change.item["metadata"]["name"] for change in watch.changes if change.kind == "ADDED"}
    assert len([name for name in created if name.startswith("list")]) == 2
    wait_until(lambda: list(reservations(admin)) == ["other"], what="what it held is free")
