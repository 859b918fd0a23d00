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
from manifests.rules import classified, job_rules, rule, selector
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading.ours import OWN_ANNOTATIONS, OWN_LABELS
from webhook.server.review.resources_table import Handling
from webhook.server.review.settings import ReviewSettings
from webhook.untyped.paths import render

TARGET: Final = Path(__file__).parent / "components" / "admission-policies" / "policies.yaml"
ACCOUNT: Final = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:tutti-reconciler"
NOT_OURS: Final = {"name": "not-by-tutti", "expression": f"request.userInfo.username != '{ACCOUNT}'"}
# Conditions know no namespaceObject (an expression that reads it there errors): it is for variables and validations.
IN_GATED: Final = f"namespaceObject.metadata.?labels[?'{names.GATED_NAMESPACE}'].orValue('false') != 'false'"
BY_HAND: Final = f"namespaceObject.metadata.?labels[?'{names.GATED_NAMESPACE}'].orValue('') == 'true'"
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
            validations=[*suspend_validations(family), *joining_validations(), *job_validations()],
        )
    return documents


def gated(root: str, family: Family) -> str:
    """Return an expression: the object has to wait. What a foreign controller manages is not ours to hold."""
    asked = cel.either(IN_GATED, cel.asks(root, family))
    ours = managed_by_ours(root, family)
    return asked if ours == "true" else f"({ours}) && (\n{asked}\n)"


def managed_by_ours(root: str, family: Family) -> str:
    """Return an expression: no controller other than the kind's ordinary one is named."""
    managers = {(kind.managed_by, name) for kind in family.kinds if kind.managed_by for name in kind.managers}
    ours = [f"{cel.step(root, render(path))}.orValue('') in ['', '{manager}']" for path, manager in sorted(managers)]
    return " || ".join(ours) or "true"


def job_variables(family: Family, kinds: Sequence[JobKind]) -> list[dict[str, str]]:
    """Return what the validations of a family speak of."""
    queue = " : ".join(f"labels[?'{label}'].orValue('') != '' ? labels['{label}']" for label in names.QUEUE_LABELS)
    queue += " : ''"
    gangs, sets = (
        [cel.template_values(it, family, key) for it in ("object", "oldObject")]
        for key in (names.GANG_LABEL, names.POD_SET_LABEL)
    )
    return variables(
        child=f"request.userInfo.username in {any_of(parents_controllers(family, kinds))}",
        by_hand=BY_HAND,
        ours=managed_by_ours("object", family),
        gated=gated("object", family),
        was_gated=f"oldObject != null && (\n{gated('oldObject', family)}\n)",
        runs=f"!({cel.suspended('object', family.suspends)})" if family.suspends else "true",
        ran=f"oldObject != null && !({cel.suspended('oldObject', family.suspends)})" if family.suspends else "true",
        queue=queue.replace("labels", cel.labels_of("object")),
        old_queue=f"oldObject == null ? '' : ({queue.replace('labels', cel.labels_of('oldObject'))})",
        labels=cel.labels_of("object"),
        old_labels=f"oldObject == null ? {{}} : {cel.labels_of('oldObject')}",
        annotations=cel.annotations_of("object"),
        old_annotations=f"oldObject == null ? {{}} : {cel.annotations_of('oldObject')}",
        gangs=gangs[0],
        old_gangs=f"oldObject == null ? [] : ({gangs[1]})",
        sets=sets[0],
        old_sets=f"oldObject == null ? [] : ({sets[1]})",
    )


def suspend_validations(family: Family) -> list[dict[str, str]]:
    """Return the rules on the suspend field, for kinds that have one."""
    if not family.suspends:
        return []
    paused = [kind.kind for kind in family.kinds if kind.suspend and not kind.evictable]
    # Suspended by its owner it keeps its room. What has ended bears the note too: the reconciler suspends that again.
    resumes = (
        f"\n|| object.kind in {any_of(paused)} && '{names.ADMISSION}' in variables.old_annotations" if paused else ""
    )
    return [
        validation(
            "request.operation != 'CREATE' || variables.child || !variables.gated || !variables.runs",
            "a job that waits in a queue is created suspended: set its suspend field to true, or let the webhook do so",
        ),
        validation(
            "request.operation != 'UPDATE' || variables.child || variables.ran || !variables.runs\n"
            f"|| !(variables.gated || variables.was_gated || variables.old_gangs.size() > 0){resumes}",
            "only Tutti starts a queued job, once the whole gang has room: leave its suspend field alone",
        ),
        validation(
            "request.operation != 'UPDATE' || variables.child || !variables.ran\n"
            "|| variables.queue == variables.old_queue",
            "the queue of a running job cannot change: suspend the job first",
        ),
    ]


def joining_validations() -> list[dict[str, str]]:
    """Return the rules on becoming a job that waits, and on ceasing to be one."""
    return [
        validation(
            "request.operation != 'UPDATE' || variables.child || !variables.gated || variables.was_gated\n"
            "|| !(variables.runs || variables.ran)",
            "a running job cannot begin to wait in a queue: suspend it first, or create it again",
        ),
        validation(
            "request.operation != 'UPDATE' || variables.child || !variables.was_gated || variables.ours",
            "a job that waits in a queue cannot be given to another controller: create it again with managedBy",
        ),
        validation(
            "request.operation != 'UPDATE' || variables.child || !variables.by_hand || variables.old_queue == ''\n"
            "|| variables.queue != ''",
            "in a namespace where all jobs wait a job may change its queue, but not leave it",
        ),
        validation(
            "request.operation != 'UPDATE' || variables.child || variables.old_gangs.size() == 0\n"
            "|| !variables.was_gated || variables.gated || object.metadata.?deletionTimestamp.hasValue()",
            "a job that waits may name another queue, but not none: nothing would start it",
        ),
    ]


def job_validations() -> list[dict[str, str]]:
    """Return the rules on what only Tutti writes into a job."""
    kept = any_of(sorted(OWN_ANNOTATIONS - {names.HOLD, names.MANAGED_BY}))
    placed = [f"variables.{it}[?'{names.MANAGED_BY}']" for it in ("annotations", "old_annotations")]
    return [
        validation(
            f"variables.child || {kept}.all(key,\n  variables.annotations[?key] == variables.old_annotations[?key])",
            "the annotations of tutti.dev are written only by Tutti",
        ),
        validation(
            # The webhook of a hub writes it when the job is made; elsewhere it means nothing.
            f"request.operation == 'CREATE' || variables.child || {placed[0]} == {placed[1]}",
            "the annotations of tutti.dev are written only by Tutti",
        ),
        validation(
            # Whoever lifts a hold by un-suspending takes the annotation away with it.
            f"variables.child || !('{names.HOLD}' in variables.annotations)\n"
            f"|| variables.annotations[?'{names.HOLD}'] == variables.old_annotations[?'{names.HOLD}']",
            "the annotations of tutti.dev are written only by Tutti",
        ),
        validation(
            # Of a Job without labels of its own the API server makes copies of its template's.
            f"variables.child || {any_of(sorted(OWN_LABELS))}.all(key,\n"
            "  variables.labels[?key] == variables.old_labels[?key]\n"
            "  || variables.labels[?key].orValue('') in variables.gangs + variables.sets)",
            "the labels of tutti.dev for pod templates are written only by Tutti, and only there",
        ),
        validation(
            "variables.child\n"
            f"|| variables.gangs.all(gang, variables.gated && gang == '{names.GANG_PENDING}'\n"
            f"  || variables.gated && variables.queue == '' && gang == '{names.GANG_PENDING_IN_NAMESPACE}'\n"
            "  || gang in variables.old_gangs) && variables.old_gangs.all(gang, gang in variables.gangs)",
            f"the label {names.GANG_LABEL} of a pod template is written only by Tutti",
        ),
        validation(
            "variables.child || variables.sets.all(name, variables.gated || name in variables.old_sets)",
            f"the label {names.POD_SET_LABEL} of a pod template is written only by Tutti",
        ),
    ]


def marked_elsewhere(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """What cannot wait bears no label of a gang, except where a gang's controller makes it, or a copy of its template.

    A Deployment of an AppWrapper, and its ReplicaSets.
    """
    writers = {user for kind in kinds for user in kind.controller_users} | ReviewSettings().template_copiers
    return policy(
        "ValidatingAdmissionPolicy",
        "tutti-marked-elsewhere",
        classified(Handling.WARN),
        constraints={"namespaceSelector": selector()},
        matchConditions=[NOT_OURS, {"name": "newly-marked", "expression": block(cel.marked_elsewhere())}],
        validations=[
            validation(
                f"request.userInfo.username in {any_of(sorted(writers))}",
                "the labels of tutti.dev for pod templates are written only by Tutti, on what waits for it",
            )
        ],
    )


def marked_pods() -> list[dict[str, Any]]:
    """A pod of no gang bears nothing that Tutti alone writes."""
    labels = any_of(sorted(OWN_LABELS))
    return policy(
        "ValidatingAdmissionPolicy",
        "tutti-marked-pods",
        [rule("", ["pods"], ["CREATE", "UPDATE"])],
        constraints={
            "namespaceSelector": selector(),
            "objectSelector": {
                "matchExpressions": [
                    {"key": names.POD_SET_LABEL, "operator": "Exists"},
                    {"key": names.GANG_LABEL, "operator": "DoesNotExist"},
                ]
            },
        },
        matchConditions=[NOT_OURS],
        validations=[
            validation(
                f"oldObject != null && {labels}.all(key,\n"
                "  object.metadata.?labels[?key] == oldObject.metadata.?labels[?key])",
                f"the labels {' and '.join(sorted(OWN_LABELS))} of a pod are written only by Tutti",
            )
        ],
    )


def ledger() -> list[dict[str, Any]]:
    """The ledger has one writer. Deleting it stays possible: that is how an administrator breaks the glass."""
    of_the_ledger = (
        f"object.metadata.?name.orValue('').matches('^{names.LEDGER_NAME}($|-page-)')\n"
        f"|| '{names.LEDGER_PAGE}' in object.metadata.?labels.orValue({{}})\n"
        f"|| (oldObject != null && '{names.LEDGER_PAGE}' in oldObject.metadata.?labels.orValue({{}}))"
    )
    return policy(
        "ValidatingAdmissionPolicy",
        "tutti-ledger",
        [rule("", ["configmaps"], ["CREATE", "UPDATE"])],
        constraints={"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": names.SYSTEM_NAMESPACE}}},
        matchConditions=[NOT_OURS, {"name": "index-or-page", "expression": block(of_the_ledger)}],
        validations=[validation("false", "only tutti-reconciler writes the ledger; delete it to have it rebuilt")],
    )


def gang_pods(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """Members of gangs are made by the controllers of job kinds and stay members as they were made."""
    controllers = any_of(sorted({user for kind in kinds for user in kind.controller_users}))
    own = any_of(sorted(OWN_ANNOTATIONS))
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
            annotations=cel.annotations_of("object"),
            old_annotations=f"oldObject == null ? {{}} : {cel.annotations_of('oldObject')}",
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
                f"request.operation == 'CREATE' && request.userInfo.username in {controllers}\n"
                f"|| {own}.all(key, variables.annotations[?key] == variables.old_annotations[?key])",
                "the annotations of tutti.dev are written only by Tutti",
            ),
            validation(
                f"request.operation != 'UPDATE' || object.metadata.?labels[?'{names.POD_SET_LABEL}']\n"
                f"== oldObject.metadata.?labels[?'{names.POD_SET_LABEL}']",
                f"the label {names.POD_SET_LABEL} of a pod cannot change",
            ),
            validation(
                "request.operation != 'CREATE' || object.spec.?nodeName.orValue('') == ''",
                "a pod of a gang is placed by the scheduler: leave spec.nodeName empty",
            ),
            validation(
                "request.operation != 'UPDATE' || variables.gang == variables.old_gang",
                f"the label {names.GANG_LABEL} of a pod cannot change",
            ),
            validation(
                f"request.operation != 'UPDATE' || {gate.format(root='object')} || !{gate.format(root='oldObject')}",
                f"only Tutti lifts the scheduling gate {names.SCHEDULING_GATE}",
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
        *marked_elsewhere(kinds),
        *marked_pods(),
        *ledger(),
        *namespace_labels(),
    ]


if __name__ == "__main__":
    sys.exit(output.run(documents, TARGET, "manifests.policies", __doc__))
