"""How a plain pod says which group it belongs to: a PodGroup of any generation, or a group as Kueue has them.

Kueue's groups have no object. A pod names its group by a label (or by an annotation of the same name, which counts
first), how many pods the group has in all by another annotation, and its queue as jobs do: without a queue Kueue lets
such a pod pass, and so do we. On the pod templates of jobs none of this is read: there the job is the gang.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from webhook.core.notation import names
from webhook.core.notation.problem import Problem, shown
from webhook.jobs.reading.gating import pod_group_of, queue_label
from webhook.untyped import paths
from webhook.untyped.values import text

_NATIVE: Final = ("spec", "schedulingGroup", "podGroupName")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


def group_of(pod: Mapping[str, Any]) -> str | None:
    """Return the group that a pod joins: a PodGroup of whichever generation, or else one of Kueue's with a queue."""
    pod_group = pod_group_named(pod)
    return pod_group if pod_group is not None else _queued_group(pod)


def pod_group_named(pod: Mapping[str, Any]) -> str | None:
    """Return the PodGroup that a pod joins, by whichever generation's label, annotation or field."""
    group = pod_group_of(_metadata(pod, "labels"))
    if group is not None:
        return group
    own = _metadata(pod, "annotations")
    for key in names.POD_GROUP_ANNOTATIONS:
        if name := text(own.get(key)):
            return name
    return text(paths.find(pod, _NATIVE)) or None


def kueue_group_named(pod: Mapping[str, Any]) -> str | None:
    """Return the group of Kueue's that a pod names, whether it has a queue or not."""
    for place in ("annotations", "labels"):
        name = _metadata(pod, place).get(names.KUEUE_POD_GROUP)
        if isinstance(name, str) and name:
            return name
    return None


def size_of_group(pod: Mapping[str, Any]) -> int:
    """Return how many pods a pod's group has in all, where it is one of Kueue's that says so; 0 for any other."""
    stated = _metadata(pod, "annotations").get(names.KUEUE_POD_COUNT)
    return 0 if _queued_group(pod) is None else number_of_pods(stated) or 0


def number_of_pods(stated: object) -> int | None:
    """Return the number of pods that a label or annotation says, None for anything but a number from 1."""
    number = int(stated) if isinstance(stated, str) and stated.isdecimal() and len(stated) < 10 else 0
    return number or None


def held_by_kueue(pod: Mapping[str, Any]) -> bool:
    """Return whether Kueue itself holds a pod as one of its own: such a pod is left to it."""
    gates = paths.find(pod, ("spec", "schedulingGates"))
    return isinstance(gates, list) and {"name": names.KUEUE_GATE} in gates and pod_group_named(pod) is None


def misgrouped(pod: Mapping[str, Any]) -> Problem | None:
    """Return what is wrong with how a pod names its group as in Kueue, or None.

    Kueue refuses a name without a count and a count without a name. Under it a pod may be in a PodGroup of another
    name as well, for a gang scheduler; here that would be two gangs.
    """
    name, pod_group = kueue_group_named(pod), pod_group_named(pod)
    count = _metadata(pod, "annotations").get(names.KUEUE_POD_COUNT)
    named, counted = f"label {names.KUEUE_POD_GROUP}", f"annotation {names.KUEUE_POD_COUNT}"
    if name is None:
        why = "counts the pods of a group, but no group is named"
        return None if count is None else Problem(counted, shown(count), why, f"add {named}")
    if _NAME.fullmatch(name) is None:
        return Problem(named, shown(name), "is no name", "write lower-case letters, digits, '-' and '.'")
    if pod_group is not None and pod_group != name:
        why = f"is a different gang from PodGroup {pod_group!r}, which the pod also joins"
        return Problem(named, name, why, "leave one of them out, or give both the same name")
    if count is None:
        why = f"it does not say when group {name!r} is complete"
        return Problem(counted, shown(count), why, "write how many pods it has in all")
    if number_of_pods(count) is None:
        return not_a_number(counted, count)
    return None


def not_a_number(where: str, stated: object) -> Problem:
    """Return what is wrong with a label or annotation that should say how many pods there are."""
    return Problem(where, shown(stated), "is not a number of pods", "write 1 or more")


def _queued_group(pod: Mapping[str, Any]) -> str | None:
    name = kueue_group_named(pod)
    return name if name is not None and queue_label(pod) is not None else None


def _metadata(pod: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return paths.find_mapping(pod, ("metadata", key))
