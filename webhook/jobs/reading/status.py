"""What a job's controller reports: finished, active, ready, and pods that have ended for good."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from webhook.jobs.kinds.kind import JobKind, ReadyCount, Signal, TemplateChange
from webhook.jobs.pod_sets import train_job
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.ended import Ended
from webhook.untyped import paths
from webhook.untyped.values import mappings

FAILURE_CHARACTERS_MAX: Final = 300
"""Of what a controller says of a failure: it is kept for each job that has failed."""


def finished(kind: JobKind, obj: Mapping[str, Any]) -> str | None:
    """Return ``Succeeded`` or ``Failed`` once the job has ended."""
    if not obj.get("status"):
        return None
    if any(holds(signal, obj) for signal in kind.succeeded):
        return "Succeeded"
    return "Failed" if any(holds(signal, obj) for signal in kind.failed) else None


def finished_at(kind: JobKind, obj: Mapping[str, Any]) -> object:
    """Return when a job that has ended did so, as its status writes the time; None when that does not tell."""
    for path in (("status", "completionTime"), ("status", "finishedAt"), ("status", "endTime")):
        time = paths.find(obj, path)
        if time:
            return time
    wanted = [signal.condition for signal in (*kind.succeeded, *kind.failed) if signal.condition]
    for condition in mappings(paths.find(obj, ("status", "conditions"))):
        if condition.get("type") in wanted and condition.get("status") == "True":
            return condition.get("lastTransitionTime")
    return None


def why_failed(kind: JobKind, obj: Mapping[str, Any]) -> str:
    """Return what the controller of a job says of its failure; nothing where it says nothing, or there is none."""
    if finished(kind, obj) != "Failed":
        return ""
    status, wanted = paths.find_mapping(obj, ("status",)), [signal.condition for signal in kind.failed]
    failures = [c for c in mappings(status.get("conditions")) if c.get("type") in wanted and c.get("status") == "True"]
    said = failures[0] if failures else status
    # The last is a SparkApplication's.
    words = (paths.find(said, where) for where in (("reason",), ("message",), ("applicationState", "errorMessage")))
    return ": ".join(word for word in words if isinstance(word, str) and word)[:FAILURE_CHARACTERS_MAX]


def active(kind: JobKind, obj: Mapping[str, Any]) -> bool:
    """Return whether the controller reports pods of its own."""
    return bool(obj.get("status")) and any(holds(signal, obj) for signal in kind.active)


def ready(kind: JobKind, obj: Mapping[str, Any], counts: Mapping[str, int]) -> bool:
    """Return whether the controller reports all pods running or done; ``counts`` are those of each pod set."""
    if not obj.get("status"):
        return False
    rule = kind.ready
    if not isinstance(rule, ReadyCount):
        return rule is not None and holds(rule, obj)
    if rule.only_if is not None and not holds(rule.only_if, obj):
        return False
    wanted = len(counts) if rule.pod_sets else sum(counts.values())
    if rule.wanted is not None:
        wanted = _wanted(obj, rule.wanted)
    found = (found for path in rule.have for found in paths.find_each(obj, path))
    return sum(1 if isinstance(each, str) and each in rule.texts else _number(each) for each in found) >= wanted


def restorable(kind: JobKind, obj: Mapping[str, Any], suspended: bool, is_active: bool) -> bool:
    """Return whether the API server would accept a change of the pod templates now."""
    match kind.template_change:
        case TemplateChange.ALWAYS:
            return True
        case TemplateChange.SUSPENDED:
            return suspended and not is_active
        case TemplateChange.STOPPED:
            return suspended and not is_active and not _start_time(obj)
    return False


def start_time_left(kind: JobKind, obj: Mapping[str, Any], suspended: bool, is_active: bool) -> bool:
    """Return whether a job is reported stopped, but with the start time of its last run.

    The Job controller clears it since Kubernetes 1.36 (``MutableSchedulingDirectivesForSuspendedJobs``). Before, it
    leaves that to others, and the API server freezes the pod templates until it is cleared.
    """
    frozen = kind.template_change is TemplateChange.STOPPED and suspended and not is_active
    return frozen and _start_time(obj) and has_condition(obj, "Suspended")


def _start_time(obj: Mapping[str, Any]) -> bool:
    return paths.find(obj, ("status", "startTime")) is not None


def holds(signal: Signal, obj: Mapping[str, Any]) -> bool:
    """Return whether the status says yes to ``signal``."""
    if signal.only_if is not None and not holds(signal.only_if, obj):
        return False
    if signal.condition:
        return has_condition(obj, signal.condition)
    for found in paths.find_each(obj, signal.path):
        if signal.values:
            if found in signal.values:
                return True
        elif signal.other_than:
            if found is not None and found not in signal.other_than:
                return True
        elif found is True or (isinstance(found, str) and found) or _number(found) > 0:
            return True
    return False


def has_condition(obj: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition of that type is True."""
    conditions = paths.find(obj, ("status", "conditions"))
    if not isinstance(conditions, list):
        return False
    return any(isinstance(c, dict) and c.get("type") == kind and c.get("status") == "True" for c in conditions)


def ended(kind: JobKind, obj: Mapping[str, Any], sites: Iterable[PodSetSite]) -> dict[str, Ended]:
    """Return the pods of each set that have ended and will not be replaced, where there are any."""
    if kind.reclaim is None or not obj.get("status"):
        return {}
    counts = {site.name: site.count for site in sites}
    found = _ENDED_RULES[kind.reclaim](obj, counts)
    return {name: each for name, each in found.items() if each.pods > 0 and name in counts}


def gives_back(kind: JobKind) -> bool:
    """Return whether gangs of the kind give room back while they run: of what has ended, none runs again.

    The Job controller never runs more pods than are left to succeed. That of a JobSet, which also runs a TrainJob,
    counts Jobs by name and label: a tenant may have one counted that is made again, or that was never its own.
    """
    return kind.reclaim == "job"


def winding_down(kind: JobKind, obj: Mapping[str, Any]) -> bool:
    """Return whether the kind's controller replaces no pod any more, and calls the job complete once none is active:
    that of Jobs without completions once one has succeeded.
    """
    return kind.reclaim == "job" and _winds_down(obj)


def _winds_down(obj: Mapping[str, Any]) -> bool:
    open_ended = type(paths.find(obj, ("spec", "completions"))) is not int
    return open_ended and _number(paths.find(obj, ("status", "succeeded"))) > 0


def runs_again(kind: JobKind, obj: Mapping[str, Any], context: ReadContext) -> bool:
    """Return whether the kind's controller may run again what has ended: a restarted JobSet starts all of it again.

    Raises Unreadable when that stands in another object, and there is none.
    """
    if kind.reclaim == "train-job":
        obj = paths.find_mapping(train_job.runtime_of(obj, context), ("spec", "template"))
    if kind.reclaim not in ("jobset", "train-job"):
        return False
    policy = paths.find_mapping(obj, ("spec", "failurePolicy"))
    actions = paths.find_each(policy, ("rules", paths.EACH, "action"))
    return _number(policy.get("maxRestarts")) > 0 or any(action != "FailJobSet" for action in actions)


def _ended_of_job(obj: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Ended]:
    """A Job keeps ``completions`` minus ended pods busy at most; without completions, of which one has succeeded, those
    that it has.
    """
    completions = paths.find(obj, ("spec", "completions"))
    pods, present = _number(paths.find(obj, ("status", "succeeded"))), _present(obj)
    if _winds_down(obj):
        pods += _number(paths.find(obj, ("status", "failed")))
        return {"main": Ended(pods, pods + _number(paths.find(obj, ("status", "active"))), present)}
    if type(completions) is not int:
        return {}
    if paths.find(obj, ("spec", "completionMode")) == "Indexed":
        texts = (paths.find(obj, ("status", key)) for key in ("completedIndexes", "failedIndexes"))
        pods = _count_indexes((text for text in texts if isinstance(text, str)), completions)
    return {"main": Ended(pods, completions, present)}


def _present(obj: Mapping[str, Any]) -> int:
    """Return how many pods a Job has that have not ended. Old releases do not tell of those that are being deleted."""
    return sum(_number(paths.find(obj, ("status", field))) for field in ("active", "terminating"))


def _ended_of_jobset(obj: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Ended]:
    """Of a child Job that succeeded all pods have ended."""
    replicas = {}
    for item in mappings(paths.find(obj, ("spec", "replicatedJobs"))):
        number = item.get("replicas", 1)
        replicas[str(item.get("name")).lower()] = number if type(number) is int else 1
    gone = {}
    for item in mappings(paths.find(obj, ("status", "replicatedJobsStatus"))):
        name = str(item.get("name")).lower()
        each = counts.get(name, 0) // max(replicas.get(name, 1), 1)
        gone[name] = Ended(_number(item.get("succeeded")) * each, counts.get(name, 0))
    return gone


def _ended_of_train_job(obj: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Ended]:
    """Of a child Job that succeeded all pods have ended; there is one for each pod set."""
    jobs = mappings(paths.find(obj, ("status", "jobsStatus")))
    succeeded = {str(job.get("name")).lower() for job in jobs if _number(job.get("succeeded")) > 0}
    return {name: Ended(count, count) for name, count in counts.items() if name in succeeded}


_ENDED_RULES: Final[Mapping[str, Callable[[Mapping[str, Any], Mapping[str, int]], dict[str, Ended]]]] = {
    "job": _ended_of_job,
    "jobset": _ended_of_jobset,
    "train-job": _ended_of_train_job,
}
"""By the names that ``JobKind.reclaim`` may take."""


def _count_indexes(texts: Iterable[str], below: int) -> int:
    """Return how many indexes under ``below`` the interval texts (``1,3-5``) name together."""
    intervals: list[tuple[int, int]] = []
    for text in texts:
        for part in text.split(","):
            first, _, last = part.partition("-")
            if first.isdecimal() and (last or first).isdecimal():
                intervals.append((int(first), min(int(last or first), below - 1)))
    total, reached = 0, -1
    for low, high in sorted(intervals):
        start = max(low, reached + 1)
        if high >= start:
            total += high - start + 1
            reached = high
    return total


def _wanted(obj: Mapping[str, Any], path: paths.Path) -> int:
    *items, field = path
    numbers = (paths.find(item, (field,)) for item in paths.find_each(obj, tuple(items)))
    return sum(1 if number is None else _number(number) for number in numbers)


def _number(found: object) -> int:
    if isinstance(found, list):
        return len(found)
    return found if type(found) is int else 0
