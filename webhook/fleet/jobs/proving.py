"""The proof that a gang whose recall is stored is gone from its member, one piece of evidence after another."""

from webhook.core.fleet import proof
from webhook.core.fleet.dispatch import Dispatch
from webhook.core.fleet.proof import Evidence, Proof
from webhook.core.fleet.sight import Sight
from webhook.fleet.members.member import Member
from webhook.jobs.kinds.kind import JobKind


class Proving:
    """What one process has gathered of it at its last look, for one gang."""

    def __init__(self) -> None:
        self._proof: Proof | None = None

    async def complete(self, member: Member, which: tuple[JobKind, str, str], dispatch: Dispatch, sight: Sight) -> bool:
        """Take what was seen after the recall as the first piece, ask for the others; return whether all are there.

        Each time from the beginning: the member may have been restored from a backup since the last. ``which`` is
        (kind, namespace, name). Raises NoAnswer.
        """
        copy = sight.copy
        so_far = self._proof = proof.begun(dispatch).found(gone=copy is None or copy.uid != dispatch.copy_uid)
        if so_far.wanted is Evidence.COPY:
            return False
        while so_far.wanted is not Evidence.COMPLETE:
            gone = await member.gone(so_far.wanted, *which, dispatch)
            so_far = self._proof = so_far.found(gone=gone)
            if not gone:
                return False
        return True

    def proves(self, dispatch: Dispatch) -> bool:
        """Return whether nothing is left of the copy that a record names."""
        return self._proof is not None and self._proof.proves(dispatch)
