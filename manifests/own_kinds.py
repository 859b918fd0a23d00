"""The rights on job kinds that an operator adds, which the shipped roles cannot know."""

from collections.abc import Iterable
from typing import Any, Final

from manifests import cel
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS

RBAC: Final = "rbac.authorization.k8s.io"


def role(kinds: Iterable[JobKind]) -> list[dict[str, Any]]:
    """Return the rights on an operator's own kinds, which the shipped roles cannot know; nothing without such kinds."""
    shipped = {(kind.group, kind.plural) for kind in KINDS.values()}
    own = [
        family for family in cel.families(kinds) if not {(family.group, name) for name in family.resources} <= shipped
    ]
    documents: list[dict[str, Any]] = []
    for name, verbs, accounts in (
        ("tutti-own-kinds-read", ["get", "list", "watch"], ["tutti-webhook", "tutti-reconciler"]),
        ("tutti-own-kinds-write", ["patch"], ["tutti-reconciler"]),
    ):
        rules = [{"apiGroups": [each.group], "resources": list(each.resources), "verbs": verbs} for each in own]
        subjects = [{"kind": "ServiceAccount", "name": who, "namespace": names.SYSTEM_NAMESPACE} for who in accounts]
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
        head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
        documents.append({**head, "kind": "ClusterRole", "rules": rules})
        documents.append({**head, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects})
    return documents if own else []
