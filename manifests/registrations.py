"""Writes ``base/registrations.yaml``: which requests the API server sends to the webhook.

Run ``python -m manifests.registrations`` after changing this file. What is sent must be as little as possible, because
an outage of the webhook refuses exactly what is sent; so every entry carries a CEL ``matchCondition`` that looks for
the opt-in: a queue label, a PodGroup label on a pod template (an objectSelector cannot see those, and each kind keeps
its templates elsewhere), or a trace of ours. Namespaces in which everything waits have entries of their own.

CEL rules that matter here: an expression that errors refuses the request without asking us, so every optional field
is reached through ``?``; ``oldObject`` is null on CREATE; ``object`` is untyped, so one expression can serve several
kinds.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from webhook.core import names

TARGET: Final = Path(__file__).parent / "base" / "registrations.yaml"

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
    "kube-queue",
    "koord-queue",
)
"""Left out everywhere but in the policy check: what must start before us, or without us, does not wait for us."""

MUTATE_TIMEOUT_SECONDS: Final = 2
VALIDATE_TIMEOUT_SECONDS: Final = 3


@dataclass(frozen=True, slots=True)
class Family:
    """Job kinds of one API group, which share an entry."""

    name: str
    group: str
    version: str
    resources: tuple[str, ...]
    templates: tuple[str, ...]
    """Paths to what carries a pod's labels: ``[*]`` steps through a list, ``{*}`` through a map."""
    suspend: str | None = "spec.suspend"
    scale: bool = False
    """The kind has a scale subresource, by which its number of pods can be changed."""


FAMILIES: Final = (
    Family("job", "batch", "v1", ("jobs",), ("spec.template.metadata",)),
    Family(
        "jobset",
        "jobset.x-k8s.io",
        "v1alpha2",
        ("jobsets",),
        ("spec.replicatedJobs[*].template.spec.template.metadata",),
    ),
    Family(
        "kubeflow",
        "kubeflow.org",
        "v1",
        ("pytorchjobs", "tfjobs", "mpijobs", "xgboostjobs", "paddlejobs", "jaxjobs"),
        tuple(
            f"spec.{framework}ReplicaSpecs{{*}}.template.metadata"
            for framework in ("pytorch", "tf", "mpi", "xgb", "paddle", "jax")
        ),
        suspend="spec.runPolicy.suspend",
        scale=True,
    ),
    Family(
        "trainjob",
        "trainer.kubeflow.org",
        "v1alpha1",
        ("trainjobs",),
        ("spec", "spec.podTemplateOverrides[*].metadata"),
    ),
    Family(
        "ray",
        "ray.io",
        "v1",
        ("rayjobs", "rayclusters"),
        (
            "spec.headGroupSpec.template.metadata",
            "spec.workerGroupSpecs[*].template.metadata",
            "spec.rayClusterSpec.headGroupSpec.template.metadata",
            "spec.rayClusterSpec.workerGroupSpecs[*].template.metadata",
            "spec.submitterPodTemplate.metadata",
        ),
    ),
    Family("spark", "sparkoperator.k8s.io", "v1beta2", ("sparkapplications",), ("spec.driver", "spec.executor")),
    Family(
        "appwrapper",
        "workload.codeflare.dev",
        "v1beta2",
        ("appwrappers",),
        ("spec.components[*].template.metadata", "spec.components[*].template.spec.template.metadata"),
    ),
    Family("workflow", "argoproj.io", "v1alpha1", ("workflows",), ("spec.podMetadata", "spec.templates[*].metadata")),
    Family(
        "volcano",
        "batch.volcano.sh",
        "v1alpha1",
        ("jobs",),
        ("spec.tasks[*].template.metadata",),
        suspend=None,
    ),
)

UNGATED: Final = (
    ("apps", "v1", ("deployments", "statefulsets", "daemonsets", "replicasets")),
    ("batch", "v1", ("cronjobs",)),
)
"""Kinds that cannot wait: an opt-in label on them deserves a warning."""

POLICY: Final = (
    (
        "kueue.x-k8s.io",
        ("v1beta1", "v1beta2"),
        ("resourceflavors", "clusterqueues", "localqueues", "cohorts", "workloadpriorityclasses"),
    ),
    ("scheduling.sigs.k8s.io", ("v1beta1",), ("elasticquotatrees",)),
    ("scheduling.volcano.sh", ("v1beta1",), ("queues",)),
)


# -- CEL ------------------------------------------------------------------------------------------------------------


def one_of(keys: Sequence[str], where: str) -> str:
    """Return an expression: the map ``where`` has one of the keys."""
    return f"[{', '.join(repr(key) for key in keys)}].exists(key, key in {where})"


def step(root: str, path: str) -> str:
    """Return an expression that reaches a dotted path from ``root``, absent or not."""
    return root + "".join(f".?{part}" for part in path.split(".") if part)


def labelled(root: str, path: str, keys: Sequence[str]) -> str:
    """Return an expression: some pod template's metadata at ``path`` below ``root`` has one of the labels."""
    head, list_mark, tail = path.partition("[*]")
    if list_mark:
        return f"{step(root, head)}.orValue([]).exists(item, {labelled('item', tail, keys)})"
    head, map_mark, tail = path.partition("{*}")
    if map_mark:
        entries = f"{step(root, head)}.orValue({{}})"
        return f"{entries}.exists(entry, {labelled(f'{entries}[entry]', tail, keys)})"
    return one_of(keys, f"{step(root, path)}.?labels.orValue({{}})")


def asks(root: str, family: Family) -> str:
    """Return an expression: the object opts in, by a queue label or by a PodGroup label on a template."""
    return " ||\n".join(
        [
            one_of(names.QUEUE_LABELS, f"{root}.metadata.?labels.orValue({{}})"),
            *(labelled(root, path, names.POD_GROUP_LABELS) for path in family.templates),
        ]
    )


def concerns(root: str, family: Family) -> str:
    """Return an expression: the object opts in, or carries what only Tutti writes."""
    ours = (*names.POD_GROUP_LABELS, names.GANG_LABEL, names.POD_SET_LABEL)
    return " ||\n".join(
        [
            one_of(names.QUEUE_LABELS, f"{root}.metadata.?labels.orValue({{}})"),
            one_of(sorted(names.OWN_ANNOTATIONS), f"{root}.metadata.?annotations.orValue({{}})"),
            *(labelled(root, path, ours) for path in family.templates),
        ]
    )


def lifts_hold(suspends: Sequence[str]) -> str:
    """Return an expression: an update un-suspends a job that its owner had held."""
    released = " && ".join(f"{step('object', path)}.orValue(false) != true" for path in suspends)
    return f"'{names.HOLD}' in oldObject.metadata.?annotations.orValue({{}}) && {released}"


# -- entries --------------------------------------------------------------------------------------------------------


def selector(*expressions: dict[str, Any]) -> dict[str, Any]:
    """Return a namespaceSelector: none of the operators' namespaces, and the given requirements."""
    left_out = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(OPERATOR_NAMESPACES)}
    return {"matchExpressions": [left_out, *expressions]}


def not_gated() -> dict[str, Any]:
    """Namespaces in which jobs opt in one by one; NotIn holds where the label is absent."""
    return selector({"key": names.GATED_NAMESPACE, "operator": "NotIn", "values": ["true"]})


def gated() -> dict[str, Any]:
    """Namespaces in which every job waits."""
    return selector({"key": names.GATED_NAMESPACE, "operator": "In", "values": ["true"]})


def rule(group: str, versions: Sequence[str], resources: Sequence[str], operations: Sequence[str]) -> dict[str, Any]:
    """Return one rule of an entry."""
    return {
        "apiGroups": [group],
        "apiVersions": list(versions),
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


def job_rules(family: Family, *operations: str) -> list[dict[str, Any]]:
    """Return the rules for a family's objects."""
    return [rule(family.group, [family.version], family.resources, operations)]


def mutating_entries() -> list[dict[str, Any]]:
    """Born suspended; and suspended again when the owner lifts a hold, so that the job queues at its place."""
    shared = {"reinvocationPolicy": "IfNeeded", "timeoutSeconds": MUTATE_TIMEOUT_SECONDS}
    entries = []
    for family in FAMILIES:
        expression = asks("object", family)
        operations = ["CREATE"]
        if family.suspend:
            operations.append("UPDATE")
            expression = f"request.operation == 'UPDATE'\n? {lifts_hold([family.suspend])}\n: (\n{expression}\n)"
        entries.append(
            entry(
                family.name,
                "/mutate/jobs",
                job_rules(family, *operations),
                namespaceSelector=not_gated(),
                matchConditions=condition("opted-in-or-hold-lifted", expression),
                **shared,
            )
        )
    suspends = sorted({family.suspend for family in FAMILIES if family.suspend})
    entries.append(
        entry(
            "gated-namespaces",
            "/mutate/jobs",
            [found for family in FAMILIES for found in job_rules(family, "CREATE", "UPDATE")],
            namespaceSelector=gated(),
            matchConditions=condition(
                "created-or-hold-lifted", f"request.operation == 'CREATE' || {lifts_hold(suspends)}"
            ),
            **shared,
        )
    )
    return entries


def job_entries() -> list[dict[str, Any]]:
    """What may be stored of a job that opted in, or did so before, or lives where all wait."""
    entries = [
        entry(
            family.name,
            "/validate/jobs",
            job_rules(family, "CREATE", "UPDATE"),
            namespaceSelector=not_gated(),
            matchConditions=condition(
                "opted-in-now-or-before",
                f"[object, oldObject].exists(it, it != null && (\n{concerns('it', family)}\n))",
            ),
        )
        for family in FAMILIES
    ]
    entries.append(
        entry(
            "gated-namespaces",
            "/validate/jobs",
            [found for family in FAMILIES for found in job_rules(family, "CREATE", "UPDATE")],
            namespaceSelector=gated(),
        )
    )
    return entries


def scale_entry() -> dict[str, Any]:
    """A Scale has no labels: the webhook looks up its parent.

    So this entry cannot be narrowed to gated jobs, and it may be ignored in an outage: the pods that a grown job adds
    are still refused by the pod check, which cannot.
    """
    return entry(
        "scale",
        "/validate/jobs",
        [
            rule(family.group, [family.version], [f"{name}/scale" for name in family.resources], ["UPDATE"])
            for family in FAMILIES
            if family.scale
        ],
        namespaceSelector=selector(),
        failurePolicy="Ignore",
    )


def ungated_entry() -> dict[str, Any]:
    """A queue label newly on something that cannot wait is warned about, never passed in silence, never refused."""
    labels = "metadata.?labels.orValue({})"
    return entry(
        "ungated",
        "/validate/jobs",
        [rule(group, [version], resources, ["CREATE", "UPDATE"]) for group, version, resources in UNGATED],
        namespaceSelector=selector(),
        failurePolicy="Ignore",
        matchConditions=condition(
            "newly-labelled",
            f"{one_of(names.QUEUE_LABELS, f'object.{labels}')}\n"
            f"&& !(oldObject != null && {one_of(names.QUEUE_LABELS, f'oldObject.{labels}')})",
        ),
    )


def pod_entries() -> list[dict[str, Any]]:
    """Gang pods everywhere, loose pods where a fence holds reservations."""
    changed = "\n|| ".join(
        [
            "request.operation == 'CREATE'",
            "request.?subResource.orValue('') != ''",
            *(
                f"object.metadata.?labels[?'{label}'] != oldObject.metadata.?labels[?'{label}']"
                for label in (names.GANG_LABEL, names.POD_SET_LABEL)
            ),
            f"object.metadata.?annotations[?'{names.LEDGER_VERSION}'] "
            f"!= oldObject.metadata.?annotations[?'{names.LEDGER_VERSION}']",
            "object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences",
            "object.spec.?schedulingGates != oldObject.spec.?schedulingGates",
        ]
    )
    gang, loose = (
        {"matchExpressions": [{"key": names.GANG_LABEL, "operator": operator}]}
        for operator in ("Exists", "DoesNotExist")
    )
    fenced = selector({"key": names.FENCED_NAMESPACE, "operator": "In", "values": ["true"]})
    return [
        entry(
            "gang-pods",
            "/validate/pods",
            [
                rule("", ["v1"], ["pods"], ["CREATE", "UPDATE"]),
                rule("", ["v1"], ["pods/ephemeralcontainers", "pods/resize"], ["UPDATE"]),
            ],
            namespaceSelector=selector(),
            objectSelector=gang,
            matchConditions=condition("created-or-regrouped", changed),
        ),
        entry(
            "loose-pods",
            "/validate/pods",
            [rule("", ["v1"], ["pods"], ["CREATE"]), rule("", ["v1"], ["pods/resize"], ["UPDATE"])],
            namespaceSelector=fenced,
            objectSelector=loose,
            matchConditions=condition(
                "not-a-mirror-pod", "!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}))"
            ),
        ),
    ]


def policy_entries() -> list[dict[str, Any]]:
    """Policy that does not compile is refused when it is written, in every namespace."""
    return [
        entry(
            "policy",
            "/validate/policy",
            [rule(group, versions, resources, ["CREATE", "UPDATE"]) for group, versions, resources in POLICY],
        ),
        entry(
            "policy-config-map",
            "/validate/policy",
            [rule("", ["v1"], ["configmaps"], ["CREATE", "UPDATE"])],
            namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": names.SYSTEM_NAMESPACE}},
            matchConditions=condition("the-policy", "request.name == 'tutti-policy'"),
        ),
    ]


def configurations() -> list[dict[str, Any]]:
    """Return both registration objects."""
    validating = [*job_entries(), scale_entry(), ungated_entry(), *pod_entries(), *policy_entries()]
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "tutti"},
            "webhooks": entries,
        }
        for kind, entries in (("Mutating", mutating_entries()), ("Validating", validating))
    ]


class Dumper(yaml.SafeDumper):
    """Writes multi-line text as blocks, lists indented, nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        """Repeat equal values in full: readers and kustomize know no anchors."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists below their key, as the manifests beside do."""
        super().increase_indent(flow, False)


def as_line(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    """Represent a list of words on one line."""
    flat = all(isinstance(item, str) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)


def as_block(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Represent text with line ends as a literal block."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(list, as_line)
Dumper.add_representer(str, as_block)


def text() -> str:
    """Return the file's content."""
    head = "# Written by python -m manifests.registrations, where the reasons stand; change it there.\n"
    return head + yaml.dump_all(configurations(), Dumper=Dumper, sort_keys=False, width=110)


def main() -> int:
    """Write the file; with ``--check`` only say whether it is up to date."""
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.read_text() == text() else 1
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
