"""TFJob and MPIJob under the real training operator: they wait, start, stop and end whole."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.conftest import AnyCluster, create_namespace, member
from tests.e2e.facts import CREATION_SECONDS, partly_created, pods_of, told, uid_of
from tests.e2e.kubectl import Kubectl, condition, wait_until
from tests.e2e.objects import job, mpijob, pod_template, tfjob
from tests.e2e.queues import QUEUE, give_queue, reservations, reserved, set_gpus
from tests.e2e.watching import Watch

pytestmark = pytest.mark.usefixtures("tutti")


def workload_of(owner: Kubectl, kind: str, name: str) -> dict[str, Any]:
    """Return the workload of a job."""
    found = owner.items("workloads", f"kueue.x-k8s.io/job-uid={uid_of(owner, kind, name)}")
    assert found, f"{kind} {name} is shown"
    return found[0]


def suspended(owner: Kubectl, kind: str, name: str) -> bool:
    """Return whether a training job is stored suspended."""
    return owner.get(kind, name)["spec"]["runPolicy"].get("suspend") is True


def is_running(owner: Kubectl, kind: str, pods: int) -> Callable[[], bool]:
    """Return whether the job ``train`` has exactly so many pods and all run, as a question to wait for."""

    def look() -> bool:
        found = owner.items("pods", "training.kubeflow.org/job-name=train")
        assert [pod["status"].get("phase") for pod in found] == ["Running"] * pods
        shown = workload_of(owner, kind, "train")["status"]
        assert condition({"status": shown}, "PodsReady") == "True", (shown, owner.get(kind, "train")["status"])
        return True

    return look


def test_a_tfjob_waits_whole_starts_whole_and_returns_its_quota_when_its_chief_ends(
    owner: Kubectl, admin: Kubectl
) -> None:
    queue = give_queue(admin, 3)
    train = tfjob("train", 2, pod_template(container="tensorflow"), QUEUE, cleanPodPolicy="All")
    replicas = train["spec"]["tfReplicaSpecs"]
    replicas["PS"] = replicas["Worker"] | {"replicas": 1}
    replicas["Chief"] = replicas["Chief"] | {"template": pod_template(container="tensorflow", runtime="12s")}
    with Watch(owner) as watch:
        owner.apply(train)
        assert suspended(owner, "tfjob", "train")
        why = wait_until(lambda: told(owner, "train", "Queued"), what="it says why it waits")[-1]
        assert "asks for 4 nvidia.com/gpu" in why
        waiting = wait_until(lambda: workload_of(owner, "tfjob", "train"), what="it is shown")
        assert {s["name"]: s["count"] for s in waiting["spec"]["podSets"]} == {"chief": 1, "ps": 1, "worker": 2}
        assert watch.changes == []
        set_gpus(admin, 4)
        wait_until(is_running(owner, "tfjob", 4), what="chief, parameter server and workers run")
        assert reserved(admin) == 4
        grown = '{"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}}'
        assert "a running gang does not grow" in owner.refused(
            "patch", "tfjob", "train", "--type=merge", f"--patch={grown}"
        )
        owner.apply(job("next", 4, pod_template(), QUEUE))
        wait_until(lambda: condition(owner.get("tfjob", "train"), "Succeeded") == "True", what="its chief ends it")
        wait_until(lambda: len(owner.pods("job-name=next", "Running")) == 4, what="the next has its quota")
        assert condition(workload_of(owner, "tfjob", "train"), "Finished") == "True"
        watch.settle()
        uids = [uid_of(owner, "tfjob", "train"), uid_of(owner, "job", "next")]
        assert max(partly_created(watch, {uids[1]: 4}).values()) < CREATION_SECONDS
        for _, pods in watch.live():
            live = {name: pod for name, pod in pods.items() if pod["status"].get("phase") in ("Pending", "Running")}
            assert not (pods_of(live, uids[0]) and pods_of(live, uids[1])), "never both"
    assert queue in {entry.queue for entry in reservations(admin).values()}


@pytest.fixture
def baseline(cluster: AnyCluster, kubectl: Kubectl) -> Iterator[tuple[Kubectl, Kubectl]]:
    """An owner and the administrator in a namespace that enforces Pod Security's ``baseline``.

    The operator gives each launcher an init container of its own that ``restricted`` refuses.
    """
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    create_namespace(kubectl, name, {"pod-security.kubernetes.io/enforce": "baseline"})
    yield member(cluster, kubectl, name, f"{name}-owner"), kubectl.in_namespace(name)
    kubectl.delete("namespace", name)


def test_an_mpijob_waits_whole_starts_whole_stops_whole_and_ends_with_its_launcher(
    baseline: tuple[Kubectl, Kubectl],
) -> None:
    owner, admin = baseline
    give_queue(admin, 1)
    train = mpijob("train", 2, pod_template(), QUEUE, cleanPodPolicy="All")
    train["spec"]["mpiReplicaSpecs"]["Launcher"]["template"] = pod_template(gpus=0)
    with Watch(owner) as watch:
        owner.apply(train)
        assert suspended(owner, "mpijob", "train")
        why = wait_until(lambda: told(owner, "train", "Queued"), what="it says why it waits")[-1]
        assert "asks for 2 nvidia.com/gpu" in why
        waiting = wait_until(lambda: workload_of(owner, "mpijob", "train"), what="it is shown")
        assert {s["name"]: s["count"] for s in waiting["spec"]["podSets"]} == {"launcher": 1, "worker": 2}
        assert waiting["metadata"]["ownerReferences"][0]["apiVersion"] == owner.get("mpijob", "train")["apiVersion"]
        assert watch.changes == []
        set_gpus(admin, 2)
        wait_until(is_running(owner, "mpijob", 3), what="launcher and workers run")
        assert reserved(admin) == 2
        grown = '{"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}}}'
        assert "a running gang does not grow" in owner.refused(
            "patch", "mpijob", "train", "--type=merge", f"--patch={grown}"
        )

        owner.patch("mpijob", "train", {"spec": {"runPolicy": {"suspend": True}}})
        wait_until(lambda: not owner.items("pods") and not reservations(admin), what="it is stopped whole")
        owner.patch("mpijob", "train", {"spec": {"runPolicy": {"suspend": False}}})
        wait_until(is_running(owner, "mpijob", 3), what="it runs again")
        watch.settle()
        assert max(partly_created(watch, {uid_of(owner, "mpijob", "train"): 3}).values()) < CREATION_SECONDS

    owner.delete("mpijob", "train")
    train["spec"]["mpiReplicaSpecs"]["Launcher"]["template"] = pod_template(gpus=0, runtime="3s")
    train["metadata"]["name"] = "short"
    owner.apply(train)
    wait_until(lambda: condition(owner.get("mpijob", "short"), "Succeeded") == "True", what="its launcher ends it")
    wait_until(lambda: not reservations(admin), what="its quota is returned when its workers are gone")
    assert condition(workload_of(owner, "mpijob", "short"), "Finished") == "True"


def test_a_managed_mpijob_is_ours_whichever_operator_it_names(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 0)
    owner.apply(mpijob("train", 1, pod_template(), QUEUE, managedBy="kubeflow.org/training-operator"))
    assert suspended(owner, "mpijob", "train")
