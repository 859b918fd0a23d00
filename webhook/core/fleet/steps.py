"""What the hub does next about one gang: a pure function of its record and of what was read in the member it names.

The member is read first and the record after it, both consistently; every write is conditional on what was read. An
offer or a grant may go by a record that was known before: it is stored only if that is still the record. So a process
may crash, sleep or lose an answer anywhere: the next call returns the step that is left.
"""

from dataclasses import dataclass
from enum import StrEnum

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.failed_in import FailedIn
from webhook.core.fleet.sight import Copy, Sight


class HubStep(StrEnum):
    """The next action for one gang."""

    NOTHING = "nothing"
    FOLLOW = "follow"
    """Write by which member's name its cluster is reached now."""
    OFFER = "offer"
    """Write the offer to the member that was chosen."""
    WITHDRAW = "withdraw"
    CREATE = "create"
    """Create the copy, suspended and without a permit."""
    SWEEP = "sweep"
    """Delete an old copy that bears the name, bound to the version that was read."""
    GRANT = "grant"
    PERMIT = "permit"
    """Patch the permit on the copy, bound to the uid and version in the record."""
    REPORT = "report"
    """Store the final status on the hub's job."""
    RECALL = "recall"
    FAIL_OVER = "fail over"
    """Recall a gang that failed, and note that it did so in this member."""
    DELETE = "delete"
    """Delete the copy by its uid."""
    PROVE = "prove"
    """Ask for the next piece of evidence; when it is complete, write that the gang is nowhere."""


class AfterFailure(StrEnum):
    """What a gang does that has failed in its member."""

    END = "end"
    """It has failed for good."""
    WAIT = "wait"
    """It may yet be tried in another member."""
    MOVE = "move"
    """It is to be tried in another member, and there is one that may be asked."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the hub wants of a gang."""

    hub: str
    """Uid of the hub's kube-system."""
    job: str
    """Uid of the hub's job."""
    runs: bool
    """Its queue has given it a slot, and it has neither ended nor been stopped or deleted."""
    stopped: bool = False
    """It does not run because it was stopped, and for no other reason: it may go on."""


def next_step(
    wish: Wish,
    dispatch: Dispatch,
    sight: Sight | None,
    *,
    moves: bool,
    complete: bool,
    after_failure: AfterFailure = AfterFailure.END,
) -> HubStep:
    """Return the next step.

    ``sight`` is of the member that the dispatch names; None while it does not answer. ``moves``: another member was
    chosen for a gang that is nowhere or only offered, or that its member has stopped. ``complete``: every member was
    swept since the hub's record was lost or set back (rule P4); until then nothing is offered or granted.
    """
    if dispatch.phase is DispatchPhase.NOWHERE:
        return HubStep.OFFER if wish.runs and moves and complete else HubStep.NOTHING
    if dispatch.phase is DispatchPhase.OFFERED:
        return _offered(wish, dispatch, sight, moves=moves, complete=complete)
    if sight is None or sight.cluster != dispatch.cluster:
        # P3: unreachable is not gone. P5: nor is what another cluster does not have.
        return HubStep.NOTHING
    if dispatch.phase is DispatchPhase.GRANTED:
        return _granted(wish, dispatch, sight, after_failure, moves=moves)
    copy = sight.copy
    return HubStep.DELETE if copy is not None and copy.uid == dispatch.copy_uid and not copy.deleting else HubStep.PROVE


def rests(wish: Wish, dispatch: Dispatch, sight: Sight | None) -> bool:
    """Return whether a gang waits for nothing that only a look would show, such as what a policy says of it by now."""
    if dispatch.phase is DispatchPhase.NOWHERE:
        return not (wish.runs or dispatch.suspended_by)
    copy = None if sight is None or dispatch.phase is not DispatchPhase.GRANTED else sight.copy
    return copy is not None and copy.permitted and not (copy.finished or copy.deleting or copy.suspended)


def stopped_there(sight: Sight | None) -> bool:
    """Return whether a member has stopped a copy that may start, and has given its room to others."""
    copy = None if sight is None or sight.reserved else sight.copy
    return copy is not None and copy.permitted and copy.suspended and not (copy.finished or copy.deleting)


def eligible(wish: Wish, sight: Sight | None) -> bool:
    """Return whether a gang may be offered to a member: it answers, knows permits (P7), and has the name free (P6)."""
    return not why_not(wish, sight)


def why_not(wish: Wish, sight: Sight | None) -> str:
    """Return why a gang may not be offered to a member, in words; nothing when it may."""
    if sight is None:
        return "does not answer"
    if not sight.knows_permits:
        return sight.unread or "has no Tutti, or one too old to know permits"
    if sight.copy is not None and not is_copy(wish, sight.copy):
        return "has another job with this name"
    return f"has another {sight.taken_by} with this name" if sight.taken_by else ""


def recalled(dispatch: Dispatch, copy: Copy | None, why: str, noted: tuple[FailedIn, ...] = ()) -> Dispatch:
    """Return a gang on its way out of its member; if its copy had failed it is noted that it did so there.

    ``copy`` is None also of one that was stopped in the hub: once it goes on it may be tried there again.
    """
    failed = copy is not None and copy.uid == dispatch.copy_uid and copy.failed
    return dispatch.failed_over(why, noted) if failed else dispatch.recalled(why)


def why_recalled(dispatch: Dispatch, copy: Copy | None) -> str:
    """Return what its member did, in words that follow its name, that a gang which is to run is recalled from it.

    ``copy`` is what was seen there.
    """
    if copy is None or copy.uid != dispatch.copy_uid:
        return "no longer has its copy: it was deleted there, or the hub or that cluster was restored from a backup"
    if copy.given_up:
        return "had heard nothing from the hub for too long, and stopped it"
    if copy.deleting:
        return "is deleting its copy"
    if copy.permitted:
        return "stopped it, and did not start it again in time"
    if copy.offer != dispatch.offer:
        return "has a copy that says it is of another offer: somebody changed that there"
    return "gave its room back before the permit arrived"


def is_copy(wish: Wish, copy: Copy) -> bool:
    """Return whether an object in a member is a copy of this hub's job, or was of an earlier one of its name."""
    return copy.hub == wish.hub and bool(copy.job)


def _offered(wish: Wish, dispatch: Dispatch, sight: Sight | None, *, moves: bool, complete: bool) -> HubStep:
    if not wish.runs:
        return HubStep.WITHDRAW
    if not complete:
        return HubStep.NOTHING
    if moves:
        return HubStep.OFFER
    if sight is None or sight.cluster != dispatch.cluster or not eligible(wish, sight):
        return HubStep.NOTHING
    copy = sight.copy
    if copy is None:
        return HubStep.CREATE
    if copy.deleting:
        return HubStep.NOTHING
    if copy.given_up:
        return HubStep.SWEEP
    if copy.permitted:
        # Only a record that was set back knows nothing of it: ``strays`` has it adopted.
        return HubStep.NOTHING
    if (copy.job, copy.offer) != (wish.job, dispatch.offer):
        return HubStep.SWEEP
    return HubStep.GRANT if sight.reserved else HubStep.NOTHING


def _granted(wish: Wish, dispatch: Dispatch, sight: Sight, after_failure: AfterFailure, *, moves: bool) -> HubStep:
    copy = sight.copy
    if wish.stopped and copy is not None and copy.uid == dispatch.copy_uid:
        # It was stopped too late, as while its member was silent: it would run once more when it goes on.
        if _ended_well(copy):
            return HubStep.REPORT
        if copy.succeeds and not (copy.deleting or copy.suspended or copy.given_up):
            return HubStep.NOTHING
    if not wish.runs or copy is None or copy.uid != dispatch.copy_uid or copy.given_up:
        return HubStep.RECALL
    if copy.failed and after_failure is AfterFailure.MOVE:
        return HubStep.FAIL_OVER
    if copy.finished and not (copy.failed and after_failure is AfterFailure.WAIT):
        # Once the hub's job shows how it ended it does not run any more, and is recalled for that. Also if somebody
        # else deletes it: it has ended.
        return HubStep.REPORT
    if copy.deleting:
        return HubStep.RECALL
    if copy.failed:
        return HubStep.NOTHING
    if copy.permitted:
        return HubStep.RECALL if moves and stopped_there(sight) else HubStep.NOTHING
    if (copy.job, copy.offer) != (wish.job, dispatch.offer):
        # Somebody there has changed what it says it is of: no permit will ever be one for it.
        return HubStep.RECALL if copy.suspended else HubStep.NOTHING
    if not sight.reserved:
        # The member gave the room back before the permit came.
        return HubStep.RECALL
    return HubStep.PERMIT if copy.version == dispatch.copy_version else HubStep.GRANT


def _ended_well(copy: Copy) -> bool:
    """Return whether a copy has ended by itself, and well: one that failed before it was stopped may be tried again."""
    return copy.finished and not (copy.failed or copy.suspended or copy.given_up)


def is_written_first(dispatch: Dispatch, sight: Sight | None) -> bool:
    """Return whether the next step, if there is one, begins with a write of the hub's job: its record or its status."""
    copy = None if sight is None else sight.copy
    if copy is None or dispatch.phase not in (DispatchPhase.OFFERED, DispatchPhase.GRANTED):
        return dispatch.phase is DispatchPhase.NOWHERE
    if dispatch.phase is DispatchPhase.GRANTED:
        return copy.permitted and copy.uid == dispatch.copy_uid
    return sight is not None and sight.reserved and copy.offer == dispatch.offer and not copy.given_up
