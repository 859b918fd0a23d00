"""Compute classes at the door: what the platform would refuse or correct much later is said at ``kubectl apply``."""

from typing import Any, Final

import pytest
import yaml

from tests.e2e.kubectl import Kubectl
from tests.e2e.objects import job, jobset, pod, pod_template
from tests.e2e.queues import QUEUE, give_queue

pytestmark = pytest.mark.usefixtures("tutti")

CLASS: Final = "alibabacloud.com/compute-class"
MODEL: Final = "alibabacloud.com/gpu-model-series"


def refused(owner: Kubectl, manifest: dict[str, Any]) -> str:
    """Create an object that must be refused, and return what its user reads."""
    return owner.refused("create", "-f", "-", stdin=yaml.safe_dump(manifest))


def test_a_gang_of_two_classes_is_refused(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    mixed = jobset("mixed", 1, pod_template(gpus=0, labels={CLASS: "general-purpose"}), QUEUE)
    workers = mixed["spec"]["replicatedJobs"][0]
    child = {"spec": workers["template"]["spec"] | {"template": pod_template(gpus=0, labels={CLASS: "performance"})}}
    mixed["spec"]["replicatedJobs"].append(workers | {"name": "others", "template": child})
    message = refused(owner, mixed)
    assert "general-purpose" in message
    assert "performance" in message


def test_a_gpu_class_without_a_model_series_is_refused(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    message = refused(owner, job("blind", 2, pod_template(labels={CLASS: "gpu"}), QUEUE))
    assert MODEL in message
    assert MODEL in refused(owner, pod("blind", pod_template(labels={CLASS: "gpu"})))


def test_a_podgroup_on_a_class_that_knows_none_is_refused(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    labels = {CLASS: "gpu", MODEL: "L20", "pod-group.scheduling.sigs.k8s.io": "crew"}
    assert "gpu-hpn" in refused(owner, job("grouped", 2, pod_template(labels=labels)))


def test_what_the_platform_would_correct_is_a_warning(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    owner.create(job("odd", 2, pod_template(gpus=0, labels={CLASS: "general-purpose"}, cpu="17"), QUEUE))
    assert "is not a shape of class general-purpose; the platform raises it to" in owner.warnings


def test_a_gang_without_the_label_hears_nothing_of_classes(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 4)
    owner.create(job("plain", 2, pod_template(), QUEUE))
    assert "class" not in owner.warnings
