"""Pods and PodGroups of files: loose pods, pods of gangs, and plain pods that are a gang by themselves.

A plain pod that joined a PodGroup is held at its creation, so a manifest of one is read as the webhook would have left
it: behind our gate, unless it has a node or runs already.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import jsonpatch
import msgspec
import orjson

from webhook.cluster.view import View
from webhook.core.notation.problem import Problem, Unreadable
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.patches.marking import gate_pod
from webhook.jobs.plain_pods import group_names
from webhook.jobs.plain_pods import groups as pod_groups
from webhook.jobs.plain_pods import pod as pod_record
from webhook.jobs.plain_pods.pod_group import GENERATIONS, NO_GROUP, PodGroupRecord, queue_of
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.pricing.pod_requests import price
from webhook.jobs.reading import gating
from webhook.jobs.reading.record import JobRecord
from webhook.laboratory.dry_run.files.belonging import Belonging
from webhook.laboratory.dry_run.files.objects import Object, group_of, label
from webhook.untyped import paths

_AGES: Final = {path.split("/")[2]: age for age, path in enumerate(GENERATIONS.values())}
"""API group of each generation to its place, the oldest first."""


def read_pods(
    view: View, pods: Iterable[Object], kinds: Mapping[str, JobKind], context: ReadContext, whose: Belonging
) -> tuple[list[JobRecord], list[Problem]]:
    """Take pods into the fences; return the gangs that plain pods make, and what could not be read."""
    problems: list[Problem] = []
    groups: dict[tuple[str, str], None] = {}
    for obj in pods:
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        try:
            price(paths.find_mapping(obj, ("spec",)))
            mine = whose.workload_of(obj)
            group = None if mine is not None else _waits_with(obj, kinds)
            pod = pod_record.decode(orjson.dumps(_as_created(obj, group, context)))
        except Unreadable as error:
            problems.append(error.problem.within(f"{label(obj)}#"))
            continue
        except (msgspec.MsgspecError, AssertionError, ValueError, AttributeError, TypeError) as error:
            text = f"is not a pod: {error}"
            problems.append(Problem(f"Pod {namespace}/{name}", "", text, "correct the field named"))
            continue
        if mine is not None and pod.gang is None:
            pod = replace(pod, gang=mine[0], pod_set=mine[1])
        wrong = group_names.misgrouped(obj) if group is not None else None
        if wrong is not None:
            problems.append(wrong.within(f"{label(obj)}#"))
            continue
        view.fences.put_pod(pod)
        if pod.group:
            groups[namespace, pod.group] = None
    found = []
    for namespace, group in groups:
        members = view.fences.pods_of(namespace, pod_groups.gang_uid(namespace, group))
        known = view.pod_groups.get((namespace, group), NO_GROUP)
        record = pod_groups.read(namespace, group, members, context, known)
        if record is not None and record.finished is None:
            view.put_job(record)
            found.append(record)
    return found, problems


def _waits_with(obj: Object, kinds: Mapping[str, JobKind]) -> str | None:
    """Return the group with which a pod would have been held at its creation; None for any other pod."""
    owner, started = gating.owner_of(obj), paths.find(obj, ("status", "phase")) not in (None, "Pending")
    if started or (owner is not None and owner.kind in kinds) or group_names.held_by_kueue(obj):
        return None
    return group_names.group_of(obj)


def _as_created(obj: Object, group: str | None, context: ReadContext) -> Any:
    """Return a pod with the priority that admission gives it, and held if it waits with a group."""
    pod: Any = obj
    spec = paths.find_mapping(pod, ("spec",))
    value = context.priority_classes.get(str(spec.get("priorityClassName") or context.default_priority_class))
    if value is not None and spec and "priority" not in spec:
        pod = {**pod, "spec": {**spec, "priority": value}}
    if group is None:
        return pod
    return jsonpatch.apply_patch(pod, gate_pod(pod, pod_groups.gang_uid(obj["metadata"]["namespace"], group)))


def read_pod_groups(view: View, found: Iterable[Object]) -> list[Problem]:
    """Take PodGroups of any generation into the view; return what could not be read."""
    problems = []
    # Of one name the oldest generation counts, as in a cluster: it comes last.
    for obj in sorted(found, key=lambda obj: -_AGES.get(group_of(obj), 0)):
        key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
        least = paths.find(obj, ("spec", "minMember"))
        if least is None:
            least = paths.find(obj, ("spec", "schedulingPolicy", "gang", "minCount"))
        if least is not None and (type(least) is not int or least < 0):
            where = f"PodGroup {key[0]}/{key[1]}#/spec/minMember"
            problems.append(Problem(where, repr(least)[:80], "is not a number of pods", "write 1 or more"))
            least = None
        queue = queue_of(group_of(obj), obj)
        view.pod_groups[key] = PodGroupRecord(*key, min_member=least or 0, queue=queue, generation=group_of(obj))
    return problems
