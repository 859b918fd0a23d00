"""What a kind's controller adds to pods is reserved with them, though no template shows it."""

from typing import Any

import pytest

from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import GPU, pod_template, pytorchjob, resource_quota
from tests.e2e.queues import QUEUE, cluster_queue_of, give_queue, reserved

pytestmark = pytest.mark.usefixtures("tutti")
MIB = 2**20


def memory_queue(admin: Kubectl, memory: str) -> dict[str, Any]:
    """Return the namespace's queue, counting memory too."""
    queue = cluster_queue_of(give_queue(admin, 4), 4)
    group = queue["spec"]["resourceGroups"][0]
    group["coveredResources"].append("memory")
    group["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": memory})
    return queue


def test_a_pytorchjob_without_memory_requests_starts_in_a_queue_that_counts_memory(
    admin: Kubectl, owner: Kubectl
) -> None:
    admin.apply(memory_queue(admin, "25Mi"))
    owner.create(pytorchjob("train", 2, pod_template(container="pytorch"), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 3, what="master and workers run")
    assert reserved(admin, "memory") == 20 * MIB
    owner.create(pytorchjob("next", 1, pod_template(container="pytorch"), QUEUE))
    reason = wait_until(lambda: told(owner, "next", "Queued"), what="the next says why it waits")[-1]
    assert "memory" in reason or GPU in reason


def test_a_pytorchjob_of_small_workers_starts_whole_beside_a_resourcequota_of_memory(
    admin: Kubectl, owner: Kubectl
) -> None:
    admin.apply(memory_queue(admin, "1Gi"))
    admin.apply(resource_quota("memory", **{"requests.memory": "24Mi", "limits.memory": "60Mi"}))
    template = pod_template(container="pytorch")
    resources = template["spec"]["containers"][0]["resources"]
    resources["requests"]["memory"] = resources["limits"]["memory"] = "4Mi"
    owner.create(pytorchjob("train", 2, template, QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 3, what="master and workers run")
    assert reserved(admin, "memory") == 24 * MIB


def test_a_pytorchjob_starts_in_a_queue_that_does_not_count_what_its_controller_adds(
    admin: Kubectl, owner: Kubectl
) -> None:
    give_queue(admin, 4)
    owner.create(pytorchjob("train", 2, pod_template(container="pytorch"), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 3, what="master and workers run")
