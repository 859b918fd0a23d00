"""What Kueue refuses of a Workload, by its schema and its webhook, as far as a gang is read from it.

No cluster holds such an object. A file may; to decide about it would be to guess what was meant. Left out is what means
something here: queues of other dialects have other names, and more than one pod set may have a ``minCount``.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from webhook.core.quantity import MILLI
from webhook.jobs import paths
from webhook.jobs.pod_sets import UnreadableJob

_POD_SETS_MAX: Final = 18
_POD_SET_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def check(obj: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """Raise UnreadableJob for the first rule that ``obj`` breaks. ``counts`` is how many pods each pod set has."""
    pod_sets = obj["spec"]["podSets"]
    _check_names([str(pod_set["name"]) for pod_set in pod_sets])
    _check_least(pod_sets)
    _check_reclaimed(obj, counts)
    limit = obj["spec"].get("maximumExecutionTimeSeconds")
    if limit is not None and (type(limit) is not int or limit < 1):
        where = "spec.maximumExecutionTimeSeconds"
        raise UnreadableJob(f"{where}: {limit!r:.60}: is not an allowed time; write whole seconds from 1")


def check_usage(where: str, resource: str, amount: int, count: int) -> None:
    """Raise UnreadableJob unless ``amount`` thousandths are as much for each of ``count`` pods, as Kueue counts."""
    units = amount if resource == "cpu" else -(-amount // MILLI)
    if count and units % count:
        raise UnreadableJob(
            f"{where}.resourceUsage.{resource}: is no multiple of {count}; write what all have together"
        )


def _check_names(names: list[str]) -> None:
    if not 1 <= len(names) <= _POD_SETS_MAX:
        raise UnreadableJob(f"spec.podSets: {len(names)} entries: not an allowed number; write 1 to {_POD_SETS_MAX}")
    for name in names:
        if _POD_SET_NAME.fullmatch(name) is None:
            fix = "use at most 63 lower-case letters, digits and '-'"
            raise UnreadableJob(f"spec.podSets: {name!r:.80}: is no name of a pod set; {fix}")
    if len(set(names)) < len(names):
        raise UnreadableJob(f"spec.podSets: {', '.join(names)}: two pod sets have one name; rename one")


def _check_least(pod_sets: list[Mapping[str, Any]]) -> None:
    for pod_set in pod_sets:
        least = pod_set.get("minCount")
        if type(least) is int and least < 1:
            where = f"pod set {pod_set['name']}: minCount"
            raise UnreadableJob(f"{where}: {least}: is not a number of pods; write 1 or more")


def _check_reclaimed(obj: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    listed = paths.find(obj, ("status", "reclaimablePods"))
    for item in listed if isinstance(listed, list) else ():
        name, count = (item.get("name") or "main", item.get("count")) if isinstance(item, dict) else (item, None)
        if not isinstance(name, str) or name not in counts:
            raise UnreadableJob(f"status.reclaimablePods: {name!r:.80}: is no pod set of it; name one of spec.podSets")
        if type(count) is not int or not 0 <= count <= counts[name]:
            most = f"write 0 to {counts[name]}"
            raise UnreadableJob(f"status.reclaimablePods: {name}: {count!r:.40} is not a number of its pods; {most}")
