"""A person takes the label that gates a namespace away: what was gated by it is served until it is gone."""

import pytest

from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import entries
from webhook.core.notation import names

pytestmark = pytest.mark.usefixtures("tutti")


def test_a_gang_of_a_namespace_that_is_ungated_comes_back_from_a_hold(owner: Kubectl, admin: Kubectl) -> None:
    admin("label", "namespace", admin.namespace, f"{names.GATED_NAMESPACE}=true")
    probe = job("probe", 1, pod_template(gpus=0))
    wait_until(lambda: '"suspend": true' in owner.create(probe, "--dry-run=server", "-o", "json"), what="it is gated")
    owner.apply(job("train", 2, pod_template(gpus=0)))
    wait_until(lambda: len(owner.pods("job-name=train", "Running")) == 2, what="it runs")
    admin("label", "namespace", admin.namespace, f"{names.GATED_NAMESPACE}-")
    owner.patch("job", "train", {"spec": {"suspend": True}})
    wait_until(lambda: not owner.items("pods", "job-name=train") and not entries(admin), 60, "it is held")
    held = owner.get("job", "train")["metadata"]["annotations"]
    assert names.HOLD in held, "what its owner stopped waits for its owner"
    owner.patch("job", "train", {"spec": {"suspend": False}})
    wait_until(lambda: len(owner.pods("job-name=train", "Running")) == 2, 60, "it comes back")
    assert [entry.name for entry in entries(admin)] == ["train"]


def test_one_that_waits_starts_when_there_is_room(owner: Kubectl, admin: Kubectl) -> None:
    admin("label", "namespace", admin.namespace, f"{names.GATED_NAMESPACE}=true")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "hard"}, "spec": {"hard": {"pods": "1"}}}
    admin.apply(quota)
    probe = job("probe", 1, pod_template(gpus=0))
    wait_until(lambda: '"suspend": true' in owner.create(probe, "--dry-run=server", "-o", "json"), what="it is gated")
    owner.apply(job("late", 2, pod_template(gpus=0)))
    admin("label", "namespace", admin.namespace, f"{names.GATED_NAMESPACE}-")
    assert owner.get("job", "late")["spec"]["suspend"], "half of it would fit"
    admin.delete("resourcequota", "hard")
    wait_until(lambda: len(owner.pods("job-name=late", "Running")) == 2, 60, "it starts")
