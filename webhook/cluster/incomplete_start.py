"""What a gang that has started lacks to be whole, and until when it is given time for that."""

from collections import Counter
from collections.abc import Iterable

from webhook.cluster.view import View
from webhook.config import Start
from webhook.core.ledger.record import Reservation
from webhook.core.model.pods import PodRecord
from webhook.core.notation import names
from webhook.core.notation.counted import does
from webhook.core.notation.moments import time_text
from webhook.jobs.reading.record import JobRecord


def start_seconds(job: JobRecord, view: View, settings: Start) -> float:
    """Return how long a gang may take to start: what its PodGroup says, else what is configured."""
    group = None if job.gang is None else view.pod_group_of(job.gang)
    stated = None if group is None else group.schedule_timeout_seconds
    return settings.timeout_seconds if stated is None else stated


def schedulers_word(pods: Iterable[PodRecord]) -> str:
    """Return what the scheduler says of the pods for which it finds no node, and of how many; of the most common."""
    said = Counter(pod.unscheduled for pod in pods if pod.live and not pod.gated and pod.unscheduled)
    if not said:
        return ""
    ((why, number),) = said.most_common(1)
    return f"{number} found no node: {why}"


def gates_word(pods: Iterable[PodRecord]) -> str:
    """Return how many pods wait behind scheduling gates of others, and behind which; of the most common."""
    held = Counter(pod.foreign_gates for pod in pods if pod.live and not pod.gated and pod.foreign_gates)
    for gates, number in held.most_common(1):
        named = f"scheduling gate{'' if len(gates) == 1 else 's'} {', '.join(gates)}"
        return f"{does(number, 'wait')} behind {named}, not Tutti's: whoever set that has to remove it"
    return ""


def pods_word(pods: Iterable[PodRecord]) -> str:
    """Return what keeps pods from the scheduler, what it says of those without a node, and what nodes say of those that
    they cannot start.
    """
    known = list(pods)
    said = sorted(pod.unstarted for pod in known if pod.live and pod.unstarted)
    # Nodes name the pod in their words for some reasons: those of one reason are alike.
    reasons = Counter(text.partition(":")[0] for text in said)
    found = [gates_word(known), schedulers_word(known)]
    for reason, number in reasons.most_common(1):
        found.append(f"{number} cannot start: {next(text for text in said if text.partition(':')[0] == reason)}")
    return "; ".join(text for text in found if text)


def lacking(
    job: JobRecord, reservation: Reservation, view: View, settings: Start, lost_seconds: float | None
) -> tuple[str, ...]:
    """Return, in words, what keeps a started gang from being whole and when it is stopped for it; empty when nothing.

    ``lost_seconds`` is when it last stopped being whole, if it ever was.
    """
    if job.ready or job.suspended or job.finished is not None or reservation.stopping is not None:
        return ()
    pods = list(view.fences.pods_of(job.namespace, job.uid))
    found = [pods_word(pods)]
    if job.dispatched:
        found.append(f"a member runs its pods: the annotation {names.DISPATCH} says which one, and why not the others")
    elif not reservation.adopted and sum(pod.live or pod.terminal for pod in pods) < sum(reservation.counts.values()):
        found.append("if pods are missing, an event of the job, or of what creates its pods, says why")
    found.append(_stopped_when(job, reservation, view, settings, lost_seconds, pods))
    return tuple(text for text in found if text)


def _stopped_when(  # noqa: PLR0917
    job: JobRecord,
    reservation: Reservation,
    view: View,
    settings: Start,
    lost_seconds: float | None,
    pods: Iterable[PodRecord],
) -> str:
    """Return when ``controllers/gangs/pods_ready.py`` stops the gang; empty text where it does not."""
    if job.gang is None or job.gang.loose_pods or reservation.adopted or not reservation.evictable:
        return ""
    shared = reservation.membership
    if job.winding_down and shared is None:
        return ""
    limit = start_seconds(job, view, settings) if lost_seconds is None else settings.recovery_seconds
    needed = min(view.with_quorum(job.gang).least_pods, sum(reservation.counts.values()))
    if limit is None or (shared is None and sum(pod.phase in ("Running", "Succeeded") for pod in pods) >= needed):
        return ""
    if job.ordered_start:
        return f"it is stopped when none of its pods has started for {limit:g} s"
    at = time_text(int((reservation.since_seconds if lost_seconds is None else lost_seconds) + limit))
    number, whose = needed, "of its pods"
    if shared is not None:
        number, whose = (
            shared.still_needed,
            f"pod{'' if shared.still_needed == 1 else 's'} of PodGroup {shared.ensemble}",
        )
    return f"it is stopped at {at} unless {does(number, 'run', whose)} by then"
