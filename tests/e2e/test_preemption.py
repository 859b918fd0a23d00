"""A team takes back what others borrowed from it: a running gang is stopped whole, and comes back later."""

from typing import Any, Final

import pytest
import yaml

from tests.e2e.facts import CREATION_SECONDS, annotation, partly_created, told, uid_of
from tests.e2e.kubectl import Kubectl, condition, stays, wait_until
from tests.e2e.objects import GPU, job, jobset, pod_template, resource_quota
from tests.e2e.queues import QUEUE, cluster_queue_of, give_cohort, give_queue, reservations
from tests.e2e.test_whole_or_nothing import unfinished
from tests.e2e.watching import Watch
from webhook.core.notation import names

pytestmark = pytest.mark.usefixtures("tutti")

KUEUE: Final = "kueue.x-k8s.io/v1beta2"


@pytest.fixture
def cohort(admin: Kubectl) -> str:
    """Two queues of four GPUs each, ``lender`` and ``borrower``, in a cohort; the lender takes back what is its own."""
    give_cohort(admin, "lender", "borrower", gpus=4)
    return admin.namespace


@pytest.mark.usefixtures("cohort")
def test_a_running_jobset_that_borrows_is_stopped_whole_for_the_lender_and_resumed_later(
    owner: Kubectl, admin: Kubectl
) -> None:
    with Watch(owner) as watch:
        owner.apply(jobset("guest", 8, pod_template(), "borrower"))
        wait_until(lambda: len(owner.pods(phase="Running")) == 8, what="the borrower uses all of the cohort")
        owner.apply(job("host", 2, pod_template(runtime="3s"), "lender"))
        wait_until(lambda: condition(owner.get("job", "host"), "Complete") == "True", what="the lender's job runs")
        assert any("Preempted" in event for event in told(owner, "guest", "Evicted"))
        resumed = "the borrower's gang comes back whole"
        wait_until(lambda: len(owner.pods("jobset.sigs.k8s.io/jobset-name=guest", "Running")) == 8, 40, resumed)
        watch.settle()
        guest, host = uid_of(owner, "jobset", "guest"), uid_of(owner, "job", "host")
        for _, pods in watch.live():
            assert len(unfinished(pods)) <= 1, "the host's pods exist only when all of the guest's are gone"
        assert max(partly_created(watch, {guest: 8, host: 2}).values()) < CREATION_SECONDS
        created = [change for change in watch.changes if change.kind == "ADDED"]
        assert len(created) == 8 + 2 + 8


@pytest.mark.usefixtures("cohort")
def test_each_step_of_a_reclaim_is_shown_where_its_owner_looks(owner: Kubectl, admin: Kubectl) -> None:
    owner.apply(jobset("guest", 8, pod_template(), "borrower"))
    wait_until(lambda: len(owner.pods(phase="Running")) == 8, what="the borrower uses all of the cohort")
    guest = uid_of(owner, "jobset", "guest")
    assert reason_of(workload(owner, "guest"), "Admitted") == ("True", "Admitted")
    wait_until(lambda: gpus_of(admin, "borrower") == ("8", "4"), what="four of its eight are borrowed")

    owner.apply(job("host", 2, pod_template(), "lender"))
    wait_until(lambda: len(owner.pods("job-name=host", "Running")) == 2, what="the lender's job runs")
    assert len(owner.items("pods")) == 2, "no pod of the guest is left"
    assert owner.get("jobset", "guest")["spec"]["suspend"] is True
    children = owner.items("jobs", "jobset.sigs.k8s.io/jobset-name=guest")
    assert [child["spec"]["suspend"] for child in children] == [True]
    stopped = workload(owner, "guest")
    assert reason_of(stopped, "Evicted") == ("True", "Preempted")
    assert reason_of(stopped, "Admitted") == ("False", "NoReservation")
    assert condition(stopped, "QuotaReserved") == "False"
    message = next(entry["message"] for entry in stopped["status"]["conditions"] if entry["type"] == "Evicted")
    assert f"{owner.namespace}/host" in message
    assert "InCohortReclamation" in message
    assert list(reservations(admin)) == ["host"]
    wait_until(lambda: (gpus_of(admin, "borrower"), gpus_of(admin, "lender")) == (("0", "0"), ("2", "0")), what="moved")
    why = wait_until(lambda: told(owner, "guest", "Queued"), what="it says what it waits for")[-1]
    assert "nvidia.com/gpu" in why

    owner.delete("job", "host")
    wait_until(lambda: len(owner.pods(phase="Running")) == 8, what="the guest comes back whole")
    assert uid_of(owner, "jobset", "guest") == guest
    resumed = workload(owner, "guest")
    assert reason_of(resumed, "Admitted") == ("True", "Admitted")
    assert condition(resumed, "Evicted") != "True"
    wait_until(lambda: condition(workload(owner, "guest"), "PodsReady") == "True", what="all of its pods are ready")
    # Events are written after what they tell of.
    wait_until(lambda: steps_told(owner) == ["Admitted", "Evicted", "Admitted"], what="each step is told")


def steps_told(owner: Kubectl) -> list[str]:
    """Return the guest's admissions and evictions, as its owner was told."""
    found = (line.partition(":")[0] for line in told(owner, "guest"))
    return [reason for reason in found if reason in ("Admitted", "Evicted")]


def workload(owner: Kubectl, name: str) -> dict[str, Any]:
    """Return what ``kubectl get workloads -o yaml`` says about a job."""
    listed = yaml.safe_load(owner("get", "workloads", "-o", "yaml"))["items"]
    found: dict[str, Any] = next(item for item in listed if item["metadata"]["ownerReferences"][0]["name"] == name)
    return found


def reason_of(item: dict[str, Any], kind: str) -> tuple[str, str]:
    """Return status and reason of a condition."""
    return next((e["status"], e["reason"]) for e in item["status"]["conditions"] if e["type"] == kind)


def gpus_of(admin: Kubectl, name: str) -> tuple[str, str]:
    """Return how many GPUs a queue uses, and how many of these it borrows, as its status says."""
    status = admin.get("clusterqueue", f"{admin.namespace}-{name}").get("status", {})
    resources = status["flavorsUsage"][0]["resources"] if status.get("flavorsUsage") else []
    found = next((entry for entry in resources if entry["name"] == GPU), {})
    return str(found.get("total", "0")), str(found.get("borrowed", "0"))


@pytest.mark.usefixtures("cohort")
def test_a_gang_within_its_own_quota_is_not_stopped_for_a_borrower(owner: Kubectl, admin: Kubectl) -> None:
    owner.apply(jobset("own", 4, pod_template(), "lender"))
    wait_until(lambda: len(owner.pods(phase="Running")) == 4, what="it runs")
    owner.apply(job("large", 8, pod_template(), "borrower"))
    reason = wait_until(lambda: told(owner, "large", "Queued"), what="the borrower says why it waits")[-1]
    assert f"held by {owner.namespace}/own (4)" in reason
    stays(lambda: len(owner.pods(phase="Running")) == 4, 2, "the lender's gang runs on")
    assert list(reservations(admin)) == ["own"]
    assert annotation(owner, "jobset", "own", names.REQUEUE) == {}


def test_a_resource_quota_that_a_less_urgent_gang_fills_keeps_no_urgent_one_out(owner: Kubectl, admin: Kubectl) -> None:
    queue: dict[str, Any] = cluster_queue_of(f"{admin.namespace}-team", 4)
    queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    give_queue(admin, 4)
    admin.apply(queue)
    admin.apply(resource_quota("hard", **{f"requests.{GPU}": "4", "pods": "4"}))
    urgent = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": f"{admin.namespace}-urgent"}}
    admin.apply(urgent | {"value": 7})
    owner.apply(job("low", 4, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods("job-name=low", "Running")) == 4, what="it fills the ResourceQuota")
    high = job("high", 4, pod_template(), QUEUE)
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = f"{admin.namespace}-urgent"
    owner.apply(high)
    wait_until(lambda: len(owner.pods("job-name=high", "Running")) == 4, 60, what="the urgent one has its place")
    assert owner.get("job", "low")["spec"]["suspend"] is True
    owner.delete("job", "high")
    wait_until(lambda: len(owner.pods("job-name=low", "Running")) == 4, 60, what="the other comes back")
    admin.delete("workloadpriorityclass", f"{admin.namespace}-urgent")
