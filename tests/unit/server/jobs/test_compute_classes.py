"""Compute-class rules at the door: what is refused, what is said, and whose table counts."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.reviews import ask, containers, pod, review, view
from webhook.assembly.webhook import webhook
from webhook.clock import SystemClock
from webhook.config import Config
from webhook.errors import WrongInput
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.server.handler import ReviewHandler

CLASS, MODEL = "alibabacloud.com/compute-class", "alibabacloud.com/gpu-model-series"
CPU_POD = containers(cpu="1", memory="2Gi")


def jobset(*labels: dict[str, str]) -> dict[str, Any]:
    """Return a stored JobSet with one CPU-only replicated Job for each given set of pod labels."""
    children = [
        {
            "name": f"set-{number}",
            "replicas": 1,
            "template": {"spec": {"parallelism": 1, "template": {"metadata": {"labels": each}, "spec": spec()}}},
        }
        for number, each in enumerate(labels)
    ]
    metadata = {"name": "train", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}}
    obj = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata}
    return dict(marked(KINDS["JobSet.jobset.x-k8s.io"], obj | {"spec": {"replicatedJobs": children}}))


def spec() -> dict[str, Any]:
    """Return a pod spec of a size that every class offers."""
    return {"restartPolicy": "Never", "containers": CPU_POD}


async def test_a_gang_of_two_classes_is_refused() -> None:
    mixed = jobset({CLASS: "general-purpose"}, {CLASS: "performance"})
    answer = await ask(ReviewHandler(view()), "/validate/jobs", review(mixed))
    assert answer.code == 422
    assert "general-purpose" in answer.message
    assert "performance" in answer.message


async def test_a_gang_of_one_class_passes() -> None:
    same = jobset({CLASS: "performance"}, {CLASS: "performance"})
    assert (await ask(ReviewHandler(view()), "/validate/jobs", review(same))).allowed


async def test_a_loose_pod_of_a_gpu_class_says_which_card() -> None:
    gpus = pod()
    gpus["metadata"]["labels"] = {CLASS: "gpu"}
    answer = await ask(ReviewHandler(view()), "/validate/pods", review(gpus))
    assert answer.code == 422
    assert MODEL in answer.message


async def test_what_the_platform_would_correct_is_said() -> None:
    odd = pod()
    odd["metadata"]["labels"] = {CLASS: "general-purpose"}
    odd["spec"]["containers"] = containers(cpu="1", memory="100Gi")
    answer = await ask(ReviewHandler(view()), "/validate/pods", review(odd))
    assert answer.allowed
    assert "is not a shape of class general-purpose" in answer.warnings[0]


TABLE = """
schema: 1
version: "house-1"
labels: {class: example.com/class, qos: example.com/qos, model: example.com/card}
rules: {known-class: deny}
default: small
qos: [default]
classes: {small: {qos: [default]}}
"""


def parts(table: Path) -> ReviewHandler:
    """Return the handler of a webhook that is configured with a table of its own."""
    cluster, config = SimulatedCluster(random.Random(1)), Config(compute_classes=table)
    return webhook(cluster.api(), config, identity="one", clock=SystemClock(), rng=random.Random(1)).handler


def test_a_table_that_does_not_parse_stops_the_start_with_its_place(tmp_path: Path) -> None:
    table = tmp_path / "classes.yaml"
    table.write_text(TABLE.replace("deny", "forbid"))
    with pytest.raises(WrongInput, match="known-class"):
        parts(table)


async def test_the_configured_table_decides(tmp_path: Path) -> None:
    table = tmp_path / "classes.yaml"
    table.write_text(TABLE)
    handler = parts(table)
    handler.view.unsynced.clear()
    other = pod()
    other["metadata"]["labels"] = {"example.com/class": "huge", CLASS: "gpu"}
    answer = await ask(handler, "/validate/pods", review(other))
    assert "huge" in answer.message
    assert MODEL not in answer.message
