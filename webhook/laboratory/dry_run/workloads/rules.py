"""What Kueue refuses of a Workload, by its schema and its webhook, as far as a gang is read from it.

No cluster holds such an object. A file may; to decide about it would be to guess what was meant. Left out is what means
something here: queues of other dialects have other names, and more than one pod set may have a ``minCount``.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from webhook.core.notation import quantity
from webhook.core.notation.problem import Unreadable
from webhook.core.notation.quantity import MILLI
from webhook.untyped import paths

_POD_SETS_MAX: Final = 18
_GATES_MAX: Final = 8
_PRIORITY_BOUND: Final = 2**31
_CLASSES: Final = {"kueue.x-k8s.io": "WorkloadPriorityClass", "scheduling.k8s.io": "PriorityClass"}
"""Group to the only kind that a priority may come from."""
_POD_SET_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def check(obj: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """Raise Unreadable for the first rule that ``obj`` breaks. ``counts`` is how many pods each pod set has."""
    spec = obj["spec"]
    pod_sets = spec["podSets"]
    _check_names([str(pod_set["name"]) for pod_set in pod_sets])
    _check_least(pod_sets)
    _check_reclaimed(obj, counts)
    _check_class(spec.get("priorityClassRef"))
    gates = spec.get("preemptionGates")
    if isinstance(gates, list) and len(gates) > _GATES_MAX:
        raise Unreadable("spec.preemptionGates", f"{len(gates)} entries", "too many", f"write at most {_GATES_MAX}")
    limit = spec.get("maximumExecutionTimeSeconds")
    if limit is not None and (type(limit) is not int or limit < 1):
        where = "spec.maximumExecutionTimeSeconds"
        raise Unreadable(where, limit, "is not an allowed time", "write whole seconds from 1")


def check_priority(value: object) -> int:
    """Return a priority. Raises Unreadable for what is no whole number of 32 bits."""
    if type(value) is int and -_PRIORITY_BOUND <= value < _PRIORITY_BOUND:
        return value
    raise Unreadable("spec.priority", value, "is not a whole number of 32 bits", "write one")


def check_usage(where: str, resource: str, amount: int, count: int) -> None:
    """Raise Unreadable unless ``amount`` thousandths are as much for each of ``count`` pods, as Kueue counts."""
    units = amount if resource == "cpu" else -(-amount // MILLI)
    if count and units % count:
        raise Unreadable(
            f"{where}.resourceUsage.{resource}",
            quantity.render(amount, resource),
            f"is not a multiple of {count}",
            "write what all have together",
        )


def _check_names(names: list[str]) -> None:
    if not 1 <= len(names) <= _POD_SETS_MAX:
        raise Unreadable(
            "spec.podSets", f"{len(names)} entries", "not an allowed number", f"write 1 to {_POD_SETS_MAX}"
        )
    for index, name in enumerate(names):
        if _POD_SET_NAME.fullmatch(name) is None:
            fix = "use at most 63 lower-case letters, digits and '-'"
            raise Unreadable(f"spec.podSets.{index}.name", name, "is not a name of a pod set", fix)
        if name in names[:index]:
            raise Unreadable(f"spec.podSets.{index}.name", name, "another pod set has this name", "rename one")


def _check_least(pod_sets: list[Mapping[str, Any]]) -> None:
    for index, pod_set in enumerate(pod_sets):
        least, count = pod_set.get("minCount"), pod_set.get("count")
        if type(least) is int and type(count) is int and not 1 <= least <= count:
            where = f"spec.podSets.{index}.minCount"
            raise Unreadable(where, least, "is not a number of its pods", f"write 1 to {count}")


def _check_reclaimed(obj: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    listed = paths.find(obj, ("status", "reclaimablePods"))
    for index, item in enumerate(listed if isinstance(listed, list) else ()):
        where = f"status.reclaimablePods.{index}"
        name, count = (item.get("name") or "main", item.get("count")) if isinstance(item, dict) else (item, None)
        if not isinstance(name, str) or name not in counts:
            raise Unreadable(f"{where}.name", name, "is not a pod set of it", "name one of spec.podSets")
        if type(count) is not int or not 0 <= count <= counts[name]:
            most = f"write 0 to {counts[name]}"
            raise Unreadable(f"{where}.count", count, f"is not a number of the pods of {name}", most)


def _check_class(reference: object) -> None:
    if not isinstance(reference, dict):
        return
    group, kind = reference.get("group"), reference.get("kind")
    if not isinstance(group, str) or group not in _CLASSES:
        raise Unreadable("spec.priorityClassRef.group", group, "is unknown", f"write {' or '.join(_CLASSES)}")
    if kind != _CLASSES[group]:
        raise Unreadable("spec.priorityClassRef.kind", kind, f"is not of {group}", f"write {_CLASSES[group]}")
