"""Writes ``base/registrations.yaml``: which requests the API server sends to the webhook.

Run ``python -m manifests.registrations`` after changing this file or the tables it reads: the job kinds, and the
resources that the server classifies. ``--check`` only says by its exit status whether the written file is up to date;
``--config FILE`` prints what to apply instead where a configuration adds job kinds of the operator's own.

What is sent must be as little as possible, because an outage of the webhook refuses exactly what is sent. So every
entry looks for the opt-in: by an objectSelector or in CEL for a queue label, in CEL for a PodGroup label on a pod
template (an objectSelector cannot see those, and each kind keeps its templates elsewhere) or a trace of ours.
Namespaces in which everything waits have entries of their own. All versions of a kind are registered: of a version that
nobody listed no request would come.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from manifests import cel, output, own_kinds
from manifests.cel import Family
from manifests.rules import (
    BY_NO_DRAINER,
    MUTATE_TIMEOUT_SECONDS,
    QUEUED,
    UNQUEUED,
    by_others,
    classified,
    condition,
    entry,
    gated,
    job_rules,
    labelled,
    no_record,
    not_gated,
    rule,
    selector,
)
from webhook.core.notation import names
from webhook.dialects import config_map
from webhook.jobs.compute_class import catalog as compute_class_catalog
from webhook.jobs.kinds.kind import JobKind
from webhook.server.policy_in_use import NAMESPACE_CONTROLLER
from webhook.server.review.controllers_labels import BARE_LABELS
from webhook.server.review.resources_table import Handling

TARGET: Final = Path(__file__).parent / "base" / "registrations.yaml"


def mutating_entries(families: Sequence[Family]) -> list[dict[str, Any]]:
    """Born suspended; and suspended again when the owner lifts a hold, so that the job queues at its place.

    So is what a job in no queue made, when it loses that job and names a queue itself.

    A condition in CEL costs the API server a copy of the object, twice at a creation: what we patch is looked at again.
    So what labels tell of a new job is left to objectSelectors. The reconciler creates nothing.
    """
    shared = {"reinvocationPolicy": "IfNeeded", "timeoutSeconds": MUTATE_TIMEOUT_SECONDS}
    born, opting_in = job_rules(families, "CREATE"), {"namespaceSelector": not_gated()} | shared
    entries = [
        entry(f"{name}-queue", "/mutate/jobs", born, objectSelector=chosen, **opting_in)
        for name, chosen in QUEUED.items()
    ]
    entries += [
        entry(
            family.name,
            "/mutate/jobs",
            job_rules([family], "CREATE"),
            objectSelector=UNQUEUED,
            matchConditions=condition(
                "joins-a-pod-group", cel.templates_carry("object", family, names.POD_GROUP_LABELS)
            ),
            **opting_in,
        )
        for family in families
    ]
    entries.append(entry("gated-namespaces", "/mutate/jobs", born, namespaceSelector=gated(), **shared))
    entries += [
        entry(
            f"{family.name}-changed",
            "/mutate/jobs",
            job_rules([family], "UPDATE"),
            namespaceSelector=selector(),
            matchConditions=by_others(
                *condition(
                    "waits-or-may-have-lost-marks",
                    cel.either(
                        _comes_to_wait(family, families), f"({cel.changes_what_was_started()})", cel.lost_marks(family)
                    ),
                )
            ),
            **shared,
        )
        for family in families
        if family.suspends
    ]
    return [*entries, plain_pods_entry(), placed_pods_entry()]


def plain_pods_entry() -> dict[str, Any]:
    """A plain pod of a PodGroup waits behind a scheduling gate. What a job's controller makes is labelled already."""
    return entry(
        "plain-pods",
        "/mutate/pods",
        [rule("", ["pods"], ["CREATE"])],
        namespaceSelector=selector(),
        objectSelector={"matchExpressions": [labelled(names.GANG_LABEL, "DoesNotExist")]},
        matchConditions=[
            *condition("joins-a-pod-group", cel.joins_pod_group("object")),
            *condition("not-a-mirror-pod", f"!({cel.mirrors_static_pod()})"),
        ],
        reinvocationPolicy="IfNeeded",
        timeoutSeconds=MUTATE_TIMEOUT_SECONDS,
    )


def placed_pods_entry() -> dict[str, Any]:
    """A pod of a gang prefers the nodes that are kept for it. It starts without, too: an outage refuses none."""
    return entry(
        "placed-pods",
        "/mutate/pods",
        [rule("", ["pods"], ["CREATE"])],
        namespaceSelector=selector(),
        objectSelector={
            "matchExpressions": [
                labelled(names.GANG_LABEL),
                {"key": names.GANG_LABEL, "operator": "NotIn", "values": [names.GANG_PENDING]},
            ]
        },
        failurePolicy="Ignore",
        timeoutSeconds=1,
    )


def job_entries(families: Sequence[Family]) -> list[dict[str, Any]]:
    """What may be stored of a job that opted in, or did so before, or lives where all wait.

    As in the mutating phase, what labels tell of a new job is left to objectSelectors.
    """
    born, opting_in = job_rules(families, "CREATE"), {"namespaceSelector": not_gated()}
    entries = [
        entry(f"{name}-queue", "/validate/jobs", born, objectSelector=chosen, **opting_in)
        for name, chosen in QUEUED.items()
    ]
    for family in families:
        rules, opts_in = job_rules([family], "CREATE"), condition("opts-in", cel.concerns("object", family))
        new = entry(f"{family.name}-new", "/validate/jobs", rules, objectSelector=UNQUEUED, matchConditions=opts_in)
        opted_in = condition("opted-in-or-loses-its-maker", _is_to_be_judged(family, families))
        conditions = [*by_others(*opted_in, rehearsed=True), *(no_record() if family.dispatchable else ())]
        changed = entry(family.name, "/validate/jobs", job_rules([family], "UPDATE"), matchConditions=conditions)
        entries += [new | opting_in, changed | opting_in]
    return [
        *entries,
        entry("gated-namespaces-new", "/validate/jobs", born, namespaceSelector=gated()),
        entry(
            "gated-namespaces",
            "/validate/jobs",
            job_rules(families, "UPDATE"),
            namespaceSelector=gated(),
            matchConditions=[*by_others(rehearsed=True), *no_record()],
        ),
    ]


def _is_to_be_judged(family: Family, known: Sequence[Family]) -> str:
    """Return an expression: a changed object opted in, now or before, or loses the owner whose controller made it.

    In one condition: for each entry with any, the API server makes copies of both objects.
    """
    opted_in = f"[object, oldObject].exists(it,\n{cel.concerns('it', family)}\n)"
    makers = cel.makers(family, known)
    return cel.either(opted_in, f"({cel.loses_maker(makers)}\n&& {BY_NO_DRAINER})") if makers else opted_in


def _comes_to_wait(family: Family, known: Sequence[Family]) -> str:
    """Return an expression: a changed object that would run has to wait again, or now that its owner is gone."""
    makers = cel.makers(family, known)
    orphaned = [f"(({cel.asks('object', family)})\n&& {cel.loses_maker(makers)})"] if makers else []
    return f"!({cel.suspended('object', family.suspends)}) && (\n{cel.either(cel.held('oldObject'), *orphaned)}\n)"


def let_go_entry(families: Sequence[Family]) -> dict[str, Any]:
    """What a job's controller made is not deleted without its pods: it would be made again, beside them.

    The webhook knows whether the namespace has queues. A policy that has LocalQueues for parameters is judged for each.
    """
    made = {maker for family in families for maker in cel.makers(family, families)}
    return entry(
        "children",
        "/validate/jobs",
        job_rules([family for family in families if cel.makers(family, families)], "DELETE"),
        namespaceSelector=selector(),
        matchConditions=[
            *condition(
                "made-by-a-jobs-controller",
                f"{cel.references_of('oldObject')}.exists(owner, {cel.made_by('owner', sorted(made))})",
            ),
            *condition("orphans", cel.orphans()),
            *condition("not-by-who-drains-nodes", BY_NO_DRAINER),
        ],
    )


def mislabelled_entries(families: Sequence[Family]) -> list[dict[str, Any]]:
    """A label by which somebody meant a queue is warned about where it has no effect. An outage refuses nothing."""
    return [
        entry(
            f"{family.name}-mislabelled",
            "/validate/jobs",
            job_rules([family], "CREATE"),
            namespaceSelector=not_gated(),
            objectSelector=UNQUEUED,
            failurePolicy="Ignore",
            matchConditions=condition("means-a-queue", cel.mislabelled("object", family)),
        )
        for family in families
    ]


def scale_entry(families: Sequence[Family]) -> dict[str, Any]:
    """A Scale has no labels: the webhook looks up its parent.

    So this entry cannot be narrowed to gated jobs, and it may be ignored in an outage: the pods that a grown job adds
    are still refused by the pod check, which cannot.
    """
    rules = [rule(family.group, [f"{name}/scale" for name in family.resources], ["UPDATE"]) for family in families]
    return entry("scale", "/validate/jobs", rules, namespaceSelector=selector(), failurePolicy="Ignore")


def ungated_entry() -> dict[str, Any]:
    """A queue label newly on something that cannot wait is warned about, never passed in silence, never refused; also
    one in a CronJob by which its Jobs will not wait.
    """
    asked, asked_before = (
        f"({cel.one_of(names.QUEUE_LABELS, cel.labels_of(it))} ||\n({cel.astray_in_schedule(it)}))"
        for it in ("object", "oldObject")
    )
    return entry(
        "ungated",
        "/validate/jobs",
        classified(Handling.WARN),
        namespaceSelector=selector(),
        failurePolicy="Ignore",
        matchConditions=condition("newly-labelled", f"{asked}\n&& !(oldObject != null && {asked_before})"),
    )


def marked_elsewhere_entry() -> dict[str, Any]:
    """What cannot wait bears no label of a gang: its pods would pass as that gang's."""
    return entry(
        "marked-elsewhere",
        "/validate/jobs",
        classified(Handling.WARN),
        namespaceSelector=selector(),
        matchConditions=by_others(*condition("newly-marked", cel.marked_elsewhere())),
    )


def regrouped() -> str:
    """Return when a gang pod is looked at: new, by a subresource, or with another gang, group, queue, owner or gate,
    or without a label by which its controller finds it.
    """
    return "\n|| ".join(
        [
            "request.operation == 'CREATE'",
            "request.?subResource.orValue('') != ''",
            *(
                f"object.metadata.?labels[?'{label}'] != oldObject.metadata.?labels[?'{label}']"
                for label in (
                    names.GANG_LABEL,
                    names.POD_SET_LABEL,
                    *names.POD_GROUP_LABELS,
                    names.KUEUE_POD_GROUP,
                    *names.QUEUE_LABELS,
                )
            ),
            *(
                f"object.metadata.?annotations[?'{name}'] != oldObject.metadata.?annotations[?'{name}']"
                for name in (
                    names.LEDGER_VERSION,
                    names.ADMISSION,
                    names.REQUEUE,
                    *names.POD_GROUP_ANNOTATIONS,
                    names.KUEUE_POD_GROUP,
                    names.KUEUE_POD_COUNT,
                )
            ),
            "object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences",
            "oldObject.metadata.?labels.orValue({}).exists(key,\n"
            f"  (key.contains('/') || key in {list(BARE_LABELS)})\n"
            "  && object.metadata.?labels[?key] != oldObject.metadata.?labels[?key])",
            "object.spec.?schedulingGates != oldObject.spec.?schedulingGates",
        ]
    )


POD_SET: Final = f"{{}}.metadata.?labels[?'{names.POD_SET_LABEL}']"


def pod_entries() -> list[dict[str, Any]]:
    """Gang pods everywhere, loose pods where a fence holds reservations."""
    gang, loose = (
        {"matchExpressions": [labelled(names.GANG_LABEL, operator)]} for operator in ("Exists", "DoesNotExist")
    )
    fenced = selector(labelled(names.FENCED_NAMESPACE))
    return [
        entry(
            "gang-pods",
            "/validate/pods",
            [
                rule("", ["pods"], ["CREATE", "UPDATE"]),
                rule("", ["pods/ephemeralcontainers", "pods/resize"], ["UPDATE"]),
            ],
            namespaceSelector=selector(),
            objectSelector=gang,
            matchConditions=condition("created-or-regrouped", regrouped()),
        ),
        entry(
            "marked-pods",
            "/validate/pods",
            [rule("", ["pods"], ["CREATE", "UPDATE"])],
            namespaceSelector=selector(),
            objectSelector={
                "matchExpressions": [labelled(names.POD_SET_LABEL), labelled(names.GANG_LABEL, "DoesNotExist")]
            },
            matchConditions=condition(
                "created-or-marked",
                f"request.operation == 'CREATE' || {POD_SET.format('object')} != {POD_SET.format('oldObject')}",
            ),
        ),
        entry(
            "loose-pods",
            "/validate/pods",
            [rule("", ["pods"], ["CREATE"]), rule("", ["pods/resize"], ["UPDATE"])],
            namespaceSelector=fenced,
            objectSelector=loose,
            matchConditions=condition("not-a-mirror-pod", f"!({cel.mirrors_static_pod()})"),
        ),
        entry(
            # Rules of shape: worth a refusal, not worth refusing pods in an outage. In fenced namespaces, and for gang
            # pods, the entries above already bring them.
            "compute-classes",
            "/validate/pods",
            [rule("", ["pods"], ["CREATE"])],
            namespaceSelector=selector(labelled(names.FENCED_NAMESPACE, "DoesNotExist")),
            objectSelector={
                "matchExpressions": [
                    labelled(compute_class_catalog.shipped().labels.compute_class),
                    labelled(names.GANG_LABEL, "DoesNotExist"),
                ]
            },
            failurePolicy="Ignore",
        ),
        entry(
            # The same for a queue label on a single pod, which cannot wait in a queue, and for Kueue's groups without
            # a queue: they are warned about.
            "labelled-pods",
            "/validate/pods",
            [rule("", ["pods"], ["CREATE"])],
            namespaceSelector=selector(labelled(names.FENCED_NAMESPACE, "DoesNotExist")),
            objectSelector={"matchExpressions": [labelled(names.GANG_LABEL, "DoesNotExist")]},
            failurePolicy="Ignore",
            matchConditions=condition(
                "labelled-by-hand",
                f"{cel.one_of((*names.QUEUE_LABELS, names.KUEUE_POD_GROUP), cel.labels_of('object'))}\n"
                "&& object.metadata.?ownerReferences.orValue([]).size() == 0",
            ),
        ),
    ]


def policy_entries() -> list[dict[str, Any]]:
    """Policy that does not compile is refused when written, what holds gangs when deleted; in every namespace.

    An outage must not keep a namespace from being deleted with its LocalQueues: deletions pass then, and what ran in a
    queue stays charged.

    ResourceQuotas are left to the API server's own validation: everybody uses them, so an outage must not refuse them.
    """
    own = {"matchLabels": {"kubernetes.io/metadata.name": names.SYSTEM_NAMESPACE}}
    by_people = f"request.userInfo.username != '{NAMESPACE_CONTROLLER}'"
    without = ["resourcequotas", "configmaps", "workloadpriorityclasses"]
    return [
        entry(
            "policy-in-use",
            "/validate/policy",
            classified(Handling.POLICY, without=without, operations=["DELETE"]),
            matchConditions=condition("not-with-its-namespace", by_people),
            failurePolicy="Ignore",
        ),
        entry(
            "policy-config-map-in-use",
            "/validate/policy",
            [rule("", ["configmaps"], ["DELETE"])],
            namespaceSelector=own,
            matchConditions=condition("the-policy", f"request.name == '{config_map.NAME}' && {by_people}"),
            failurePolicy="Ignore",
        ),
        entry("policy", "/validate/policy", classified(Handling.POLICY, without=["resourcequotas", "configmaps"])),
        entry(
            "policy-config-map",
            "/validate/policy",
            [rule("", ["configmaps"], ["CREATE", "UPDATE"])],
            namespaceSelector=own,
            matchConditions=condition("the-policy", f"request.name == '{config_map.NAME}'"),
        ),
    ]


def configurations(kinds: Iterable[JobKind]) -> list[dict[str, Any]]:
    """Return both registration objects."""
    families = cel.families(kinds)
    validating = [*job_entries(families), let_go_entry(families), scale_entry(families), ungated_entry()]
    validating += [marked_elsewhere_entry(), *mislabelled_entries(families), *pod_entries(), *policy_entries()]
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "tutti"},
            "webhooks": entries,
        }
        for kind, entries in (("Mutating", mutating_entries(families)), ("Validating", validating))
    ]


def documents(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """Return the registrations of the kinds, and the rights on those that do not come with Tutti."""
    return [*configurations(kinds), *own_kinds.role(kinds)]


if __name__ == "__main__":
    sys.exit(output.run(documents, TARGET, "manifests.registrations", __doc__))
