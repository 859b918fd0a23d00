"""Which kinds of job must be read again when what jobs are read with has changed: those with a job that it changes.

Raw objects are not kept, so to read a kind again is to list it. A class that nobody waits for, a LimitRange of a
namespace without jobs and the counts in a status cost no list at all.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

from webhook.core.notation import names
from webhook.dialects.kueue import checks as kueue_checks
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.record import JobRecord

TRAIN_JOB: Final = "TrainJob.trainer.kubeflow.org"
"""The one kind that is read with another object's pod templates."""
VOLCANO: Final = ("Job.batch.volcano.sh", "PodGroup.scheduling.x-k8s.io")
"""Those that may say in tiers where their pods go."""


def meaning(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object without what its writing changes: versions, times, and most of its status."""
    metadata, status = document["metadata"], document.get("status")
    kept = {name: metadata.get(name) for name in ("namespace", "name", "uid", "labels", "annotations")}
    # Volcano keeps a queue's being closed in its status, and an AdmissionCheck says there whether it is active.
    told = "conditions" if document.get("kind") == kueue_checks.KIND else "state"
    return {**document, "metadata": kept, "status": status.get(told) if isinstance(status, dict) else None}


def changed_kinds(old: ReadContext, new: ReadContext, jobs: Iterable[JobRecord]) -> set[str]:
    """Return the keys of the kinds that have a job among ``jobs`` which is read differently with ``new``."""
    classes = {**_changed(old.priority_classes, new.priority_classes)}
    classes |= _changed(old.workload_priority_classes, new.workload_priority_classes)
    anybody = (
        old.default_priority_class != new.default_priority_class
        or old.runtime_classes != new.runtime_classes
        or names.DEFAULT_PRIORITY_CLASS in classes
        # Nobody can have been told the value of a class that was not there.
        or not all(classes.values())
    )
    namespaces = _changed(old.limit_ranges, new.limit_ranges) | _changed(old.namespace_labels, new.namespace_labels)
    runtimes = _changed(old.training_runtimes, new.training_runtimes)
    return {
        job.kind
        for job in jobs
        if anybody
        or job.namespace in namespaces
        or (classes and job.missing_class)
        or (runtimes and job.kind == TRAIN_JOB)
        or (old.network_tiers != new.network_tiers and job.kind in VOLCANO)
    }


def _changed(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Hashable, bool]:
    """Return the keys under which the two differ, and of each whether it is only ``new`` that has it."""
    return {key: key not in old for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
