"""What a kind's controller adds to pods is reserved with them, though no template shows it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.configuring import configured
from tests.e2e.controlplane.install import Installation
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import CONTAINER_SECURITY, GPU, job, pod, pod_template, pytorchjob, resource_quota
from tests.e2e.queues import QUEUE, cluster_queue_of, entries, give_queue, reserved

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


# -- what an injector adds


@pytest.fixture
def injector(kubectl: Kubectl, admin: Kubectl) -> Iterator[None]:
    """Adds a sidecar of 100m cpu to the pods of the namespace that ask for it, as Istio does."""
    name = f"{admin.namespace}-mesh"
    asks = {"resources": {"requests": {"cpu": "100m"}}, "securityContext": CONTAINER_SECURITY}
    proxy = {"name": "mesh-proxy", "image": "registry.example/mesh:1", "restartPolicy": "Always"}
    sidecar = _in_cel(proxy | asks)
    patch = f"[JSONPatch{{op: 'add', path: '/spec/initContainers', value: [{sidecar}]}}]"
    version, rule = "admissionregistration.k8s.io/v1", {"operations": ["CREATE"], "resources": ["pods"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": admin.namespace}}
    spec = {
        "matchConstraints": {
            "namespaceSelector": here,
            "objectSelector": {"matchLabels": {"mesh": "true"}},
            "resourceRules": [rule | {"apiGroups": [""], "apiVersions": ["v1"]}],
        },
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    kind = "MutatingAdmissionPolicy"
    kubectl.apply({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
    binding = {"policyName": name}
    kubectl.apply({"apiVersion": version, "kind": f"{kind}Binding", "metadata": {"name": name}, "spec": binding})
    probe = pod("probe", pod_template(gpus=0, labels={"mesh": "true"}))
    shown = ("--dry-run=server", "--output=jsonpath={.spec.initContainers[*].name}")
    wait_until(lambda: admin.create(probe, *shown) == "mesh-proxy", what="the injector works")
    yield
    kubectl.delete(kind.lower(), name)
    kubectl.delete(f"{kind.lower()}binding", name)


def _in_cel(value: Any) -> str:
    """Return JSON as CEL takes it: the values of one map may differ in type."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: dyn({_in_cel(item)})" for key, item in value.items()) + "}"
    return json.dumps(value)


MESH = {"name": "mesh-proxy", "requests": {"cpu": "100m"}, "podLabels": {"mesh": "true"}}


@pytest.mark.since("1.36")
@pytest.mark.usefixtures("injector")
def test_the_owner_of_a_job_to_whose_pods_a_sidecar_is_added_is_told_at_once_which(
    admin: Kubectl, owner: Kubectl
) -> None:
    give_queue(admin, 2)
    owner.create(job("meshed", 2, pod_template(labels={"mesh": "true"}), QUEUE))
    which = "container mesh-proxy (registry.example/mesh:1: requests 100m cpu) is in no template"
    told = wait_until(lambda: [each for each in _failures(owner, "meshed") if which in each], what="an event says why")
    assert "the pod requests 200m cpu, its place in the reservation holds 100m" in told[0]
    # Any reconciler answers, also one that follows.
    wait_until(lambda: _last_column(owner, "meshed") == "WaitForStart", what="and where its owner looks first")
    wait_until(lambda: "says why; it is stopped at" in owner("describe", "workloads"), what="and in detail")


@pytest.mark.since("1.36")
@pytest.mark.usefixtures("injector")
def test_a_sidecar_that_the_configuration_names_is_reserved_with_the_pods(
    admin: Kubectl, owner: Kubectl, kubectl: Kubectl, tutti: Installation | None
) -> None:
    give_queue(admin, 2)
    with configured(tutti, kubectl, webhooks=True, addedContainers=[MESH]):
        owner.create(job("meshed", 2, pod_template(labels={"mesh": "true"}), QUEUE))
        wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="the gang runs with its sidecars")
        millis = [s.count * s.price.requests["cpu"] for entry in entries(admin) for s in entry.pod_sets]
        assert millis == [400]


def _last_column(owner: Kubectl, name: str) -> str:
    return next((line.split()[-1] for line in owner("get", "workloads").splitlines() if name in line), "")


def _failures(owner: Kubectl, name: str) -> list[str]:
    found = owner.items("events")
    return [e["message"] for e in found if e["involvedObject"]["name"] == name and e["reason"] == "FailedCreate"]
