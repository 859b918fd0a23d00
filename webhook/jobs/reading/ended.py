"""How many pods of a set have ended for good, and what a gang gives back of its room for that."""

from collections.abc import Mapping
from typing import NamedTuple

from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang


class Ended(NamedTuple):
    """Pods of one set that have ended and will not be replaced."""

    pods: int
    of: int
    """So many the set has over its whole life: the completions of a Job, else all that it has at a time."""
    present: int = 0
    """So many have not ended, those that are being deleted included, as the same status says where it does."""

    def unwanted(self, count: int, spared: int = 0) -> int:
        """Return how many of ``count`` pods at a time will not run again: what is left to do may want the others.

        ``spared`` had ended before there was room for ``count``, so they free none of it. While the set is larger than
        ``count`` that follows from its size, but that may be lowered, and raised again at any moment.
        """
        return max(0, min(count, self.pods - max(0, spared, self.of - count)))


def given_back(
    gang: Gang | None,
    ended: Mapping[str, Ended],
    reservation: Reservation,
    spared: Mapping[str, int],
) -> dict[str, int]:
    """Return how many pods of each set of a gang's reservation will not run again.

    Pods that the reservation was never for, because they had ended before or there was no room yet, are not given back:
    as in Kueue as many may run as were reserved, or as are left, whichever is less. What was given back others may have
    by now: nothing may make it less, which reviews of changes see to. ``spared`` is what its start was spared.
    """
    if gang is None:
        return {}
    counts, given = gang.counts, {}
    for reserved in reservation.pod_sets:
        found = ended.get(reserved.name) if reserved.name in counts else None
        number = 0 if found is None else found.unwanted(reserved.count, spared.get(reserved.name, 0))
        if number > 0:
            given[reserved.name] = number
    return given
