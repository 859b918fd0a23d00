"""What runs: as nobody, on a read-only root, without a CPU limit, with a memory limit, probed and spread."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.manifests.documents import MANIFESTS, documents_of, kustomizations, named, of_kind

DOCUMENTS = [*documents_of("default"), *documents_of("components/self-signed"), *documents_of("components/fleet-hub")]
BASE = documents_of("base")


def templates() -> list[tuple[str, dict[str, Any]]]:
    """Return every pod template with its owner's name."""
    found = []
    for document in of_kind(DOCUMENTS, "Deployment", "Job", "CronJob"):
        spec = document["spec"]
        spec = spec["jobTemplate"]["spec"] if document["kind"] == "CronJob" else spec
        found.append((f"{document['kind']}/{document['metadata']['name']}", spec["template"]))
    return found


@pytest.mark.parametrize(("owner", "template"), templates(), ids=[owner for owner, _ in templates()])
def test_a_pod_meets_the_restricted_standard(owner: str, template: dict[str, Any]) -> None:
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


@pytest.mark.parametrize(("owner", "template"), templates(), ids=[owner for owner, _ in templates()])
def test_a_pod_has_a_memory_limit_and_no_cpu_limit(owner: str, template: dict[str, Any]) -> None:
    for container in template["spec"]["containers"]:
        assert set(container["resources"]["limits"]) == {"memory"}
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}


@pytest.mark.parametrize("component", ["webhook", "reconciler"])
def test_a_deployment_runs_two_probed_replicas_spread_over_nodes(component: str) -> None:
    spec = named(BASE, "Deployment", f"tutti-{component}")["spec"]
    assert spec["replicas"] == 2
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == [component, "--config", "/etc/tutti/config.yaml"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert {spread["topologyKey"] for spread in pod["topologySpreadConstraints"]} >= {"kubernetes.io/hostname"}
    assert pod["serviceAccountName"] == f"tutti-{component}"
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    own = {"reviewers": "/reviewers"} if component == "webhook" else {}
    assert mounts == {"config": "/etc/tutti", "certs": "/certs"} | own


def test_who_signs_the_certificates_of_api_servers_is_said_by_a_config_map_or_not_at_all() -> None:
    pod = named(BASE, "Deployment", "tutti-webhook")["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "reviewers")
    assert volume["configMap"] == {"name": "tutti-reviewers", "optional": True}


def test_the_webhook_outlives_the_connections_that_the_api_server_keeps_for_ninety_seconds() -> None:
    assert (
        named(BASE, "Deployment", "tutti-webhook")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 120
    )


@pytest.mark.parametrize("component", ["webhook", "reconciler"])
def test_a_disruption_leaves_one_replica(component: str) -> None:
    budget = named(BASE, "PodDisruptionBudget", f"tutti-{component}")["spec"]
    labels = named(BASE, "Deployment", f"tutti-{component}")["spec"]["selector"]["matchLabels"]
    assert (budget["minAvailable"], budget["selector"]["matchLabels"]) == (1, labels)


@pytest.mark.parametrize(
    ("service", "component", "port"), [("tutti-webhook", "webhook", 9443), ("tutti-visibility", "reconciler", 9444)]
)
def test_a_service_leads_to_the_port_its_program_listens_on(service: str, component: str, port: int) -> None:
    from webhook.config import Config

    spec = named(BASE, "Service", service)["spec"]
    assert spec["selector"]["app.kubernetes.io/component"] == component
    assert [(entry["port"], entry["targetPort"]) for entry in spec["ports"]] == [(443, port)]
    listen = Config().listen
    assert port in (listen.webhook_port, listen.visibility_port)


def test_probes_reach_the_port_the_program_serves_health_on() -> None:
    from webhook.config import Config

    for component in ("webhook", "reconciler"):
        (container,) = named(BASE, "Deployment", f"tutti-{component}")["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["health"] == Config().listen.health_port


@pytest.mark.parametrize(("owner", "template"), templates(), ids=[owner for owner, _ in templates()])
def test_network_policies_let_in_what_a_pod_listens_for_and_nothing_else(owner: str, template: dict[str, Any]) -> None:
    labels = template["metadata"].get("labels", {}).items()
    let_in = {
        port["port"]
        for policy in documents_of("components/network-policy")
        if policy["spec"]["podSelector"].get("matchLabels", {}).items() <= labels
        for rule in policy["spec"].get("ingress", ())
        for port in rule["ports"]
    }
    listens = {
        port["containerPort"] for container in template["spec"]["containers"] for port in container.get("ports", ())
    }
    assert let_in == listens


@pytest.mark.parametrize("directory", kustomizations(), ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_whatever_installs_pods_of_tutti_as_a_whole_closes_the_ports_that_none_of_them_serves(directory: Path) -> None:
    """An overlay that is applied beside an installation finds the policies there."""
    documents = documents_of(str(directory.relative_to(MANIFESTS)))
    whole = [each for each in of_kind(documents, "Namespace") if each["metadata"]["name"] == "tutti-system"]
    if whole and directory != MANIFESTS / "base":
        policies = documents_of("components/network-policy")
        assert [each for each in of_kind(documents, "NetworkPolicy") if each in policies] == policies


def test_the_chart_closes_them_unless_it_is_told_not_to() -> None:
    values = yaml.safe_load((MANIFESTS.parent / "chart" / "values.yaml").read_text())
    assert values["networkPolicies"] is True
