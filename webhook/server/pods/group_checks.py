"""What a plain pod says of its group: whether it can be believed, agrees with the others, and may still be changed.

Where a group is one of Kueue's, what Kueue refuses at the door is refused here too, and what it finds out later (pods
that contradict each other, a pod too many) is told at the door as far as it is known there; whoever slips past waits.
"""

from webhook.cluster.view import View
from webhook.core.notation import names
from webhook.core.notation.counted import counted
from webhook.jobs.plain_pods.group_names import not_a_number, number_of_pods
from webhook.jobs.plain_pods.groups import Terms, terms, terms_of, vacancies
from webhook.jobs.reading import network_topology
from webhook.server.pods.review import PodRules
from webhook.server.review.answer import Answer, Refusal, deny
from webhook.server.review.pod_facts import PodFacts


def misgrouped(pod: PodFacts, namespace: str, view: View) -> Answer | None:
    """Return the refusal of a new plain pod that its group cannot take in; None for any other."""
    text, wrong = pod.labels.get(names.MIN_AVAILABLE_LABEL), pod.misgrouped
    if text is not None and number_of_pods(text) is None:
        wrong = not_a_number(f"label {names.MIN_AVAILABLE_LABEL}", text)
    if wrong is not None:
        return deny(Refusal.MALFORMED_GANG, str(wrong), 422)
    return _stranger(pod, namespace, view) or _one_too_many(pod, namespace, view)


def regrouped(pod: PodFacts, old: PodFacts) -> Answer | None:
    """Return the refusal of a gang's pod that says something else of its group than before; None for any other."""
    if pod.group != old.group:
        also = ", so it keeps a queue label" if old.group and pod.kueue_group == old.group else ""
        message = f"the PodGroup of a pod cannot change (it is {old.group or 'none'}{also}); create the pod again"
        return deny(Refusal.OWN_FIELDS, message)
    if old.group is None:
        return None
    if old.gated:
        # While it waits it can be corrected.
        wrong = None if old.misgrouped else pod.misgrouped
        return None if wrong is None else deny(Refusal.MALFORMED_GANG, str(wrong), 422)
    if _queue_of(pod) != _queue_of(old):
        return deny(Refusal.OWN_FIELDS, "the queue label of an admitted pod cannot change")
    if pod.group_size != old.group_size:
        message = f"annotation {names.KUEUE_POD_COUNT} of an admitted pod cannot change"
        return deny(Refusal.OWN_FIELDS, message)
    return None


def nameless(pod: PodFacts) -> Answer | None:
    """Return the refusal of a pod that counts the pods of a group and names none; Kueue refuses it too."""
    wrong = pod.misgrouped if pod.kueue_group is None and pod.controller is None and _queue_of(pod) else None
    return None if wrong is None else deny(Refusal.MALFORMED_GANG, str(wrong), 422)


def opt_in_warnings(pod: PodFacts) -> tuple[str, ...]:
    """Return what to tell the creator of a loose pod whose labels ask for a queue or a group, and get neither."""
    if pod.controller is not None or pod.group is not None:
        return ()
    if pod.kueue_group is not None:
        return (
            f"{names.KUEUE_POD_GROUP} has no effect without a queue label: the pod starts by itself, as in Kueue. "
            f"Add label {names.QUEUE_LABELS[1]} to have its group admitted as a gang",
        )
    label = next((key for key in names.QUEUE_LABELS if key in pod.labels), None)
    if label is None:
        return ()
    return (
        f"label {label} has no effect on a single Pod: it does not wait in a queue. "
        "Create a Job, or give the pods a PodGroup, to have them admitted as a gang",
    )


def unfollowed(pod: PodFacts, namespace: str, rules: PodRules) -> tuple[str, ...]:
    """Return what a pod's PodGroup says about where its pods go that is not carried out."""
    if not rules.view.pod_groups:
        return ()
    known = rules.view.pod_groups.get((namespace, pod.group or ""))
    if known is None or not known.unfollowed:
        return ()
    tiers = network_topology.tiers(rules.settings.network_tiers, rules.view.policy.hyper_nodes)
    why = network_topology.why_left(known.network_topology, tiers)
    left = {each: "it is not carried out" for each in known.unfollowed if each != "networkTopology"}
    left |= {} if why is None else {"networkTopology": why}
    return tuple(
        f"spec.{each} of PodGroup {known.name} is not followed: {why}, and its pods may go anywhere"
        for each, why in left.items()
    )


def unplaced(pod: PodFacts) -> tuple[str, ...]:
    """Return what is to be said of a plain pod of a group in a hub."""
    if not pod.gated:
        return ()
    return (f"a hub places no plain pods in a member: PodGroup {pod.group} would start in this cluster; create a Job",)


def _stranger(pod: PodFacts, namespace: str, view: View) -> Answer | None:
    """Return the refusal of a plain pod that asks for another queue or priority than those of its group that run."""
    members = view.fences.pods_of(namespace, pod.gang or "")
    running = sorted({terms(member) for member in members if member.live and not member.gated}, key=str)
    mine = terms_of(pod.labels, pod.spec.get("priority"), pod.group_size)
    if not running or mine in running:
        return None
    message = (
        f"the pods of PodGroup {namespace}/{pod.group} that run have {_in_words(running[0])}, "
        f"this one has {_in_words(mine)}; give it the same, or wait until they have ended"
    )
    return deny(Refusal.MALFORMED_GANG, message, 422)


def _one_too_many(pod: PodFacts, namespace: str, view: View) -> Answer | None:
    """Return the refusal of a pod for which a group of Kueue's has no room."""
    members = tuple(view.fences.pods_of(namespace, pod.gang or ""))
    if not pod.group_size or vacancies(members, pod.group_size) > 0:
        return None
    message = (
        f"group {namespace}/{pod.group} has all of its {counted(pod.group_size, 'pod')}, "
        f"those that have succeeded included (annotation {names.KUEUE_POD_COUNT}); "
        "create one more when one of them has failed or is deleted"
    )
    return deny(Refusal.MALFORMED_GANG, message)


def _in_words(terms: Terms) -> str:
    queue, priority, named, size = terms
    count = f" and {names.KUEUE_POD_COUNT} {size}" if size else ""
    return f"queue {queue or 'none'} and priority {priority}{f' (class {named})' if named else ''}{count}"


def _queue_of(pod: PodFacts) -> object:
    return next((pod.labels[label] for label in names.QUEUE_LABELS if label in pod.labels), None)
