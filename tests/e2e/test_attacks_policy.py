"""What the authors of policy try, and those who use queues that were not given to them."""

import pytest

from tests.e2e.kubectl import Kubectl, KubectlError, wait_until
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import QUEUE, give_queue, reservations

pytestmark = pytest.mark.usefixtures("tutti")


def test_a_queue_that_holds_a_job_is_not_deleted_and_goes_when_the_job_has_gone(owner: Kubectl, admin: Kubectl) -> None:
    cluster_queue = give_queue(admin, gpus=4)
    owner.apply(job("train", 4, pod_template(), QUEUE))
    wait_until(lambda: "train" in reservations(admin), what="the job is admitted")
    for kind, name in (("clusterqueue", cluster_queue), ("localqueue", QUEUE), ("resourceflavor", "any-node")):
        with pytest.raises(KubectlError, match=r"holds .*train.*wait until"):
            admin.delete(kind, name)
    owner.delete("job", "train")
    wait_until(lambda: admin.delete("localqueue", QUEUE), what="the local queue may go")
    wait_until(lambda: admin.delete("clusterqueue", cluster_queue), what="the queue may go")


def test_a_namespace_is_deleted_with_the_queues_and_jobs_in_it(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, gpus=4)
    owner.apply(job("train", 4, pod_template(), QUEUE))
    wait_until(lambda: "train" in reservations(admin), what="the job is admitted")
    admin.delete("namespace", admin.namespace)
    gone = "the namespace is gone with its queue and its job"
    wait_until(lambda: not admin("get", "namespace", admin.namespace, "--ignore-not-found"), 60, gone)
