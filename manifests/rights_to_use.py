"""Writes ``components/right-to-use/policies.yaml``: who may use a ClusterQueue or a priority class, as a right in RBAC.

The verb is ``use``, on ``clusterqueues`` and ``workloadpriorityclasses`` of Kueue's group and on ``priorityclasses``,
in the namespace of what uses it: a RoleBinding gives it to one namespace, a ClusterRoleBinding to all. ``open.yaml``
beside it gives everybody everything, so that nothing changes until that binding is deleted. What a controller creates
for somebody is judged by what the namespace's service account ``default`` may use. CEL cannot list what a user may use
instead: a refusal names what may not be used, and the command that lists the rest.

Run ``python -m manifests.rights_to_use`` after changing this file or the job kinds.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from manifests import cel, output
from manifests.cel import Family
from manifests.policies import NOT_OURS, block, policy, variables
from manifests.registrations import job_rules, rule, selector
from webhook.core.model import names
from webhook.dialects.kueue import objects as kueue
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.shipped import APPWRAPPER, ENTRIES
from webhook.untyped.paths import render

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
_WRAPPED: Final = "spec.components[*].template"
_RUNTIME: Final = "spec.template.spec.replicatedJobs[*].template.spec.template"
_OWN_ACCOUNTS: Final = "'system:serviceaccount:' + request.namespace + ':'"
_FOR_OTHERS: Final = (
    "request.userInfo.username.startsWith('system:serviceaccount:')\n"
    f"&& !request.userInfo.username.startsWith({_OWN_ACCOUNTS})"
)
_WHO: Final = "variables.for_others ? authorizer.serviceAccount(request.namespace, 'default') : authorizer"


def may_use(group: str, resource: str, name: str) -> str:
    """Return an expression: whoever is judged has the right to use one object."""
    asked = f"variables.who.group('{group}').resource('{resource}').namespace(request.namespace)"
    return f"{asked}.name({name}).check('use').allowed()"


def used(kind: str, resource: str, group: str, listed: str) -> dict[str, str]:
    """Return the validation that each of the names in ``listed`` may be used; a refusal says which may not."""
    who = "(variables.for_others ? 'the service account default' : request.userInfo.username)"
    right = f"{resource}.{group}" if group else resource
    return {
        "expression": block(f"{listed}.all(name, {may_use(group, resource, 'name')})"),
        "messageExpression": block(
            # What may be used cannot be asked here: of several names all are told.
            f"{who} + ' may not use {kind} ' + {listed}.join(', ') + ' in namespace ' + request.namespace\n"
            f"+ ': it needs the verb use on {right}; which may be used is listed by: kubectl auth can-i --list -n '\n"
            "+ request.namespace"
        ),
        "reason": "Forbidden",
    }


def cluster_queues() -> list[dict[str, Any]]:
    """A LocalQueue leads to a ClusterQueue that its author may use."""
    named = "{0}.?spec.?clusterQueue.orValue('')"
    return policy(
        "ValidatingAdmissionPolicy",
        "tutti-use-cluster-queues",
        [rule(kueue.GROUP, ["localqueues"], ["CREATE", "UPDATE"])],
        matchConditions=[
            {
                "name": "another-queue",
                "expression": f"{named.format('object')} != ''\n"
                f"&& (oldObject == null || {named.format('object')} != {named.format('oldObject')})\n",
            }
        ],
        variables=variables(
            for_others=_FOR_OTHERS,
            who=_WHO,
            named=f"[{named.format('object')}]",
        ),
        validations=[used("ClusterQueue", "clusterqueues", kueue.GROUP, "variables.named")],
    )


def priority_classes(family: Family) -> list[dict[str, Any]]:
    """A job has the priority of a class that its owner may use."""
    rules, listed = job_rules([family], "CREATE", "UPDATE"), [classes(root, family) for root in ("object", "oldObject")]
    return _priorities(family.name, rules, listed, [NOT_OURS])


def priority_classes_of_pods() -> list[dict[str, Any]]:
    """So has a gang of plain pods. What gated jobs make bears the pod set that it is of: the job was judged."""
    listed = [f"[{root}.?spec.?priorityClassName.orValue('')]" for root in ("object", "oldObject")]
    conditions = [
        {"name": "of-a-gang", "expression": cel.one_of([names.GANG_LABEL], cel.labels_of("object"))},
        {
            "name": "by-itself",
            "expression": f"!({cel.one_of([names.POD_SET_LABEL], cel.labels_of('object'))}\n&& {_FOR_OTHERS})",
        },
        NOT_OURS,
    ]
    return _priorities("pods", [rule("", ["pods"], ["CREATE", "UPDATE"])], listed, conditions)


def priority_classes_of_runtimes() -> list[dict[str, Any]]:
    """A TrainJob has the priority that its runtime's templates name: a namespace's own runtimes are judged."""
    listed = [_at(root, f"{_RUNTIME}.{_CLASS}") for root in ("object", "oldObject")]
    rules = [rule("trainer.kubeflow.org", ["trainingruntimes"], ["CREATE", "UPDATE"])]
    return _priorities("trainingruntime", rules, listed, [NOT_OURS])


def _priorities(
    name: str, rules: list[dict[str, Any]], listed: Sequence[str], conditions: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return a policy on what ``listed`` gives of an object and of the one before, and on its label."""
    label = f"'{names.PRIORITY_CLASS_LABEL}'"
    old_label = f"oldObject == null ? '' : oldObject.metadata.?labels[?{label}].orValue('')"
    fresh = "variables.{0}.filter(name, name != '' && !(name in variables.old_{0}))"
    return policy(
        "ValidatingAdmissionPolicy",
        f"tutti-use-priorities-{name}",
        rules,
        constraints={"namespaceSelector": selector()},
        matchConditions=conditions,
        variables=variables(
            for_others=_FOR_OTHERS,
            who=_WHO,
            label=f"[object.metadata.?labels[?{label}].orValue('')]",
            old_label=f"[{old_label}]",
            pods=listed[0],
            old_pods=f"oldObject == null ? [] : ({listed[1]})",
            of_label=fresh.format("label"),
            of_pods=fresh.format("pods"),
        ),
        validations=[
            used("WorkloadPriorityClass", "workloadpriorityclasses", kueue.GROUP, "variables.of_label"),
            used("PriorityClass", "priorityclasses", "scheduling.k8s.io", "variables.of_pods"),
        ],
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
    families = cel.families(kinds)
    of_jobs = (document for family in families for document in priority_classes(family))
    return [*cluster_queues(), *of_jobs, *priority_classes_of_runtimes(), *priority_classes_of_pods()]


if __name__ == "__main__":
    sys.exit(output.run(documents, TARGET, "manifests.rights_to_use", __doc__))
