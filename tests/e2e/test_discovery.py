"""A resource that can bring pods about and that nobody classified is a hole: live discovery is walked for such."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.conftest import AnyCluster
from tests.e2e.controlplane import kinds
from tests.e2e.controlplane.cluster import Cluster
from tests.e2e.controlplane.install import Installation
from tests.e2e.kubectl import Kubectl, wait_until
from tests.unit.server.review.discovery import unclassified
from webhook.jobs.kinds.registry import KINDS
from webhook.server.review.resources_table import ResourcesTable

TABLE: Final = ResourcesTable((kind.group, kind.plural) for kind in KINDS.values())


@pytest.fixture(scope="module")
def served(cluster: AnyCluster, kubectl: Kubectl, tutti: Installation | None) -> list[tuple[str, str]]:
    """Every (group, resource or resource/subresource) that can be written, all kinds installed: other projects' and
    the policy kinds of Tutti's manifests.
    """
    if isinstance(cluster, Cluster):
        for project in kinds.PROJECTS:
            cluster.install_kinds(project)
    # What is listed may be gone when it is looked at, such as a kind of another test.
    return wait_until(lambda: list(writable(kubectl)), what="discovery is walked")


def raw(kubectl: Kubectl, path: str) -> dict[str, Any]:
    """Return a document of the API server."""
    found: dict[str, Any] = json.loads(kubectl("get", "--raw", path))
    return found


def writable(kubectl: Kubectl) -> Iterator[tuple[str, str]]:
    """Walk discovery: every version of every group."""
    versions = [("", "/api/v1")]
    for group in raw(kubectl, "/apis")["groups"]:
        versions += [(group["name"], f"/apis/{version['groupVersion']}") for version in group["versions"]]
    for group_name, path in versions:
        for resource in raw(kubectl, path)["resources"]:
            if {"create", "update", "patch"} & set(resource["verbs"]):
                yield group_name, resource["name"]


def test_every_served_resource_that_brings_pods_about_is_classified(served: list[tuple[str, str]]) -> None:
    assert len(served) > 80, "discovery was walked"
    assert unclassified(TABLE, served) == []


def test_every_kind_with_a_pod_template_is_classified(kubectl: Kubectl, served: list[tuple[str, str]]) -> None:
    known = {(row.group, row.resource) for row in TABLE.rows()}
    holes = {
        (group, plural)
        for group, plural, schema in custom_kinds(kubectl)
        if (group, plural) not in known and holds_pods(schema)
    }
    assert holes == set()


def test_the_walk_would_find_a_hole(kubectl: Kubectl, served: list[tuple[str, str]]) -> None:
    without = ResourcesTable(())
    assert ("batch", "jobs") in unclassified(without, served)
    found = {(group, plural) for group, plural, schema in custom_kinds(kubectl) if holds_pods(schema)}
    assert ("jobset.x-k8s.io", "jobsets") in found
    assert ("kubeflow.org", "pytorchjobs") in found


def custom_kinds(kubectl: Kubectl) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Return group, plural and schema of each version of every installed CustomResourceDefinition."""
    for definition in kubectl.items("customresourcedefinitions"):
        spec = definition["spec"]
        for version in spec["versions"]:
            yield spec["group"], spec["names"]["plural"], version.get("schema", {}).get("openAPIV3Schema", {})


def holds_pods(schema: Any) -> bool:
    """Return whether a pod spec stands somewhere in a schema: containers, each with an image."""
    if not isinstance(schema, dict):
        return False
    properties = schema.get("properties", {})
    containers = properties.get("containers", {}) if isinstance(properties, dict) else {}
    if "image" in containers.get("items", {}).get("properties", {}):
        return True
    inner = [*(properties.values() if isinstance(properties, dict) else ())]
    inner += [schema.get("items"), schema.get("additionalProperties")]
    return any(holds_pods(part) for part in inner)
