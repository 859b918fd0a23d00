"""Writes ``components/fleet-hub`` and ``components/fleet-member``: what ``tutti hub`` may do at home and in members.

At home its account is held to jobs that it places, and there to its record and the status: a stolen token changes no
image, account or size. In a member it is held to copies: it creates them suspended and marked, changes nothing of one
but its permit, and deletes nothing else. What jobs refer to it makes and changes there only with the mark of a hub and
in the hands of a copy, and deletes none of it. What RBAC cannot say of this policies do, inside the API servers.

Run ``python -m manifests.fleet`` after changing this file or the job kinds.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from manifests import cel, output
from manifests.cel import Family
from manifests.rules import BY_DRAINER
from webhook.core.notation import names
from webhook.fleet import lost
from webhook.fleet.jobs.dependencies import bringing, dependency
from webhook.fleet.policies import multikueue, propagation
from webhook.jobs.kinds.kind import JobKind

COMPONENTS: Final = Path(__file__).parent / "components"
HUB: Final = COMPONENTS / "fleet-hub" / "rights.yaml"
MEMBER: Final = COMPONENTS / "fleet-member" / "rights.yaml"
ACCOUNT: Final = "tutti-hub"
USER: Final = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{ACCOUNT}"
_READ: Final = ["get", "list", "watch"]
_RBAC: Final = "rbac.authorization.k8s.io"
_POLICY: Final = "tutti-hub-copies-only"
_HOME: Final = "tutti-hub-dispatches"
_BROUGHT: Final = "tutti-hub-brings-only"
_GIVEN: Final = [dependency.PLURALS[kind] for kind in (dependency.CONFIG_MAP, dependency.SERVICE_ACCOUNT)]
_SECRETS: Final = [dependency.PLURALS[dependency.SECRET]]
Document = dict[str, Any]
Rules = list[tuple[str, str]]
"""What has to hold, and what is said where it does not."""


def in_hub(kinds: Sequence[JobKind]) -> list[Document]:
    """What it may do where jobs are submitted: read them, keep its record on them, show their status."""
    rules = []
    for family in placed(kinds):
        plurals = plurals_of(family)
        rules.append(_rule(family.group, plurals, [*_READ, "patch"]))
        rules.append(_rule(family.group, [f"{plural}/status" for plural in plurals], ["patch"]))
    return [
        _account(),
        *_given("ClusterRole", [*rules, *_policies(), *_set_up(), _rule("", ["events"], ["create"]), _kube_system()]),
        *_given("Role", [{**_rule("", ["configmaps"], ["get", "patch"]), "resourceNames": [lost.LOST, lost.SILENT]}]),
        *(_object("v1", "ConfigMap", name, namespaced=True) for name in (lost.LOST, lost.SILENT)),
        *_brings(["get"]),
        *_read_checks(),
        *_dispatches(kinds),
    ]


def in_member(kinds: Sequence[JobKind]) -> list[Document]:
    """What it may do where jobs run: copies, and reading what proves that nothing of one is left."""
    rules = [_rule(family.group, plurals_of(family), [*_READ, "create", "patch", "delete"]) for family in placed(kinds)]
    rules += [_rule("", ["pods"], ["get", "list"]), _rule("", ["events"], ["list"]), _kube_system()]
    ledger = [_rule("", ["configmaps"], _READ)]
    lease = [_rule("coordination.k8s.io", ["leases"], ["get", "create", "patch"])]
    heard = [_rule("coordination.k8s.io", ["leases"], ["list", "patch"])]
    return [
        _account(),
        *_given("ClusterRole", rules),
        *_given("Role", [*ledger, *lease]),
        *_given("Role", heard, "tutti-hears-hubs", "tutti-reconciler"),
        *_brings(["get", "create", "patch"]),
        *_copies_only(kinds),
        *_brings_only(kinds),
    ]


def _dispatches(kinds: Sequence[JobKind]) -> list[Document]:
    """Who writes where a gang is, and what the account that does may write beside it."""
    by_hub = f"request.userInfo.username == '{USER}'"
    by_others = f"request.userInfo.username != '{USER}'"
    judged = [(by_others, _own_record()), (by_hub, _records_only(kinds))]
    # Of a built-in kind the API server stores annotations and finalizers that come with the status.
    return _policy(_HOME, _of_kinds(kinds, ["CREATE", "UPDATE"], ("", "/status")), judged)


def _own_record() -> Rules:
    """Where a gang is decides what it holds in the hub, and whether it may be placed again: nobody else writes that.

    That a hub places a job is written when it is made, by the hub's webhook, and stays: a member may have it.
    """
    kept = [f"'{names.DISPATCH}' in {it}.?metadata.?finalizers.orValue([])" for it in ("object", "oldObject")]
    told = [f"{cel.annotations_of(it)}[?'{names.DISPATCH}']" for it in ("object", "oldObject")]
    rule = (
        f"request.operation == 'CREATE' ? !({told[0]}.hasValue()) && !({kept[0]})\n"
        f": {told[0]} == {told[1]} && ({kept[0]}) == ({kept[1]})"
    )
    placed = [f"{cel.annotations_of(it)}[?'{names.MANAGED_BY}']" for it in ("object", "oldObject")]
    stays = f"request.operation == 'CREATE' || {placed[0]} == {placed[1]}"
    return [
        (f"({rule})\n|| {BY_DRAINER}", f"only the fleet's hub writes {names.DISPATCH}"),
        (f"{stays}\n|| {BY_DRAINER}", f"{names.MANAGED_BY} is written when a job is made, and stays"),
    ]


def _records_only(kinds: Sequence[JobKind]) -> Rules:
    """Of a job that it places the hub writes its record and the status. What says so is what the webhook is not asked
    about (``cel.records_only``), and by what the hub itself knows its jobs (``placed_by_hub``).
    """
    ours = sorted({cel.placed_by("oldObject", kind) for kind in kinds if kind.dispatchable})
    managed = " || ".join(f"{place}.orValue('') == '{names.HUB_MANAGER}'" for place in ours)
    same = "\n&& ".join(cel.same_but_status())
    by_status = "request.?subResource.orValue('') == 'status'"
    record = f"object.?status == oldObject.?status\n&& {cel.records_only()}"
    return [
        (f"request.operation == 'UPDATE' && ({managed})", f"the account {ACCOUNT} writes only on jobs that it places"),
        (
            f"{by_status} ? (\n{same}\n) : (\n{record}\n)",
            f"the account {ACCOUNT} changes nothing of a job but {names.DISPATCH} and the status",
        ),
    ]


def _copies_only(kinds: Sequence[JobKind]) -> list[Document]:
    labels, before = cel.labels_of("object"), cel.labels_of("oldObject")
    notes, noted = cel.annotations_of("object"), cel.annotations_of("oldObject")
    # Either mark will do: a tenant of the member takes the other off, and his job stays the hub's to stop.
    copy = f"'{names.ORIGIN_LABEL}' in {before} || '{names.OFFER}' in {noted}"
    same = [*cel.same_but(names.PERMIT), "object.metadata.?finalizers == oldObject.metadata.?finalizers"]
    made = [
        f"'{names.ORIGIN_LABEL}' in {labels}",
        f"'{names.OFFER}' in {notes}",
        f"!('{names.PERMIT}' in {notes})",
        f"({cel.suspended('object', sorted({kind.suspend for kind in kinds if kind.dispatchable and kind.suspend}))})",
    ]
    validations = [
        (
            f"request.operation == 'CREATE' || {copy}",
            "a hub changes and deletes only copies",
        ),
        (
            f"request.operation != 'CREATE' || ({' && '.join(made)})",
            "a hub creates only copies: suspended, marked as such, without a permit",
        ),
        (f"request.operation != 'UPDATE' || ({' && '.join(same)})", "a hub changes nothing of a copy but its permit"),
    ]
    by_hub = f"request.userInfo.username == '{USER}'"
    return _policy(_POLICY, _of_kinds(kinds, ["CREATE", "UPDATE", "DELETE"]), [(by_hub, validations)])


def _brings(verbs: list[str]) -> list[Document]:
    """What it may do with what jobs refer to, where a propagation policy says ``propagateDeps``.

    Whoever does not want that deletes the binding. The role for Secrets is bound by nobody: an administrator does so,
    namespace by namespace.
    """
    secrets = _object(f"{_RBAC}/v1", "ClusterRole", bringing.SECRETS_ROLE, rules=[_rule("", _SECRETS, verbs)])
    return [*_given("ClusterRole", [_rule("", _GIVEN, verbs)], bringing.ROLE), secrets]


def _brings_only(kinds: Sequence[JobKind]) -> list[Document]:
    """A stolen token writes on nothing that a member has of its own, the ledger first of all, and gets itself no token
    of a ServiceAccount by a Secret.
    """
    owners, before = cel.references_of("object"), cel.references_of("oldObject")
    listed = ", ".join(f"'{kind.kind}.{kind.group}'" for family in placed(kinds) for kind in family.kinds)
    of_a_copy = f"owner.kind + '.' + owner.apiVersion.split('/')[0] in [{listed}]"
    # Each is one word: a list that says the same with fewer owners would be taken for the list before it.
    a_word = " && ".join(f"!owner.{part}.contains(' ')" for part in ("apiVersion", "kind", "name", "uid"))
    waits_not = "!owner.?controller.orValue(false) && !owner.?blockOwnerDeletion.orValue(false)"
    # One text of each: compared one with another, a few hundred owners would cost more than is evaluated.
    each = "owner.apiVersion + ' ' + owner.kind + ' ' + owner.name + ' ' + owner.uid + ' '"
    now, was = (f"{it}.map(owner, {each}).join('')" for it in (owners, before))
    mark, marked = (f"{cel.labels_of(it)}[?'{names.ORIGIN_LABEL}']" for it in ("object", "oldObject"))
    kept = "object.metadata.?finalizers"
    validations = [
        (
            f"request.namespace != '{names.SYSTEM_NAMESPACE}' && !request.namespace.startsWith('kube-')",
            "a hub brings nothing into a namespace of the system",
        ),
        (
            f"{mark}.hasValue() && (request.operation == 'CREATE' || {mark} == {marked})",
            "a hub makes and changes only what is marked as brought by it",
        ),
        (
            f"{owners}.size() > 0\n&& {owners}.all(owner, {of_a_copy}\n&& {waits_not} && {a_word})",
            "what a hub brings belongs to copies",
        ),
        (
            f"request.operation == 'CREATE' || {now}.startsWith(\n{was})",
            "a hub takes what it has brought from no copy",
        ),
        (
            f"request.operation == 'CREATE' ? !{kept}.hasValue() : {kept} == oldObject.metadata.?finalizers",
            "a hub writes no finalizer on what it brings",
        ),
        (
            f"request.resource.resource != 'secrets' || object.?type.orValue('') != '{dependency.TOKEN}'",
            "a hub asks for no token of a ServiceAccount",
        ),
    ]
    by_hub = f"request.userInfo.username == '{USER}'"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": sorted([*_GIVEN, *_SECRETS]),
    }
    return _policy(_BROUGHT, [rule], [(by_hub, validations)])


# -- parts ------------------------------------------------------------------------------------------------------------


def placed(kinds: Sequence[JobKind]) -> list[Family]:
    """Return the kinds that a hub places, by group."""
    return cel.families(kind for kind in kinds if kind.dispatchable)


def plurals_of(family: Family) -> list[str]:
    """Return the resources of a group, each once."""
    return sorted({kind.plural for kind in family.kinds})


def _of_kinds(kinds: Sequence[JobKind], operations: list[str], parts: Sequence[str] = ("",)) -> list[Document]:
    """Return the rules for requests of the kinds that a hub places; ``parts`` are their subresources, the objects
    themselves being ``""``.
    """
    return [
        {
            "apiGroups": [family.group],
            "apiVersions": ["*"],
            "operations": operations,
            "resources": [f"{plural}{part}" for plural in plurals_of(family) for part in parts],
        }
        for family in placed(kinds)
    ]


def _policy(name: str, rules: list[Document], judged: Sequence[tuple[str, Rules]]) -> list[Document]:
    """Return a policy for the requests that the ``rules`` name, and its binding.

    ``judged``: of whose requests it judges, and by what. What is refused is said in the one condition as well: of what
    meets it the API server makes three copies more, and a hub writes all the time.
    """
    refused = " ||\n".join(
        f"{by} && !(\n{f'{chr(10)}&& '.join(f'({rule})' for rule, _ in validations)}\n)" for by, validations in judged
    )
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "refused", "expression": f"{refused}\n"}],
        "validations": [
            {"expression": f"!({by}) || (\n{rule}\n)\n", "message": message}
            for by, validations in judged
            for rule, message in validations
        ],
    }
    group = "admissionregistration.k8s.io"
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        _object(f"{group}/v1", "ValidatingAdmissionPolicy", name, spec=spec),
        _object(f"{group}/v1", "ValidatingAdmissionPolicyBinding", name, spec=binding),
    ]


def _rule(group: str, resources: list[str], verbs: list[str]) -> Document:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _policies() -> list[Document]:
    groups = [version.partition("/")[0] for version in propagation.VERSIONS]
    return [_rule(group, list(propagation.PLURALS), _READ) for group in groups]


def _set_up() -> list[Document]:
    """What it reads of MultiKueue's objects, and where it says what has become of them."""
    told = [f"{plural}/status" for plural in ("admissionchecks", "multikueueclusters")]
    return [_rule(multikueue.GROUP, list(multikueue.READERS), _READ), _rule(multikueue.GROUP, told, ["patch"])]


def _read_checks() -> list[Document]:
    """What the hub's own Tutti reads beside what it reads in any cluster: a queue that names a check waits for it."""
    name = "tutti-hub-checks"
    accounts = ("tutti-reconciler", "tutti-webhook")
    subjects = [{"kind": "ServiceAccount", "name": who, "namespace": names.SYSTEM_NAMESPACE} for who in accounts]
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    return [
        _object(f"{_RBAC}/v1", "ClusterRole", name, rules=[_rule(multikueue.GROUP, ["admissionchecks"], _READ)]),
        _object(f"{_RBAC}/v1", "ClusterRoleBinding", name, roleRef=role, subjects=subjects),
    ]


def _kube_system() -> Document:
    return {**_rule("", ["namespaces"], ["get"]), "resourceNames": ["kube-system"]}


def _account() -> Document:
    return _object("v1", "ServiceAccount", ACCOUNT, namespaced=True)


def _given(kind: str, rules: list[Document], name: str = ACCOUNT, account: str = ACCOUNT) -> list[Document]:
    """Return a role for an account, and its binding."""
    namespaced = kind == "Role"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": names.SYSTEM_NAMESPACE}
    role = {"apiGroup": _RBAC, "kind": kind, "name": name}
    return [
        _object(f"{_RBAC}/v1", kind, name, namespaced=namespaced, rules=rules),
        _object(f"{_RBAC}/v1", f"{kind}Binding", name, namespaced=namespaced, roleRef=role, subjects=[subject]),
    ]


def _object(version: str, kind: str, name: str, *, namespaced: bool = False, **fields: Any) -> Document:
    metadata = {"name": name, **({"namespace": names.SYSTEM_NAMESPACE} if namespaced else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


if __name__ == "__main__":
    sys.exit(
        output.run(in_hub, HUB, "manifests.fleet", __doc__) or output.run(in_member, MEMBER, "manifests.fleet", __doc__)
    )
