"""Growth of gangs admitted below full size: their quorum started, the rest follows when quota and fences allow.

Only a gang-wide quorum grows. A pod set that was admitted smaller by its own ``min_count`` (partial admission) was
started with that size and stays there, as in Kueue.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from webhook.core.fences import Fences
from webhook.core.holdings import Holding, Holdings
from webhook.core.ledger import Reservation
from webhook.core.policy import FlavorResource

Allowed = Callable[[Holding, Mapping[FlavorResource, int]], bool]
"""Whether an admitted gang may take so much more, though it fits."""


def grow(holding: Holding, holdings: Holdings, fences: Fences, allowed: Allowed) -> Holding | None:
    """Return ``holding`` with as many more pods as fit now, the first pod sets first; None when none does."""
    if holding.gang is None:
        return None
    grown = holding
    for name, whole in holding.gang.counts.items():
        reserved = holding.reservation.pod_set(name)
        if reserved is None:
            continue
        extra = _largest(grown, name, whole - reserved.count, old=holding, holdings=holdings, fences=fences)
        if extra:
            larger = _with_more(grown.reservation, name, extra)
            grown = replace(grown, reservation=larger, amounts=larger.usage(holding.reclaimed))
    if grown is holding or not allowed(holding, _extra(grown.amounts, holding)):
        return None
    return grown


def _largest(grown: Holding, name: str, most: int, *, old: Holding, holdings: Holdings, fences: Fences) -> int:
    """Return by how many pods set ``name`` can grow beyond ``grown``; growing by more never fits better."""
    fits, beyond = 0, most + 1
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        larger = _with_more(grown.reservation, name, middle)
        room = _has_room(larger.usage(old.reclaimed), old, holdings)
        if room and _passes_fences(old, larger, fences):
            fits = middle
        else:
            beyond = middle
    return fits


def _has_room(amounts: Mapping[FlavorResource, int], old: Holding, holdings: Holdings) -> bool:
    node = holdings.node_of(old)
    if node is None:
        return old.reservation.queue is None
    return holdings.fits(node, _extra(amounts, old))


def _extra(amounts: Mapping[FlavorResource, int], old: Holding) -> dict[FlavorResource, int]:
    extra = {key: amount - old.amounts.get(key, 0) for key, amount in amounts.items()}
    return {key: amount for key, amount in extra.items() if amount > 0}


def _passes_fences(old: Holding, larger: Reservation, fences: Fences) -> bool:
    before = old.reservation.counts
    more = {name: count - before[name] for name, count in larger.counts.items()}
    return old.gang is not None and fences.shortfall(old.gang, more) is None


def _with_more(reservation: Reservation, name: str, extra: int) -> Reservation:
    sets = tuple(replace(s, count=s.count + extra) if s.name == name else s for s in reservation.pod_sets)
    return replace(reservation, pod_sets=sets)
