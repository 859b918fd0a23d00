"""The CRDs and examples that ship agree with what the dialects read, and with the walkthroughs that name them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.dialects.reading import quotas
from webhook.dialects import registry
from webhook.dialects.compiler import compile_policy
from webhook.dialects.registry import PolicyResource

ROOT = Path(__file__).parents[3]
CRDS = {
    (crd["spec"]["group"], crd["spec"]["names"]["kind"]): crd
    for file in sorted((ROOT / "manifests/crds").rglob("*.yaml"))
    if file.name != "kustomization.yaml"
    for crd in yaml.safe_load_all(file.read_text())
}


def documents(folder: str) -> list[dict[str, Any]]:
    files = sorted((ROOT / "examples" / folder).rglob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def of_kind(folder: str, kind: str) -> dict[str, Any]:
    return next(document for document in documents(folder) if document["kind"] == kind)


@pytest.mark.parametrize("resource", [r for r in registry.RESOURCES if r.group], ids=lambda resource: resource.key)
def test_every_policy_resource_has_a_crd_of_its_shape(resource: PolicyResource) -> None:
    crd = CRDS[resource.group, resource.kind]["spec"]
    assert crd["names"]["plural"] == resource.plural
    assert crd["scope"] == ("Namespaced" if resource.namespaced else "Cluster")
    assert {version["name"] for version in crd["versions"] if version["served"]} == set(resource.versions)
    assert [version["name"] for version in crd["versions"] if version["storage"]] == [resource.versions[0]]


def test_protected_groups_carry_the_annotation_without_which_they_are_refused() -> None:
    for (group, _), crd in CRDS.items():
        if group.endswith(".k8s.io"):
            assert "api-approved.kubernetes.io" in crd["metadata"]["annotations"]


def test_kubectl_get_queue_is_left_to_the_read_api() -> None:
    names = [CRDS[key]["spec"]["names"] for key in CRDS if key[0] != "scheduling.volcano.sh"]
    taken = {name for entry in names for name in (entry["plural"], entry["singular"], *entry.get("shortNames", ()))}
    assert not taken & {"queue", "queues", "workload", "workloads"}


def test_both_versions_of_a_kueue_crd_accept_the_same_fields() -> None:
    for (group, _), crd in CRDS.items():
        schemas = [version["schema"] for version in crd["spec"]["versions"]]
        assert group != "kueue.x-k8s.io" or schemas[0] == schemas[1]


def test_kubectl_shows_the_cohort_of_a_queue_by_whichever_name_it_is_written() -> None:
    for version in CRDS["kueue.x-k8s.io", "ClusterQueue"]["spec"]["versions"]:
        plain = [column["jsonPath"] for column in version["additionalPrinterColumns"] if not column.get("priority")]
        assert ".spec['cohortName','cohort']" in plain


@pytest.mark.parametrize("folder", ["bookstore", "ack-fleet-queue", "teams"])
def test_example_policy_compiles_without_a_problem(folder: str) -> None:
    kinds = {resource.kind for resource in registry.RESOURCES}
    policy = compile_policy([document for document in documents(folder) if document["kind"] in kinds])
    assert policy.problems == ()
    assert policy.queues
    assert all(queue.inactive is None for queue in policy.queues.values())


OPEN_BY_NAME = {"examples/fleet/multikueue.yaml": "MultiKueue's own manifest, word for word"}


def test_the_queues_of_the_examples_are_open_to_the_namespaces_that_they_name_alone() -> None:
    """Whoever may write a LocalQueue takes from a queue that is open to all."""
    open_to_all = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "examples").rglob("*.yaml")
        for document in yaml.safe_load_all(file.read_text())
        if document and document["kind"] == "ClusterQueue" and not document["spec"].get("namespaceSelector", "nobody")
    }
    assert open_to_all == OPEN_BY_NAME.keys()


def test_the_walkthroughs_patch_by_position_hits_the_cpu_quota() -> None:
    queue = of_kind("bookstore/ml/batch", "ClusterQueue")
    resource = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    assert (queue["metadata"]["name"], resource["name"], resource["nominalQuota"]) == ("bookstore-ml-cq", "cpu", "4")


def test_the_two_workers_wait_in_the_teams_queue_and_fit_it() -> None:
    jobset = of_kind("bookstore/ml/batch", "JobSet")
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    template = job["template"]
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "bookstore-ml-lq"
    assert (job["parallelism"], job["completions"]) == (2, 2)
    assert template["metadata"]["labels"]["app.kubernetes.io/component"] == "recommender-train"
    policy = compile_policy(documents("bookstore/ml/batch")[:3])
    assert policy.queue_of("bookstore-ml", "bookstore-ml-lq") == "bookstore-ml-cq"
    assert quotas(policy.queues["bookstore-ml-cq"].resource_groups)["cpu"] == [4, None, None]


def test_the_example_workers_meet_the_restricted_standard() -> None:
    pod = of_kind("bookstore/ml/batch", "JobSet")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert of_kind("bookstore/ml", "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == (
        "restricted"
    )


def test_the_gang_of_four_needs_three_and_is_given_two() -> None:
    folder = "acs-gang-podgroup"
    assert of_kind(folder, "ResourceQuota")["spec"]["hard"] == {"pods": "2"}
    assert of_kind(folder, "PodGroup")["spec"]["minMember"] == 3
    assert of_kind(folder, "Job")["spec"]["parallelism"] == 4


@pytest.mark.parametrize("folder", ["bookstore", "acs-gang-podgroup", "ack-fleet-queue", "teams"])
def test_every_example_says_what_it_is(folder: str) -> None:
    assert (ROOT / "examples" / folder / "README.md").read_text().startswith("# ")
