"""What a tenant tries so that a job's own controller does not stop what it made: labels by which it finds that.

Whoever is owed the room of a gang gets it all the same. The table in docs/threat-model.md names these tests.
"""

from typing import Any, Final

import pytest

from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import job, jobset, pod_template
from tests.e2e.queues import QUEUE, give_cohort, reserved
from webhook.controllers.loop.reconciler import OVERDUE_SECONDS

pytestmark = pytest.mark.usefixtures("tutti")

SELECTORS: Final[dict[str, dict[str, Any]]] = {
    "app=y": {"matchLabels": {"app": "x"}},
    "let-go=yes": {
        "matchLabels": {"example.com/app": "x"},
        "matchExpressions": [{"key": "let-go", "operator": "DoesNotExist"}],
    },
}
"""What lets a pod go, and the selector by which it does."""
LABELS: Final = {"app": "x", "example.com/app": "x"}


def running(owner: Kubectl, pods: int, selector: str = "", seconds: float = 30) -> None:
    wait_until(lambda: len(owner.pods(selector, phase="Running")) == pods, seconds, what=f"{pods} pods run")


def borrowed(owner: Kubectl, admin: Kubectl, selector: dict[str, Any]) -> list[str]:
    """Run a Job of four pods, which finds them by a selector of its own, with two GPUs of a lender; return its pods."""
    give_cohort(admin, QUEUE, "lender", gpus=2)
    owner.create(job("sly", 4, pod_template(labels=LABELS), QUEUE, manualSelector=True, selector=selector))
    running(owner, 4)
    return [found["metadata"]["name"] for found in owner.pods()]


def released(owner: Kubectl, pod: str) -> bool:
    return not owner.get("pod", pod)["metadata"].get("ownerReferences")


def test_a_label_by_which_a_job_sets_controller_knows_its_jobs_is_its_controllers(
    owner: Kubectl, admin: Kubectl
) -> None:
    """Without the number of attempts it fails on the whole JobSet, and suspends nothing of it any more."""
    give_cohort(admin, QUEUE, "lender", gpus=2)
    owner.create(jobset("set", 4, pod_template(), QUEUE))
    running(owner, 4)
    for label in owner.get("job", "set-workers-0")["metadata"]["labels"]:
        for written in (f"{label}-", f"{label}=x"):
            assert "cannot change" in owner.refused("label", "job", "set-workers-0", written, "--overwrite"), written
    owner("label", "job", "set-workers-0", "team=b", "app.kubernetes.io/name=x")
    owner.create(job("owed", 2, pod_template(), "lender"))
    running(owner, 2, "job-name=owed")


@pytest.mark.parametrize("letting_go", SELECTORS)
def test_pods_that_their_job_let_go_of_are_stopped_for_who_is_owed_their_room(
    owner: Kubectl, admin: Kubectl, letting_go: str
) -> None:
    """A Job's owner chooses by which labels it finds its pods, and any label without a domain is anybody's."""
    pods = borrowed(owner, admin, SELECTORS[letting_go])
    owner("label", "pod", *pods, letting_go, "--overwrite")
    wait_until(lambda: all(released(owner, pod) for pod in pods), what="they are nobody's")
    stays(lambda: len(owner.pods()) == 4 and reserved(admin) == 4, 2, "none comes in their stead")
    owner.create(job("owed", 2, pod_template(), "lender"))
    running(owner, 2, "job-name=owed", OVERDUE_SECONDS + 60)


@pytest.mark.parametrize("kept_by", ["another label", "a second owner"])
def test_pods_that_outlive_their_job_are_stopped_for_who_is_owed_their_room(
    owner: Kubectl, admin: Kubectl, kept_by: str
) -> None:
    """The garbage collector leaves alone what somebody else owns as well."""
    pods = borrowed(owner, admin, SELECTORS["app=y"])
    if kept_by == "another label":
        owner("label", "pod", *pods, "app=y", "--overwrite")
        wait_until(lambda: all(released(owner, pod) for pod in pods), what="they are nobody's")
    else:
        other = owner.get("configmap", "kube-root-ca.crt")["metadata"]
        second = {"apiVersion": "v1", "kind": "ConfigMap", "name": other["name"], "uid": other["uid"]}
        for pod in pods:
            (first,) = owner.get("pod", pod)["metadata"]["ownerReferences"]
            owner.patch("pod", pod, {"metadata": {"ownerReferences": [first, second]}})
    owner("delete", "job", "sly")
    stays(lambda: len(owner.pods(phase="Running")) == 4 and reserved(admin) == 4, 3, "they hold their room")
    owner.create(job("owed", 2, pod_template(), "lender"))
    running(owner, 2, "job-name=owed", OVERDUE_SECONDS + 60)
    wait_until(lambda: reserved(admin) == 2, what="what they held is free")
