"""Every file is well-formed, listed somewhere, and free of what does not belong into a public repository."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.chart import PARTS
from tests.unit.manifests.documents import MANIFESTS, documents_of, files_of, kustomizations, named, of_kind, read
from webhook.core.model.gang import GRACE_SECONDS_MAX
from webhook.jobs.kinds.registry import KINDS

ROOT = MANIFESTS.parent
CRDS = MANIFESTS / "crds"
CLUSTER_SCOPED = {
    "APIService",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "FlowSchema",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "PriorityLevelConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
}
OTHER_PLACES = {
    ("RoleBinding", "tutti-front-proxy-reader"): "kube-system",
    ("Role", "tutti-hub-members"): "kueue-system",
    ("RoleBinding", "tutti-hub-members"): "kueue-system",
}
SHIPPED = [*MANIFESTS.rglob("*"), *(ROOT / "certs").rglob("*"), ROOT / "Dockerfile", *ROOT.glob("requirements*.lock")]
TEXTS = [path for path in SHIPPED if path.is_file() and "__pycache__" not in path.parts]


@pytest.mark.parametrize("directory", kustomizations(), ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_a_kustomization_lists_files_that_exist_and_parse(directory: Path) -> None:
    for path in files_of(directory):
        for document in read(path):
            assert document["apiVersion"]
            assert document["kind"]
            assert document["metadata"]["name"]


def test_who_breaks_the_glass_finds_every_policys_binding_by_its_label() -> None:
    generated = read(MANIFESTS / "components" / "admission-policies" / "policies.yaml")
    assert {document["metadata"]["labels"]["app.kubernetes.io/part-of"] for document in generated} == {"tutti"}


def test_every_manifest_is_listed_by_some_kustomization() -> None:
    listed = {path for directory in kustomizations() for path in files_of(directory)}
    present = {path for path in MANIFESTS.rglob("*.yaml") if path.name != "kustomization.yaml"}
    unlisted = {path for path in present - listed if "optional" not in path.parts}
    assert unlisted == set()


@pytest.mark.parametrize("directory", kustomizations(), ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_no_object_is_defined_twice_in_an_installation(directory: Path) -> None:
    keys = [
        (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"])
        for path in files_of(directory)
        for document in read(path)
    ]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    "path", sorted(set(MANIFESTS.rglob("*.yaml"))), ids=lambda path: str(path.relative_to(MANIFESTS))
)
def test_namespaced_objects_name_their_namespace(path: Path) -> None:
    for document in read(path):
        if document["kind"] in {*CLUSTER_SCOPED, "Kustomization", "Component"}:
            continue
        expected = OTHER_PLACES.get((document["kind"], document["metadata"]["name"]), "tutti-system")
        assert document["metadata"].get("namespace") == expected


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_registry_host_or_machine_path_is_shipped(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"(index-url|extra-index|find-links|--trusted-host)", text)
    assert "://" not in text or CRDS in path.parents or path.name == "Dockerfile"
    assert not re.search(r"(?<![\w.])/(work|root|home|Users)/", text)


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_every_locked_requirement_is_pinned_and_hashed(name: str) -> None:
    joined = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line and not line.lstrip().startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r"^[A-Za-z0-9._-]+(\[[a-z,]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line


def test_the_image_carries_both_packages_and_runs_as_nobody() -> None:
    text = (ROOT / "Dockerfile").read_text()
    final = text[text.rindex("FROM ") :]
    assert "USER 65532:65532" in final
    assert 'ENTRYPOINT ["tutti"]' in final
    assert "--require-hashes" in text
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert text.count("pip install") == 1
    assert "pip install" not in final
    for package in ("webhook/", "certs/"):
        assert f"COPY {package}" in text


@pytest.mark.parametrize(("directory", "name"), [("base", "tutti-config"), ("components/fleet-hub", "tutti-hub")])
def test_a_configuration_file_is_one_the_program_accepts(tmp_path: Path, directory: str, name: str) -> None:
    from webhook.config import load

    text = named(documents_of(directory), "ConfigMap", name)["data"]["config.yaml"]
    path = tmp_path / "config.yaml"
    path.write_text(text)
    load(path)


def test_the_keys_that_the_configuration_file_shows_are_ones_the_program_knows(tmp_path: Path) -> None:
    from webhook.config import load

    text = named(documents_of("base"), "ConfigMap", "tutti-config")["data"]["config.yaml"]
    shown = "\n".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
    path = tmp_path / "config.yaml"
    path.write_text(shown)
    assert set(yaml.safe_load(shown)) >= {"start", "lease", "kinds"}
    load(path)


def test_the_namespace_enforces_restricted_pods() -> None:
    labels = named(documents_of("base"), "Namespace", "tutti-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_policies_and_registrations_of_the_overlays_keep_their_names() -> None:
    assert {document["metadata"]["name"] for document in of_kind(documents_of("default"), "APIService")} == {
        "v1alpha1.visibility.tutti.dev"
    }


TENANTS_WRITE = ("PodGroup", "LocalQueue", "PropagationPolicy", "ClusterPropagationPolicy")
"""Kinds that are written with the role `edit`; those of clusters' administrators keep what a newer Kueue adds, so that
the webhook can warn of it (decision 40)."""


@pytest.mark.parametrize("kind", TENANTS_WRITE)
def test_a_kind_that_tenants_write_has_a_schema_that_names_every_field(kind: str) -> None:
    definitions = [
        document
        for path in CRDS.rglob("*.yaml")
        for document in read(path)
        if document["kind"] == "CustomResourceDefinition" and document["spec"]["names"]["kind"] == kind
    ]
    assert definitions
    for definition in definitions:
        for version in definition["spec"]["versions"]:
            assert loose_parts(version["schema"]["openAPIV3Schema"], kind) == []


def loose_parts(schema: dict[str, Any], path: str) -> list[str]:
    """Return where a schema takes any value: what it does not name is pruned, so that only these can nest."""
    loose = schema.get("x-kubernetes-preserve-unknown-fields") or not (
        "type" in schema or schema.get("x-kubernetes-int-or-string")
    )
    parts = {**schema.get("properties", {}), "[]": schema.get("items"), "{}": schema.get("additionalProperties")}
    below = [found for name, part in parts.items() if part for found in loose_parts(part, f"{path}.{name}")]
    return [path, *below] if loose else below


def unnamed(schema: dict[str, Any], value: Any, path: str) -> list[str]:
    """Return what of a value the API server would drop for this schema."""
    if isinstance(value, list):
        return [found for each in value for found in unnamed(schema.get("items", {}), each, f"{path}[]")]
    if not isinstance(value, dict) or "additionalProperties" in schema:
        return []
    known = schema.get("properties", {})
    if path in ("/metadata", ""):
        known = {"apiVersion": {}, "kind": {}, "metadata": {}, **known}
    lost = [f"{path}/{key}" for key in value if key not in known and path != "/metadata"]
    return lost + [
        found for key in value.keys() & known.keys() for found in unnamed(known[key], value[key], f"{path}/{key}")
    ]


def test_the_schema_of_propagation_policies_drops_nothing_that_the_documentation_writes() -> None:
    schemas = {
        document["spec"]["group"]: document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for document in read(CRDS / "optional" / "propagation.yaml")
    }
    written = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "fleet.md").read_text(), re.DOTALL)
    written += [path.read_text() for path in (ROOT / "examples").rglob("*.yaml")]
    found = [
        document
        for text in written
        for document in yaml.safe_load_all(text)
        if document and str(document.get("kind")).endswith("PropagationPolicy")
    ]
    assert len(found) >= 2
    for document in found:
        assert unnamed(schemas[document["apiVersion"].partition("/")[0]], document, "") == []


def test_the_schema_of_propagation_policies_keeps_what_a_hub_reads_or_warns_of() -> None:
    selector = {"matchLabels": {}, "matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}
    affinity = {"clusterNames": [], "exclude": [], "labelSelector": selector}
    application = {"decisionConditions": {"tolerationSeconds": 1}, "purgeMode": "Never", "gracePeriodSeconds": 1}
    placement = {
        "clusterAffinity": affinity,
        "clusterAffinities": [{"affinityName": "near", **affinity}],
        "spreadConstraints": [{"spreadByField": "zone", "maxGroups": 1, "minGroups": 1}],
    }
    spec = {"placement": placement, "failover": {"application": application}, "preserveResourcesOnDeletion": True}
    for document in read(CRDS / "optional" / "propagation.yaml"):
        assert unnamed(document["spec"]["versions"][0]["schema"]["openAPIV3Schema"], {"spec": spec}, "") == []


def test_one_line_of_a_kustomization_pins_every_image_by_its_digest() -> None:
    """Kustomize replaces images by name: a second name would stay a tag."""
    found = re.findall(r"image: *(\S+)", "\n".join(path.read_text() for path in MANIFESTS.rglob("*.yaml")))
    assert found
    assert {image.partition(":")[0] for image in found} == {"tutti"}


@pytest.mark.parametrize("directory", kustomizations(), ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_whatever_installs_the_reconciler_brings_the_policy_against_orphans(directory: Path) -> None:
    """Pods of many kinds bear their job's name alone: nothing else proves whose they were."""
    installed = {
        (document["kind"], document["metadata"]["name"]) for path in files_of(directory) for document in read(path)
    }
    if ("Deployment", "tutti-reconciler") in installed:
        kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        policies = ("tutti-gangs-leave-no-orphans", "tutti-marks")
        assert {(kind, policy) for kind in kinds for policy in policies} <= installed
    patches = (directory / "kustomization.yaml").read_text()
    assert "orphans" not in patches
    assert not re.search(r"kind: (\(?Validating|\.\*)", patches), "a patch may take it away"


def test_nobody_leaves_orphans_of_a_kind_that_waits() -> None:
    documents = read(MANIFESTS / "base" / "pods-policy.yaml")
    found = {each["metadata"]["name"]: each for each in documents if each["kind"] == "ValidatingAdmissionPolicy"}
    (deleted,) = found["tutti-gangs-leave-no-orphans"]["spec"]["matchConstraints"]["resourceRules"]
    assert {kind.group for kind in KINDS.values()} == set(deleted["apiGroups"])


def test_no_policy_that_is_always_there_is_judged_for_each_queue_of_a_namespace_when_a_job_changes() -> None:
    """The API server makes copies of both objects for each parameter: with 1,000 LocalQueues a start took seconds."""
    for path in (MANIFESTS / "base").glob("*.yaml"):
        for document in read(path):
            spec = document.get("spec", {})
            if document["kind"] == "ValidatingAdmissionPolicy" and "paramKind" in spec:
                judged = {each for rule in spec["matchConstraints"]["resourceRules"] for each in rule["operations"]}
                assert judged == {"CREATE"}, document["metadata"]["name"]
                assert spec["matchConstraints"]["objectSelector"], "jobs that name a queue are not looked at"


def test_the_chart_always_has_what_the_base_has() -> None:
    assert [part.condition for part in PARTS if part.folder == "base"] == [""]


def test_the_chart_has_what_every_overlay_has() -> None:
    overlays = [path for path in (MANIFESTS / "overlays").iterdir() if not path.name.startswith("loopback")]
    in_chart = {path for part in PARTS for path in files_of(MANIFESTS / part.folder)}
    assert {path.name for path in overlays if not set(files_of(path)) <= in_chart} == set()


def test_the_policy_and_the_webhook_agree_on_how_slowly_pods_may_go() -> None:
    policy = (MANIFESTS / "base" / "pods-policy.yaml").read_text()
    assert f".orValue(0) > {GRACE_SECONDS_MAX}\n" in policy
