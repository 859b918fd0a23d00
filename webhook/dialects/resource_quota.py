"""Kubernetes ResourceQuota as a fence: which of its keys and scopes bind pods.

Follows ``pkg/quota/v1/evaluator/core/pods.go`` of Kubernetes 1.36. Keys that count other objects (``services``,
``requests.storage``, ``count/jobs.batch``) are left out; a bare ``hugepages-2Mi`` counts what
``requests.hugepages-2Mi`` does and is written so.
"""

from collections.abc import Mapping
from typing import Final

from webhook.core.model.gang import Requirement
from webhook.core.notation.problem import Problem
from webhook.core.quota.fence import Fence
from webhook.dialects.field import Field
from webhook.dialects.fragment import opened

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
_POD_SCOPES: Final = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
)


def compile_object(obj: Mapping[str, object]) -> tuple[Fence | None, tuple[Problem, ...]]:
    """Return the fence that a ResourceQuota is, None when it binds no pods, and what is wrong with it."""
    fragment, at = opened(obj)
    spec = at["spec"]
    hard: dict[str, int] = {}
    for key, member in spec["hard"].mapping().items():
        name = _pod_key(key)
        amount = None if name is None else member.amount()
        if name is not None and amount is not None:
            hard[name] = min(amount, hard.get(name, amount))
    scopes = _scopes(spec)
    problems = tuple(dict.fromkeys(fragment.problems))
    if not hard or any(scope.key not in _POD_SCOPES for scope in scopes):
        return None, problems
    return Fence(fragment.source.namespace, fragment.source.name, hard, scopes), problems


def _pod_key(key: str) -> str | None:
    """Return the key under which a fence charges pods, or None when the key binds no pod."""
    if key in ("pods", "count/pods", *_PLAIN):
        return key
    if key.startswith("hugepages-"):
        return f"requests.{key}"
    prefix, _, resource = key.partition(".")
    if prefix == "limits":
        return key if resource in _PLAIN else None
    if prefix == "requests" and (resource in _PLAIN or resource.startswith("hugepages-") or "/" in resource):
        return key
    return None


def _scopes(spec: Field) -> tuple[Requirement, ...]:
    plain = tuple(Requirement(item.text(), "Exists") for item in spec["scopes"].items())
    selected = tuple(
        Requirement(
            item["scopeName"].text(), item["operator"].text("Exists"), tuple(v.text() for v in item["values"].items())
        )
        for item in spec["scopeSelector"]["matchExpressions"].items()
    )
    return plain + selected
