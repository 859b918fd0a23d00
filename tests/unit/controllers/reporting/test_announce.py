"""Which reasons are worth an event: those that somebody could still read about."""

from typing import Any

from tests.unit.visibility.world import World
from webhook.controllers.reporting.announce import Announcer
from webhook.core.model.reasons import Code, Reason
from webhook.jobs.kinds.registry import KINDS


class Notes:
    """Takes events instead of an API server."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, regarding: Any, reason: str, note: str, *, warning: bool = False) -> None:
        self.told.append(f"{reason} {note}")


def test_that_the_next_cycle_decides_is_no_event_and_whom_a_gang_could_stop_is_one() -> None:
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
