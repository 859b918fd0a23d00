"""A job and the class that gives its priority may come in one file, in either order."""

import pytest
import yaml

from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import QUEUE, entries, give_queue
from webhook.core.notation import names

pytestmark = pytest.mark.usefixtures("tutti")


def urgent(admin: Kubectl) -> dict[str, object]:
    """Return a class that no other test has."""
    metadata = {"name": f"{admin.namespace}-urgent"}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": metadata, "value": 7}


@pytest.mark.parametrize("class_first", [True, False], ids=["class first", "job first"])
def test_a_job_applied_together_with_its_priority_class_starts_with_that_priority(
    admin: Kubectl, class_first: bool
) -> None:
    give_queue(admin, 2)
    made = job("train", 1, pod_template(), QUEUE)
    made["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = f"{admin.namespace}-urgent"
    both = [urgent(admin), made]
    admin.apply(yaml.safe_dump_all(both if class_first else reversed(both)))
    wait_until(lambda: len(admin.pods(phase="Running")) == 1, what="it runs")
    assert [entry.priority for entry in entries(admin)] == [7]
    admin.delete("workloadpriorityclass", f"{admin.namespace}-urgent")


def test_a_job_whose_priority_class_does_not_exist_waits_and_says_so(admin: Kubectl, owner: Kubectl) -> None:
    give_queue(admin, 2)
    made = job("train", 1, pod_template(), QUEUE)
    made["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = f"{admin.namespace}-urgent"
    owner.create(made)
    assert "does not exist, as far as Tutti has seen yet: the job waits until it does" in owner.warnings
    reason = wait_until(lambda: told(owner, "train", "Queued"), what="it says why it waits")[-1]
    assert f"PriorityClassNotFound: WorkloadPriorityClass '{admin.namespace}-urgent' does not exist" in reason
