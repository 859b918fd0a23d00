"""Whether the pods of a set can run on the nodes of a flavor at all, whatever is free there.

Follows Kueue's flavor assigner: the flavor's taints have to be tolerated, and the pod set's node selector and required
affinity must not contradict its labels; only keys that the flavor itself has are looked at.
"""

from webhook.core.model.gang import Nearness, PodSet, Requirement
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
    no_level = None if pod_set.near is None else _no_level(flavor.levels, pod_set.near)
    if no_level is not None:
        return f"{no_level} of the topology of flavor {name}"
    if pod_set.node_affinity and not any(_term_matches(term, flavor) for term in pod_set.node_affinity):
        return f"node affinity does not match flavor {name}"
    return None


def _no_level(levels: tuple[str, ...], near: Nearness) -> str | None:
    named = [level for level in (near.level, near.slice_level) if level]
    unknown = next((level for level in named if levels and level not in levels), None)
    if unknown is not None:
        return f"{unknown} is not a level"
    if levels and named != sorted(named, key=levels.index):
        return f"{near.slice_level}, of the slices, is a wider level than {near.level}"
    return None


def _term_matches(term: tuple[Requirement, ...], flavor: Flavor) -> bool:
    return all(requirement_holds(r, flavor.node_labels) for r in term if r.key in flavor.node_labels)
