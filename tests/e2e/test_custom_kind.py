"""A user's own kind, added by configuration alone: the documentation's example, word for word, on a running product."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e.configuring import configured
from tests.e2e.conftest import AnyCluster
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, condition, wait_until
from tests.e2e.objects import pod, pod_template
from tests.e2e.queues import QUEUE, give_queue, reservations, reserved, set_gpus
from webhook.core.notation import names

pytestmark = pytest.mark.needs("deployment/tutti-reconciler")

KIND: Final = "sweep.example.com"
CONTROLLER: Final = ("sweeps", "sweep-controller")
ISSUER: Final = "cert-manager.io/inject-ca-from"


def documented() -> dict[str, Any]:
    """Return the configuration that the documentation adds the kind with."""
    text = (ROOT / "docs" / "job-kinds.md").read_text()
    found = re.search(r"In the ConfigMap `tutti-config`:\n\n```yaml\n(kinds:\n.*?)```", text, re.DOTALL)
    assert found, "the documentation shows how a kind is added"
    configuration: dict[str, Any] = yaml.safe_load(found[1])
    return configuration


def definition() -> dict[str, Any]:
    """Return the user's CustomResourceDefinition."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    worker = {"name": {"type": "string"}, "replicas": {"type": "integer"}, "template": anything}
    workers = {"type": "array", "items": {"type": "object", "properties": worker}}
    spec = {"type": "object", "properties": {"suspend": {"type": "boolean"}, "workers": workers}}
    schema = {"type": "object", "properties": {"spec": spec, "status": anything}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    words = {"kind": "Sweep", "plural": "sweeps", "singular": "sweep", "listKind": "SweepList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "sweeps.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": words,
            "versions": [version | {"subresources": {"status": {}}}],
        },
    }


def register(tutti: Installation | None, kubectl: Kubectl, config: Path | None) -> None:
    """Apply the registrations, with the kinds of a configuration file or without; the documentation's first step."""
    command = [sys.executable, "-m", "manifests.registrations"]
    if config is None:
        text = (ROOT / "manifests" / "base" / "registrations.yaml").read_text()
    else:
        text = subprocess.run(
            [*command, "--config", str(config)], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    if tutti is None:
        announced = kubectl.get("validatingwebhookconfiguration", "tutti")["metadata"].get("annotations", {})
        if issuer := announced.get(ISSUER):
            text = kubectl("annotate", "--local", "--output=yaml", "-f", "-", f"{ISSUER}={issuer}", stdin=text)
        kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    else:
        tutti.apply([document for document in yaml.safe_load_all(text) if document])


@pytest.fixture(scope="module", autouse=True)
def _added(tutti: Installation | None, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Add the kind as the documentation says, and take it away again."""
    config = tmp_path_factory.mktemp("own-kind") / "config.yaml"
    config.write_text(yaml.safe_dump(documented()))
    kubectl.apply(definition())
    kubectl("wait", "--for=condition=Established", "crd/sweeps.example.com", "--timeout=30s")
    register(tutti, kubectl, config)
    with configured(tutti, kubectl, webhooks=True, **documented()):
        yield
    register(tutti, kubectl, None)
    kubectl.delete("clusterrole", "tutti-own-kinds-read", "tutti-own-kinds-write")
    kubectl.delete("clusterrolebinding", "tutti-own-kinds-read", "tutti-own-kinds-write")
    # Until it is gone, a kind is served that no other test knows.
    kubectl("delete", "crd", "sweeps.example.com", "--ignore-not-found")
    kubectl.delete("namespace", CONTROLLER[0])


@pytest.fixture
def controller(cluster: AnyCluster, admin: Kubectl) -> Kubectl:
    """The account of the kind's controller, whose part the test plays: it may make pods in the namespace."""
    namespace, account = CONTROLLER
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    admin.in_namespace(namespace).apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}})
    admin("create", "rolebinding", "controller", "--clusterrole=edit", f"--serviceaccount={namespace}:{account}")
    return Kubectl(admin.program, cluster.kubeconfig_for_service_account(namespace, account), admin.namespace)


def sweep(actors: int) -> dict[str, Any]:
    """Return a Sweep of one learner and some actors, of a GPU each, as the documentation draws it."""
    workers = [
        {"name": "learner", "replicas": 1, "template": pod_template()},
        {"name": "actors", "replicas": actors, "template": pod_template()},
    ]
    metadata = {"name": "search", "labels": {names.QUEUE_LABELS[0]: QUEUE}}
    spec = {"suspend": False, "workers": workers}
    return {"apiVersion": "example.com/v1", "kind": "Sweep", "metadata": metadata, "spec": spec}


def pods_of(stored: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pods that the kind's controller makes of a started Sweep."""
    owner = {"apiVersion": "example.com/v1", "kind": "Sweep", "name": "search", "controller": True}
    made = []
    for worker in stored["spec"]["workers"]:
        for number in range(worker["replicas"]):
            member = pod(f"search-{worker['name']}-{number}", worker["template"])
            member["metadata"] |= {"ownerReferences": [owner | {"uid": stored["metadata"]["uid"]}]}
            made.append(member)
    return made


def test_a_users_own_kind_waits_starts_whole_and_returns_its_quota_like_any_other(
    owner: Kubectl, admin: Kubectl, controller: Kubectl
) -> None:
    queue = give_queue(admin, 2)
    owner.create(sweep(actors=2))
    assert owner.get(KIND, "search")["spec"]["suspend"] is True
    message = owner.refused("patch", KIND, "search", "--type=merge", '--patch={"spec": {"suspend": false}}')
    assert f"waits in queue {QUEUE}, and only Tutti un-suspends it" in message
    asks = "asks for 3 nvidia.com/gpu"
    wait_until(lambda: any(asks in each for each in told(owner, "search", "Queued")), what="it says why it waits")

    set_gpus(admin, 3)
    wait_until(lambda: owner.get(KIND, "search")["spec"]["suspend"] is False, what="it is started")
    assert reserved(admin) == 3
    # Any reconciler answers, also one that follows.
    wait_until(lambda: rows(owner) == [[QUEUE, queue, "True"]], what="it is shown as admitted")
    grown = '[{"op": "replace", "path": "/spec/workers/1/replicas", "value": 3}]'
    assert "3 pods, 2 are reserved" in owner.refused("patch", KIND, "search", "--type=json", f"--patch={grown}")

    members = pods_of(owner.get(KIND, "search"))
    forged = owner.refused("create", "-f", "-", stdin=yaml.safe_dump(members[0]))
    assert "only its controller creates its pods" in forged
    controller.create(yaml.safe_dump_all(members))
    wait_until(lambda: len(owner.pods(phase="Running")) == 3, what="its pods run")
    extra = members[-1] | {"metadata": members[-1]["metadata"] | {"name": "search-extra"}}
    assert "reservation for 2 pods" in controller.refused("create", "-f", "-", stdin=yaml.safe_dump(extra))

    status = '--patch={"status": {"running": 0, "conditions": [{"type": "Done", "status": "True"}]}}'
    admin("patch", KIND, "search", "--type=merge", "--subresource=status", status)
    assert list(reservations(admin)) == ["search"], "its pods hold the quota that they use"
    controller.delete("pod", *(member["metadata"]["name"] for member in members))
    wait_until(lambda: not reservations(admin), what="its quota is returned when the last is gone")
    wait_until(lambda: condition(owner.items("workloads")[0], "Finished") == "True", what="it is shown as finished")


def rows(owner: Kubectl) -> list[list[str]]:
    """Return queue, cluster queue and whether it is admitted, of each workload."""
    return [line.split()[1:4] for line in owner("get", "workloads").splitlines()[1:]]
