"""Writes ``components/right-to-use/policies.yaml``: who may use a ClusterQueue or a priority class, as a right in RBAC.

The verb is ``use``, on ``clusterqueues`` and ``workloadpriorityclasses`` of Kueue's group and on ``priorityclasses``,
in the namespace of what uses it: a RoleBinding gives it to one namespace, a ClusterRoleBinding to all. ``open.yaml``
beside it gives everybody everything, so that nothing changes until that binding is deleted. What a controller creates
for somebody is judged by what the namespace's service account ``default`` may use, but for the parts of a gang, which
was judged as a whole. CEL cannot list what a user may use instead. So beside each policy that refuses stands one that
the API server evaluates once for each ClusterQueue or class that there is: it warns of those that may be used.

Run ``python -m manifests.rights_to_use`` after changing this file or the job kinds.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from manifests import cel, output
from manifests.cel import Family
from manifests.policies import NOT_OURS, any_of, block, parents_controllers, policy, validation, variables
from manifests.rules import job_rules, rule, selector
from webhook.core.notation import names
from webhook.dialects.kueue import objects as kueue
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.shipped import APPWRAPPER, ENTRIES, TRAINJOB
from webhook.untyped.paths import render

Rules = list[dict[str, Any]]
TARGET: Final = Path(__file__).parent / "components" / "right-to-use" / "policies.yaml"
ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    # Where kinds without pod templates name priority classes. Argo's podSpecPatch is text that CEL cannot read, and an
    # AppWrapper may say that the pods of a kind that nobody knows are anywhere in it.
    "SparkApplication.sparkoperator.k8s.io": (
        "spec.batchSchedulerOptions.priorityClassName",
        "spec.driver.priorityClassName",
        "spec.driver.template.spec.priorityClassName",
        "spec.executor.priorityClassName",
        "spec.executor.template.spec.priorityClassName",
    ),
    "Workflow.argoproj.io": (
        "spec.podPriorityClassName",
        "spec.templateDefaults.priorityClassName",
        "spec.templates[*].priorityClassName",
    ),
}
_CLASS: Final = "spec.priorityClassName"
_LABELLED: Final = {"matchExpressions": [{"key": names.PRIORITY_CLASS_LABEL, "operator": "Exists"}]}
_WRAPPED: Final = "spec.components[*].template"
_RUNTIME: Final = "spec.template.spec.replicatedJobs[*].template.spec.template"
_OWN_ACCOUNTS: Final = "'system:serviceaccount:' + request.namespace + ':'"
_FOR_OTHERS: Final = (
    "request.userInfo.username.startsWith('system:serviceaccount:')\n"
    f"&& !request.userInfo.username.startsWith({_OWN_ACCOUNTS})"
)
_ACTOR: Final = "(variables.for_others ? 'the service account default' : request.userInfo.username)"
_WHO: Final = "variables.for_others ? authorizer.serviceAccount(request.namespace, 'default') : authorizer"

_PODS: Final = [
    {"name": "of-a-gang", "expression": cel.one_of([names.GANG_LABEL], cel.labels_of("object"))},
    {
        # What gated jobs make bears the pod set that it is of: the job was judged.
        "name": "by-itself",
        "expression": f"!({cel.one_of([names.POD_SET_LABEL], cel.labels_of('object'))}\n&& {_FOR_OTHERS})",
    },
    NOT_OURS,
]
POLICY: Final = "ValidatingAdmissionPolicy"
ROOTS: Final = ("object", "oldObject")
CLASSES_MAX: Final = 4
"""How many different PriorityClasses the pod templates of one job may name."""


@dataclass(frozen=True, slots=True)
class Used:
    """A kind of object whose use is a right."""

    kind: str
    group: str
    version: str
    resource: str


CLUSTER_QUEUE: Final = Used("ClusterQueue", kueue.GROUP, f"{kueue.GROUP}/v1beta2", "clusterqueues")
WORKLOAD_PRIORITY_CLASS: Final = Used(
    "WorkloadPriorityClass", kueue.GROUP, f"{kueue.GROUP}/v1beta2", "workloadpriorityclasses"
)
PRIORITY_CLASS: Final = Used("PriorityClass", "scheduling.k8s.io", "scheduling.k8s.io/v1", "priorityclasses")


def may_use(used: Used, name: str) -> str:
    """Return an expression: whoever is judged has the right to use one object."""
    asked = f"variables.who.group('{used.group}').resource('{used.resource}').namespace(request.namespace)"
    return f"{asked}.name({name}).check('use').allowed()"


def rights(
    name: str, used: Used, rules: Rules, named: Mapping[str, str], most: int = 1, **spec: Any
) -> list[dict[str, Any]]:
    """Return the policy that what an object names may be used, and the one that tells what may be used instead.

    The last expression of ``named`` is a list of names, of which ``most`` different ones are judged. A check of a right
    costs so much that the API server allows two in an expression: each name is an expression of its own.
    """
    found = dict(named)
    (rest, *_) = reversed(found)
    for number in range(most):
        first = f"variables.name_{number}"
        found[f"name_{number}"] = f"variables.{rest}.size() == 0 ? '' : variables.{rest}[0]"
        found[f"may_{number}"] = f"{first} == '' || {may_use(used, first)}"
        found[f"rest_{number}"] = f"variables.{rest}.filter(name, name != {first})"
        rest = f"rest_{number}"
    few = validation(f"variables.{rest}.size() == 0", f"an object names at most {most} different {used.kind} objects")
    spec["variables"] = variables(for_others=_FOR_OTHERS, who=_WHO, **found)
    judged = [_refused(used, number) for number in range(most)]
    refusing = policy(POLICY, f"tutti-use-{name}", rules, **spec, validations=[*judged, few])
    telling = policy(POLICY, f"tutti-usable-{name}", rules, **spec, validations=[_told(used, most)])
    return [*refusing, *_for_each(used, telling)]


def _refused(used: Used, number: int) -> dict[str, str]:
    return {
        "expression": f"variables.may_{number}",
        "messageExpression": block(
            f"{_ACTOR} + ' may not use {used.kind} ' + variables.name_{number} + ' in namespace ' + request.namespace\n"
            f"+ ': it needs the verb use on {used.resource}.{used.group}; warnings name each that may be used'"
        ),
        "reason": "Forbidden",
    }


def _told(used: Used, most: int) -> dict[str, str]:
    """Return the validation that fails, as a warning, where a name is refused and ``params`` would not be."""
    allowed = " && ".join(f"variables.may_{number}" for number in range(most))
    return {
        "expression": block(f"{allowed}\n|| !{may_use(used, 'params.metadata.name')}"),
        "messageExpression": f"{_ACTOR} + ' may use {used.kind} ' + params.metadata.name",
    }


def _for_each(used: Used, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Evaluate a policy once for each object of a kind, to warn. It refuses nothing, also where the kind is unknown."""
    told, binding = documents
    told["spec"] |= {"failurePolicy": "Ignore", "paramKind": {"apiVersion": used.version, "kind": used.kind}}
    binding["spec"] |= {
        "validationActions": ["Warn"],
        "paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"},
    }
    return [told, binding]


def cluster_queues() -> list[dict[str, Any]]:
    """A LocalQueue leads to a ClusterQueue that its author may use."""
    now, before = (f"{root}.?spec.?clusterQueue.orValue('')" for root in ("object", "oldObject"))
    return rights(
        "cluster-queues",
        CLUSTER_QUEUE,
        [rule(kueue.GROUP, ["localqueues"], ["CREATE", "UPDATE"])],
        {"named": f"[{now}]"},
        matchConditions=[
            {"name": "another-queue", "expression": f"{now} != ''\n&& (oldObject == null || {now} != {before})\n"}
        ],
    )


def priorities(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """A job, and a gang of plain pods, has the priority of a class that its owner may use."""
    families = cel.families(kinds)
    pods = [rule("", ["pods"], ["CREATE", "UPDATE"])]
    runtimes = [rule("trainer.kubeflow.org", ["trainingruntimes"], ["CREATE", "UPDATE"])]
    named_by_pods = [f"[{root}.?spec.?priorityClassName.orValue('')]" for root in ROOTS]
    # A TrainJob has the priority that its runtime's templates name: a namespace's own runtimes are judged.
    named_by_runtimes = [_at(root, f"{_RUNTIME}.{_CLASS}") for root in ROOTS]
    return [
        *_of_label("jobs", job_rules(families, "CREATE", "UPDATE"), [_of_nobody(families, kinds), NOT_OURS]),
        *_of_label("pods", pods, _PODS),
        *(
            document
            for family in families
            for document in _of_pods(
                family.name,
                job_rules([family], "CREATE", "UPDATE"),
                [*_by_itself(family, kinds), NOT_OURS],
                [classes(root, family) for root in ROOTS],
            )
        ),
        *_of_pods("trainingruntime", runtimes, [NOT_OURS], named_by_runtimes),
        *_of_pods("pods", pods, _PODS, named_by_pods),
    ]


def _by_itself(family: Family, kinds: Sequence[JobKind]) -> list[dict[str, str]]:
    """Return the condition that a job is no part of a gang: its JobSet was judged when its owner made it.

    Of a TrainJob only what is made of it says which classes it has, those of a runtime: that is judged.
    """
    makers = parents_controllers(family, [kind for kind in kinds if kind != TRAINJOB])
    if not makers:
        return []
    part = cel.templates_carry("object", family, [names.POD_SET_LABEL])
    by_parent = f"request.userInfo.username in {any_of(makers)}"
    return [{"name": "by-itself", "expression": f"!({by_parent}\n&& ({part}))\n"}]


def _of_nobody(families: Sequence[Family], kinds: Sequence[JobKind]) -> dict[str, str]:
    """Return the condition that a job is nobody's child: a gang has the class of the label of its root alone, and what
    a child says by its own label, which its owner may have meant for the pods, is read by nobody.
    """
    makers = sorted({user for family in families for user in parents_controllers(family, kinds)})
    controlled = "object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))"
    return {"name": "of-nobody", "expression": f"!(request.userInfo.username in {any_of(makers)}\n&& {controlled})\n"}


def _of_label(name: str, rules: Rules, conditions: list[dict[str, str]]) -> list[dict[str, Any]]:
    now, before = (f"{cel.labels_of(root)}[?'{names.PRIORITY_CLASS_LABEL}'].orValue('')" for root in ROOTS)
    return rights(
        f"workload-priorities-of-{name}",
        WORKLOAD_PRIORITY_CLASS,
        rules,
        {
            "old": f"oldObject == null ? '' : {before}",
            "named": f"[{now}].filter(name, name != '' && name != variables.old)",
        },
        # Each class that there is costs the API server as much as a policy of its own: only who names one pays.
        constraints={"namespaceSelector": selector(), "objectSelector": _LABELLED},
        matchConditions=conditions,
    )


def _of_pods(name: str, rules: Rules, conditions: list[dict[str, str]], listed: Sequence[str]) -> list[dict[str, Any]]:
    now, before = listed
    return rights(
        f"priorities-of-{name}",
        PRIORITY_CLASS,
        rules,
        {
            "old": f"oldObject == null ? [] : ({before})",
            "all": now,
            "named": "variables.all.filter(name, name != '' && !(name in variables.old))",
        },
        most=1 if name == "pods" else CLASSES_MAX,
        constraints={"namespaceSelector": selector()},
        matchConditions=[*conditions, {"name": "names-a-class", "expression": f"({now}).exists(name, name != '')"}],
    )


def classes(root: str, family: Family) -> str:
    """Return an expression: the names of the priority classes that an object's own fields and pod templates give."""
    paths = [path for kind in family.kinds for path in _classes_of(kind)]
    return " +\n".join(_at(root, path) for path in dict.fromkeys(paths)) or "['']"


def _classes_of(kind: JobKind) -> list[str]:
    own = sorted(render(path) for path in kind.priority_classes)
    templates = [path for path in cel.label_paths(kind) if path.endswith("emplate.metadata")]
    of_pods = [path.removesuffix("metadata") + _CLASS for path in templates]
    wrapped = (path for each in ENTRIES if each != kind for path in _classes_of(each)) if kind == APPWRAPPER else ()
    inside = [f"{_WRAPPED}.{path}" for path in wrapped]
    return [*own, *of_pods, *inside, *ELSEWHERE.get(kind.key, ())]


def _at(root: str, path: str, item: str = "item") -> str:
    """Return an expression: the names at a path, as a list; ``item`` is a variable that ``root`` does not use."""
    found = re.search(r"\[\*\]|\{\*\}", path)
    if found is None:
        return f"[{cel.step(root, path)}.orValue('')]"
    head, tail = path[: found.start()], path[found.end() :]
    items = f"{cel.step(root, head)}.orValue({'[]' if found[0] == '[*]' else '{}'})"
    each = item if found[0] == "[*]" else f"{items}[{item}]"
    if re.search(r"\[\*\]|\{\*\}", tail) is None:
        return f"{items}.map({item}, {cel.step(each, tail)}.orValue(''))"
    # CEL cannot make one list of a list of lists. No name has a comma.
    return f"{items}.map({item}, {_at(each, tail, item + '_of')}.join(',')).join(',').split(',')"


def documents(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """Return all policies and their bindings."""
    return [*cluster_queues(), *priorities(kinds)]


if __name__ == "__main__":
    sys.exit(output.run(documents, TARGET, "manifests.rights_to_use", __doc__))
