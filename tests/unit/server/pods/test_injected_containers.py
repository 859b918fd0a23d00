"""Containers that an injector adds to pods: those named in configuration are reserved, others a refusal names."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import load
from tests.unit.server.reviews import JOB_CONTROLLER, Answered, ask, job, pod, review, view, with_ledger
from webhook.config import Config
from webhook.core.ledger.record import reserve
from webhook.core.model.gang import PodPrice
from webhook.core.model.settings import EngineSettings, Transformation
from webhook.jobs.kinds.registry import KINDS, with_custom
from webhook.jobs.pricing.context import ReadContext, with_injections
from webhook.jobs.reading.job import read
from webhook.server.handler import ReviewHandler
from webhook.server.pods.excess import added_by_others
from webhook.server.review.settings import ReviewSettings

JOB = KINDS["Job.batch"]
PROXY = {
    "name": "istio-proxy",
    "image": "docker.io/istio/proxyv2:1.27",
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}},
}
NAMED = {"name": "istio-proxy", "requests": {"cpu": "100m"}, "limits": {"cpu": 2}, "images": ["*/istio/proxyv2:*"]}


def context(*added: dict[str, Any], labels: dict[str, str] | None = None) -> ReadContext:
    """Return how jobs are read with this configuration in a namespace with these labels."""
    config = Config.model_validate({"addedContainers": list(added)})
    return with_injections(ReadContext(), config.added_containers, {"team-a": labels or {}})


def priced(around: ReadContext, obj: dict[str, Any]) -> PodPrice:
    """Return what a pod of the job is priced with."""
    gang = read(JOB, obj, around).gang
    assert gang is not None
    return gang.pod_sets[0].price


COUNTED = {"main": {"cpu": "default", "nvidia.com/gpu": "default"}}


def admitted(
    around: ReadContext,
    flavors: Mapping[str, Mapping[str, str]] = COUNTED,
    settings: ReviewSettings | None = None,
    obj: dict[str, Any] | None = None,
) -> ReviewHandler:
    """Return a handler whose ledger holds the Job's reservation, in a queue that counts cpu."""
    obj = obj or job()
    obj["metadata"]["uid"] = "job-1"
    record = read(JOB, obj, around)
    assert record.gang is not None
    seen = view()
    seen.put_job(record)
    held = reserve(record.gang, "research", record.gang.counts, flavors, epoch=1, now_seconds=0.0)
    return ReviewHandler(with_ledger(seen, held), settings or ReviewSettings(), context=lambda: around)


async def create(handler: ReviewHandler, *containers: dict[str, Any]) -> Answered:
    """Return the answer to a pod of the Job to which an injector has added containers."""
    obj = pod(gang="job-1")
    obj["spec"] = {**job()["spec"]["template"]["spec"], "initContainers": list(containers)}
    return await ask(handler, "/validate/pods", review(obj, user=JOB_CONTROLLER))


async def test_a_pod_as_its_template_passes() -> None:
    assert (await create(admitted(context()))).allowed


async def test_what_nobody_named_is_refused_with_its_name_its_image_and_what_it_asks() -> None:
    answer = await create(admitted(context()), PROXY)
    assert not answer.allowed
    assert "the pod requests 4100m cpu, its place in the reservation holds 4" in answer.message
    assert (
        "container istio-proxy (docker.io/istio/proxyv2:1.27: requests 100m cpu; limits 2 cpu) is in no template"
        in answer.message
    )
    assert "addedContainers" in answer.message


VAULT = {
    "name": "vault-agent-init",
    "image": "hashicorp/vault:1.20",
    "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}},
}
"""Ends before the others start, as what a kind's controller adds does."""
THEIRS = [("PyTorchJob.kubeflow.org", "worker", "init-pytorch"), ("RayJob.ray.io", "gpu", "wait-gcs-ready")]


def told_of(kind: str, pod_set: str, *containers: dict[str, Any], around: ReadContext | None = None) -> str:
    """Return what is told of a pod of a gang of ``kind`` that has more init containers than its template."""
    known = KINDS[kind]
    record = read(known, load(known.kind.lower()), around or ReadContext())
    return added_by_others({"containers": [], "initContainers": list(containers)}, pod_set, record)


@pytest.mark.parametrize(("kind", "pod_set", "name"), THEIRS)
def test_what_its_controller_adds_is_no_stranger(kind: str, pod_set: str, name: str) -> None:
    assert not told_of(kind, pod_set, {"name": name, "image": "alpine:3.10"})


@pytest.mark.parametrize("stranger", [PROXY, VAULT], ids=lambda container: container["name"])
@pytest.mark.parametrize(("kind", "pod_set", "name"), THEIRS)
def test_of_the_init_containers_of_a_pod_those_of_others_are_named_alone(
    kind: str, pod_set: str, name: str, stranger: dict[str, Any]
) -> None:
    """Whether they end before the others start or run on beside them, and in whatever order they stand."""
    theirs = {"name": name, "image": "alpine:3.10", "resources": {"requests": {"cpu": "50m"}}}
    for order in ((theirs, stranger), (stranger, theirs)):
        told = told_of(kind, pod_set, *order)
        assert f"container {stranger['name']} ({stranger['image']}: requests" in told
        assert name not in told
        assert " is in no template" in told


def test_where_nobody_wrote_what_the_controller_adds_is_called_more_than_it_adds_is_told() -> None:
    key = "PyTorchJob.kubeflow.org"
    kinds = with_custom([{"extends": key, "addedContainers": [{"podSets": ["Worker"]}]}])
    record = read(kinds[key], load("pytorchjob"), ReadContext())
    waits = {"name": "wait-for-it", "image": "alpine:3.10"}
    assert not added_by_others({"containers": [], "initContainers": [waits]}, "worker", record)
    told = added_by_others({"containers": [], "initContainers": [waits, VAULT]}, "worker", record)
    assert "wait-for-it" in told
    assert "vault-agent-init" in told


@pytest.mark.parametrize(
    ("kind", "pod_set"),
    [("Job.batch", "main"), ("JobSet.jobset.x-k8s.io", "workers"), ("PyTorchJob.kubeflow.org", "master")],
)
def test_where_nothing_was_added_its_owner_is_told_that_something_raises_what_pods_ask(kind: str, pod_set: str) -> None:
    """A VerticalPodAutoscaler writes other requests into the containers of each pod when this is created."""
    known = KINDS[kind]
    record = read(known, load(known.kind.lower()), ReadContext())
    (template,) = (each for each in record.templates if each.pod_set == pod_set)
    containers = [{"name": name, "resources": {"requests": {"cpu": "64"}}} for name in template.containers]
    told = added_by_others({"containers": containers}, pod_set, record)
    assert "no others: something raised what they ask" in told
    assert "VerticalPodAutoscaler" in told
    assert "raised" not in added_by_others({"containers": containers, "initContainers": [VAULT]}, pod_set, record)


@pytest.mark.parametrize(("counted", "passes"), [("example.com/credits", False), ("nvidia.com/gpu", True)])
async def test_what_a_queue_counts_under_another_name_is_not_added_for_free(counted: str, passes: bool) -> None:
    rule = Transformation("cpu", {"example.com/credits": 10_000}, replace=True)
    settings = ReviewSettings(transformed=EngineSettings(transformations=(rule,)).transformed)
    handler = admitted(context(), {"main": {counted: "default"}}, settings)
    assert (await create(handler)).allowed
    assert (await create(handler, PROXY)).allowed is passes


async def test_what_is_named_is_reserved_and_passes() -> None:
    assert (await create(admitted(context(NAMED)), PROXY)).allowed
    assert priced(context(NAMED), job()).requests["cpu"] == 4100
    assert priced(context(NAMED), job()).limits["cpu"] == 6000


async def test_what_asks_more_than_was_named_is_refused() -> None:
    greedy = PROXY | {"resources": {"requests": {"cpu": "1"}}}
    answer = await create(admitted(context(NAMED)), greedy)
    assert not answer.allowed
    assert "the pod requests 5 cpu, its place in the reservation holds 4100m" in answer.message


@pytest.mark.parametrize(
    ("rule", "pod_labels", "namespace_labels", "gets"),
    [
        ({"podLabels": {"inject": "true"}}, {"inject": "true"}, {}, True),
        ({"podLabels": {"inject": "true"}}, {"inject": "false"}, {}, False),
        ({"podLabels": {"inject": "true"}}, {}, {}, False),
        ({"namespaceLabels": {"istio-injection": "enabled"}}, {}, {"istio-injection": "enabled", "a": "b"}, True),
        ({"namespaceLabels": {"istio-injection": "enabled"}}, {}, {"istio-injection": "disabled"}, False),
        ({"namespaceLabels": {"istio-injection": "enabled"}}, {}, {}, False),
        ({}, {}, {}, True),
    ],
)
def test_a_pod_is_priced_with_what_its_labels_or_its_namespaces_bring(
    rule: dict[str, Any], pod_labels: dict[str, str], namespace_labels: dict[str, str], gets: bool
) -> None:
    obj = job()
    obj["spec"]["template"]["metadata"]["labels"] = pod_labels
    found = priced(context(NAMED | rule, labels=namespace_labels), obj)
    assert found.requests["cpu"] == (4100 if gets else 4000)


@pytest.mark.parametrize("same", [{"name": "istio-proxy", "image": "mine"}, {"name": "p", "image": PROXY["image"]}])
def test_a_template_that_has_the_container_itself_is_not_charged_for_another(same: dict[str, Any]) -> None:
    obj = job()
    obj["spec"]["template"]["spec"]["containers"].append(same)
    assert priced(context(NAMED), obj).requests["cpu"] == 4000


def test_what_ends_before_the_others_start_is_charged_only_where_it_asks_more() -> None:
    assert priced(context(NAMED | {"ends": True}), job()).requests["cpu"] == 4000
    large = NAMED | {"ends": True, "requests": {"cpu": "9"}}
    assert priced(context(large), job()).requests["cpu"] == 9000


FETCH = {"name": "fetch", "image": "fetch:1", "resources": {"requests": {"cpu": "8"}, "limits": {"cpu": "8"}}}
MESH = {"name": "mesh", "image": "mesh:1", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}


@pytest.mark.parametrize("order", list(permutations((PROXY, FETCH, MESH, VAULT))), ids=lambda order: order[0]["name"])
async def test_in_whatever_order_init_containers_stand_the_pod_has_its_place(order: tuple[dict[str, Any], ...]) -> None:
    """An injector may put a sidecar before the template's own: these run beside it while they last."""
    template = job()
    template["spec"]["template"]["spec"]["initContainers"] = [FETCH, MESH]
    ends = {"name": VAULT["name"], "ends": True, **VAULT["resources"]}
    around = context(NAMED, ends)
    assert (await create(admitted(around, obj=template), *order)).allowed is (order.index(FETCH) < order.index(MESH))


@pytest.mark.parametrize("kind", ["odd", "deep"])
def test_a_template_of_odd_shape_is_read_all_the_same(kind: str) -> None:
    obj = job()
    obj["spec"]["template"]["spec"]["initContainers"] = {"odd": 7, "deep": [[["x"]]]}[kind]
    assert read(JOB, obj, context(NAMED)).problem is not None
