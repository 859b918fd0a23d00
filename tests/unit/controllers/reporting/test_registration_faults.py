"""What of our registrations may change unnoticed: a closed table of what makes each of their webhooks ask less."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.commands.test_uninstall import SWEEP
from webhook.controllers.reporting.registration_faults import faults, own_groups, shipped
from webhook.jobs.kinds.registry import KINDS, of_hub, with_custom

Hook = dict[str, Any]


def without_a(field: str) -> Callable[[Hook], None]:
    def change(hook: Hook) -> None:
        del hook["rules"][0][field][0]

    return change


def narrowed(selector: str) -> Callable[[Hook], None]:
    def change(hook: Hook) -> None:
        expressions = hook.setdefault(selector, {}).setdefault("matchExpressions", [])
        expressions.append({"key": "team", "operator": "NotIn", "values": ["thieves"]})

    return change


WEAKER: dict[str, Callable[[Hook], Any]] = {
    "another service": lambda hook: hook["clientConfig"]["service"].update(name="evil"),
    "another namespace": lambda hook: hook["clientConfig"]["service"].update(namespace="evil"),
    "another path": lambda hook: hook["clientConfig"]["service"].update(path="/healthz"),
    "a url": lambda hook: hook.update(clientConfig={"url": "https://evil.example.com"}),
    "no rules": lambda hook: hook.update(rules=[]),
    "a group less": without_a("apiGroups"),
    "a resource less": without_a("resources"),
    "an operation less": without_a("operations"),
    "one version": lambda hook: hook["rules"][0].update(apiVersions=["v1"]),
    "cluster scope": lambda hook: hook["rules"][0].update(scope="Cluster"),
    "fewer namespaces": narrowed("namespaceSelector"),
    "fewer objects": narrowed("objectSelector"),
    "no namespace": lambda hook: hook.update(namespaceSelector={"matchLabels": {"nobody": "has"}}),
    "never": lambda hook: hook.setdefault("matchConditions", []).append({"name": "x", "expression": "false"}),
}
STRICT: dict[str, Callable[[Hook], Any]] = {
    "ignored": lambda hook: hook.update(failurePolicy="Ignore"),
    "exact versions": lambda hook: hook.update(matchPolicy="Exact"),
}
"""What asks less only of a webhook that had more."""
HOOKS = [(each, index) for each in shipped() for index in range(len(each["webhooks"]))]


@pytest.mark.parametrize(("document", "index"), HOOKS, ids=[d["webhooks"][i]["name"] for d, i in HOOKS])
def test_whatever_makes_a_webhook_ask_less_is_noticed(document: Any, index: int) -> None:
    hook = document["webhooks"][index]
    name, alone = hook["name"], {"webhooks": [hook]}
    assert faults(alone, copy.deepcopy(alone), (), ()) == []
    assert faults(alone, {"webhooks": []}, (), ()) == [f"webhook {name} is missing"]
    for what, change in {**WEAKER, **(STRICT if hook["failurePolicy"] == "Fail" else {})}.items():
        changed = copy.deepcopy(hook)
        change(changed)
        found = faults(alone, {"webhooks": [changed]}, (), ())
        assert found, what
        assert all(fault.startswith(f"webhook {name} ") for fault in found), what


def test_a_changed_condition_is_noticed_but_where_a_kind_of_ones_own_changes_it() -> None:
    (_, validating) = shipped()
    changed = copy.deepcopy(validating)
    (hook,) = [each for each in changed["webhooks"] if each["name"] == "job.tutti.dev"]
    hook["matchConditions"][0]["expression"] = "false"
    assert faults(validating, changed, (), ()) == [
        "webhook job.tutti.dev has a different condition opted-in-or-loses-its-maker"
    ]
    assert faults(validating, changed, {"batch"}, ()) == []


def test_a_webhook_that_somebody_adds_is_noticed() -> None:
    """By it whoever may write registrations changes any object of the cluster."""
    mutating, _ = shipped()
    added = copy.deepcopy(mutating)
    own = {"name": "sweep.tutti.dev", "clientConfig": added["webhooks"][0]["clientConfig"], "rules": []}
    added["webhooks"].append(own)
    assert faults(mutating, added, (), ()) == []
    added["webhooks"].append({**own, "name": "other.tutti.dev", "clientConfig": {"url": "https://evil.example.com"}})
    assert faults(mutating, added, (), ()) == ["webhook other.tutti.dev is none of Tutti's"]


def test_what_an_administrator_may_change_is_no_fault() -> None:
    """Certificates, ports, deadlines, and namespaces that the configuration exempts."""
    for document in shipped():
        changed = copy.deepcopy(document)
        for hook in changed["webhooks"]:
            hook["clientConfig"]["caBundle"] = "x"
            hook["clientConfig"]["service"]["port"] = 9443
            hook["timeoutSeconds"] = 10
            for each in hook.get("namespaceSelector", {}).get("matchExpressions", ()):
                if each["key"] == "kubernetes.io/metadata.name":
                    each["values"] = [*each["values"], "monitoring"]
        assert faults(document, changed, (), ("monitoring",)) == []
        assert faults(document, changed, (), ())


def test_groups_are_ones_own_by_what_their_webhooks_conditions_are_made_from() -> None:
    assert own_groups(KINDS) == own_groups(of_hub(KINDS)) == frozenset()
    assert own_groups(with_custom((SWEEP,))) == {"example.com"}
    job = replace(KINDS["Job.batch"], suspend=("spec", "held"))
    assert own_groups({**KINDS, job.key: job}) == {"batch"}
