"""The Helm chart on a real control plane: installed, upgraded and removed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests import chart
from tests.e2e.controlplane.binaries import find
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.test_chart import run

pytestmark = pytest.mark.own_cluster


@pytest.fixture(scope="module")
def alone() -> Iterator[Cluster]:
    """A control plane on which nothing of Tutti is installed."""
    with Cluster(Shape(nodes=1)) as started:
        yield started


def test_the_chart_is_installed_upgraded_and_removed_and_leaves_the_queues(tmp_path: Path, alone: Cluster) -> None:
    folder = tmp_path / "chart"
    chart.write(folder)
    helm, config = find("helm"), alone.kubeconfig
    root = Kubectl(alone.binaries["kubectl"], config).in_namespace("tutti-system")
    run(helm, "install", "tutti", folder, "--namespace", "default", kubeconfig=config)
    assert root.get("deployment", "tutti-webhook")["spec"]["replicas"] == 2
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "kept"}}
    root("delete", "validatingwebhookconfiguration", "tutti")
    # The API server learns a moment later that the kind is there, and that nobody judges it any more.
    wait_until(lambda: root.apply(flavor), what="the chart's kinds are served")
    changed = ["--set", "webhook.replicas=3", "--set", "config.log_level=warning", "--set", "monitoring=false"]
    run(helm, "upgrade", "tutti", folder, "--namespace", "default", *changed, kubeconfig=config)
    assert root.get("deployment", "tutti-webhook")["spec"]["replicas"] == 3
    assert "log_level: warning" in root.get("configmap", "tutti-config")["data"]["config.yaml"]
    assert root.get("validatingwebhookconfiguration", "tutti")["webhooks"]
    run(helm, "uninstall", "tutti", "--namespace", "default", kubeconfig=config)
    wait_until(
        lambda: "tutti-system" not in root("get", "namespaces", "--output=name"), 90, what="the namespace is gone"
    )
    kinds = "clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,apiservices"
    kinds += ",validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas"
    left = root("get", kinds, "--selector=app.kubernetes.io/part-of=tutti", "--output=name")
    assert left.strip() == ""
    assert root.get("resourceflavor", "kept")["metadata"]["name"] == "kept"
