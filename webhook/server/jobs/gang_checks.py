"""Is the gang well-formed, and can it ever start: what a user should hear at ``kubectl apply``, with the numbers.

A malformed gang is refused (quorum above its pods, priorities or compute classes that differ, a field nobody can
price). A gang that fits nowhere today is stored and warned about, because policy may change while it waits; so is one
whose PodGroup needs more pods than it has, because other jobs of the group may bring them.
"""

from collections.abc import Mapping
from typing import Any

from webhook.core.ledger import bounds
from webhook.core.model.gang import GRACE_SECONDS_MAX, Gang
from webhook.core.notation import counted_jobs, names, quantity
from webhook.core.notation.counted import counted
from webhook.core.notation.quantity import MILLI
from webhook.core.reasons.barriers import reason_of
from webhook.core.reasons.blockers import TooMuch, render
from webhook.core.reasons.reasons import Reason
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading import network_topology, status
from webhook.jobs.reading.gang import GangReading, read_gang
from webhook.server.review.answer import Answer, Refusal, deny
from webhook.server.review.job_facts import JobRules
from webhook.untyped import paths


def gang_problem(asking: GangReading) -> Answer | None:
    """Return the refusal of an object that is no well-formed gang, else None."""
    gang = asking.gang
    if gang is None:
        return deny(Refusal.MALFORMED_GANG, f"the job cannot be admitted as a gang: {asking.problem}", 422)
    classes = {s.price.priority_class or "none" for s in gang.pod_sets if s.count}
    if len(classes) > 1:
        message = (
            f"the gang's pod sets name different priority classes ({', '.join(sorted(classes))}), but its pods start "
            "together; give all templates the same priorityClassName"
        )
        return deny(Refusal.MALFORMED_GANG, message, 422)
    for pod_set in gang.pod_sets:
        for name, amount in pod_set.price.requests.items():
            if "/" in name and amount % MILLI:
                asked = quantity.render(amount, name)
                message = f"pod set {pod_set.name} asks for {asked} {name} a pod; the API server takes only whole ones"
                return deny(Refusal.MALFORMED_GANG, message, 422)
    too_large = bounds.too_large(gang)
    return None if too_large is None else deny(Refusal.MALFORMED_GANG, too_large, 422)


def unfit_template(asking: GangReading) -> Answer | None:
    """Return the refusal of a gang whose template names its node, or has its pods go too slowly: such pods are refused,
    so it would never start.
    """
    for site in asking.sites:
        node = site.spec.get("nodeName")
        if node and site.metadata_path is not None:
            message = (
                f"the template of pod set {site.name} presets spec.nodeName to {str(node)!r}, which "
                "bypasses the scheduler and its gates; leave it empty and use nodeSelector or affinity"
            )
            return deny(Refusal.NODE_PRESET, message, 422)
        grace = site.spec.get("terminationGracePeriodSeconds")
        if isinstance(grace, int) and grace > GRACE_SECONDS_MAX:
            message = (
                f"the template of pod set {site.name} gives its pods {grace} s to end, and others wait for that: "
                f"write terminationGracePeriodSeconds: {GRACE_SECONDS_MAX} or less"
            )
            return deny(Refusal.MALFORMED_GANG, message, 422)
    return None


def gang_warnings(rules: JobRules, kind: JobKind, obj: Mapping[str, Any], asking: GangReading) -> tuple[str, ...]:
    """Return what may keep the gang from ever starting."""
    if asking.gang is None:
        return ()
    gang, found = rules.view.with_quorum(asking.gang), []
    if not sum(each.count for each in gang.pod_sets) and not _has_ended(kind, obj):
        found.append(
            "it asks for 0 pods: it is admitted at once, runs none, and cannot grow while it is admitted; give it its "
            "pods now, and keep it from starting with tutti hold"
        )
    missing = asking.missing_class
    if missing:
        found.append(
            f"{missing.label} does not exist, as far as Tutti has seen yet: the job waits until it does; {missing.help}"
        )
    if gang.queue is not None and queue_of(rules, gang) is None:
        found.append(_unknown_queue(rules, gang))
    else:
        never = rules.potential(gang)
        if never is not None:
            found.append(f"this gang can never start as it is: {_explained(never, gang)}")
    # Not the gang with its PodGroup's quorum: that is at most its own pods.
    short = _others_missing(rules, asking.gang) if gang.ensemble and not _has_ended(kind, obj) else None
    if short is not None:
        found.append(short)
    fenced = rules.view.fences.never_fits(gang)
    if fenced is not None:
        found.append(f"this gang can never start as it is: {_explained(reason_of(fenced), gang)}")
    return tuple(found)


def lingering(kind: JobKind, obj: Mapping[str, Any], asking: GangReading) -> tuple[str, ...]:
    """Return what will hold quota when the job has ended: here a reservation lasts as long as its pods do."""
    if kind.deadline_if is None or not kind.endless or status.holds(kind.deadline_if, obj):
        return ()
    pod_sets = () if asking.gang is None else asking.gang.pod_sets
    lasting = [pod_set.name for pod_set in pod_sets if pod_set.count and pod_set.name in kind.endless]
    if not lasting:
        return ()
    fix = f"{paths.render(kind.deadline_if.path)}: {kind.deadline_if.values[-1]}"
    return (
        f"pods of set {', '.join(lasting)} keep running when the job has ended, and hold quota meanwhile; write {fix}",
    )


def unplaced(rules: JobRules, kind: JobKind) -> tuple[str, ...]:
    """Return what is to be said of a job whose kind a hub places in no member."""
    if kind.given_manager or not rules.in_hub:
        return ()
    why = "the kind has no field that suspends it" if kind.suspend is None else "suspending it leaves its pods"
    return (f"a hub places no {kind.kind} in a member: {why}, so the job would start in this cluster",)


def unfollowed(rules: JobRules, kind: JobKind, obj: Mapping[str, Any], asking: GangReading) -> tuple[str, ...]:
    """Return what the job, or its PodGroup, says about where its pods go that is not carried out."""
    volcanos = kind.group == network_topology.GROUP
    left = network_topology.wanted(kind, obj, asking.sites, rules.context()).left if volcanos else {}
    group = None if asking.gang is None else rules.view.pod_group_of(asking.gang)
    if group is not None:
        left |= {f"spec.{each} of PodGroup {group.name}": "it is only for plain pods" for each in group.unfollowed}
    if not left:
        return ()
    return tuple(
        f"{each} is not followed: {why}, and the pods may go anywhere; write the annotation "
        f"{names.REQUIRED_TOPOLOGY}, {names.PREFERRED_TOPOLOGY} or {names.SLICE_TOPOLOGY} with a node label into the "
        "pod templates"
        for each, why in left.items()
    )


def _has_ended(kind: JobKind, obj: Mapping[str, Any]) -> bool:
    """Return whether the job makes no quorum with others any more."""
    deleting = paths.find(obj, ("metadata", "deletionTimestamp")) is not None
    return deleting or status.finished(kind, obj) is not None


def _others_missing(rules: JobRules, gang: Gang) -> str | None:
    """Return what to tell the owner of a job whose PodGroup needs more pods than its jobs bring so far."""
    quorum = rules.view.quorum_of(gang)
    if quorum is None or quorum <= gang.pods:
        return None
    known = (job for job in rules.view.gangs_in(gang.namespace) if job.uid != gang.uid and job.finished is None)
    others = sum(job.gang.pods for job in known if job.gang is not None and job.gang.ensemble == gang.ensemble)
    if others + gang.pods >= quorum:
        return None
    return (
        f"PodGroup {gang.ensemble} needs {counted(quorum, 'pod')} and its jobs bring {others + gang.pods} so far: "
        "they wait until others that name it are created"
    )


def queue_of(rules: JobRules, gang: Gang) -> str | None:
    """Return the queue the gang will wait in, if it is known."""
    return rules.view.policy.queue_of(gang.namespace, gang.queue)


def _unknown_queue(rules: JobRules, gang: Gang) -> str:
    # What the same 'kubectl apply' created a moment before, a watch may not have told yet.
    what, fix = rules.view.policy.why_no_queue(gang.namespace, gang.queue)
    return f"{what}, as far as Tutti has seen yet: the job waits until it exists; unless it was created just now, {fix}"


def _explained(reason: Reason, gang: Gang) -> str:
    """Return a reason in the words of the person who wrote the job."""
    if reason.asked is None or reason.limit is None or not reason.resource:
        return str(reason)
    asked = counted_jobs.amount_text(reason.asked, reason.resource)
    limit = quantity.render(reason.limit, reason.resource)
    flavor = f" of flavor {reason.flavor}" if reason.flavor else ""
    first = f"{gang} asks for {asked}, {reason.where} can hold at most {limit}{flavor}"
    return "; ".join([first, *(render(each) for each in reason.blockers if isinstance(each, TooMuch))])


def reading(rules: JobRules, kind: JobKind, obj: Mapping[str, Any]) -> GangReading:
    """Return the gang of ``obj`` as the reconciler will read it."""
    return read_gang(kind, obj, rules.context())
