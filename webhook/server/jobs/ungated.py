"""What does not wait for Tutti: it bears nothing that only Tutti writes, and an opt-in without effect is reported."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from webhook.core.notation import names
from webhook.jobs.reading.gating import pod_group_of
from webhook.jobs.reading.ours import means_a_queue, misplaced_queues, own_marks, unknown_names
from webhook.server.review.answer import Answer, Refusal, allow, deny
from webhook.server.review.job_facts import JobRules
from webhook.untyped import paths
from webhook.wire.admission_review import ReviewRequest

_TOLD_MAX: Final = 3


def newly_marked(request: ReviewRequest, *writers: str) -> Answer | None:
    """Return the refusal of a mark of ours that the object did not have before; None where ``writers`` put it there.

    Its pods would pass as those of a gang that it does not belong to.
    """
    if request.object is None or request.username in writers:
        return None
    now = own_marks(request.object)
    if not now:
        return None
    before = {} if request.old_object is None else own_marks(request.old_object)
    written = next((mark for mark in sorted(now) if now[mark] != before.get(mark)), None)
    if written is None:
        return None
    kind = request.kind.partition(".")[0]
    message = f"{written} is written only by Tutti, and this {kind} does not wait for Tutti: leave it out"
    return deny(Refusal.OWN_FIELDS, message)


def mislabelled(request: ReviewRequest) -> tuple[str, ...]:
    """Return what to tell the creator of a job that waits for nobody, although its owner seems to have meant it to."""
    labels, kind = paths.find_mapping(request.object, ("metadata", "labels")), request.kind.partition(".")[0]
    empty = next((key for key in names.QUEUE_LABELS if labels.get(key) == ""), None)
    if empty is not None:
        # As a chart writes it whose value was not given.
        return (
            f"label {empty} is empty: the {kind} waits in no queue and starts at once; name a queue, or leave it out",
        )
    found = () if request.object is None else misplaced_queues(request.object)
    if not found:
        return ()
    fix = f"label the {kind} itself (metadata.labels) with {names.QUEUE_LABELS[0]}"
    return (f"{found[0]} does not make the {kind} wait in a queue: it starts at once; {fix}",)


def meaningless(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what to tell the creator of a job that bears names under ours which are none of ours."""
    found = unknown_names(obj)
    if not found:
        return ()
    told = (mark for mark in found if not means_a_queue(mark.key))
    return tuple(f"{mark} means nothing to Tutti; correct it, or leave it out" for mark in islice(told, _TOLD_MAX))


def judge_ungated(request: ReviewRequest, rules: JobRules) -> Answer:
    """Return the answer for a kind that cannot wait. What a gang's controller makes of it may bear the gang's marks,
    and so may what is copied from that: a Deployment's ReplicaSets.
    """
    writers = (rules.settings.account, *rules.creators.controllers, *rules.settings.template_copiers)
    kind = request.kind.partition(".")[0]
    told = _of_schedule(request.object) if kind == "CronJob" else _without_effect(kind, request.object)
    return newly_marked(request, *writers) or allow(told)


def _of_schedule(obj: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return what to tell the author of a CronJob that names a queue where its Jobs will not wait by it."""
    template = paths.find_mapping(obj, ("spec", "jobTemplate"))
    labels = paths.find_mapping(template, ("metadata", "labels"))
    if any(key in labels for key in names.QUEUE_LABELS):
        return ()
    found = (
        mark
        for mark in misplaced_queues(template)
        # A Job without labels of its own gets those of its pod template.
        if labels or mark.key not in names.QUEUE_LABELS or mark.where != "spec.template.metadata.labels"
    )
    mark = next(found, None)
    if mark is None:
        return _without_effect("CronJob", obj)
    where = mark._replace(where=f"spec.jobTemplate.{mark.where}")
    fix = f"label its jobTemplate (spec.jobTemplate.metadata.labels) with {names.QUEUE_LABELS[0]}"
    return (f"{where} does not make the Jobs of a CronJob wait in a queue: they start at once; {fix}",)


def _without_effect(kind: str, obj: Mapping[str, Any] | None) -> tuple[str, ...]:
    labels = paths.find_mapping(obj, ("metadata", "labels"))
    template = paths.find_mapping(obj, ("spec", "template", "metadata", "labels"))
    found = next((key for key in names.QUEUE_LABELS if key in labels or key in template), None)
    if found is None and pod_group_of(labels) is None and pod_group_of(template) is None:
        return ()
    what = f"label {found}" if found else "a PodGroup label"
    advice = "label its jobTemplate" if kind == "CronJob" else "use a Job, JobSet or another gated kind"
    return (f"{what} on a {kind} does not make it wait: Tutti cannot gate this kind; {advice} instead",)
