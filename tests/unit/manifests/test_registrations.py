"""What the API server is told to send us: all that opted in, nothing else, never ourselves."""

import dataclasses
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from manifests import cel, fleet, marks, output, policies, reconciler_policies, registrations, rights_to_use, unqueued
from tests.unit.manifests.documents import documents_of, named
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.kinds.shipped import APPWRAPPER, TRAINJOB
from webhook.jobs.reading.ours import OURS, OWN_ANNOTATIONS, OWN_LABELS, Bearer, Form, Ours, Writer
from webhook.server.review.resources_table import BUILT_IN, Handling
from webhook.untyped.paths import render

DOCUMENTS = documents_of("base")
MUTATING = named(DOCUMENTS, "MutatingWebhookConfiguration", "tutti")["webhooks"]
VALIDATING = named(DOCUMENTS, "ValidatingWebhookConfiguration", "tutti")["webhooks"]
ENTRIES = [*MUTATING, *VALIDATING]
IDS = [f"{side}-{entry['name']}" for side, entries in (("m", MUTATING), ("v", VALIDATING)) for entry in entries]
KIND_LIST = list(KINDS.values())


def rules(entries: list[dict[str, Any]], path: str) -> set[tuple[str, str, str]]:
    """Return (group, resource, operation) that reach an endpoint."""
    return {
        (group, resource, operation)
        for entry in entries
        if entry["clientConfig"]["service"]["path"] == path
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }


def entry_of(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the entry called ``name``."""
    (found,) = [entry for entry in entries if entry["name"] == f"{name}.tutti.dev"]
    return found


def test_the_written_registrations_are_up_to_date() -> None:
    text = output.text(registrations.documents(KIND_LIST), source="manifests.registrations")
    assert registrations.TARGET.read_text() == text, "run python -m manifests.registrations"


def test_the_written_policies_are_up_to_date() -> None:
    text = output.text(policies.documents(KIND_LIST), source="manifests.policies")
    assert policies.TARGET.read_text() == text, "run python -m manifests.policies"


def test_the_written_policies_of_the_reconciler_are_up_to_date() -> None:
    text = output.text(reconciler_policies.documents(KIND_LIST), source="manifests.reconciler_policies")
    assert reconciler_policies.TARGET.read_text() == text, "run python -m manifests.reconciler_policies"


def test_the_written_policy_of_who_may_move_jobs_to_the_top_is_up_to_date() -> None:
    assert marks.TARGET.read_text() == output.text(marks.documents(KIND_LIST), "manifests.marks"), (
        "run python -m manifests.marks"
    )


def test_the_written_policy_that_warns_of_jobs_beside_queues_is_up_to_date_and_refuses_nothing() -> None:
    assert unqueued.TARGET.read_text() == output.text(unqueued.documents(KIND_LIST), "manifests.unqueued"), (
        "run python -m manifests.unqueued"
    )
    told = named(DOCUMENTS, "ValidatingAdmissionPolicy", "tutti-unqueued")["spec"]
    assert told["failurePolicy"] == "Ignore", "what did not opt in is created whatever goes wrong"
    binding = named(DOCUMENTS, "ValidatingAdmissionPolicyBinding", "tutti-unqueued")["spec"]
    assert binding["validationActions"] == ["Warn"]


def test_the_written_rights_of_a_hub_are_up_to_date() -> None:
    for target, documents in ((fleet.HUB, fleet.in_hub), (fleet.MEMBER, fleet.in_member)):
        text = output.text(documents(KIND_LIST), source="manifests.fleet")
        assert target.read_text() == text, "run python -m manifests.fleet"


def test_the_written_rights_to_use_are_up_to_date() -> None:
    text = output.text(rights_to_use.documents(KIND_LIST), source="manifests.rights_to_use")
    assert rights_to_use.TARGET.read_text() == text, "run python -m manifests.rights_to_use"


@pytest.mark.parametrize("kind", KIND_LIST, ids=KINDS.keys())
def test_every_job_kind_is_mutated_and_validated(kind: JobKind) -> None:
    assert (kind.group, kind.plural, "CREATE") in rules(MUTATING, "/mutate/jobs")
    for operation in ("CREATE", "UPDATE"):
        assert (kind.group, kind.plural, operation) in rules(VALIDATING, "/validate/jobs")
    assert (kind.group, f"{kind.plural}/scale", "UPDATE") in rules(VALIDATING, "/validate/jobs")


@pytest.mark.parametrize("kind", KIND_LIST, ids=KINDS.keys())
def test_the_pod_templates_of_every_job_kind_are_looked_into(kind: JobKind) -> None:
    (family,) = [found for found in cel.families(KIND_LIST) if found.group == kind.group]
    condition = entry_of(MUTATING, family.name)["matchConditions"][0]["expression"]
    assert cel.label_paths(kind)
    for path in cel.label_paths(kind):
        first_steps = re.split(r"\[\*\]|\{\*\}", path)[0]
        assert cel.step("object", first_steps) in condition
    for label in names.POD_GROUP_LABELS:
        assert label in condition


@pytest.mark.parametrize("kind", KIND_LIST, ids=KINDS.keys())
def test_priority_classes_of_every_kind_are_looked_for_in_it_or_in_the_runtime_that_it_names(kind: JobKind) -> None:
    looked = rights_to_use.classes("object", cel.Family(kind.group, (kind,)))
    assert ".?priorityClassName" in looked or kind == TRAINJOB


@pytest.mark.parametrize("kind", [kind for kind in KIND_LIST if kind.pod_sets], ids=lambda kind: kind.key)
def test_priority_classes_of_what_an_appwrapper_wraps_are_looked_for_in_each_of_its_templates(kind: JobKind) -> None:
    looked = rights_to_use.classes("object", cel.Family(APPWRAPPER.group, (APPWRAPPER,)))
    for path in cel.label_paths(kind):
        head, *more = re.split(r"\[\*\]|\{\*\}", f"template.{path.removesuffix('.metadata')}.spec.priorityClassName")
        assert cel.step("item", head) in looked
        assert all(cel.step("", tail) in looked for tail in more)
    assert all(cel.step("item", f"template.{render(path)}") in looked for path in kind.priority_classes)


def test_priority_classes_of_runtimes_are_a_right_too() -> None:
    """A TrainJob waits with the priority that its runtime names, and stops others by it before its pods are judged."""
    written = {it["metadata"]["name"]: it for it in rights_to_use.documents(KIND_LIST) if "variables" in it["spec"]}
    policy = written["tutti-use-priorities-of-trainingruntime"]
    (looked,) = [it["expression"] for it in policy["spec"]["variables"] if it["name"] == "all"]
    assert ".?replicatedJobs" in looked
    assert ".?priorityClassName" in looked


def test_each_policy_on_what_one_may_use_has_one_beside_it_that_warns_and_can_refuse_nothing() -> None:
    """It is evaluated for each class that there is, of a kind that need not be installed."""
    documents = rights_to_use.documents(KIND_LIST)
    policies = {it["metadata"]["name"]: it["spec"] for it in documents if not it["kind"].endswith("Binding")}
    actions = {
        it["spec"]["policyName"]: it["spec"]["validationActions"] for it in documents if it["kind"].endswith("Binding")
    }
    refusing = {name for name, spec in policies.items() if "paramKind" not in spec}
    assert {f"tutti-usable-{name.removeprefix('tutti-use-')}" for name in refusing} == policies.keys() - refusing
    assert {name for name, spec in policies.items() if spec["failurePolicy"] == "Fail"} == refusing
    assert {name for name, done in actions.items() if done == ["Deny"]} == refusing
    assert {name for name, done in actions.items() if done == ["Warn"]} == policies.keys() - refusing


def test_what_is_made_of_a_gang_is_not_judged_again_but_where_only_that_names_the_classes() -> None:
    documents = {
        it["metadata"]["name"]: it["spec"] for it in rights_to_use.documents(KIND_LIST) if "variables" in it["spec"]
    }

    def exempt(family: str) -> str:
        conditions = documents[f"tutti-use-priorities-of-{family}"]["matchConditions"]
        return "".join(it["expression"] for it in conditions if it["name"] == "by-itself")

    assert "jobset-controller-manager" in exempt("job")
    assert "appwrapper-controller-manager" in exempt("jobset")
    assert "trainer-controller-manager" not in exempt("jobset"), "the class of a ClusterTrainingRuntime"
    for family in ("job", "jobset"):
        assert names.POD_SET_LABEL in exempt(family)


def test_the_label_of_a_child_which_nobody_reads_is_judged_for_nobody() -> None:
    """It would be judged by what the service account ``default`` may use, and the JobSet never make its Jobs."""
    documents = {
        it["metadata"]["name"]: it["spec"] for it in rights_to_use.documents(KIND_LIST) if "variables" in it["spec"]
    }
    for which in ("use", "usable"):
        conditions = documents[f"tutti-{which}-workload-priorities-of-jobs"]["matchConditions"]
        (exempt,) = [it["expression"] for it in conditions if it["name"] == "of-nobody"]
        for controller in ("jobset-controller-manager", "kubeflow-trainer-controller-manager"):
            assert controller in exempt
        assert "ownerReferences" in exempt, "what such an account makes on its own is judged"
        assert "system:serviceaccount:kube-system:cronjob-controller" not in exempt


def test_of_a_job_that_names_no_class_nothing_is_evaluated_for_each_class_that_there_is() -> None:
    """A policy with parameters is evaluated once for each: twenty classes cost a create five times what it costs."""
    policies = {it["metadata"]["name"]: it["spec"] for it in rights_to_use.documents(KIND_LIST) if "spec" in it}
    each = {name: spec for name, spec in policies.items() if "paramKind" in spec}
    for name, spec in each.items():
        asked = [it["name"] for it in spec["matchConditions"]]
        selected = spec["matchConstraints"].get("objectSelector", {}).get("matchExpressions", [])
        by_label = [it["key"] for it in selected if it["operator"] == "Exists"] == [names.PRIORITY_CLASS_LABEL]
        assert by_label or "names-a-class" in asked or "another-queue" in asked, name


def test_no_expression_checks_more_rights_than_the_api_server_pays_for() -> None:
    for document in rights_to_use.documents(KIND_LIST):
        spec = document["spec"]
        for each in (*spec.get("variables", ()), *spec.get("validations", ()), *spec.get("matchConditions", ())):
            assert each["expression"].count(".check(") <= 2
            assert not re.search(r"(all|exists|filter|map)\([^()]*,.*\.check\(", each["expression"])


def test_whatever_names_a_pods_group_is_looked_for_and_watched_for_changes() -> None:
    born = entry_of(MUTATING, "plain-pods")["matchConditions"][0]["expression"]
    changed = entry_of(VALIDATING, "gang-pods")["matchConditions"][0]["expression"]
    for name in (*names.POD_GROUP_LABELS, *names.POD_GROUP_ANNOTATIONS, names.KUEUE_POD_GROUP):
        assert name in born
        assert name in changed
    assert f"annotations[?'{names.KUEUE_POD_COUNT}']" in changed


def test_what_the_server_classifies_is_what_it_is_sent() -> None:
    warned = {(row.group, row.resource) for row in BUILT_IN if row.handling is Handling.WARN}
    policy = {(row.group, row.resource) for row in BUILT_IN if row.handling is Handling.POLICY}
    pods = {(row.group, row.resource) for row in BUILT_IN if row.handling is Handling.POD}
    jobs = {(kind.group, kind.plural) for kind in KIND_LIST}
    scales = {(group, f"{plural}/scale") for group, plural in jobs}
    assert {rule[:2] for rule in rules(VALIDATING, "/validate/jobs")} == jobs | scales | warned
    assert {rule[:2] for rule in rules(VALIDATING, "/validate/pods")} == pods
    sent = {rule[:2] for rule in rules(VALIDATING, "/validate/policy")}
    assert sent | {("", "resourcequotas")} == policy | {("", "configmaps"), ("", "resourcequotas")}


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_an_entry_keeps_the_contract(entry: dict[str, Any]) -> None:
    assert entry["sideEffects"] == "None"
    assert entry["admissionReviewVersions"] == ["v1"]
    assert entry["matchPolicy"] == "Equivalent"
    assert entry["timeoutSeconds"] <= 3
    assert entry["clientConfig"]["service"]["name"] == "tutti-webhook"
    assert entry["name"].count(".") >= 2
    assert all(rule["apiVersions"] == ["*"] for rule in entry["rules"])


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_only_policy_reaches_us_from_the_namespaces_we_depend_on(entry: dict[str, Any]) -> None:
    if entry["clientConfig"]["service"]["path"] == "/validate/policy":
        return
    left_out = entry["namespaceSelector"]["matchExpressions"][0]
    assert (left_out["key"], left_out["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    assert {"kube-system", "tutti-system", "cert-manager", "jobset-system", "kubeflow"} <= set(left_out["values"])


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_an_entry_that_can_refuse_looks_for_an_opt_in(entry: dict[str, Any]) -> None:
    """An outage refuses what is sent to an entry with policy Fail, so each of those is narrow."""
    if entry["failurePolicy"] == "Ignore":
        return
    selector = entry.get("namespaceSelector", {}).get("matchExpressions", [])
    opted_in = any(
        expression["key"].startswith("tutti.dev/") and expression["operator"] == "Exists" for expression in selector
    )
    about_policy = entry["clientConfig"]["service"]["path"] == "/validate/policy"
    assert opted_in or about_policy or entry.get("matchConditions") or entry.get("objectSelector")


@pytest.mark.parametrize("side", [MUTATING, VALIDATING], ids=["mutating", "validating"])
def test_names_are_unique_and_no_request_matches_two_job_entries(side: list[dict[str, Any]]) -> None:
    assert len({entry["name"] for entry in side}) == len(side)
    gated = entry_of(side, "gated-namespaces")["namespaceSelector"]["matchExpressions"][1]
    assert gated == {"key": "tutti.dev/gated", "operator": "Exists"}
    for family in cel.families(KIND_LIST):
        other = entry_of(side, family.name)["namespaceSelector"]["matchExpressions"][1]
        assert other == {"key": "tutti.dev/gated", "operator": "DoesNotExist"}


QUEUE_LABELS = [{}, *({key: "a"} for key in names.QUEUE_LABELS), dict.fromkeys(names.QUEUE_LABELS, "a")]


@pytest.mark.parametrize(("side", "path"), [(MUTATING, "/mutate/jobs"), (VALIDATING, "/validate/jobs")])
@pytest.mark.parametrize("labels", QUEUE_LABELS, ids=["none", "ours", "kueues", "both"])
@pytest.mark.parametrize("kind", KIND_LIST, ids=KINDS.keys())
def test_one_entry_takes_a_new_job_whichever_queue_label_it_has(
    kind: JobKind, labels: dict[str, str], side: list[dict[str, Any]], path: str
) -> None:
    """What labels tell costs the API server nothing; a condition costs it a copy of the object."""
    found = [
        entry
        for entry in side
        if (kind.group, kind.plural, "CREATE") in rules([entry], path)
        and not entry["name"].startswith("gated-namespaces")
        and not entry["name"].endswith("-mislabelled.tutti.dev")
        and all(
            (expression["key"] in labels) is (expression["operator"] == "Exists")
            for expression in entry["objectSelector"]["matchExpressions"]
        )
    ]
    assert len(found) == 1
    assert ("matchConditions" in found[0]) is (not labels)


def test_every_job_that_can_be_held_is_sent_when_its_hold_may_be_lifted() -> None:
    for kind in KIND_LIST:
        served = (kind.group, kind.plural, "UPDATE")
        found = [entry for entry in MUTATING if served in rules([entry], "/mutate/jobs")]
        assert len(found) == bool(kind.suspend)
        for entry in found:
            assert cel.step("object", ".".join(kind.suspend or ())) in entry["matchConditions"][0]["expression"]


def test_every_job_that_another_kind_makes_is_sent_when_it_may_lose_its_owner() -> None:
    made = {child for kind in KIND_LIST for child in kind.child_kinds}
    for kind in KIND_LIST:
        if kind.key in made and kind.suspend:
            served = (kind.group, kind.plural, "UPDATE")
            (entry,) = [each for each in MUTATING if served in rules([each], "/mutate/jobs")]
            makers = [each.key for each in KIND_LIST if kind.key in each.child_kinds]
            assert all(f"'{maker}'" in entry["matchConditions"][0]["expression"] for maker in makers)


def test_pods_are_sent_as_gang_members_everywhere_and_loose_only_where_fenced() -> None:
    gang, loose = entry_of(VALIDATING, "gang-pods"), entry_of(VALIDATING, "loose-pods")
    assert gang["objectSelector"] == {"matchExpressions": [{"key": names.GANG_LABEL, "operator": "Exists"}]}
    assert loose["objectSelector"] == {"matchExpressions": [{"key": names.GANG_LABEL, "operator": "DoesNotExist"}]}
    fenced = loose["namespaceSelector"]["matchExpressions"][1]
    assert fenced == {"key": names.FENCED_NAMESPACE, "operator": "Exists"}
    assert gang["failurePolicy"] == loose["failurePolicy"] == "Fail"


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_expressions_reach_optional_fields_safely(entry: dict[str, Any]) -> None:
    """A plain step into something optional errors, and an error refuses the request."""
    for condition in entry.get("matchConditions", []):
        expression = condition["expression"]
        plain = set(re.findall(r"\b(?:object|oldObject|it)((?:\.[a-zA-Z]+)+)", expression))
        assert plain <= {".metadata", ".spec"}, plain


def test_every_trace_of_ours_is_looked_for() -> None:
    for family, suffix in product(cel.families(KIND_LIST), ("", "-new")):
        expression = entry_of(VALIDATING, family.name + suffix)["matchConditions"][0]["expression"]
        for trace in (*OWN_ANNOTATIONS, *names.QUEUE_LABELS, names.GANG_LABEL, names.POD_SET_LABEL):
            assert f"'{trace}'" in expression


def test_a_kind_read_by_code_must_say_where_its_labels_are() -> None:
    stranger = JobKind(group="example.dev", version="v1", kind="Stranger", plural="strangers", reader="stranger")
    with pytest.raises(AssertionError, match="OTHER_PLACES"):
        cel.label_paths(stranger)


OWN = dataclasses.replace(KINDS["JobSet.jobset.x-k8s.io"], group="example.dev", kind="Flock", plural="flocks")


def test_a_kind_of_an_operators_own_gets_entries_by_its_paths() -> None:
    mutating, _ = registrations.configurations([*KIND_LIST, OWN])
    expression = entry_of(mutating["webhooks"], "flock")["matchConditions"][0]["expression"]
    assert "object.?spec.?replicatedJobs.orValue([]).map(item, item.?template.?spec.?template.?metadata" in expression


def test_a_kind_of_an_operators_own_gets_the_rights_that_shipped_roles_lack() -> None:
    roles = {
        document["metadata"]["name"]: document["rules"]
        for document in registrations.documents([*KIND_LIST, OWN])
        if document["kind"] == "ClusterRole"
    }
    assert roles == {
        "tutti-own-kinds-read": [
            {"apiGroups": ["example.dev"], "resources": ["flocks"], "verbs": ["get", "list", "watch"]}
        ],
        "tutti-own-kinds-write": [{"apiGroups": ["example.dev"], "resources": ["flocks"], "verbs": ["patch"]}],
    }


def test_the_command_prints_what_a_configuration_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "kinds:\n  - {extends: JobSet.jobset.x-k8s.io, group: example.dev, version: v1, kind: Flock, plural: flocks}\n"
    )
    monkeypatch.setattr(sys, "argv", ["registrations", "--config", str(path)])
    assert output.run(registrations.documents, registrations.TARGET, "manifests.registrations", None) == 0
    assert "flock.tutti.dev" in capsys.readouterr().out


def test_the_command_says_what_is_wrong_with_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("kindz: []\n")
    monkeypatch.setattr(sys, "argv", ["registrations", "--config", str(path)])
    assert output.run(registrations.documents, registrations.TARGET, "manifests.registrations", None) == 2
    assert "kindz" in capsys.readouterr().err


def test_suspending_makes_the_parents_that_are_absent() -> None:
    assert policies.set_suspend(("spec", "suspend")).endswith(
        "[JSONPatch{op: 'add', path: '/spec/suspend', value: true}]"
    )
    deep = policies.set_suspend(("spec", "run", "policy", "suspend"))
    assert deep.count("path: '/spec/run', value: {}") == 1
    assert deep.count("path: '/spec/run/policy', value: {}") == 2
    assert deep.count("path: '/spec/run/policy/suspend', value: true") == 3


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_what_the_reconciler_writes_on_jobs_needs_no_webhook(entry: dict[str, Any]) -> None:
    """Else an outage would keep it from stopping a gang, and from voiding starts before it rebuilds the ledger."""
    about_jobs = entry["clientConfig"]["service"]["path"].endswith("/jobs") and entry["failurePolicy"] == "Fail"
    # It creates no jobs (test_rights), and rules of creation alone need no condition.
    about_jobs &= any("UPDATE" in rule["operations"] for rule in entry["rules"])
    conditions = {condition["name"] for condition in entry.get("matchConditions", [])}
    assert ("not-by-tutti" in conditions) is about_jobs


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_what_a_hub_writes_on_its_own_jobs_needs_no_webhook(entry: dict[str, Any]) -> None:
    """Else what has ended in a member keeps the hub's quota in an outage. It patches jobs, and sets no hold."""
    placed = {(family.group, plural) for family in fleet.placed(KIND_LIST) for plural in fleet.plurals_of(family)}
    judged = {(group, name) for group, name, operation in rules([entry], "/validate/jobs") if operation == "UPDATE"}
    conditions = {condition["name"] for condition in entry.get("matchConditions", [])}
    assert ("not-the-hubs-record" in conditions) is bool(judged & placed)


def test_a_hub_is_let_past_the_webhook_with_its_record_alone() -> None:
    (text,) = {
        condition["expression"]
        for entry in ENTRIES
        for condition in entry.get("matchConditions", [])
        if condition["name"] == "not-the-hubs-record"
    }
    assert text.startswith(f"request.userInfo.username != '{fleet.USER}' || !(")
    assert "object.?spec == oldObject.?spec" in text
    assert text.count(f"key == '{names.DISPATCH}'") == 4, "annotations and finalizers, each both ways"
    assert names.PERMIT not in text


@pytest.mark.parametrize("name", ["job", "jobset", "kubeflow", "gated-namespaces"])
def test_but_a_start_that_it_rehearses_is_sent_since_its_pods_could_not_be(name: str) -> None:
    conditions = entry_of(VALIDATING, name)["matchConditions"]
    text = next(condition["expression"] for condition in conditions if condition["name"] == "not-by-tutti")
    assert text.endswith("|| request.?dryRun.orValue(false)")


# -- the table of what is ours, in the policies


def policy_text(name: str) -> str:
    """Return all expressions of a policy as one text."""
    named_so = [
        each
        for each in (*policies.documents(KIND_LIST), *marks.documents(KIND_LIST))
        if each["metadata"]["name"] == name
    ]
    (found,) = [each for each in named_so if each["kind"] == "ValidatingAdmissionPolicy"]
    return str(found["spec"])


@pytest.mark.parametrize("row", OURS, ids=[f"{row.form} {row.key}" for row in OURS])
def test_each_row_of_the_table_of_what_is_ours_is_kept_by_a_policy_on_each_of_its_places(row: Ours) -> None:
    families = [f"tutti-{family.name}" for family in cel.families(KIND_LIST)]
    by_place = {
        Bearer.JOB: families,
        Bearer.TEMPLATE: families,
        Bearer.POD: ["tutti-gang-pods"],
        Bearer.NAMESPACE: ["tutti-namespace-gates"],
        Bearer.QUEUE: [],
        Bearer.LEDGER: ["tutti-ledger"],
    }
    for place, writer in row.writers.items():
        for name in by_place[place] if writer is not Writer.EDITOR else ():
            # A job's template keeps its annotations and gates to the webhook: without the label they mean nothing.
            if place is not Bearer.TEMPLATE or row.form is Form.LABEL:
                held_by = "tutti-marks" if writer is Writer.TOPPER else name
                assert f"'{row.key}'" in policy_text(held_by), held_by
    if row.key in OWN_LABELS:
        for name in (*families, "tutti-marked-elsewhere", "tutti-marked-pods"):
            assert f"'{row.key}'" in policy_text(name), name
        sent = entry_of(VALIDATING, "marked-elsewhere")["matchConditions"][0]["expression"]
        assert f"'{row.key}'" in sent
