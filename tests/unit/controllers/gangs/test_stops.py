"""What time brings to gangs that run: looking at them every second costs no more than there are."""

from dataclasses import replace
from typing import Any

import pytest

from tests.fuzz.costs import counted
from tests.unit.controllers.reporting.test_announce import Notes
from tests.unit.visibility.world import World
from webhook.config import Start
from webhook.controllers.gang_record import Event, GangRecords
from webhook.controllers.gangs.stops import ON_THEIR_WAY_SECONDS, Stops
from webhook.controllers.reporting.announce import Announcer
from webhook.controllers.writes.batch import Batch
from webhook.core.ledger.record import Membership, Reservation
from webhook.core.model.gang import PodPrice
from webhook.core.model.pods import PodRecord
from webhook.core.reasons.eviction import START_TIMEOUT
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.jobs.reading.record import JobRecord

GANGS = 1_000
"""As many as a PodGroup may need."""


def shared(world: World, quorum: int) -> list[tuple[JobRecord, Reservation]]:
    """Let jobs of one pod run that share a PodGroup."""
    held = []
    for number in range(GANGS):
        job = world.waits(f"job-{number}", pods=1, cpu=0)
        reservation = replace(world.admits(job), membership=Membership("ring", quorum))
        world.engine.restore(reservation)
        held.append((world.view.jobs[job.uid], reservation))
    world.view.set_ledger(world.view.ledger.amended(put=[reservation for _, reservation in held]))
    return held


def stops_of(world: World, records: GangRecords) -> Stops:
    announcer = Announcer(Notes(), world.view, KINDS, lambda: world.now)  # type: ignore[arg-type]
    return Stops(
        world.view,
        world.engine,
        announcer,
        records,
        start=Start(timeout_seconds=60),
        now=lambda: world.now,
        on_change=lambda _uid: None,
    )


def test_jobs_that_share_a_pod_group_are_looked_at_together_once_and_not_once_each() -> None:
    """Who may write jobs may let a thousand share one: to find all of them for each took a second in every second."""
    world = World()
    records = GangRecords()
    stops = stops_of(world, records)
    held, batch = shared(world, GANGS), Batch()
    for job, _ in held:
        records.of(job.uid).on(Event.READ_RUNNING)

    def tick() -> None:
        for job, reservation in held:
            stops.if_due(job, reservation, world.now, batch)

    counted(tick)
    assert not batch.put
    world.now += 61
    tick()
    assert {entry.stopping for entry in batch.put.values()} == {START_TIMEOUT}
    assert len(batch.put) == GANGS, "all of it is stopped, for want of its quorum"


def test_the_room_of_a_gang_that_is_gone_is_free_at_once_if_all_its_pods_were_there() -> None:
    """Its controller owes it none then; one that is being deleted has a successor, which may be on its way."""
    world, records = World(), GangRecords()
    stops, job = stops_of(world, records), world.waits("train", pods=2)
    reservation = world.admits(job)

    def pod(name: str, **facts: Any) -> None:
        fences = world.view.fences
        fences.put_pod(PodRecord(name, job.namespace, name, 1, PodPrice(), gang=job.uid, node="node-1", **facts))
        stops.changed(job.uid)

    records.of(job.uid).on(Event.READ_RUNNING)
    pod("a")
    pod("b", terminating=True)
    assert stops.too_soon(None, reservation)
    pod("c")
    pod("a", terminating=True)
    assert not stops.too_soon(None, reservation), "they were all there at once"
    assert stops.too_soon(None, replace(reservation, stopping="OnHold")), "of one that is stopped others may be made"
    more = tuple(replace(pod_set, count=3) for pod_set in reservation.pod_sets)
    assert stops.too_soon(None, replace(reservation, pod_sets=more)), "it grew by one that was not"
    records.of(job.uid).on(Event.RELEASED)
    assert stops.too_soon(None, reservation), "what it had when it ran before says nothing"


def test_the_room_of_a_gang_that_only_a_member_runs_is_free_at_once() -> None:
    world, records = World(), GangRecords()
    stops, job = stops_of(world, records), world.waits("train", pods=2, for_a_member=True)
    reservation = world.admits(job)
    stops.changed(job.uid)
    assert stops.too_soon(None, reservation), "it is not known to run"
    records.of(job.uid).on(Event.READ_RUNNING)
    stops.changed(job.uid)
    assert not stops.too_soon(None, reservation)


@pytest.mark.parametrize("began", ["its reservation", "its start", "the term"])
def test_what_was_started_a_moment_ago_is_not_released_for_as_long_as_its_pods_may_be_on_their_way(began: str) -> None:
    """A start may be written long after the reservation, as by a leader that took over."""
    world, records = World(), GangRecords()
    stops, job = stops_of(world, records), world.waits("train", pods=1)
    stopping = replace(world.admits(job), stopping="OnHold")
    ended = replace(stopping, stopping=None)
    assert not stops.too_soon(replace(job, finished="Succeeded"), ended), "what has ended by itself"
    for gone in (None, replace(job, deleting=True), replace(job, finished="Succeeded", deleting=True)):
        assert stops.too_soon(gone, ended), "its controller may not know yet"
    forged = replace(ended, kind="PaddleJob.kubeflow.org")
    assert stops.too_soon(replace(job, finished="Succeeded"), forged)
    assert not stops.too_soon(None, replace(ended, kind=POD_GROUP.key)), "its pods are all that it was"
    if began != "its reservation":
        world.now += 60
        assert not stops.too_soon(job, stopping)
    if began == "its start":
        records.of(job.uid).started_seconds = world.now
    if began == "the term":
        stops.term_seconds = world.now
    assert stops.too_soon(job, stopping)
    world.now -= 3600
    assert not stops.too_soon(job, stopping), "a clock that was ahead says nothing"
    world.now += 3600 + ON_THEIR_WAY_SECONDS
    assert not stops.too_soon(job, stopping)
