"""Does an object or a pod belong to a gang: judged by its controlling owner, never by the gang label alone.

The view keeps gangs, not what their controllers make in between (the Jobs of a JobSet). Such an owner is believed for
its kind: what stands between a gang and its pods is written by the gang's controller, and what anybody else writes
bears no gang label (``jobs.reading.ours``).
"""

from typing import Final

from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation
from webhook.server.review.creators import Creators

OWNER_DEPTH_MAX: Final = 10


def belongs(view: View, creators: Creators, owner_kind: str, owner_uid: str, reservation: Reservation) -> bool:
    """Return whether what the given owner controls is part of the gang that holds ``reservation``."""
    for _ in range(OWNER_DEPTH_MAX):
        if owner_uid == reservation.uid:
            return True
        known = view.jobs.get(owner_uid)
        if known is None:
            return owner_kind in creators.below(reservation.kind)
        if known.owner is None:
            return False
        owner_kind, owner_uid = known.owner.kind, known.owner.uid
    return False
