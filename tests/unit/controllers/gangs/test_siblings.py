"""What befalls one job of an ensemble, and what that means for the others."""

from dataclasses import replace

from tests.unit.controllers.gangs.test_assess import RESERVED, STARTED, job
from tests.unit.controllers.gangs.test_pods_ready import SETTINGS
from webhook.cluster.rebuild import rebuilt_ledger
from webhook.cluster.view import View
from webhook.controllers.gangs.assess import Step, assess
from webhook.controllers.gangs.pods_ready import PodsReady
from webhook.controllers.gangs.requeues import requeue_of, with_siblings
from webhook.controllers.gangs.siblings import (
    departure,
    leaves,
    name_of,
    running_parts,
    to_stop_with,
    with_their_siblings,
)
from webhook.core.ledger.record import Membership, Reservation
from webhook.core.model.gang import PodPrice
from webhook.core.model.pods import PodRecord
from webhook.core.reasons.eviction import SIBLING_STOPPED
from webhook.jobs.patches import job as patches
from webhook.jobs.reading import annotations
from webhook.jobs.reading.record import Admission, JobRecord

FOUR = Membership("ring", 4)


def entry(uid: str, **changes: object) -> Reservation:
    return replace(RESERVED, uid=uid, name=uid, membership=FOUR, **changes)  # type: ignore[arg-type]


def runs(uid: str, **changes: object) -> JobRecord:
    """A job of two pods that was started at second 100 as a member."""
    base = job(suspended=False, admission=replace(STARTED, uid=uid, membership=FOUR))
    assert base.gang is not None
    return replace(base, uid=uid, name=uid, gang=replace(base.gang, uid=uid, name=uid), **changes)  # type: ignore[arg-type]


LEFT, RIGHT = entry("left"), entry("right")


def test_the_rest_is_stopped_with_one_when_it_cannot_make_the_quorum() -> None:
    assert to_stop_with([RIGHT]) == (RIGHT,)
    assert to_stop_with([RIGHT, entry("third")]) == ()
    assert to_stop_with([RIGHT, entry("third", stopping="OnHold")]) == (RIGHT,), "who goes already is left alone"


def test_a_job_leaves_when_it_has_ended_or_goes_away() -> None:
    assert leaves(None, LEFT)
    assert leaves(runs("left", deleting=True), LEFT)
    assert leaves(runs("left", finished="Succeeded"), LEFT)
    assert not leaves(runs("left"), LEFT)
    assert not leaves(None, replace(LEFT, membership=None))
    assert not leaves(None, None)


def test_who_has_succeeded_leaves_the_others_so_much_less_to_make() -> None:
    found = departure(runs("left", finished="Succeeded"), LEFT, [RIGHT])
    assert found.stopped == ()
    gone, stays = found.changed
    assert gone == replace(LEFT, membership=None)
    assert stays.membership == Membership("ring", 4, 2)


def test_who_has_failed_or_was_deleted_takes_the_rest_along() -> None:
    for last in (None, runs("left", deleting=True), runs("left", finished="Failed")):
        found = departure(last, LEFT, [RIGHT])
        assert found.changed == (replace(LEFT, membership=None),)
        assert found.stopped == (RIGHT,)


def test_who_was_to_start_with_one_that_cannot_does_not_start_either() -> None:
    admitted = [LEFT, RIGHT, replace(RESERVED, uid="lone")]
    assert with_their_siblings({"left"}, admitted) == {"left", "right"}
    assert with_their_siblings({"lone"}, admitted) == {"lone"}
    assert with_their_siblings((), admitted) == set()


def test_an_ensemble_is_whole_or_not_by_the_pods_of_all_its_jobs() -> None:
    view, whole = View(), PodsReady(SETTINGS)
    for number, uid in enumerate(("left", "left", "right")):
        view.fences.put_pod(PodRecord(f"p{number}", "ns", f"p{number}", 1, PodPrice(), gang=uid, phase="Running"))
    jobs = {name: runs(name) for name in ("left", "right")}
    parts = running_parts([RIGHT, LEFT], jobs)
    assert [each.uid for each, _ in parts] == ["left", "right"]
    assert whole.overdue(name_of(LEFT), parts, view, 109.9) is None
    due = whole.overdue(name_of(LEFT), parts, view, 110)
    assert due is not None
    assert due.message == "only 3 of the 4 pods it needs ran within 10 s after its admission"
    view.fences.put_pod(PodRecord("p3", "ns", "p3", 1, PodPrice(), gang="right", phase="Running"))
    assert whole.overdue(name_of(LEFT), parts, view, 111) is None


def test_a_job_that_is_not_started_yet_counts_as_no_pods_of_its_ensemble() -> None:
    view, whole = View(), PodsReady(SETTINGS)
    parts = [(runs("left"), LEFT), (runs("right", suspended=True, admission=None), RIGHT)]
    assert whole.overdue("x", parts, view, 100) is None
    assert whole.overdue("x", parts, view, 110) is not None
    waiting = [(runs(name, suspended=True, admission=None), held) for name, held in (("left", LEFT), ("right", RIGHT))]
    assert PodsReady(SETTINGS).overdue("x", waiting, view, 110) is None


def test_all_of_them_count_their_failed_starts_together() -> None:
    again = runs("right", admission=replace(STARTED, uid="right", attempts=2))
    whole, parts = PodsReady(SETTINGS), [(runs("left"), LEFT), (again, RIGHT)]
    assert whole.overdue("x", parts, View(), 100) is None
    due = whole.overdue("x", parts, View(), 110)
    assert due is not None
    assert due.attempts == 3


def test_a_stopped_job_takes_along_what_of_its_ensemble_has_succeeded() -> None:
    stopping = replace(RIGHT, stopping=SIBLING_STOPPED, membership=Membership("ring", 4, 2))
    planned = with_siblings(runs("right"), LEFT, "OnHold")
    assert "Job ns/left (OnHold)" in planned.message
    written = requeue_of(runs("right"), stopping, planned, 130)
    assert (written.reason, written.succeeded_pods) == (SIBLING_STOPPED, 2)
    assert annotations.decode_requeue(annotations.encode_requeue(written, "right"), "right") == written


def test_what_changes_in_its_ensemble_is_written_on_a_running_job() -> None:
    running = runs("right")
    assert assess(running, RIGHT, 2, False) is Step.NOTHING
    relieved = replace(RIGHT, membership=Membership("ring", 4, 2))
    assert assess(running, relieved, 2, False) is Step.GROW
    text = patches.grow(replace(running, has_annotations=True), relieved)[-1]["value"]
    noted = annotations.decode_admission(text, "right")
    assert isinstance(noted, Admission)
    assert noted.membership == relieved.membership


def view_of(*jobs: JobRecord) -> View:
    view = View()
    for each in jobs:
        view.put_job(each)
        for number in range(0 if each.finished else 2):
            name = f"{each.name}-{number}"
            view.fences.put_pod(PodRecord(name, "ns", name, 1, PodPrice(), gang=each.uid, phase="Running"))
    return view


def test_a_rebuilt_ledger_has_the_ensembles_that_the_jobs_prove() -> None:
    entries = rebuilt_ledger(view_of(runs("left"), runs("right")), None).entries
    assert [entries[name].membership for name in ("left", "right")] == [FOUR, FOUR]
    assert [entries[name].stopping for name in ("left", "right")] == [None, None]


def test_a_rebuilt_ledger_stops_what_is_left_of_an_ensemble_that_was_never_whole() -> None:
    entries = rebuilt_ledger(view_of(runs("left")), None).entries
    assert entries["left"].stopping == "Rebuilt"


def test_a_rebuilt_ledger_knows_who_had_succeeded() -> None:
    entries = rebuilt_ledger(view_of(runs("left"), runs("right", finished="Succeeded")), None).entries
    assert list(entries) == ["left"]
    assert entries["left"].stopping is None
    assert entries["left"].membership == Membership("ring", 4, 2)
