"""Policies derived from a log, as the Kueue objects that an operator could apply: one ClusterQueue a queue of the log,
called as that is or, where a cluster would not take the name, by one made of it.

``private``: nobody borrows. ``borrow``: all queues in one cohort, which share what is idle. ``reclaim``: the same, and
a queue takes back what it owns by preemption. A queue owns what would keep it busy for ``load`` of the time that the
log covers, in whole nodes of eight GPUs and at least its largest job; where the log says how large its cluster was,
that is divided in proportion to what the queues asked.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.core.model.policy import Strategy
from webhook.laboratory.replay.job_log import GPU, JobLog, window_of
from webhook.laboratory.replay.queues import object_name

PRIVATE: Final = "private"
BORROW: Final = "borrow"
RECLAIM: Final = "reclaim"
NAMES: Final = (PRIVATE, BORROW, RECLAIM)
LOAD: Final = 0.7
_GPUS_PER_NODE: Final = 8
_FLAVOR: Final = "default"
_COHORT: Final = "cluster"

Object = dict[str, Any]


def parse(text: str) -> tuple[str, Strategy] | None:
    """Return what ``NAME`` or ``NAME:STRATEGY`` names; None when it names no policy of these."""
    name, _, strategy = text.partition(":")
    if name not in NAMES or strategy not in {"", *Strategy}:
        return None
    return name, Strategy(strategy) if strategy else Strategy.BEST_EFFORT_FIFO


def objects(log: JobLog, name: str, strategy: Strategy, load: float = LOAD) -> list[Object]:
    """Return the policy ``name`` of NAMES for ``log``, its queues in order of ``strategy``."""
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": _FLAVOR}}
    quotas = quotas_of(log, load)
    return [flavor, *(_queue(log, name, strategy, queue, quotas[queue]) for queue in sorted(quotas))]


def _queue(log: JobLog, name: str, strategy: Strategy, queue: str, nominal: int) -> Object:
    quota = {"name": log.resource, "nominalQuota": str(nominal)}
    spec: Object = {
        "namespaceSelector": {},
        "queueingStrategy": str(strategy),
        "resourceGroups": [
            {"coveredResources": [log.resource], "flavors": [{"name": _FLAVOR, "resources": [quota]}]},
        ],
    }
    if name != PRIVATE:
        spec["cohortName"] = _COHORT
    if name == RECLAIM:
        spec["preemption"] = {"reclaimWithinCohort": "Any"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": object_name(queue)},
        "spec": spec,
    }


def quotas_of(log: JobLog, load: float = LOAD) -> dict[str, int]:
    """Return what each queue of the log is to own, in GPUs or processors."""
    asked: dict[str, float] = {}
    largest: dict[str, int] = {}
    for job in log.jobs:
        asked[job.queue] = asked.get(job.queue, 0) + job.unit_seconds
        largest[job.queue] = max(largest.get(job.queue, 0), job.size)
    if log.capacity is not None:
        return _divided(log.capacity, asked)
    first, last = window_of(log.jobs)
    step = _GPUS_PER_NODE if log.resource == GPU else 1
    return {
        queue: max(_up(unit_seconds / max(1.0, last - first) / load, step), _up(largest[queue], step))
        for queue, unit_seconds in asked.items()
    }


def _up(amount: float, step: int) -> int:
    return math.ceil(amount / step) * step


def _divided(whole: int, asked: Mapping[str, float]) -> dict[str, int]:
    """Return ``whole`` divided in proportion, by largest remainder; ties go to the first name."""
    total = sum(asked.values())
    exact = {queue: whole * (asked[queue] / total if total else 1 / len(asked)) for queue in sorted(asked)}
    parts = {queue: int(share) for queue, share in exact.items()}
    order: Sequence[str] = sorted(exact, key=lambda queue: parts[queue] - exact[queue])
    for queue in order[: whole - sum(parts.values())]:
        parts[queue] += 1
    return parts
