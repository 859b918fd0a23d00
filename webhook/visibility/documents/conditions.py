"""A gang's state as conditions: types, reasons and meaning are those of Kueue's Workload.

``QuotaReserved`` and ``Admitted`` are always there; ``Evicted`` once it was stopped, ``PodsReady`` while it runs,
``Finished`` once it has ended. Where Kueue has no reason for what holds a gang, the code of the typed reason is used.
In a hub a gang is admitted once a member has room for it, as with MultiKueue's admission check.
"""

from dataclasses import dataclass
from typing import Any, Final

from webhook.core.ledger.record import Reservation
from webhook.core.notation import amounts, names
from webhook.core.notation.counted import counted, does
from webhook.core.notation.moments import time_text
from webhook.core.reasons import eviction
from webhook.core.reasons.reasons import Code, Reason
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading.record import Admission, JobRecord
from webhook.visibility.documents.milestones import Milestones

Condition = dict[str, Any]
UNSATISFIED: Final = "UnsatisfiedChecks"
"""Kueue's reason of a gang that has its quota, and may not start yet."""
MESSAGE_CHARACTERS_MAX: Final = 32_768


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything known of one gang; at least one of job and reservation is there."""

    job: JobRecord | None
    reservation: Reservation | None
    kind: JobKind
    queue: str | None
    """The queue that it waits in or is charged to."""
    reason: Reason | None
    """Why it waits; None when it does not."""
    position: int | None
    """How many gangs of its queue are ahead of it."""
    pods: int
    """Pods that exist and have not ended."""
    milestones: Milestones
    quorum: int | None = None
    """Pods that must be able to run together, where its owner or its PodGroup says that fewer than all will do."""
    lacking: tuple[str, ...] = ()
    """What keeps it, started, from being whole, and when it is stopped for that."""

    @property
    def admission(self) -> Admission | None:
        """What a job that has ended was admitted with, by its annotation."""
        return None if self.job is None or self.reservation is not None else self.job.admission

    @property
    def stopping(self) -> str | None:
        """Why it is being stopped, if it is."""
        return None if self.reservation is None else self.reservation.stopping

    @property
    def admitted_seconds(self) -> float | None:
        """Since when it holds, or held until it ended, its quota."""
        if self.reservation is not None:
            return self.reservation.since_seconds
        if self.admission is not None and self.job is not None and self.job.finished is not None:
            return self.admission.since_seconds
        return None

    @property
    def awaits_member(self) -> bool:
        """Whether it has its quota in the hub, and is in no member yet."""
        return self.reservation is not None and self.job is not None and self.job.awaits_member

    @property
    def created_seconds(self) -> float:
        """When its job was created."""
        if self.job is not None:
            return self.job.created_seconds
        return 0.0 if self.reservation is None else self.reservation.since_seconds


def conditions(facts: Facts) -> list[Condition]:
    """Return the conditions of a gang."""
    found = _quota_reserved(facts), _admitted(facts), _pods_ready(facts), _evicted(facts), _finished(facts)
    return [each for each in found if each is not None]


def eviction_reason(why: str) -> str:
    """Return why a gang was stopped as a condition's reason. An edited ledger may say anything."""
    return why if why.isalnum() else "Stopped"


def _condition(kind: str, status: bool, reason: str, message: str, since_seconds: float) -> Condition:
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message[:MESSAGE_CHARACTERS_MAX],
        "lastTransitionTime": time_text(int(since_seconds)),
    }


def _quota_reserved(facts: Facts) -> Condition:
    since = facts.admitted_seconds
    if since is not None:
        where = (
            f"Quota is reserved in queue {facts.queue}" if facts.queue else "Room is reserved; the gang is in no queue"
        )
        return _condition("QuotaReserved", True, "QuotaReserved", where, since)
    reason = facts.reason or Reason(Code.PENDING_EVALUATION, "has not been decided about yet")
    return _condition("QuotaReserved", False, reason.code, str(reason), _waiting_since(facts))


def _admitted(facts: Facts) -> Condition:
    since = facts.admitted_seconds
    if since is None:
        return _condition("Admitted", False, "NoReservation", "The gang holds no quota", _waiting_since(facts))
    if facts.awaits_member:
        return _condition("Admitted", False, UNSATISFIED, _AWAITS_MEMBER, since)
    return _condition(
        "Admitted", True, "Admitted", _what_starts(facts), max(since, facts.milestones.taken_seconds or 0)
    )


_AWAITS_MEMBER: Final = (
    "Its quota here is held, and no member of the fleet has taken it yet: tutti explain, and the annotation "
    f"{names.DISPATCH} once it is offered to one, say why"
)


def _what_starts(facts: Facts) -> str:
    if facts.reservation is None:
        counts = {} if facts.admission is None else facts.admission.counts
        pods = sum(counts.values())
        return f"{counted(pods, 'pod')} {'was started' if pods == 1 else 'were started together'}"
    sets = facts.reservation.pod_sets
    asked = amounts.render(amounts.total(amounts.scale(s.price.requests, s.count) for s in sets))
    pods = sum(s.count for s in sets)
    return f"{counted(pods, 'pod')} start{'s' if pods == 1 else ' together'}: {asked}"


def _pods_ready(facts: Facts) -> Condition | None:
    if facts.reservation is None or facts.job is None or facts.job.finished is not None or facts.awaits_member:
        return None
    since, lost = facts.milestones.ready_seconds, facts.milestones.lost_seconds
    if facts.job.ready and since is not None:
        reason = "Started" if lost is None else "Recovered"
        return _condition("PodsReady", True, reason, "All pods of the gang run or have ended", since)
    wanted = sum(facts.reservation.counts.values())
    there = f"{does(facts.pods, 'exist')} of {counted(wanted, 'pod')}"
    run = "it does not run" if wanted == 1 else "not all of them run"
    if lost is not None:
        text = "; ".join((there, f"{run} any more", *facts.lacking))
        return _condition("PodsReady", False, "WaitForRecovery", text, lost)
    text = "; ".join((there, f"{run} yet", *facts.lacking))
    return _condition("PodsReady", False, "WaitForStart", text, facts.reservation.since_seconds)


def _evicted(facts: Facts) -> Condition | None:
    requeue = None if facts.job is None else facts.job.requeue
    since = facts.milestones.stopped_seconds
    if facts.stopping is not None:
        message = requeue.message if requeue is not None and requeue.message else f"is being stopped: {facts.stopping}"
        return _condition("Evicted", True, eviction_reason(facts.stopping), message, since or _waiting_since(facts))
    if requeue is None or facts.admitted_seconds is not None or requeue.reason in eviction.NEVER_ADMITTED:
        return None
    message = requeue.message or f"was stopped: {requeue.reason}"
    return _condition("Evicted", True, eviction_reason(requeue.reason), message, since or _waiting_since(facts))


def _finished(facts: Facts) -> Condition | None:
    if facts.job is None or facts.job.finished is None:
        return None
    why = f": {facts.job.failure}" if facts.job.failure else ""
    held = ""
    if facts.reservation is not None:
        left = {0: "is being returned", 1: "is held until its last pod is gone"}
        is_left = f"is held until its last {counted(facts.pods, 'pod')} are gone"
        held = f"; its quota {left.get(facts.pods, is_left)}"
    since = facts.milestones.finished_seconds or facts.created_seconds
    text = f"The job has {_ENDS[facts.job.finished]}{why}{held}"
    return _condition("Finished", True, facts.job.finished, text, since)


_ENDS: Final = {"Succeeded": "succeeded", "Failed": "failed"}


def _waiting_since(facts: Facts) -> float:
    if facts.milestones.stopped_seconds is not None:
        return facts.milestones.stopped_seconds
    requeue = None if facts.job is None else facts.job.requeue
    return max(facts.created_seconds, 0.0 if requeue is None else requeue.place_seconds)
