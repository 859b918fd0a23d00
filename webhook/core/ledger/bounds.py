"""How much one gang may put into the ledger, which all gangs share.

What a tenant writes decides how long an entry is: pod sets, names of resources, lengths of names. Both are bounded, by
far more than any real gang needs, at creation and once more before a gang is admitted.
"""

from dataclasses import replace
from typing import Final

from webhook.core.ledger import text
from webhook.core.ledger.record import Reservation, ReservedPodSet, reserve
from webhook.core.model.gang import Gang, PodPrice
from webhook.core.notation.counted import counted

RESOURCE_NAMES_MAX: Final = 64
"""Resources that one pod set may ask for or limit, those of amount 0 included."""
ENTRY_BYTES_MAX: Final = 32_768
"""Bytes of one entry: more than a hundred pod sets, each with half a dozen resources."""
STORED_BYTES_MAX: Final = 2 * ENTRY_BYTES_MAX
"""The same once the queue's flavors are in it, which administrators name."""
_SAFE_BYTES: Final = 200
"""What one pod set takes at most besides names."""
_SAFE_RESOURCE_BYTES: Final = 64
"""What one resource takes at most besides its name, twice."""
_SAFE_LETTER_BYTES: Final = 12
"""What a letter takes at most as it is written: one beyond ASCII. Templates of some kinds may name resources by any."""


def too_large(gang: Gang) -> str | None:
    """Return what is too much for an entry of the ledger, with field, value and fix; None when nothing is."""
    for pod_set in gang.pod_sets:
        price = pod_set.price
        if len(price.requests) + len(price.limits) <= RESOURCE_NAMES_MAX:
            continue
        names = price.requests.keys() | price.limits.keys()
        if len(names) > RESOURCE_NAMES_MAX:
            return (
                f"resources of pod set {pod_set.name:.80} name {len(names)} resources, a gang's reservation holds at "
                f"most {RESOURCE_NAMES_MAX} a pod set; leave out those that its containers do not need"
            )
    size = _entry_bytes(gang)
    if size <= ENTRY_BYTES_MAX:
        return None
    sets = counted(len(gang.pod_sets), "pod set")
    return (
        f"its {sets} and all resources make a reservation of {size} bytes, it holds at most "
        f"{ENTRY_BYTES_MAX}; use fewer pod sets or resource names, or split the job"
    )


def _entry_bytes(gang: Gang) -> int:
    """Return the size of the entry without flavors. Bounded from above where that is enough: it runs in each review."""
    letters, safe = len(gang.uid) + len(gang.kind) + len(gang.key) + len(gang.queue or ""), _SAFE_BYTES
    for each in gang.pod_sets:
        price = each.price
        asked = [*price.requests, *([] if price.limits is price.requests else price.limits)]
        letters += len(each.name) + len(price.priority_class) + len(each.job) + 2 * sum(map(len, asked))
        safe += _SAFE_BYTES + len(asked) * _SAFE_RESOURCE_BYTES
    safe += letters * _SAFE_LETTER_BYTES
    return safe if safe <= ENTRY_BYTES_MAX else entry_bytes(reserve(gang, gang.queue, gang.counts, {}, 1, 0.0))


def entry_bytes(*entries: Reservation) -> int:
    """Return what ``entries`` take together."""
    return sum(text.size_bytes({entry.uid: text.encode_entry(entry)}) for entry in entries)


def fits_alone(entry: Reservation) -> bool:
    """Return whether one job may take so much of the ledger."""
    return entry_bytes(entry) <= STORED_BYTES_MAX


def bounded(entry: Reservation) -> Reservation:
    """Return an entry that may be written for pods that run already, however much they ask for.

    One that is too long is cut down to what its queue counts, and cpu and memory.
    """
    if fits_alone(entry):
        return entry
    return replace(entry, pod_sets=tuple(replace(s, price=_counted(s)) for s in entry.pod_sets))


def _counted(pod_set: ReservedPodSet) -> PodPrice:
    price, kept = pod_set.price, {"cpu", "memory", *pod_set.flavors}
    requests = {name: amount for name, amount in price.requests.items() if name in kept}
    limits = {name: amount for name, amount in price.limits.items() if name in kept}
    return replace(price, requests=requests, limits=limits)
