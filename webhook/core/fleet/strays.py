"""What the hub does about a copy found in a member: most belong to the dispatch of their gang, the rest are strays.

The copy is read first and the record after it. A record never goes back to an offer it has left, so what it does not
name then it will never name, unless the record itself was set back (rule P4). Only a copy that is read once more after
the record shows that: else the record may have left it meanwhile, on proof that it is gone.
"""

from collections.abc import Iterable
from enum import StrEnum

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.sight import Copy


class Verdict(StrEnum):
    """What becomes of one copy."""

    KEEP = "keep"
    """It is the one that the record names; ``steps`` sees to it."""
    SWEEP = "sweep"
    """Delete it, bound to the version that was read: a permit that is on its way fails, or this delete does."""
    REVOKE = "revoke"
    """Write to it, bound to the version that was read: a permit that is on its way fails, or this write does. Once that
    write is known to be stored, the copy is to be kept."""
    ADOPT = "adopt"
    """It may run: write it into the record, if it is still there after that was read."""
    WAIT = "wait"
    """The record has to be settled first."""
    END = "end"
    """It has a permit that was taken back, in a member that was set back, or that no hub gave: delete it by its uid."""


def leaves(copy: Copy) -> bool:
    """Return whether a copy is on its way out, and may not start: then nothing of its gang has to be known."""
    return copy.deleting and not copy.permitted


def verdict(copy: Copy, cluster: str, dispatch: Dispatch | None, *, swept: bool, complete: bool) -> Verdict:
    """Return what becomes of ``copy``, of this hub, in the member whose kube-system has the uid ``cluster``.

    ``dispatch`` is of its gang; None when the hub has no such job. ``swept``: this member was, since the record was set
    back, so no permit of an earlier time is on its way to an offered copy. ``complete`` as for ``steps.next_step``.
    """
    if leaves(copy) or (copy.deleting and dispatch is None):
        return Verdict.KEEP
    if dispatch is None:
        return Verdict.END
    if dispatch.holds and (dispatch.cluster, dispatch.copy_uid) == (cluster, copy.uid):
        return Verdict.KEEP
    if not copy.permitted:
        current = dispatch.phase is DispatchPhase.OFFERED and (dispatch.cluster, dispatch.offer) == (
            cluster,
            copy.offer,
        )
        if not current:
            return Verdict.SWEEP
        return Verdict.KEEP if swept else Verdict.REVOKE
    if not dispatch.holds:
        return Verdict.ADOPT if copy.offer.may_be_ours else Verdict.END
    return Verdict.END if complete else Verdict.WAIT


def swept(verdicts: Iterable[Verdict]) -> bool:
    """Return whether a member in which these were found counts as swept since the record was set back.

    Reservations and pods there whose copy is gone may be of any gang that has its name: that one is set apart until
    they are gone, and nobody else waits for them.
    """
    return all(each is Verdict.KEEP for each in verdicts)
