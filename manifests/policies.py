"""Writes ``components/admission-policies/policies.yaml``: the rules that need no state, inside the API server.

Run ``python -m manifests.policies`` after changing this file or the job kinds; ``--check`` only says by its exit status
whether the written file is up to date, ``--config FILE`` prints what to apply instead where a configuration adds job
kinds of the operator's own.

They are the webhook's rules once more, without pods, TLS or an outage: while the webhook is away (or its registration
is gone) a queued job is still born suspended and still started by nobody but the reconciler. What the webhook says
better, with numbers, stays with the webhook.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from manifests import cel, output
from manifests.cel import Family
from manifests.registrations import job_rules, rule, selector
from webhook.core.model import names
from webhook.jobs.kinds.kind import JobKind
from webhook.untyped.paths import render

TARGET: Final = Path(__file__).parent / "components" / "admission-policies" / "policies.yaml"
ACCOUNT: Final = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:tutti-reconciler"
NOT_OURS: Final = {"name": "not-by-tutti", "expression": f"request.userInfo.username != '{ACCOUNT}'"}
# Conditions know no namespaceObject (an expression that reads it there errors): it is for variables and validations.
IN_GATED: Final = f"namespaceObject.metadata.?labels[?'{names.GATED_NAMESPACE}'].orValue('false') != 'false'"
VERSION: Final = "admissionregistration.k8s.io/v1"


def policy(kind: str, name: str, rules: list[dict[str, Any]], **spec: Any) -> list[dict[str, Any]]:
    """Return a policy and the binding that puts it in force everywhere."""
    constraints = {"resourceRules": rules, "matchPolicy": "Equivalent"} | spec.pop("constraints", {})
    head = {"failurePolicy": "Fail", "matchConstraints": constraints}
    binding: dict[str, Any] = {"policyName": name}
    if kind == "ValidatingAdmissionPolicy":
        binding["validationActions"] = ["Deny"]
    return [
        {
            "apiVersion": VERSION,
            "kind": kind,
            "metadata": {"name": name},
            "spec": head | spec,
        },
        {"apiVersion": VERSION, "kind": f"{kind}Binding", "metadata": {"name": name}, "spec": binding},
    ]


def block(expression: str) -> str:
    """Return an expression as it is written into a file: several lines end with a line end."""
    return expression + "\n" if "\n" in expression else expression


def variables(**expressions: str) -> list[dict[str, str]]:
    """Return the variables of a policy, in order: later ones may use earlier ones."""
    return [{"name": name, "expression": block(expression)} for name, expression in expressions.items()]


def validation(expression: str, message: str) -> dict[str, str]:
    """Return one validation; what it refuses is forbidden, not invalid."""
    return {"expression": block(expression), "message": message, "reason": "Forbidden"}


def any_of(words: Iterable[str]) -> str:
    """Return a CEL list of texts."""
    return f"[{', '.join(repr(word) for word in words)}]"


def parents_controllers(family: Family, kinds: Iterable[JobKind]) -> list[str]:
    """Return the accounts whose objects of this family belong to a parent's gang: its JobSet, its RayJob."""
    keys = {kind.key for kind in family.kinds}
    return sorted({user for kind in kinds if kind.child_kinds & keys for user in kind.controller_users})


def born_suspended(families: Iterable[Family], kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """A job that asks for a queue is stored suspended, even when the webhook is not asked."""
    documents = []
    for family in families:
        for suspend in family.suspends:
            conditions = [
                NOT_OURS,
                {"name": "runs", "expression": f"!({cel.suspended('object', [suspend])})"},
                {
                    "name": "not-a-child",
                    "expression": f"!(request.userInfo.username in {any_of(parents_controllers(family, kinds))})",
                },
            ]
            documents += policy(
                "MutatingAdmissionPolicy",
                f"tutti-{family.name}-born-suspended",
                job_rules([family], "CREATE"),
                constraints={"namespaceSelector": selector()},
                matchConditions=conditions,
                reinvocationPolicy="IfNeeded",
                variables=variables(gated=gated("object", family)),
                mutations=[{"patchType": "JSONPatch", "jsonPatch": {"expression": block(set_suspend(suspend))}}],
            )
    return documents


def set_suspend(suspend: Sequence[str]) -> str:
    """Return the patch that suspends a gated job; parents that are absent are made."""
    return f"!variables.gated ? [] :\n{_set_below(suspend, 1)}"


def _set_below(suspend: Sequence[str], known: int) -> str:
    """Return the patch for a job that has the first ``known`` parents of its suspend field."""
    add = f"JSONPatch{{op: 'add', path: '/{'/'.join(suspend)}', value: true}}"
    parents = range(known + 1, len(suspend))
    made = [f"JSONPatch{{op: 'add', path: '/{'/'.join(suspend[:depth])}', value: {{}}}}" for depth in parents]
    if not made:
        return f"[{add}]"
    has_next = f"{cel.step('object', render(tuple(suspend[: known + 1])))}.hasValue()"
    return f"{has_next} ?\n({_set_below(suspend, known + 1)}) :\n[{', '.join([*made, add])}]"


def only_we_start(families: Iterable[Family], kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """What nobody but the reconciler may do to a gated job, whatever its size."""
    documents = []
    for family in families:
        documents += policy(
            "ValidatingAdmissionPolicy",
            f"tutti-{family.name}",
            job_rules([family], "CREATE", "UPDATE"),
            constraints={"namespaceSelector": selector()},
            matchConditions=[NOT_OURS],
            variables=job_variables(family, kinds),
            validations=[*suspend_validations(family), *job_validations()],
        )
    return documents


def gated(root: str, family: Family) -> str:
    """Return an expression: the object has to wait. What a foreign controller manages is not ours to hold."""
    asked = cel.either(IN_GATED, cel.asks(root, family))
    managers = {(kind.managed_by, name) for kind in family.kinds if kind.managed_by for name in kind.managers}
    if not managers:
        return asked
    ours = [f"{cel.step(root, render(path))}.orValue('') in ['', '{manager}']" for path, manager in sorted(managers)]
    return f"({' || '.join(ours)}) && (\n{asked}\n)"


def job_variables(family: Family, kinds: Sequence[JobKind]) -> list[dict[str, str]]:
    """Return what the validations of a family speak of."""
    queue = " : ".join(f"'{label}' in labels ? labels['{label}']" for label in names.QUEUE_LABELS) + " : ''"
    gang_labels = [gangs(it, family) for it in ("object", "oldObject")]
    return variables(
        child=f"request.userInfo.username in {any_of(parents_controllers(family, kinds))}",
        gated=gated("object", family),
        was_gated=f"oldObject != null && (\n{gated('oldObject', family)}\n)",
        runs=f"!({cel.suspended('object', family.suspends)})" if family.suspends else "true",
        ran=f"oldObject != null && !({cel.suspended('oldObject', family.suspends)})" if family.suspends else "true",
        queue=queue.replace("labels", cel.labels_of("object")),
        old_queue=f"oldObject == null ? '' : ({queue.replace('labels', cel.labels_of('oldObject'))})",
        annotations=cel.annotations_of("object"),
        old_annotations=f"oldObject == null ? {{}} : {cel.annotations_of('oldObject')}",
        gangs=gang_labels[0],
        old_gangs=f"oldObject == null ? [] : ({gang_labels[1]})",
    )


def gangs(root: str, family: Family) -> str:
    """Return an expression: the gang labels of the pod templates, as a list."""
    marked = f".filter(labels, '{names.GANG_LABEL}' in labels).map(labels, labels['{names.GANG_LABEL}'])"
    return f"({cel.template_labels(root, family)})\n{marked}"


def suspend_validations(family: Family) -> list[dict[str, str]]:
    """Return the rules on the suspend field, for kinds that have one."""
    if not family.suspends:
        return []
    return [
        validation(
            "request.operation != 'CREATE' || variables.child || !variables.gated || !variables.runs",
            "a job that waits in a queue is created suspended: set its suspend field to true, or let the webhook do so",
        ),
        validation(
            "request.operation != 'UPDATE' || variables.child || variables.ran || !variables.runs\n"
            "|| !(variables.gated || variables.was_gated)",
            "only Tutti starts a queued job, once the whole gang has room: leave its suspend field alone",
        ),
        validation(
            "request.operation != 'UPDATE' || variables.child || !variables.ran\n"
            "|| variables.queue == variables.old_queue",
            "the queue of a running job does not change: suspend it first",
        ),
    ]


def job_validations() -> list[dict[str, str]]:
    """Return the rules on what only Tutti writes into a job."""
    kept = any_of(sorted(names.OWN_ANNOTATIONS - {names.HOLD}))
    return [
        validation(
            f"variables.child || {kept}.all(key,\n  variables.annotations[?key] == variables.old_annotations[?key])",
            "the annotations of tutti.dev are written by Tutti alone",
        ),
        validation(
            # Whoever lifts a hold by un-suspending takes the annotation away with it.
            f"variables.child || !('{names.HOLD}' in variables.annotations)\n"
            f"|| variables.annotations[?'{names.HOLD}'] == variables.old_annotations[?'{names.HOLD}']",
            "the annotations of tutti.dev are written by Tutti alone",
        ),
        validation(
            "variables.child\n"
            f"|| variables.gangs.all(gang, gang == '{names.GANG_PENDING}' || gang in variables.old_gangs)",
            f"the label {names.GANG_LABEL} of a pod template is written by Tutti alone",
        ),
    ]


def ledger() -> list[dict[str, Any]]:
    """The ledger has one writer. Deleting it stays possible: that is how an administrator breaks the glass."""
    return policy(
        "ValidatingAdmissionPolicy",
        "tutti-ledger",
        [rule("", ["configmaps"], ["CREATE", "UPDATE"]) | {"resourceNames": [names.LEDGER_NAME]}],
        constraints={"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": names.SYSTEM_NAMESPACE}}},
        matchConditions=[NOT_OURS],
        validations=[
            validation("false", "the ledger is written by tutti-reconciler alone; delete it to have it rebuilt")
        ],
    )


def gang_pods(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """Members of gangs are made by the controllers of job kinds and stay members as they were made."""
    controllers = any_of(sorted({user for kind in kinds for user in kind.controller_users}))
    before = f"oldObject == null ? optional.none() : oldObject.metadata.?labels[?'{names.GANG_LABEL}']"
    gate = f"{{root}}.spec.?schedulingGates.orValue([]).exists(gate, gate.name == '{names.SCHEDULING_GATE}')"
    return policy(
        "ValidatingAdmissionPolicy",
        "tutti-gang-pods",
        [rule("", ["pods"], ["CREATE", "UPDATE"])],
        constraints={
            "namespaceSelector": selector(),
            "objectSelector": {"matchExpressions": [{"key": names.GANG_LABEL, "operator": "Exists"}]},
        },
        matchConditions=[NOT_OURS],
        variables=variables(
            gang=f"object.metadata.?labels[?'{names.GANG_LABEL}']",
            old_gang=before,
        ),
        validations=[
            validation(
                f"request.operation != 'CREATE' || {gate.format(root='object')}\n"
                f"|| request.userInfo.username in {controllers}",
                "pods of a gang are made by the controller of its job, or wait behind its gate",
            ),
            validation(
                "request.operation != 'CREATE' || object.spec.?nodeName.orValue('') == ''",
                "a pod of a gang is placed by the scheduler: leave spec.nodeName empty",
            ),
            validation(
                "request.operation != 'UPDATE' || variables.gang == variables.old_gang",
                f"the label {names.GANG_LABEL} of a pod does not change",
            ),
            validation(
                f"request.operation != 'UPDATE' || {gate.format(root='object')} || !{gate.format(root='oldObject')}",
                f"the scheduling gate {names.SCHEDULING_GATE} is lifted by Tutti alone",
            ),
        ],
    )


def namespace_labels() -> list[dict[str, Any]]:
    """Taking a namespace out of Tutti's sight is a matter of its own, beside editing it: the verb ``ungate``.

    Adding a label only closes gates, and is left to whoever may edit the namespace. Another value is a matter of that
    right too: by its value the reconciler knows which label it may take away.
    """
    labels = any_of([names.FENCED_NAMESPACE, names.GATED_NAMESPACE])
    allowed = "authorizer.group('').resource('namespaces').name(object.metadata.name).check('ungate').allowed()"
    return policy(
        "ValidatingAdmissionPolicy",
        "tutti-namespace-gates",
        [rule("", ["namespaces"], ["UPDATE"])],
        matchConditions=[
            NOT_OURS,
            {
                "name": "was-gated",
                "expression": f"{labels}.exists(key, oldObject.metadata.?labels[?key].orValue('false') != 'false')",
            },
        ],
        validations=[
            validation(
                f"{labels}.all(key, oldObject.metadata.?labels[?key].orValue('false') == 'false'\n"
                "  || object.metadata.?labels[?key].orValue('false') == oldObject.metadata.labels[key])\n"
                f"|| {allowed}",
                "removing or changing tutti.dev/gated or tutti.dev/fenced needs the right to ungate the namespace",
            )
        ],
    )


def documents(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """Return all policies and their bindings."""
    families = cel.families(kinds)
    return [
        *born_suspended(families, kinds),
        *only_we_start(families, kinds),
        *gang_pods(kinds),
        *ledger(),
        *namespace_labels(),
    ]


if __name__ == "__main__":
    sys.exit(output.run(documents, TARGET, "manifests.policies", __doc__))
