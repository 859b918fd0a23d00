"""How long the room of a gang that was ended is kept for pods that are on their way."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.controllers.gangs.test_stops import stops_of
from tests.unit.visibility.world import World
from webhook.controllers.gang_record import Event, GangRecords
from webhook.controllers.gangs.late_pods import MOMENT_SECONDS, ON_THEIR_WAY_SECONDS, LatePods
from webhook.controllers.loop.dirty_set import DirtySet
from webhook.core.model.gang import PodPrice
from webhook.core.model.pods import PodRecord
from webhook.core.reasons.eviction import START_TIMEOUT
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.jobs.reading.ended import Ended

JOBSET = "JobSet.jobset.x-k8s.io"


class Leaving:
    """A gang that runs with pods of its own, and what is remembered of it."""

    def __init__(self, kind: str = "Job.batch", **facts: Any) -> None:
        self.world, self.records = World(), GangRecords()
        self.stops = stops_of(self.world, self.records)
        self.marks = DirtySet(self.world.view, self.world.engine, lambda changes: None)
        self.marks.begin_term(self.stops.late_pods)
        self.job = self.world.waits("train", pods=2, **facts)
        self.reservation = replace(self.world.admits(self.job), kind=kind)
        self.world.view.set_ledger(self.world.view.ledger.amended(put=[self.reservation]))
        self.records.of(self.job.uid).on(Event.READ_RUNNING)
        self.records.of(self.job.uid).started(self.world.now)
        self.world.now += 3600

    def pod(self, name: str, *, looked: bool = True, version: int = 999, **facts: Any) -> None:
        """Let a pod of it be seen, before a cycle looks at the gang or not."""
        which = name, self.job.namespace, name, version
        kept = PodRecord(*which, PodPrice(), self.job.uid, "main", node="node-1", **facts)
        fences = self.world.view.fences
        before = fences.pod(self.job.namespace, name)
        fences.put_pod(kept)
        self.marks.pod_changed(before, kept)
        if looked:
            self.stops.changed(self.job.uid)

    def waits_for_its_start(self) -> None:
        """Let it have been reserved in this term, and not be started yet."""
        self.stops.started(self.reservation)
        self.world.view.put_job(replace(self.job, suspended=True, resource_version=self.job.resource_version + 2))
        self.stops.changed(self.job.uid)

    def ends(self, how: str, **facts: Any) -> bool:
        """Return whether its room is kept once it has ended."""
        ended = replace(self.job, suspended=False, resource_version=99, finished=how, **facts)
        self.world.view.put_job(ended)
        self.stops.changed(self.job.uid)
        return self.stops.late_pods.may_come(ended, self.reservation)

    def goes(self) -> bool:
        """Return whether its room is kept once its job is deleted."""
        self.world.view.drop_job(self.job)
        self.marks.job_changed(self.job, None)
        self.stops.changed(self.job.uid)
        return self.is_kept()

    def is_kept(self) -> bool:
        return self.stops.late_pods.may_come(None, self.reservation)


def test_the_room_of_a_gang_that_was_whole_is_free_as_soon_as_it_is_gone() -> None:
    """Its controller owed it no pod."""
    gang = Leaving()
    gang.pod("a")
    gang.pod("b")
    assert not gang.goes()
    gang.pod("a", terminating=True)
    assert not gang.is_kept(), "they go because it is deleted"


def test_the_room_of_a_whole_gang_is_free_at_once_though_its_job_is_read_to_be_gone_after_its_pods() -> None:
    """The watches of both are apart; within seconds of its start its room is kept all the same."""
    gang = Leaving()
    gang.pod("a")
    gang.pod("b")
    gang.pod("a", terminating=True)
    gang.pod("b", terminating=True)
    gang.world.now += MOMENT_SECONDS / 2
    assert not gang.goes()
    gang.world.now = gang.reservation.since_seconds + 1
    assert gang.is_kept()


@pytest.mark.parametrize("lost", [{"terminating": True}, {"phase": "Succeeded"}, {"phase": "Failed"}])
def test_the_room_of_a_gang_that_lacks_a_pod_is_kept_for_a_while_however_long_it_has_run(lost: dict[str, Any]) -> None:
    """Its controller may have asked for another in its stead, which another webhook is still looking at."""
    gang = Leaving()
    gang.pod("a")
    gang.pod("b")
    gang.pod("b", **lost)
    gang.world.now += MOMENT_SECONDS if "terminating" in lost else 0
    assert gang.goes()
    gang.world.now += ON_THEIR_WAY_SECONDS / 2
    gang.stops.changed(gang.job.uid)
    assert gang.is_kept()
    gang.world.now += ON_THEIR_WAY_SECONDS / 2
    gang.stops.changed(gang.job.uid)
    assert not gang.is_kept()


def test_the_room_of_a_gang_that_was_stopped_for_want_of_pods_is_kept_for_a_while_after_its_job_was_suspended() -> None:
    """Such as of a JobSet: its own controller has seen that, and what makes the pods not yet."""
    gang = Leaving()
    gang.pod("a")
    stopping = replace(gang.reservation, stopping=START_TIMEOUT)
    gang.world.view.set_ledger(gang.world.view.ledger.amended(put=[stopping]))
    suspended = replace(gang.job, suspended=True, resource_version=gang.job.resource_version + 2)
    gang.world.view.put_job(suspended)
    gang.stops.changed(gang.job.uid)
    assert gang.stops.late_pods.may_come(suspended, stopping)
    gang.world.now += ON_THEIR_WAY_SECONDS
    gang.stops.changed(gang.job.uid)
    assert not gang.stops.late_pods.may_come(suspended, stopping)


def test_of_a_gang_that_has_ended_that_while_begins_with_its_end() -> None:
    """Such as of one that failed, and is deleted some seconds later to be tried in another cluster."""
    gang = Leaving(JOBSET)
    gang.pod("a")
    assert gang.ends("Failed")
    gang.world.now += ON_THEIR_WAY_SECONDS - 1
    assert gang.goes()
    gang.world.now += 1
    gang.stops.changed(gang.job.uid)
    assert not gang.is_kept()


def test_the_room_of_what_ends_while_it_lacks_a_pod_is_kept_for_a_while() -> None:
    """Another controller than the one that says so may have asked for one in its stead, as for a child Job."""
    gang = Leaving(JOBSET)
    gang.pod("a")
    gang.pod("b", phase="Succeeded")
    assert gang.ends("Succeeded", ended={"driver": Ended(1, 1)}), "the work of its Job may not be done"
    gang.world.now += ON_THEIR_WAY_SECONDS
    assert not gang.is_kept()


def test_the_room_of_what_succeeds_is_free_at_once() -> None:
    """Its controller says, or its pods, that each has done its work; one that has ended is not restarted."""
    gang = Leaving(JOBSET)
    gang.pod("a")
    gang.pod("b", phase="Failed")
    assert not gang.ends("Succeeded", ended={"main": Ended(1, 1)})
    gang = Leaving("PyTorchJob.kubeflow.org")
    gang.pod("a")
    gang.pod("b", phase="Succeeded")
    assert not gang.ends("Succeeded")
    gang = Leaving("PyTorchJob.kubeflow.org")
    gang.pod("a")
    gang.pod("b", phase="Succeeded")
    assert gang.ends("Failed")


def test_the_room_of_a_job_that_is_deleted_as_soon_as_it_has_ended_is_free_at_once() -> None:
    """Such as by its ``ttlSecondsAfterFinished``: nobody but its own controller makes its pods."""
    gang = Leaving()
    gang.pod("a", phase="Succeeded")
    gang.pod("b", phase="Failed")
    assert not gang.ends("Succeeded")
    assert not gang.goes()


@pytest.mark.parametrize("lost", [{"terminating": True}, {"phase": "Succeeded"}, {"phase": "Failed"}])
@pytest.mark.parametrize(("version", "kept"), [(49, True), (51, False)])
def test_a_pod_that_was_lost_before_the_job_was_to_go_is_owed_though_it_is_read_later(
    version: int, kept: bool, lost: dict[str, Any]
) -> None:
    gang = Leaving()
    gang.pod("a", version=1)
    gang.pod("b", version=2)
    deleting = replace(gang.job, suspended=False, deleting=True, resource_version=50)
    gang.world.view.put_job(deleting)
    gang.marks.job_changed(gang.job, deleting)
    assert not gang.goes()
    gang.pod("b", looked=False, version=version, **lost)
    assert gang.is_kept() is kept
    gang.world.now += ON_THEIR_WAY_SECONDS
    assert not gang.is_kept()


def test_when_a_pod_and_the_job_went_counts_not_when_a_cycle_looked_at_them() -> None:
    """A write of the ledger may take seconds, in which a gang lacks a pod, or its job is gone."""
    gang = Leaving()
    gang.pod("a")
    gang.pod("b")
    gang.pod("b", looked=False, terminating=True)
    gang.world.now += MOMENT_SECONDS
    assert gang.goes()
    gang = Leaving()
    gang.pod("a")
    gang.pod("b")
    gang.pod("b", looked=False, terminating=True)
    gang.world.now += MOMENT_SECONDS / 2
    gang.world.view.drop_job(gang.job)
    gang.marks.job_changed(gang.job, None)
    gang.world.now += MOMENT_SECONDS
    gang.pod("a", terminating=True)
    assert not gang.is_kept()


def test_that_a_pod_has_ended_by_itself_since_the_last_look_is_no_deletion_of_the_gang() -> None:
    gang = Leaving()
    gang.pod("a")
    gang.pod("b")
    gang.pod("a", looked=False, terminating=True)
    gang.pod("b", looked=False, phase="Failed")
    assert gang.goes()


def test_what_changes_of_a_pod_that_stays_costs_a_gang_of_many_pod_sets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gang = Leaving()
    gang.pod("a")
    gang.pod("b")
    monkeypatch.setattr(LatePods, "_owes_pods", None)
    gang.pod("a", looked=False, ready=True)
    gang.pod("a", looked=False, ready=False)


def test_pods_that_will_not_run_again_are_not_missed() -> None:
    gang = Leaving(ended={"main": Ended(1, 1)}, gives_back=True)
    gang.pod("a")
    assert not gang.goes()


def test_those_are_missed_that_may_run_again_whatever_has_ended() -> None:
    gang = Leaving(JOBSET, ended={"main": Ended(1, 1)})
    gang.pod("a")
    assert gang.goes()


def test_what_an_earlier_run_of_a_gang_had_says_nothing_of_this_one() -> None:
    gang = Leaving()
    gang.pod("a")
    gang.pod("b")
    gang.reservation = replace(gang.reservation, since_seconds=gang.reservation.since_seconds + 60)
    assert gang.goes()


def test_a_leader_that_has_just_begun_keeps_the_room_of_what_is_gone() -> None:
    """It may see pods of an earlier run."""
    gang = Leaving()
    gang.pod("a")
    gang.pod("b")
    gang.stops.late_pods.term_seconds = gang.world.now
    assert gang.goes()


def test_the_room_of_a_gang_that_nobody_has_started_is_free_at_once() -> None:
    gang = Leaving()
    gang.waits_for_its_start()
    assert not gang.goes()
    gang = Leaving()
    gang.waits_for_its_start()
    gang.records.of(gang.job.uid).started(gang.world.now)
    assert gang.goes(), "its start may have been stored since it was read"
    gang = Leaving()
    gang.waits_for_its_start()
    gang.records.of(gang.job.uid).started(gang.world.now)
    gang.stops.changed(gang.job.uid)
    assert gang.goes(), "nor does what was seen before it is stored show that it is whole"
    gang = Leaving()
    gang.waits_for_its_start()
    gang.world.view.put_job(replace(gang.job, suspended=False, resource_version=99))
    gang.stops.changed(gang.job.uid)
    assert gang.goes(), "whoever has started it"


def test_that_a_gang_was_started_in_an_earlier_run_does_not_keep_its_room_in_this_one() -> None:
    gang = Leaving()
    record = gang.records.of(gang.job.uid)
    record.on(Event.RELEASED)
    record.on(Event.SUBMITTED)
    record.on(Event.ADMITTED)
    gang.waits_for_its_start()
    assert not gang.goes()


@pytest.mark.parametrize("ahead_seconds", [-3600, 1.5])
def test_what_an_earlier_leader_has_reserved_it_may_have_started(ahead_seconds: float) -> None:
    """Its owner suspends it while it lacks a pod; the clock of that leader may have been ahead of ours."""
    gang = Leaving()
    gang.records.forget(gang.job.uid)
    gang.records.of(gang.job.uid).on(Event.READ_RUNNING)
    gang.stops.late_pods.term_seconds = gang.reservation.since_seconds - ahead_seconds
    gang.pod("a")
    gang.world.now += 10 * ON_THEIR_WAY_SECONDS
    gang.world.view.put_job(replace(gang.job, suspended=True, resource_version=99))
    gang.stops.changed(gang.job.uid)
    assert gang.goes()


def test_the_room_of_a_gang_that_only_a_member_runs_is_free_at_once() -> None:
    gang = Leaving(for_a_member=True)
    gang.stops.changed(gang.job.uid)
    assert not gang.goes()


@pytest.mark.parametrize("began", ["its reservation", "its start", "the term"])
def test_what_was_started_a_moment_ago_is_not_released_for_as_long_as_its_pods_may_be_on_their_way(began: str) -> None:
    """A start may be written long after the reservation, as by a leader that took over."""
    world, records = World(), GangRecords()
    stops, job = stops_of(world, records), world.waits("train", pods=1)
    stopping = replace(world.admits(job), stopping="OnHold")
    ended = replace(stopping, stopping=None)
    assert not stops.late_pods.may_come(replace(job, finished="Succeeded"), ended), "what has ended by itself"
    records.of(job.uid).started_seconds = world.now
    for gone in (None, replace(job, deleting=True), replace(job, finished="Succeeded", deleting=True)):
        assert stops.late_pods.may_come(gone, ended), "its controller may not know yet"
    forged = replace(ended, kind="PaddleJob.kubeflow.org")
    assert stops.late_pods.may_come(replace(job, finished="Succeeded"), forged)
    assert not stops.late_pods.may_come(None, replace(ended, kind=POD_GROUP.key)), "its pods are all that it was"
    records.of(job.uid).whole_since, records.of(job.uid).started_seconds = stopping.since_seconds, 0.0
    if began != "its reservation":
        world.now += 60
        assert not stops.late_pods.may_come(job, stopping)
    if began == "its start":
        records.of(job.uid).started_seconds = world.now
    if began == "the term":
        stops.late_pods.term_seconds = world.now
    assert stops.late_pods.may_come(job, stopping)
    world.now -= 3600
    assert not stops.late_pods.may_come(job, stopping), "a clock that was ahead says nothing"
    world.now += 3600 + ON_THEIR_WAY_SECONDS
    assert not stops.late_pods.may_come(job, stopping)
