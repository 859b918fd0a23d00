"""What is to be done next about a gang of any kind: by its job, or by its plain pods."""

from collections.abc import Mapping

from webhook.cluster.view import View
from webhook.controllers.gangs.assess import Step, assess
from webhook.controllers.gangs.gated_pods import assess_pod_group, is_pod_group, liftable
from webhook.core.ledger.record import Reservation
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading.record import JobRecord


def next_step(
    view: View,
    kinds: Mapping[str, JobKind],
    job: JobRecord | None,
    reservation: Reservation | None,
    voided: bool,
    *,
    refused: bool = False,
    overdue: bool = False,
) -> Step:
    """Return the next step for a gang of any kind, its pods behind our gates considered.

    ``refused``: every write of it is refused for good; ``overdue`` as in ``assess``.
    """
    gang = job or reservation
    if gang is None:
        return Step.WITHDRAW
    if is_pod_group(gang):
        quorum = None if job is None or job.gang is None else view.quorum_of(job.gang)
        pods = tuple(view.fences.pods_of(gang.namespace, gang.uid))
        return assess_pod_group(reservation, pods, voided, quorum, refused=refused)
    if job is not None and reservation is None and job.running and view.left_by(job):
        # Its owner was deleted from above it: it runs on, and is charged to that one until nothing of it runs.
        return Step.WITHDRAW
    step = assess(job, reservation, view.present(gang.namespace, gang.uid), voided, overdue=overdue)
    kind = kinds.get(gang.kind)
    if step is not Step.NOTHING or job is None or job.suspended or kind is None or not kind.scheduling_gated:
        return step
    return Step.LIFT if liftable(view.fences.pods_of(gang.namespace, gang.uid), reservation) else step
