"""The usual mistakes of somebody who labels a first job: each is told at once, in the words of kubectl."""

import json
import uuid
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.conftest import AnyCluster, create_namespace, member
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import GPU, job, jobset, pod, pod_template
from tests.e2e.queues import QUEUE, give_queue

pytestmark = pytest.mark.usefixtures("tutti")
LABEL: Final = "kueue.x-k8s.io/queue-name"
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"


def without_limit() -> dict[str, Any]:
    """Return a job whose container asks for a GPU and states no limit."""
    template = pod_template()
    template["spec"]["containers"][0]["resources"].pop("limits")
    return job("train", 2, template, QUEUE)


def labelled(key: str) -> dict[str, Any]:
    """Return a job with one label."""
    made = job("train", 2, pod_template())
    made["metadata"]["labels"] = {key: QUEUE}
    return made


def annotated(key: str, value: str) -> dict[str, Any]:
    """Return a job with a queue and one annotation."""
    made = job("train", 2, pod_template(), QUEUE)
    made["metadata"]["annotations"] = {key: value}
    return made


def unnamed() -> dict[str, Any]:
    """Return a job whose label names no queue, as a chart writes it whose value was not given."""
    made = labelled(LABEL)
    made["metadata"]["labels"][LABEL] = ""
    return made


def inside(kind: str) -> dict[str, Any]:
    """Return a job that names its queue one level too deep."""
    if kind == "JobSet":
        made = jobset("train", 2, pod_template())
        made["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"labels": {LABEL: QUEUE}}
    else:
        made = job("train", 2, pod_template(labels={LABEL: QUEUE}))
    made["metadata"]["labels"] = {"app": "train"}
    return made


MISTAKES: Final = (
    (job("train", 2, pod_template(), "tema"), "no queue 'tema' in namespace NS, as far as Tutti has seen yet"),
    (job("train", 2, pod_template(), "tema"), "unless it was created just now, create the queue or correct the label"),
    (job("train", 2, pod_template(), "tema"), f"known here: {QUEUE}"),
    (job("train", 2, pod_template()), "this job names no queue and is charged to none"),
    (labelled("kueue.x-k8s.io/queuename"), "does not make the Job wait in a queue: it starts at once"),
    (unnamed(), f"label {LABEL} is empty: the Job waits in no queue and starts at once"),
    (labelled("tutti.dev/queue"), "does not make the Job wait in a queue: it starts at once"),
    (inside("JobSet"), "at spec.replicatedJobs.0.template.metadata.labels does not make the JobSet wait"),
    (inside("Job"), "at spec.template.metadata.labels does not make the Job wait in a queue"),
    (pod("train", pod_template(labels={LABEL: QUEUE})), "has no effect on a single Pod: it does not wait in a queue"),
    (job("train", 0, pod_template(), QUEUE, completions=4), "it asks for 0 pods: it is admitted at once, runs none"),
    (job("train", 9, pod_template(), QUEUE), f"this gang can never start as it is: Job NS/train asks for 9 {GPU}"),
    (annotated("tutti.dev/min-count", "4"), "annotation tutti.dev/min-count at metadata.annotations means nothing"),
)
"""What is stored nonetheless, and the warning."""
REFUSED: Final = (
    (without_limit(), "Limit must be set for non overcommitable resources"),
    (annotated(MIN_PARALLELISM, "4"), "fewest pods worth starting must be from 1 to the number of pods; write 1 to 2"),
)


@pytest.fixture(scope="module")
def newcomer(cluster: AnyCluster, kubectl: Kubectl) -> Iterator[Kubectl]:
    """Somebody who may edit jobs in a namespace with one queue of 8 GPUs, where every try is a dry run."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    create_namespace(kubectl, name)
    give_queue(kubectl.in_namespace(name), 8)
    yield member(cluster, kubectl, name, f"{name}-owner")
    kubectl.delete("namespace", name)


@pytest.mark.parametrize(("manifest", "told"), MISTAKES)
def test_a_mistake_that_is_stored_is_told_at_once(newcomer: Kubectl, manifest: dict[str, Any], told: str) -> None:
    def warned() -> bool:
        newcomer.create(manifest, "--dry-run=server")
        assert told.replace("NS", newcomer.namespace) in newcomer.warnings, newcomer.warnings
        return True

    # The API server itself reads a namespace's queues for "names no queue", a moment after they are there.
    wait_until(warned)


@pytest.mark.parametrize(("manifest", "told"), REFUSED)
def test_a_mistake_that_nothing_could_come_of_is_refused(
    newcomer: Kubectl, manifest: dict[str, Any], told: str
) -> None:
    assert told in newcomer.refused("create", "-f", "-", "--dry-run=server", stdin=json.dumps(manifest))


def test_a_job_in_a_namespace_without_queues_is_told_that_there_is_none(owner: Kubectl) -> None:
    owner.create(job("train", 2, pod_template(), QUEUE), "--dry-run=server")
    assert f"no queue '{QUEUE}' in namespace {owner.namespace}" in owner.warnings
    assert "this namespace has none" in owner.warnings
