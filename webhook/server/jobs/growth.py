"""Whether a change makes a running gang larger than what was reserved for it.

A running gang may shrink, and may go back up to its reservation; more than that would start pods that are not reserved.
A waiting gang may change as it likes: it is judged again. The comparison is between pod sets as the reconciler reads
them, so every spelling of the same change (parallelism, completions, replicas, resources, a new replica type) is seen,
and pods that have ended for good, which a larger number does not bring back, are not.
"""

from collections.abc import Collection, Mapping

from webhook.core.ledger.record import Reservation, ReservedPodSet
from webhook.core.model.gang import Gang, PodSet
from webhook.core.notation import quantity
from webhook.core.notation.counted import counted, does
from webhook.jobs.reading.ended import given_back
from webhook.jobs.reading.gang import GangReading
from webhook.jobs.reading.record import spared_at_start


def growth(old: Gang | None, new: Gang, reservation: Reservation | None, *, but: Collection[str] = ()) -> str | None:
    """Return how ``new`` asks more than both the stored object and its reservation, or None when it does not.

    Without a reservation (the ledger was lost, the job predates Tutti) the stored object is the bound. Pod sets named
    by ``but`` are not looked at.
    """
    before = {} if old is None else {pod_set.name: pod_set for pod_set in old.pod_sets}
    for pod_set in new.pod_sets:
        if pod_set.name in but:
            continue
        reserved = None if reservation is None else reservation.pod_set(pod_set.name)
        found = _pod_set_growth(before.get(pod_set.name), pod_set, reserved)
        if found is not None:
            return found
    return None


def taken_back(old: GangReading, new: GangReading, reservation: Reservation, *, suspended: bool) -> str | None:
    """Return which pods that have ended a changed gang might run again, or None: that room it has given back.

    An Indexed Job of fewer completions forgets the indexes beyond them. ``suspended`` is whether ``old`` is.
    """
    spared = spared_at_start(reservation, old.admission, old.requeue, suspended=suspended)
    if spared is None:
        return None
    before, now = (given_back(it.gang, it.ended, reservation, spared) for it in (old, new))
    for name, number in before.items():
        if now.get(name, 0) < number:
            return f"{does(number, 'have', f'of pod set {name}')} ended, and might run again"
    return None


def forgets(old: GangReading, new: GangReading) -> bool:
    """Return whether fewer pods count as ended after a change."""
    return any(name not in new.ended or new.ended[name].pods < each.pods for name, each in old.ended.items())


def _pod_set_growth(old: PodSet | None, new: PodSet, reserved: ReservedPodSet | None) -> str | None:
    if new == old:
        return None
    if old is None and reserved is None:
        return f"pod set {new.name} is new" if new.count else None
    count = max(0 if old is None else old.count, 0 if reserved is None else reserved.count)
    if new.count > count:
        verb = "is" if count == 1 else "are"
        return f"pod set {new.name} would have {counted(new.count, 'pod')}, {count} {verb} reserved"
    for word, asked in (("requests", new.price.requests), ("limits", new.price.limits)):
        bounds = [
            (price.requests if word == "requests" else price.limits)
            for price in (None if old is None else old.price, None if reserved is None else reserved.price)
            if price is not None
        ]
        found = _more(asked, bounds)
        if found is not None:
            return f"pod set {new.name}: each pod's {word} would be {found}"
    return None


def _more(asked: Mapping[str, int], bounds: list[Mapping[str, int]]) -> str | None:
    for name, amount in sorted(asked.items()):
        bound = max(known.get(name, 0) for known in bounds)
        if amount > bound:
            return f"{quantity.render(amount, name)} {name}, {quantity.render(bound, name)} is reserved"
    return None
