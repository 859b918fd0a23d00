"""A step goes by a record that was known before where it begins by writing the record, and by no other."""

from dataclasses import replace
from itertools import product

from webhook.core.fleet.dispatch import NOWHERE
from webhook.core.fleet.sight import Copy, Sight
from webhook.core.fleet.steps import AfterFailure, HubStep, Wish, is_written_first, next_step, why_not

OFFERED = NOWHERE.offered(1, "a", "cluster-a")
GRANTED = OFFERED.granted("copy", "18")
DISPATCHES = (NOWHERE, OFFERED, GRANTED, GRANTED.recalled("stopped"))
FLAGS = ("permitted", "suspended", "deleting", "finished", "given_up", "failed", "succeeds")
IN_THE_MEMBER = {HubStep.CREATE, HubStep.SWEEP, HubStep.PERMIT, HubStep.DELETE, HubStep.PROVE}
"""What does not begin with a write of the hub's job: one that was stopped meanwhile would not be noticed."""


def sights() -> list[Sight | None]:
    """Return all that may be seen of a copy of this job, and that nothing is."""
    copies = [
        Copy(uid, version, "hub", "job", OFFERED.offer, **dict(zip(FLAGS, flags, strict=True)))
        for uid, version in (("copy", "18"), ("copy", "19"), ("other", "20"))
        for flags in product((False, True), repeat=len(FLAGS))
    ]
    seen = [Sight("cluster-a", True, copy, reserved) for copy in (None, *copies) for reserved in (False, True)]
    return [None, *seen]


def test_nothing_is_made_or_granted_where_its_controller_would_take_somebody_elses_object_for_its_own() -> None:
    copy = Copy("copy", "18", "hub", "job", OFFERED.offer, permitted=False)
    wish = Wish("hub", "job", runs=True)
    for found, free in ((None, HubStep.CREATE), (copy, HubStep.GRANT)):
        sight = Sight("cluster-a", True, found, reserved=found is not None)
        assert next_step(wish, OFFERED, sight, moves=False, complete=True) is free
        taken = replace(sight, taken_by="JobSet")
        assert next_step(wish, OFFERED, taken, moves=False, complete=True) is HubStep.NOTHING
        assert why_not(wish, taken) == "has another JobSet with this name"


def test_what_has_ended_well_is_shown_before_it_leaves_though_it_was_stopped_meanwhile() -> None:
    for sight in sights():
        copy = None if sight is None else sight.copy
        if copy is None or copy.uid != GRANTED.copy_uid:
            continue
        for stopped in (False, True):
            wish = Wish("hub", "job", runs=False, stopped=stopped)
            step = next_step(wish, GRANTED, sight, moves=False, complete=True)
            assert step is _after_a_stop(copy, stopped=stopped), copy


def _after_a_stop(copy: Copy, *, stopped: bool) -> HubStep:
    if not stopped or copy.suspended or copy.given_up:
        return HubStep.RECALL
    if copy.finished and not copy.failed:
        return HubStep.REPORT
    return HubStep.NOTHING if copy.succeeds and not copy.deleting else HubStep.RECALL


def test_nothing_is_done_in_a_member_by_a_record_that_was_not_read_after_it() -> None:
    steps = set[HubStep]()
    wishes = [Wish("hub", "job", runs=True), *(Wish("hub", "job", False, stopped) for stopped in (False, True))]
    for dispatch, sight, wish, moves, after in product(DISPATCHES, sights(), wishes, (False, True), AfterFailure):
        step = next_step(wish, dispatch, sight, moves=moves, complete=True, after_failure=after)
        steps.add(step)
        assert step not in IN_THE_MEMBER or not is_written_first(dispatch, sight), (dispatch, sight)
    assert steps == set(HubStep) - {HubStep.FOLLOW}
