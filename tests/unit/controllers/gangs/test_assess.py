"""The next step for one gang follows from what is stored alone; each ledger rule that it keeps has its case."""

from dataclasses import replace

import pytest

from tests.unit.jobs.records import waiting_job
from webhook.controllers.gangs.assess import Step, assess
from webhook.core.ledger.record import Reservation, reserve
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.jobs.reading.record import Admission, JobRecord, Owner, Requeue

GANG = Gang("uid", "Job.batch", "ns", "train", "q", (PodSet("main", 2, PodPrice()),))
RESERVED = reserve(GANG, "q", {"main": 2}, {}, epoch=1, now_seconds=100.0)
STARTED = Admission("uid", 1, 5, "q", {"main": 2}, since_seconds=100.0)


def job(**facts: object) -> JobRecord:
    return waiting_job(GANG, **facts)


STOPPING = replace(RESERVED, stopping="Preempted")

CASES: dict[str, tuple[JobRecord | None, Reservation | None, int, bool, Step]] = {
    "a suspended gang waits": (job(), None, 0, False, Step.WAIT),
    "but none that its owner has suspended, of which no entry says so any more": (
        job(admission=STARTED),
        None,
        0,
        False,
        Step.VOID,
    ),
    "a reserved one is started": (job(), RESERVED, 0, False, Step.START),
    "a copy from a hub waits for its permit": (job(awaits_permit=True), RESERVED, 0, False, Step.NOTHING),
    "a started one is left alone": (job(suspended=False, admission=STARTED), RESERVED, 2, False, Step.NOTHING),
    "one its owner suspended is held": (job(admission=STARTED), RESERVED, 2, False, Step.HOLD),
    "what cannot be stopped is only paused by that, and keeps its room though nothing of it runs": (
        job(admission=STARTED, active=True),
        replace(RESERVED, evictable=False),
        0,
        False,
        Step.NOTHING,
    ),
    "also when it is deleted, until its last pod is gone": (
        job(admission=STARTED, deleting=True),
        replace(RESERVED, evictable=False),
        1,
        False,
        Step.NOTHING,
    ),
    "and an adopted one": (job(marked=False), replace(RESERVED, adopted=True, evictable=False), 1, False, Step.NOTHING),
    "before it is started it waits for its start": (job(), replace(RESERVED, evictable=False), 0, False, Step.START),
    "an annotation of an earlier start is no hold": (
        job(admission=replace(STARTED, since_seconds=1.0)),
        RESERVED,
        0,
        False,
        Step.START,
    ),
    "an adopted one that its owner suspends is held, though that it was adopted is not written on it yet": (
        job(marked=False),
        replace(RESERVED, adopted=True),
        2,
        False,
        Step.HOLD,
    ),
    "rule 2: a stopping gang is suspended first": (
        job(suspended=False, admission=STARTED),
        STOPPING,
        2,
        False,
        Step.STOP,
    ),
    "rule 2: its entry stays while a pod is left": (job(requeue=Requeue("x", 0)), STOPPING, 1, True, Step.NOTHING),
    "rule 2: and while its controller has pods": (job(active=True), STOPPING, 0, True, Step.NOTHING),
    "rule 2: and until its controller has seen the suspension": (
        job(restorable=False),
        STOPPING,
        0,
        True,
        Step.NOTHING,
    ),
    "rule 2: then it is released": (job(requeue=Requeue("x", 0)), STOPPING, 0, True, Step.RELEASE),
    "one that is deleted and kept by a finalizer is released with its last pod": (
        job(suspended=False, deleting=True, active=True, admission=STARTED),
        RESERVED,
        0,
        False,
        Step.RELEASE,
    ),
    "suspended or not, of one whose suspension would stop nothing": (
        job(deleting=True, admission=STARTED),
        replace(RESERVED, evictable=False),
        0,
        False,
        Step.RELEASE,
    ),
    "and not before": (job(suspended=False, deleting=True, admission=STARTED), RESERVED, 1, False, Step.NOTHING),
    "one that is deleted before it started is not started": (job(deleting=True), RESERVED, 0, False, Step.HOLD),
    "it is written before its entry goes": (job(deleting=True, restorable=False), STOPPING, 0, False, Step.VOID),
    "and its controller need not report that it saw that": (
        job(deleting=True, restorable=False),
        STOPPING,
        0,
        True,
        Step.RELEASE,
    ),
    "rule 4: never before this leadership has written the job": (job(), STOPPING, 0, False, Step.VOID),
    "rule 8: finished is not free while workers run": (
        job(suspended=False, finished="Succeeded", admission=STARTED),
        RESERVED,
        2,
        False,
        Step.NOTHING,
    ),
    "what a finished gang left running is stopped by its pods": (
        job(suspended=False, finished="Succeeded", admission=STARTED),
        STOPPING,
        2,
        False,
        Step.DELETE_PODS,
    ),
    "and what one did that is deleted and kept by a finalizer": (
        job(suspended=False, deleting=True, active=True, admission=STARTED),
        STOPPING,
        1,
        False,
        Step.DELETE_PODS,
    ),
    "suspended or not": (job(deleting=True, admission=STARTED), STOPPING, 1, False, Step.DELETE_PODS),
    "pods that ran before us bear no label by which we might delete them": (
        job(suspended=False, deleting=True),
        replace(STOPPING, adopted=True),
        1,
        False,
        Step.STOP,
    ),
    "rule 8: deleted is not free while orphans run": (None, RESERVED, 1, False, Step.NOTHING),
    "unless it stops: nobody else would stop them": (None, STOPPING, 1, False, Step.DELETE_PODS),
    "but for pods that bear no label by which we might delete them": (
        None,
        replace(STOPPING, adopted=True),
        1,
        False,
        Step.NOTHING,
    ),
    "rule 8: gone is free": (None, RESERVED, 0, False, Step.RELEASE),
    "a finished adopted gang holds while its controller says so": (
        job(suspended=False, finished="Failed", active=True),
        replace(RESERVED, adopted=True),
        0,
        False,
        Step.NOTHING,
    ),
    "one that ran before us is adopted": (job(suspended=False, marked=False), None, 0, False, Step.ADOPT),
    "but no suspended one, of whose pods a tenant may say anything": (
        job(marked=False),
        None,
        1,
        False,
        Step.WITHDRAW,
    ),
    "one that slipped past is suspended": (job(suspended=False), None, 0, False, Step.SUSPEND),
    "a held one does not wait": (job(held=True), None, 0, False, Step.WITHDRAW),
    "a child is its owner's": (job(owner=Owner("JobSet.jobset.x-k8s.io", "o", "u")), None, 0, False, Step.WITHDRAW),
    "a foreign controller's is not ours": (job(managed_by_other=True), None, 0, False, Step.WITHDRAW),
    "a stopped template is restored before it waits": (
        job(requeue=Requeue("Preempted", 0, undo=STARTED)),
        None,
        0,
        False,
        Step.RESTORE,
    ),
    "and not before the API server takes it": (
        job(requeue=Requeue("Preempted", 0, undo=STARTED), restorable=False),
        None,
        0,
        False,
        Step.NOTHING,
    ),
    "one whose start time freezes its template is freed of that before anything else": (
        job(requeue=Requeue("Preempted", 0, undo=STARTED), restorable=False, start_time_left=True),
        None,
        0,
        False,
        Step.CLEAR,
    ),
    "and before it starts, whoever reserved for it": (
        job(restorable=False, start_time_left=True),
        RESERVED,
        0,
        False,
        Step.CLEAR,
    ),
    "but its quota does not wait for that": (
        job(requeue=Requeue("x", 0), restorable=False, start_time_left=True),
        STOPPING,
        0,
        True,
        Step.RELEASE,
    ),
    "leftover pods keep it from waiting": (job(), None, 1, False, Step.WITHDRAW),
    "a finished one is forgotten": (job(finished="Succeeded"), None, 0, False, Step.WITHDRAW),
}


@pytest.mark.parametrize(("record", "reservation", "pods", "voided", "step"), CASES.values(), ids=CASES.keys())
def test_the_next_step(
    record: JobRecord | None, reservation: Reservation | None, pods: int, voided: bool, step: Step
) -> None:
    """Each case is named by what it says."""
    assert assess(record, reservation, pods, voided) is step


OVERDUE: dict[str, tuple[JobRecord, Reservation, int, bool, Step]] = {
    "pods that its controller has not stopped for long are stopped by us": (
        job(active=True, restorable=False),
        STOPPING,
        2,
        True,
        Step.DELETE_PODS,
    ),
    "whatever it reports": (job(requeue=Requeue("x", 0)), STOPPING, 1, True, Step.DELETE_PODS),
    "and when they have gone its room is free, though it never reports that": (
        job(active=True, restorable=False),
        STOPPING,
        0,
        True,
        Step.RELEASE,
    ),
    "rule 4: never before this leadership has written the job": (job(), STOPPING, 1, False, Step.VOID),
    "rule 2: one that runs is suspended first": (job(suspended=False, admission=STARTED), STOPPING, 2, True, Step.STOP),
    "pods that ran before us bear no label by which we might delete them, or refuse them": (
        job(active=True, marked=False),
        replace(STOPPING, adopted=True),
        1,
        True,
        Step.NOTHING,
    ),
    "nor is the room of theirs free before their controller says so": (
        job(active=True, marked=False),
        replace(STOPPING, adopted=True),
        0,
        True,
        Step.NOTHING,
    ),
    "one that does not stop is left alone": (job(admission=STARTED, suspended=False), RESERVED, 2, True, Step.NOTHING),
}


@pytest.mark.parametrize(("record", "reservation", "pods", "voided", "step"), OVERDUE.values(), ids=OVERDUE.keys())
def test_the_next_step_of_a_gang_whose_controller_fails_on_it(
    record: JobRecord, reservation: Reservation, pods: int, voided: bool, step: Step
) -> None:
    """Whoever may edit a job can keep its controller from ever stopping it."""
    assert assess(record, reservation, pods, voided, overdue=True) is step
