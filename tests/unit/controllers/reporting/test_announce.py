"""Which reasons are worth an event: those that somebody could still read about."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.unit.visibility.world import World
from webhook.controllers.reporting.announce import (
    LOOKED_AT_MAX,
    QUEUED_AFTER_SECONDS,
    UNREADABLE_SECONDS,
    Announcer,
)
from webhook.core.notation import names
from webhook.core.reasons.blockers import StartsBy
from webhook.core.reasons.reasons import Code, Reason
from webhook.jobs.kinds.registry import KINDS


class Notes:
    """Takes events instead of an API server."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.annotations: list[Any] = []
        self.regarding: list[Any] = []

    def note(self, regarding: Any, reason: str, note: str, *, warning: bool = False, annotations: Any = None) -> None:
        self.told.append(f"{reason} {note}")
        self.regarding.append(regarding)
        self.annotations.append(annotations)


async def test_that_the_next_cycle_decides_is_no_event_and_what_a_gang_could_stop_is_one() -> None:
    world, notes = World(), Notes()
    job = world.waits("train")
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    announcer.queued(job.uid)
    passing = Reason(Code.PENDING_EVALUATION, "has room; the next cycle decides")
    lasting = Reason(Code.PENDING_EVALUATION, "could stop team/other", help="its turn comes when room becomes free")
    await announcer.tick(10, lambda _uid: passing)
    assert notes.told == []
    await announcer.tick(11, lambda _uid: lasting)
    assert notes.told == [f"Queued PendingEvaluation: {lasting}"]


async def test_why_a_copy_waits_is_told_at_once_for_its_hub_waits_for_that() -> None:
    world, notes = World(), Notes()
    announcer = Announcer(notes, world.view, KINDS, lambda: 10.0)  # type: ignore[arg-type]
    for name in ("copy", "train"):
        job = world.waits(name)
        world.view.jobs[job.uid] = replace(job, awaits_permit=name == "copy")
        announcer.queued(job.uid)
    for now in (10, 10 + QUEUED_AFTER_SECONDS):
        await announcer.tick(now, lambda uid: Reason(Code.WAITING_FOR_QUOTA, "asks for 3 cpu"))
        assert [each.name for each in notes.regarding] == ["copy"] if now == 10 else ["copy", "train"]


async def test_a_hub_is_told_by_when_a_gang_starts_or_that_it_never_does() -> None:
    world, notes = World(), Notes()
    job = world.waits("train")
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    announcer.queued(job.uid)
    books = Reason(Code.WAITING_FOR_QUOTA, "asks for 3 cpu", blockers=(StartsBy(60.0),))
    for reason in (books, Reason(Code.EXCEEDS_MAX_QUOTA, "asks for 9 cpu")):
        await announcer.tick(1_800_000_000, lambda _uid, reason=reason: reason)  # type: ignore[misc]
    assert notes.annotations == [{names.STARTS_BY: "2027-01-15T08:01:00Z"}, {names.NEVER_STARTS: "true"}]


def test_objects_that_cannot_be_read_are_named_once_each_at_a_slow_pace() -> None:
    world, notes = World(), Notes()
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    odd = [("x.io/v1", "PodGroup", "team", f"g{number}", "RecursionError") for number in range(3)]
    cluster_wide = ("kueue.x-k8s.io/v1beta2", "ClusterQueue", "", "q", "ValueError")
    for second in range(int(5 * UNREADABLE_SECONDS)):
        announcer.unreadable(second, [*odd, cluster_wide])
    assert [each.name for each in notes.regarding] == ["g0", "g1", "g2", "tutti-ledger"]
    assert notes.told[0].startswith("Unreadable Tutti cannot read PodGroup team/g0: RecursionError")
    for second in range(100, 100 + int(10 * UNREADABLE_SECONDS)):
        announcer.unreadable(second, odd[:1] if second % 2 else [])
    assert len(notes.told) <= 4 + 10, "one that is readable at times is told of no faster"


async def test_where_neighbours_are_hidden_events_name_none() -> None:
    world, notes = World(), Notes()
    world.view.hides_neighbours = True
    world.view.namespaces |= {"team-vision": {}, "team-speech": {}}
    job = world.waits("train")
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    announcer.queued(job.uid)
    await announcer.tick(
        11, lambda _uid: Reason(Code.WAITING_FOR_QUOTA, "behind team-speech/secret and team-vision/own")
    )
    assert notes.told == ["Queued WaitingForQuota: behind a job of another namespace and team-vision/own"]


def test_of_a_job_that_asks_for_no_pods_it_is_not_said_that_they_start_together() -> None:
    world, notes = World(), Notes()
    reservation = world.admits(world.waits("empty"))
    nothing = replace(reservation, pod_sets=tuple(replace(each, count=0) for each in reservation.pod_sets))
    Announcer(notes, world.view, KINDS, lambda: 0.0).admitted(nothing)  # type: ignore[arg-type]
    (told,) = notes.told
    assert told.startswith("Admitted it asks for 0 pods")
    assert "so nothing starts; to add pods, suspend it first" in told


async def test_that_a_start_fails_is_said_once_an_admission_and_not_remembered_beyond_it() -> None:
    world, notes = World(), Notes()
    job = world.waits("train")
    reservation = world.admits(job)
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    for second in range(3):
        announcer.start_failed(job.uid, "no")
        await announcer.tick(second, lambda _uid: None)
    assert len(notes.told) == 1
    world.releases(reservation)
    await announcer.tick(4, lambda _uid: None)
    announcer.start_failed(job.uid, "no")
    assert len(notes.told) == 2


async def test_reasons_are_put_into_words_one_at_a_time() -> None:
    """A hundred gangs of hundreds of pod sets took half a second in a row, in which no lease was renewed."""
    world, announced = World(), 0
    announcer = Announcer(Notes(), world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    for number in range(LOOKED_AT_MAX):
        announcer.queued(world.waits(f"train-{number}").uid)
    since_others_ran = most = 0

    def reason_of(_uid: str) -> None:
        nonlocal since_others_ran, most, announced
        announced += 1
        since_others_ran += 1
        most = max(most, since_others_ran)

    async def others() -> None:
        nonlocal since_others_ran
        while True:
            since_others_ran = 0
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await announcer.tick(10, reason_of)
    beside.cancel()
    assert announced == LOOKED_AT_MAX
    assert most == 1


async def test_who_is_admitted_while_others_are_told_of_is_told_nothing() -> None:
    world, notes = World(), Notes()
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    first, second = world.waits("first"), world.waits("second")
    for job in (first, second):
        announcer.queued(job.uid)

    def reason_of(_uid: str) -> Reason:
        if second.uid not in world.view.ledger.entries:
            announcer.admitted(world.admits(second))
        return Reason(Code.WAITING_FOR_QUOTA, "no room")

    await announcer.tick(10, reason_of)
    assert [told.partition(" ")[0] for told in notes.told] == ["Admitted", "Queued"]


async def test_who_was_admitted_by_another_leader_and_waits_again_is_told_of_anew() -> None:
    now = 0.0
    world, notes = World(), Notes()
    announcer = Announcer(notes, world.view, KINDS, lambda: now)  # type: ignore[arg-type]
    job = world.waits("train")
    for begins in (0.0, 100.0):
        now = begins
        announcer.queued(job.uid)
        for second in range(2 * int(QUEUED_AFTER_SECONDS)):
            told = len(notes.told)
            await announcer.tick(begins + second, lambda _uid: Reason(Code.WAITING_FOR_QUOTA, "no room"))
            assert len(notes.told) - told == (second == QUEUED_AFTER_SECONDS)
        announcer.waits_no_more(job.uid)


async def test_what_a_hub_admits_is_not_said_to_start() -> None:
    """A member may have no room for it for days."""
    world, notes = World(), Notes()
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    job = world.waits("train")
    reservation = world.admits(job)
    world.view.jobs[job.uid] = replace(job, for_a_member=True)
    announcer.admitted(reservation)
    (told,) = notes.told
    assert "start" not in told
    assert told.endswith("tutti explain says which member of the fleet has them, or why none does")


async def test_that_pods_wait_to_join_is_said_once_a_reason_of_all_that_grow_in_turn() -> None:
    world, notes = World(), Notes()
    jobs = [world.waits(f"train-{number}") for number in range(LOOKED_AT_MAX + 5)]
    for job in jobs:
        world.admits(job)
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    uids = [job.uid for job in jobs]
    full = Reason(
        Code.NODES_DO_NOT_FIT, "asks for 1 pod of 1 cpu; 0 fit now", help="it starts when 1 more of its pods fits"
    )
    await announcer.tick(0, lambda _uid: full, uids)
    assert notes.told == [], "the next cycle may have room"
    for second in (2, 3, 4):
        await announcer.tick(second, lambda _uid: full, uids)
    assert notes.told == [f"GrowthWaits pods that should join it wait: NodesDoNotFit: {full}"] * len(jobs)
    await announcer.tick(5, lambda _uid: Reason(Code.WAITING_FOR_QUOTA, "more"), uids[:1])
    assert notes.told[len(jobs) :] == ["GrowthWaits pods that should join it wait: WaitingForQuota: more"]
    await announcer.tick(6, lambda _uid: None, [])
    await announcer.tick(9, lambda _uid: full, uids[:1])
    await announcer.tick(12, lambda _uid: full, uids[:1])
    assert len(notes.told) == len(jobs) + 2, "who grew and waits again is told again"
