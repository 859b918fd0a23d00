"""Whether the pods of a set can run on the nodes of a flavor at all, whatever is free there.

Follows Kueue's flavor assigner: the flavor's taints have to be tolerated, and the pod set's node selector and required
affinity must not contradict its labels; only keys that the flavor itself has are looked at.
"""

from webhook.core.model.gang import PodSet, Requirement
from webhook.core.model.policy import Flavor, requirement_holds, tolerates


def misfit(flavor: Flavor | None, name: str, pod_set: PodSet) -> str | None:
    """Return why pods of ``pod_set`` cannot run on ``flavor``, or None when they can."""
    if flavor is None:
        return f"flavor {name} does not exist"
    for taint in flavor.node_taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            tolerates(toleration, taint) for toleration in (*pod_set.tolerations, *flavor.tolerations)
        ):
            return f"untolerated taint {taint.key}={taint.value}:{taint.effect} of flavor {name}"
    for key, value in pod_set.node_selector.items():
        if key in flavor.node_labels and flavor.node_labels[key] != value:
            return f"node selector {key}={value} does not match flavor {name}"
    if flavor.levels and pod_set.near is not None and pod_set.near.level not in flavor.levels:
        return f"{pod_set.near.level} is no level of the topology of flavor {name}"
    if pod_set.node_affinity and not any(_term_matches(term, flavor) for term in pod_set.node_affinity):
        return f"node affinity does not match flavor {name}"
    return None


def _term_matches(term: tuple[Requirement, ...], flavor: Flavor) -> bool:
    return all(requirement_holds(r, flavor.node_labels) for r in term if r.key in flavor.node_labels)
