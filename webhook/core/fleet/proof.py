"""The proof that nothing of a copy is left in its member (rule P2): three consistent reads, in one order.

First that the copy is gone by its uid: from then on nobody starts it. Then that the member's ledger has no reservation
for it: from then on its webhook lets no pod of it pass, not even of a controller that has not heard of the deletion.
Then that no pod is listed. In another order a pod could appear between two reads. If a read finds something, the proof
begins again.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase


class Evidence(IntEnum):
    """What is asked for next."""

    COPY = 0
    RESERVATION = 1
    PODS = 2
    COMPLETE = 3


@dataclass(frozen=True, slots=True)
class Proof:
    """How far one process has come; each read is begun after the one before was answered."""

    cluster: str
    copy_uid: str
    wanted: Evidence = Evidence.COPY

    def found(self, *, gone: bool) -> "Proof":
        """Return the proof after the answer to what was wanted."""
        return replace(self, wanted=Evidence(self.wanted + 1) if gone else Evidence.COPY)

    def proves(self, dispatch: Dispatch) -> bool:
        """Return whether ``dispatch`` may be left by it."""
        this = (dispatch.cluster, dispatch.copy_uid) == (self.cluster, self.copy_uid)
        return this and dispatch.phase is DispatchPhase.RECALLED and self.wanted is Evidence.COMPLETE


def begun(dispatch: Dispatch) -> Proof:
    """Return the proof to be made for a dispatch."""
    return Proof(dispatch.cluster, dispatch.copy_uid)
