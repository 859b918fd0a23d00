"""Several jobs that name one PodGroup start together, stop together, and say for themselves why they wait."""

from typing import Any, Final

import pytest

from tests.e2e.facts import annotation, told
from tests.e2e.kubectl import Kubectl, condition, stays, wait_until
from tests.e2e.objects import job, jobset, pod_template
from tests.e2e.queues import QUEUE, give_queue, reservations, set_gpus
from tests.e2e.test_pod_groups import LABEL, pod_group
from tests.e2e.test_preemption import cohort as cohort  # noqa: PLC0414 - a fixture
from webhook.core.notation import names

pytestmark = pytest.mark.usefixtures("tutti")

RING: Final = {LABEL: "ring"}


def template(runtime: str = "") -> dict[str, Any]:
    """Return a pod template that names the PodGroup ``ring``."""
    return pod_template(runtime=runtime, labels=RING)


def running(owner: Kubectl) -> int:
    """Return how many pods run."""
    return len(owner.pods(phase="Running"))


def why(owner: Kubectl, name: str) -> str:
    """Return why a job waits, as the read API says."""
    found = owner.items("workloads")
    waiting = next((each for each in found if each["metadata"]["ownerReferences"][0]["name"] == name), None)
    assert waiting is not None, f"{name} is not shown yet"
    return f"{waiting['status'].get('reason', {}).get('code')}: {reserved_message(waiting)}"


def reserved_message(workload: dict[str, Any]) -> str:
    """Return the message of the condition ``QuotaReserved``."""
    return str(next(c["message"] for c in workload["status"]["conditions"] if c["type"] == "QuotaReserved"))


def test_two_jobs_that_share_a_pod_group_wait_while_there_is_room_for_one_and_start_when_there_is_for_both(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 2)
    owner.apply(pod_group("ring", 4))
    for name in ("left", "right"):
        owner.apply(job(name, 2, template(), QUEUE))
    for name in ("left", "right"):
        wait_until(lambda name=name: "asks for 4 nvidia.com/gpu" in why(owner, name), what=f"{name} says what all ask")
        assert "2" in why(owner, name)
        assert wait_until(lambda name=name: told(owner, name, "Queued"), what=f"{name} is told by an event")
    stays(lambda: not owner.items("pods"), 2, "neither has a pod")
    set_gpus(admin, 4)
    wait_until(lambda: running(owner) == 4, what="both run")
    held = reservations(admin)
    assert {name: entry.membership is not None for name, entry in held.items()} == {"left": True, "right": True}
    assert held["left"].since_seconds == held["right"].since_seconds
    wait_until(
        lambda: owner.get("podgroup.scheduling.x-k8s.io", "ring").get("status", {}).get("running") == 4,
        what="their PodGroup counts both",
    )


def test_a_jobset_waits_for_the_job_that_completes_its_pod_group_and_a_hold_on_one_stops_both(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 8)
    owner.apply(pod_group("ring", 4))
    owner.apply(jobset("workers", 2, template(), QUEUE))
    incomplete = f"PodGroupIncomplete: PodGroup {owner.namespace}/ring needs 4 pods, its jobs that wait bring 2"
    wait_until(lambda: why(owner, "workers").startswith(incomplete), what="it says how many pods are missing")
    stays(lambda: not owner.items("pods"), 2, "it does not start alone")
    owner.apply(job("driver", 2, template(), QUEUE))
    wait_until(lambda: running(owner) == 4, what="both run")

    owner("patch", "job", "driver", "--type=merge", '--patch={"spec":{"suspend":true}}')
    wait_until(lambda: not owner.items("pods") and not reservations(admin), 40, "both are stopped whole")
    assert annotation(owner, "jobset", "workers", names.REQUEUE)["reason"] == "SiblingStopped"
    wait_until(lambda: why(owner, "workers").startswith(incomplete), what="what is left waits for its sibling")
    owner("patch", "job", "driver", "--type=merge", '--patch={"spec":{"suspend":false}}')
    wait_until(lambda: running(owner) == 4, 40, "both come back as one")

    owner("delete", "job", "driver", "--wait=false")
    wait_until(lambda: not owner.items("pods") and not reservations(admin), 40, "without one the rest is stopped")
    assert any("SiblingStopped" in event for event in told(owner, "workers", "Evicted"))


def test_a_job_beyond_the_quorum_of_a_group_that_runs_is_a_gang_of_its_own(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 4)
    owner.apply(pod_group("ring", 4))
    owner.apply(job("left", 2, template(runtime="20s"), QUEUE))
    owner.apply(job("right", 2, template(), QUEUE))
    wait_until(lambda: running(owner) == 4, what="both run")
    owner.apply(job("late", 2, template(), QUEUE))
    wait_until(lambda: "asks for 2 nvidia.com/gpu" in why(owner, "late"), what="it is judged by itself, whole")
    wait_until(lambda: condition(owner.get("job", "left"), "Complete") == "True", 60, "one job has ended")
    wait_until(lambda: len(owner.pods("job-name=late", "Running")) == 2, 40, "its part is free for others")
    assert len(owner.pods("job-name=right", "Running")) == 2, "the other one runs on"
    wait_until(lambda: sorted(reservations(admin)) == ["late", "right"], what="the ledger says so")


@pytest.mark.usefixtures("cohort")
def test_when_one_is_in_the_way_of_a_lender_both_are_stopped_and_come_back_together(
    owner: Kubectl, admin: Kubectl
) -> None:
    owner.apply(pod_group("ring", 8))
    for name in ("left", "right"):
        owner.apply(job(name, 4, template(), "borrower"))
    wait_until(lambda: running(owner) == 8, what="together they use all of the cohort")
    owner.apply(job("host", 2, pod_template(runtime="15s"), "lender"))
    wait_until(lambda: len(owner.pods("job-name=host", "Running")) == 2, 40, "the lender's job runs")
    for name in ("left", "right"):
        assert owner.get("job", name)["spec"]["suspend"] is True
        assert any("Preempted" in event for event in told(owner, name, "Evicted"))
    # What one leaves is enough for the host: it may run before the last pod of the other has ended.
    wait_until(lambda: list(reservations(admin)) == ["host"], what="neither holds anything")
    wait_until(lambda: len(owner.pods("tutti.dev/gang", "Running")) == 8, 60, "both come back when the host has ended")
