"""Which reasons are worth an event: those that somebody could still read about."""

from typing import Any

from tests.unit.visibility.world import World
from webhook.controllers.reporting.announce import UNREADABLE_SECONDS, Announcer
from webhook.core.model.reasons import Code, Reason
from webhook.jobs.kinds.registry import KINDS


class Notes:
    """Takes events instead of an API server."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.regarding: list[Any] = []

    namespace, ledger_name = "tutti-system", "ledger"

    def note(self, regarding: Any, reason: str, note: str, *, warning: bool = False, annotations: Any = None) -> None:
        self.told.append(f"{reason} {note}")
        self.regarding.append(regarding)


def test_that_the_next_cycle_decides_is_no_event_and_what_a_gang_could_stop_is_one() -> None:
    world, notes = World(), Notes()
    job = world.waits("train")
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    announcer.queued(job.uid)
    passing = Reason(Code.PENDING_EVALUATION, "has room and is decided about in the next cycle")
    lasting = Reason(Code.PENDING_EVALUATION, "could stop team/other", help="its turn comes when room becomes free")
    announcer.tick(10, lambda _uid: passing)
    assert notes.told == []
    announcer.tick(11, lambda _uid: lasting)
    assert notes.told == [f"Queued PendingEvaluation: {lasting}"]


def test_objects_that_cannot_be_read_are_named_once_each_at_a_slow_pace() -> None:
    world, notes = World(), Notes()
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    odd = [("x.io/v1", "PodGroup", "team", f"g{number}", "RecursionError") for number in range(3)]
    cluster_wide = ("kueue.x-k8s.io/v1beta2", "ClusterQueue", "", "q", "ValueError")
    for second in range(int(5 * UNREADABLE_SECONDS)):
        announcer.unreadable(second, [*odd, cluster_wide])
    assert [each.name for each in notes.regarding] == ["g0", "g1", "g2", "ledger"]
    assert notes.told[0].startswith("Unreadable Tutti cannot read PodGroup team/g0: RecursionError")
    for second in range(100, 100 + int(10 * UNREADABLE_SECONDS)):
        announcer.unreadable(second, odd[:1] if second % 2 else [])
    assert len(notes.told) <= 4 + 10, "one that is readable at times is told of no faster"


def test_where_neighbours_are_hidden_events_name_none() -> None:
    world, notes = World(), Notes()
    world.view.hides_neighbours = True
    world.view.namespaces |= {"team-vision": {}, "team-speech": {}}
    job = world.waits("train")
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    announcer.queued(job.uid)
    announcer.tick(11, lambda _uid: Reason(Code.WAITING_FOR_QUOTA, "behind team-speech/secret and team-vision/own"))
    assert notes.told == ["Queued WaitingForQuota: behind a job of another namespace and team-vision/own"]


def test_that_a_start_fails_is_said_once_an_admission_and_not_remembered_beyond_it() -> None:
    world, notes = World(), Notes()
    job = world.waits("train")
    reservation = world.admits(job)
    announcer = Announcer(notes, world.view, KINDS, lambda: 0.0)  # type: ignore[arg-type]
    for second in range(3):
        announcer.start_failed(job.uid, "no")
        announcer.tick(second, lambda _uid: None)
    assert len(notes.told) == 1
    world.releases(reservation)
    announcer.tick(4, lambda _uid: None)
    announcer.start_failed(job.uid, "no")
    assert len(notes.told) == 2
