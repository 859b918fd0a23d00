"""/mutate/jobs and /mutate/pods: a gated object is stored suspended and marked; a lifted hold waits again.

In a namespace that is gated by hand one that names no queue gets the label of the LocalQueue ``default``, if there is
one.

Idempotent and smallest: run on its own output it patches nothing. Owned children are never touched; their owner's
controller decides them. A user who un-suspends a job on hold lifts the hold: the job is stored suspended still, and
waits at its old place. A child of a job that waited for nobody, if it loses its owner and asks for a queue itself, is
a job of its own from then on, and is suspended to wait like any other. A manifest that is applied again changes none
of what we wrote into the pod templates.
"""

from collections.abc import Mapping
from typing import Any

from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.patches.kept_marks import with_kept_marks
from webhook.jobs.patches.marking import gate_pod, mark, marked
from webhook.jobs.plain_pods.groups import gang_uid
from webhook.jobs.reading import annotations
from webhook.jobs.reading.gating import GateRule, is_child, left_to_kueue, pending, with_default_queue
from webhook.server.jobs.children import comes_to_wait
from webhook.server.review.answer import ALLOW, Answer, allow, patch
from webhook.server.review.class_checks import corrected, corrects
from webhook.server.review.job_facts import JobRules, is_suspended, ruling, ruling_alone
from webhook.server.review.pod_facts import mirrors_static_pod, read
from webhook.untyped import editing, paths
from webhook.wire.admission_review import ReviewRequest


def mutate(request: ReviewRequest, rules: JobRules) -> Answer:
    """Return the answer of the mutating phase. What is malformed passes: validation refuses it with a reason."""
    kind = rules.by_resource.get((request.group, request.resource))
    obj = request.object
    if kind is None or obj is None or request.subresource or request.operation not in ("CREATE", "UPDATE"):
        return ALLOW
    if not isinstance(obj.get("metadata"), dict) or not isinstance(obj.get("spec"), dict):
        return ALLOW
    if request.operation == "UPDATE":
        return _change(request, rules, kind, obj)
    in_namespace = _in_namespace(request, obj)
    rule = ruling(rules, kind, in_namespace, request.username)
    if rule is None:
        return _passed_over(rules, obj)
    queued = _with_default_queue(rules, kind, in_namespace)
    gang, corrected_too = pending(rule if queued is in_namespace else GateRule.QUEUE_LABEL), corrects(rules.classes)
    if queued is in_namespace and not corrected_too:
        return patch(tuple(mark(kind, obj, rules.context(), gang)))
    stored = marked(kind, queued, rules.context(), gang)
    if corrected_too:
        stored = corrected(rules, kind, stored)
    return patch(tuple(editing.diff(in_namespace, stored)))


def _with_default_queue(rules: JobRules, kind: JobKind, obj: Mapping[str, Any]) -> Mapping[str, Any]:
    # Where Kueue serves, it writes its own label on jobs, and they are left to it.
    if rules.settings.left_to_kueue:
        return obj
    namespace = str(paths.find(obj, ("metadata", "namespace")))
    return with_default_queue(kind, obj, rules.view.namespaces.get(namespace, {}), rules.view.policy)


def mutate_pod(request: ReviewRequest, rules: JobRules) -> Answer:
    """Return the answer for a pod at creation: a plain pod of a group is held by a scheduling gate.

    What a job's controller makes belongs to its job's gang; a static pod runs already; what Kueue holds is left to it.
    """
    obj = request.object
    if obj is None or request.subresource or request.operation != "CREATE" or request.resource != "pods":
        return ALLOW
    facts = read(obj)
    group = facts.group
    if group is None or mirrors_static_pod(facts, request) or request.username in rules.creators.controllers:
        return ALLOW
    if rules.settings.left_to_kueue and left_to_kueue(obj):
        return _passed_over(rules, obj)
    if facts.held_by_kueue:
        return allow(
            (f"scheduling gate {names.KUEUE_GATE} is Kueue's: the pod is left to it, and Tutti does not gate it",)
        )
    return patch(tuple(gate_pod(obj, gang_uid(request.namespace, group))))


def _in_namespace(request: ReviewRequest, obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``obj`` in its namespace, which a direct caller may have left out."""
    if paths.find(obj, ("metadata", "namespace")):
        return obj
    return {**obj, "metadata": {**obj["metadata"], "namespace": request.namespace}}


def _passed_over(rules: JobRules, obj: Mapping[str, Any]) -> Answer:
    if rules.settings.left_to_kueue and left_to_kueue(obj):
        return allow(("Kueue serves this cluster: its queue label is left to it, and Tutti does not gate this job",))
    return ALLOW


def _change(request: ReviewRequest, rules: JobRules, kind: JobKind, obj: Mapping[str, Any]) -> Answer:
    old = request.old_object
    if old is None or kind.suspend is None or request.username == rules.settings.account:
        return ALLOW
    kept = obj
    if not is_child(kind, old, rules.kinds) and ruling_alone(rules, kind, old) is not None:
        kept = with_kept_marks(kind, obj, old, rules.context())
    if is_suspended(kind, obj):
        return patch(tuple(editing.diff(obj, kept)))
    if is_suspended(kind, old) and _is_held(old):
        waiting = editing.drop(kept, ("metadata", "annotations", names.HOLD))
        warning = "the hold is lifted: the job waits for its turn again and starts when all its pods fit"
    elif comes_to_wait(rules, kind, old, obj):
        waiting, warning = kept, "it has lost its owner and names a queue itself: it is suspended, and waits there"
    else:
        return patch(tuple(editing.diff(obj, kept)))
    try:
        waiting = editing.put(waiting, kind.suspend, True)
    except editing.Blocked:
        return ALLOW
    return patch(tuple(editing.diff(obj, waiting)), (warning,))


def _is_held(old: Mapping[str, Any]) -> bool:
    uid = paths.find(old, ("metadata", "uid"))
    text = paths.find(old, ("metadata", "annotations", names.HOLD))
    return isinstance(uid, str) and annotations.decode_hold(text, uid)
