"""What each account may do: no secrets, no wildcards, nothing created but events and the ledger."""

from collections.abc import Iterator

import pytest

from tests.unit.manifests.documents import Document, documents_of, named, of_kind
from webhook.core.notation.names import LEDGER_NAME
from webhook.dialects.registry import RESOURCES, PolicyResource
from webhook.fleet.policies.propagation import PLURALS
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS

DOCUMENTS = documents_of("base")
READ = {"get", "list", "watch"}
Rule = tuple[str, str, frozenset[str], frozenset[str]]


def rules_of(role: Document) -> Iterator[Rule]:
    """Yield (group, resource, verbs, names) of a role."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield group, resource, frozenset(rule["verbs"]), frozenset(rule.get("resourceNames", ()))


def rules_for(account: str) -> list[Rule]:
    """Return what a service account of ours may do by the roles we ship."""
    rules = []
    for binding in of_kind(DOCUMENTS, "ClusterRoleBinding", "RoleBinding"):
        if account not in {subject["name"] for subject in binding["subjects"]}:
            continue
        found = [
            role
            for role in of_kind(DOCUMENTS, binding["roleRef"]["kind"])
            if role["metadata"]["name"] == binding["roleRef"]["name"]
        ]
        rules += [rule for role in found for rule in rules_of(role)]
    return rules


@pytest.mark.parametrize(
    "directory", ["base", "components/self-signed", "components/fleet-hub", "components/fleet-member"]
)
def test_no_role_holds_a_wildcard_or_more_rights_than_it_names(directory: str) -> None:
    for role in of_kind(documents_of(directory), "Role", "ClusterRole"):
        for group, resource, verbs, _ in rules_of(role):
            assert "*" not in (group, resource, *verbs)
            assert not verbs & {"escalate", "bind", "impersonate"}


@pytest.mark.parametrize("account", ["tutti-webhook", "tutti-reconciler"])
def test_neither_program_reads_secrets(account: str) -> None:
    assert not [rule for rule in rules_for(account) if rule[1] == "secrets"]


def test_the_webhook_writes_nothing_at_all() -> None:
    rules = rules_for("tutti-webhook")
    assert rules
    assert all(verbs <= READ for _, _, verbs, _ in rules)


def test_the_reconciler_creates_nothing_but_events_and_the_ledger() -> None:
    created = {resource for _, resource, verbs, _ in rules_for("tutti-reconciler") if "create" in verbs}
    assert created == {"events", "configmaps"}


def test_the_reconciler_deletes_nothing_but_plain_pods_of_gangs() -> None:
    deleted = {(group, resource) for group, resource, verbs, _ in rules_for("tutti-reconciler") if "delete" in verbs}
    # Of ConfigMaps only the ledger's own.
    assert deleted == {("", "pods"), ("", "configmaps")}


def test_which_pods_it_may_delete_is_settled_inside_the_api_server() -> None:
    policy = named(DOCUMENTS, "ValidatingAdmissionPolicy", "tutti-gang-pods-only")["spec"]
    assert "DELETE" in policy["matchConstraints"]["resourceRules"][0]["operations"]
    assert any("tutti.dev/gang" in validation["expression"] for validation in policy["validations"])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_what_it_may_patch_of_jobs_is_settled_there_too(kind: JobKind) -> None:
    held = [
        policy["spec"]
        for policy in of_kind(DOCUMENTS, "ValidatingAdmissionPolicy")
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        if policy["metadata"]["name"].startswith("tutti-reconciler-")
        and (kind.group in rule["apiGroups"] and kind.plural in rule["resources"] and "UPDATE" in rule["operations"])
    ]
    assert len(held) == 1
    assert held[0]["validations"][0]["expression"] == "variables.ours"


def test_a_cluster_without_a_fleet_gives_no_right_for_one() -> None:
    """What fleets need comes with their components: hubs have accounts of their own, and Leases are read there."""
    rules = {rule[:2] for role in of_kind(DOCUMENTS, "Role", "ClusterRole") for rule in rules_of(role)}
    assert not {resource for group, resource in rules if resource in ("leases", "admissionchecks", *PLURALS)}
    accounts = {each["metadata"]["name"] for each in of_kind(DOCUMENTS, "ServiceAccount")}
    in_fleets = {
        each["metadata"]["name"]
        for directory in ("components/fleet-hub", "components/fleet-member")
        for each in of_kind(documents_of(directory), "ServiceAccount", "Role", "ClusterRole", "ConfigMap")
    }
    assert accounts == {"tutti-webhook", "tutti-reconciler"}
    of_hubs = {"tutti-hub", "tutti-hub-checks", "tutti-hub-dependencies", "tutti-hub-secrets", "tutti-hears-hubs"}
    assert in_fleets == of_hubs | {"tutti-fleet-lost", "tutti-fleet-silent"}
    assert not in_fleets & {each["metadata"]["name"] for each in DOCUMENTS}


def test_it_reviews_no_tokens_and_nobodys_rights() -> None:
    assert "system:auth-delegator" not in {
        binding["roleRef"]["name"] for binding in of_kind(DOCUMENTS, "ClusterRoleBinding")
    }


def test_config_maps_are_reached_by_name_but_for_the_pages_of_the_ledger() -> None:
    unnamed = {
        account: [
            set(verbs) for _, resource, verbs, names in rules_for(account) if resource == "configmaps" and not names
        ]
        for account in ("tutti-webhook", "tutti-reconciler")
    }
    # Pages are listed by their label. What the reconciler writes is bound by a policy.
    assert unnamed == {
        "tutti-webhook": [{"list", "watch"}],
        "tutti-reconciler": [{"list", "watch"}, {"get", "create", "patch", "delete"}],
    }


def test_config_maps_are_reached_in_our_own_namespace_only() -> None:
    for role in of_kind(DOCUMENTS, "ClusterRole"):
        assert "configmaps" not in {resource for _, resource, _, _ in rules_of(role)}
    for role in of_kind(DOCUMENTS, "Role"):
        assert role["metadata"]["namespace"] == "tutti-system"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_every_job_kind_is_read_by_both_and_patched_by_the_reconciler(kind: JobKind) -> None:
    key = (kind.group, kind.plural)
    for account in ("tutti-webhook", "tutti-reconciler"):
        assert any((group, resource) == key and verbs >= READ for group, resource, verbs, _ in rules_for(account))
    assert any(
        (group, resource) == key and "patch" in verbs for group, resource, verbs, _ in rules_for("tutti-reconciler")
    )


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.key)
def test_every_policy_resource_is_read_by_both(resource: PolicyResource) -> None:
    for account in ("tutti-webhook", "tutti-reconciler"):
        assert any(rule[:2] == (resource.group, resource.plural) and rule[2] >= READ for rule in rules_for(account))


def test_no_job_kind_is_created_or_its_status_written_but_the_start_time_of_jobs() -> None:
    plurals = {(kind.group, kind.plural) for kind in KINDS.values()}
    for group, resource, verbs, _ in rules_for("tutti-reconciler"):
        plural, _, subresource = resource.partition("/")
        if (group, plural) in plurals:
            assert not subresource or (group, resource, verbs) == ("batch", "jobs/status", {"patch"})
            assert verbs <= READ | {"patch", "delete"}


def test_what_it_may_write_into_the_status_of_jobs_is_settled_inside_the_api_server() -> None:
    policy = named(DOCUMENTS, "ValidatingAdmissionPolicy", "tutti-start-times-only")["spec"]
    assert policy["matchConstraints"]["resourceRules"][0]["resources"] == ["jobs/status"]
    assert any("startTime" in validation["expression"] for validation in policy["validations"])


@pytest.mark.parametrize("verb", ["view", "edit", "admin"])
def test_whoever_may_read_a_namespace_may_read_its_gangs_and_queues(verb: str) -> None:
    role = named(DOCUMENTS, "ClusterRole", "tutti-view")
    assert role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{verb}"] == "true"
    read = {(group, resource) for group, resource, verbs, _ in rules_of(role) if verbs == READ}
    assert {("visibility.tutti.dev", "workloads"), ("visibility.tutti.dev", "queues")} <= read


def test_everybody_may_see_which_priority_classes_a_job_can_name() -> None:
    binding = named(DOCUMENTS, "ClusterRoleBinding", "tutti-priority-classes-view")
    assert [subject["name"] for subject in binding["subjects"]] == ["system:authenticated"]
    seen = list(rules_of(named(DOCUMENTS, "ClusterRole", binding["roleRef"]["name"])))
    assert [(group, resource) for group, resource, _, _ in seen] == [("kueue.x-k8s.io", "workloadpriorityclasses")]
    assert seen[0][2] == READ


def test_editing_a_namespace_does_not_reach_quota() -> None:
    edited = {resource for _, resource, _, _ in rules_of(named(DOCUMENTS, "ClusterRole", "tutti-edit"))}
    assert edited == {"podgroups"}


def test_the_rotation_account_reaches_two_secrets_and_three_configurations_by_name() -> None:
    rules = [
        rule
        for role in of_kind(documents_of("components/self-signed"), "Role", "ClusterRole")
        for rule in rules_of(role)
    ]
    assert all(resource_names and verbs == {"get", "patch"} for _, _, verbs, resource_names in rules)


def test_which_config_maps_it_may_write_is_settled_inside_the_api_server() -> None:
    policy = named(DOCUMENTS, "ValidatingAdmissionPolicy", "tutti-ledger-only")["spec"]
    assert policy["matchConstraints"]["resourceRules"][0]["operations"] == ["CREATE", "UPDATE", "DELETE"]
    text = str(policy)
    assert f"{LEDGER_NAME}-page-" in text
    assert f"{LEDGER_NAME}-quarantine-" in text


def test_the_ledger_has_a_share_of_the_api_server_of_its_own_by_account_and_namespace() -> None:
    (schema,), (level,) = of_kind(DOCUMENTS, "FlowSchema"), of_kind(DOCUMENTS, "PriorityLevelConfiguration")
    assert schema["spec"]["priorityLevelConfiguration"]["name"] == level["metadata"]["name"]
    (rule,) = schema["spec"]["rules"]
    assert rule["subjects"] == [
        {"kind": "ServiceAccount", "serviceAccount": {"name": "tutti-reconciler", "namespace": "tutti-system"}}
    ]
    (resources,) = rule["resourceRules"]
    assert (resources["resources"], resources["namespaces"]) == (["configmaps"], ["tutti-system"])
    ours = [verbs for _, resource, verbs, _ in rules_for("tutti-reconciler") if resource == "configmaps"]
    # A take-over lists the pages, and whoever follows resumes by a list.
    assert set(resources["verbs"]) == set().union(*ours)
