"""A person takes the label that gates a namespace away: what was gated by it is served until it is gone."""

import pytest
import yaml

from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import job, pod, pod_template
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


def test_gangs_that_start_or_stop_while_their_namespace_is_ungated_are_served_beside_plain_pods(
    owner: Kubectl, admin: Kubectl
) -> None:
    admin("label", "namespace", admin.namespace, f"{names.GATED_NAMESPACE}=true")
    probe = job("probe", 1, pod_template(gpus=0))
    wait_until(lambda: '"suspend": true' in owner.create(probe, "--dry-run=server", "-o", "json"), what="it is gated")
    stopping, starting = [f"stops-{n}" for n in range(3)], [f"starts-{n}" for n in range(6)]
    owner.create(yaml.safe_dump_all([job(name, 2, pod_template(gpus=0)) for name in stopping]))
    wait_until(lambda: len(owner.pods(phase="Running")) == 6, what="the first run")
    # In one moment some start, some stop, and the label goes.
    owner.create(yaml.safe_dump_all([job(name, 2, pod_template(gpus=0)) for name in starting]))
    for name in stopping:
        owner.patch("job", name, {"spec": {"suspend": True}})
    admin("label", "namespace", admin.namespace, f"{names.GATED_NAMESPACE}-")
    owner.create(pod("plain", pod_template(gpus=0)))
    wait_until(
        lambda: '"suspend": true' not in owner.create(probe, "--dry-run=server", "-o", "json"), what="it is ungated"
    )
    owner.create(job("free", 1, pod_template(gpus=0)))
    running = [*starting, "free"]
    wait_until(lambda: {*running} == _running(owner), 60, "who was starting runs, who was stopping has no pods")
    wait_until(lambda: owner.get("pod", "plain")["status"]["phase"] == "Running", what="so does a plain pod")
    wait_until(lambda: sorted(entry.name for entry in entries(admin)) == starting, what="they alone are charged")
    for name in stopping:
        owner.patch("job", name, {"spec": {"suspend": False}})
    wait_until(lambda: {*running, *stopping} == _running(owner), 60, "who was held comes back")
    owner.delete("job", *running, *stopping)
    wait_until(lambda: not entries(admin), 60, "nobody is charged any more")


def _running(owner: Kubectl) -> set[str]:
    """Return the jobs that have pods, if all of these run."""
    pods = owner.items("pods", "job-name")
    assert all(item["status"].get("phase") == "Running" for item in pods)
    return {item["metadata"]["labels"]["job-name"] for item in pods}
