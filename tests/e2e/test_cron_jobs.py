"""Jobs that a CronJob controls wait and start like any other."""

import pytest

from tests.e2e.kubectl import Kubectl, condition, wait_until
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import QUEUE, give_queue

pytestmark = pytest.mark.usefixtures("tutti")


def test_a_job_made_from_a_cron_job_starts_when_there_is_room(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    made = job("nightly", 2, pod_template(runtime="1s"), QUEUE)
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]}
    metadata, spec = {"name": "nightly"}, {"schedule": "0 3 1 1 *", "jobTemplate": template}
    owner.apply({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec})
    owner("create", "job", "one", "--from=cronjob/nightly")
    (controller,) = owner.get("job", "one")["metadata"]["ownerReferences"]
    assert (controller["kind"], controller["controller"]) == ("CronJob", True)
    wait_until(lambda: condition(owner.get("job", "one"), "Complete") == "True", 60, "it runs to its end")
