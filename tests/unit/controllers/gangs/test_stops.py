"""What time brings to gangs that run: looking at them every second costs no more than there are."""

from dataclasses import replace

from tests.fuzz.costs import counted
from tests.unit.controllers.reporting.test_announce import Notes
from tests.unit.visibility.world import World
from webhook.config import Start
from webhook.controllers.gang_record import Event, GangRecords
from webhook.controllers.gangs.stops import Stops
from webhook.controllers.reporting.announce import Announcer
from webhook.controllers.writes.batch import Batch
from webhook.core.ledger.record import Membership, Reservation
from webhook.core.notation.amounts import FlavorResource
from webhook.core.reasons.eviction import START_TIMEOUT
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.reading.ended import Ended
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


def test_what_a_gang_has_given_back_stays_so_when_it_is_to_be_stopped() -> None:
    """The write that stops its job may be refused for long."""
    world, records = World(), GangRecords()
    held = world.admits(world.waits("train", pods=4))
    job = replace(world.view.jobs[held.uid], ended={"main": Ended(3, 4)}, gives_back=True)
    world.view.put_job(job)
    world.engine.restore(held, job.gang, world.view.given_back(held))
    assert world.engine.usage("vision")[FlavorResource("default", "cpu")] == 1000
    records.of(held.uid).on(Event.READ_RUNNING)
    stops_of(world, records).gang(held, START_TIMEOUT, Batch())
    assert world.engine.usage("vision")[FlavorResource("default", "cpu")] == 1000
