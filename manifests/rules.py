"""What the API server's rules are made of: whose requests, about which objects, under which conditions.

Webhook registrations and admission policies are put together from these, so that both mean the same objects.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from manifests import cel
from manifests.cel import Family
from webhook.core.notation import names
from webhook.fleet.credentials.account import ACCOUNT as HUB_ACCOUNT
from webhook.server.review.resources_table import BUILT_IN, Handling

OPERATOR_NAMESPACES: Final = (
    "kube-system",
    "kube-public",
    "kube-node-lease",
    names.SYSTEM_NAMESPACE,
    "cert-manager",
    "jobset-system",
    "kubeflow",
    "kubeflow-system",
    "kueue-system",
    "kuberay-operator",
    "kuberay-system",
    "spark-operator",
    "volcano-system",
    "appwrapper-system",
)
"""Left out everywhere but in the policy check: what must start before us, or without us, does not wait for us."""

TUTTI_QUEUE, KUEUE_QUEUE = names.QUEUE_LABELS
RECONCILER: Final = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:tutti-reconciler"
HUB: Final = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{HUB_ACCOUNT}"
BY_DRAINER: Final = "authorizer.group('').resource('nodes').check('delete').allowed()"
"""Whoever may delete nodes may leave orphans, the garbage collector among them. Ask it last: it is a look at RBAC."""
BY_NO_DRAINER: Final = f"!{BY_DRAINER}"
MUTATE_TIMEOUT_SECONDS: Final = 2
VALIDATE_TIMEOUT_SECONDS: Final = 3


def selector(*expressions: dict[str, Any]) -> dict[str, Any]:
    """Return a namespaceSelector: none of the operators' namespaces, and the given requirements."""
    left_out = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(OPERATOR_NAMESPACES)}
    return {"matchExpressions": [left_out, *expressions]}


def not_gated() -> dict[str, Any]:
    """Namespaces in which jobs opt in one by one."""
    return selector(labelled(names.GATED_NAMESPACE, "DoesNotExist"))


def gated() -> dict[str, Any]:
    """Namespaces in which every job waits."""
    return selector(labelled(names.GATED_NAMESPACE))


def labelled(key: str, operator: str = "Exists") -> dict[str, str]:
    """Return a requirement on a label."""
    return {"key": key, "operator": operator}


QUEUED: Final = {
    "tutti": {"matchExpressions": [labelled(TUTTI_QUEUE)]},
    "kueue": {"matchExpressions": [labelled(KUEUE_QUEUE), labelled(TUTTI_QUEUE, "DoesNotExist")]},
}
"""Which new jobs name a queue, each in one of the two."""
UNQUEUED: Final = {"matchExpressions": [labelled(key, "DoesNotExist") for key in names.QUEUE_LABELS]}


def rule(group: str, resources: Sequence[str], operations: Sequence[str]) -> dict[str, Any]:
    """Return one rule of an entry, for all versions of the resources."""
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": list(resources),
        "operations": list(operations),
        "scope": "*",
    }


def entry(name: str, path: str, rules: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return one webhook entry; ``fields`` override what all entries share."""
    return {
        "name": f"{name}.tutti.dev",
        "clientConfig": {
            "service": {"name": "tutti-webhook", "namespace": names.SYSTEM_NAMESPACE, "port": 443, "path": path}
        },
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail",
        "timeoutSeconds": VALIDATE_TIMEOUT_SECONDS,
        "rules": rules,
    } | fields


def condition(name: str, expression: str) -> list[dict[str, str]]:
    """Return a matchConditions list of one."""
    return [{"name": name, "expression": expression + "\n" if "\n" in expression else expression}]


def by_others(*conditions: dict[str, str], rehearsed: bool = False) -> list[dict[str, str]]:
    """Return matchConditions that leave out what the reconciler writes.

    It may write anything, and has to while no webhook answers: stop a gang, void a start before the ledger is rebuilt.
    With ``rehearsed`` its dry runs are sent all the same: by them it learns whether the pods of what it starts would be
    let in (``controllers/writes/rehearsal.py``).
    """
    expression = f"request.userInfo.username != '{RECONCILER}'"
    if rehearsed:
        expression += " || request.?dryRun.orValue(false)"
    return [*conditions, {"name": "not-by-tutti", "expression": expression}]


def no_record() -> list[dict[str, str]]:
    """Return matchConditions that leave out the record that ``tutti hub`` writes, while no webhook answers, too.

    Else what has ended in a member would keep the hub's quota. Permits in a member, by the same name, are judged.
    """
    return condition("not-the-hubs-record", f"request.userInfo.username != '{HUB}' || !(\n{cel.records_only()}\n)")


def job_rules(families: Iterable[Family], *operations: str) -> list[dict[str, Any]]:
    """Return the rules for the objects of the families."""
    return [rule(family.group, family.resources, operations) for family in families]


def classified(
    handling: Handling, *, without: Sequence[str] = (), operations: Sequence[str] = ("CREATE", "UPDATE")
) -> list[dict[str, Any]]:
    """Return rules for what the server's table of resources handles so."""
    by_group: dict[str, list[str]] = {}
    for row in BUILT_IN:
        if row.handling is handling and row.resource not in without:
            by_group.setdefault(row.group, []).append(row.resource)
    return [rule(group, resources, operations) for group, resources in by_group.items()]
