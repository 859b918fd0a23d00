"""Growth of gangs admitted below full size: their quorum started, the rest follows when quota, fences and nodes allow.

Only a gang-wide quorum grows. A pod set that was admitted smaller by its own ``min_count`` (partial admission) was
started with that size and stays there, as in Kueue. Plain pods are created one by one, and may be of a shape that was
not there yet when the others started: it joins the gang as one more pod set, from the flavors of the others if it can.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from webhook.core.assignment.decision import Decider
from webhook.core.assignment.request import Choice, compile_request
from webhook.core.ledger.record import Reservation, ReservedPodSet
from webhook.core.model.gang import PodSet
from webhook.core.model.policy import Policy
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes.allotment import Allotment
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.names import COUNTED
from webhook.core.placement.misplaced import Misplaced
from webhook.core.quota.allocations import Allocation, Allocations
from webhook.core.quota.fences import Fences

Allowed = Callable[[Allocation, Mapping[FlavorResource, int]], bool]
"""Whether an admitted gang may take so much more, though it fits."""
Seats = Callable[[Allocation, PodSet], Iterator[ReservedPodSet]]
"""The ways in which pods of a new shape could join a gang, none of them in it yet; the best first."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a gang may grow into."""

    allocations: Allocations
    fences: Fences
    decider: Decider

    def holds(self, old: Allocation, larger: Reservation) -> bool:
        """Return whether quota, fences and nodes have room for an admitted gang to be ``larger``."""
        return (
            self._has_quota(old, larger.usage(old.reclaimed))
            and self._passes_fences(old, larger)
            and not isinstance(self.places(old, larger), Misplaced)
        )

    def places(self, old: Allocation, larger: Reservation) -> Allotment | Misplaced | None:
        """Return where the pods go by which a gang is ``larger``, or why nowhere; None where nodes are not asked."""
        return None if old.gang is None else self.decider.more_places(old.gang, old.reservation, larger)

    def is_postponed(self, old: Allocation, larger: Reservation) -> bool:
        """Return whether the nodes are looked at in a later round only."""
        places = self.places(old, larger)
        return isinstance(places, Misplaced) and places.postponed

    def _has_quota(self, old: Allocation, amounts: Mapping[FlavorResource, int]) -> bool:
        vertex = self.allocations.vertex_of(old)
        if vertex is None:
            return old.reservation.queue is None
        return self.allocations.fits(vertex, extra(amounts, old))

    def _passes_fences(self, old: Allocation, larger: Reservation) -> bool:
        before = old.reservation.counts
        more = {name: count - before.get(name, 0) for name, count in larger.counts.items()}
        return old.gang is not None and self.fences.shortfall(old.gang, more) is None


def grow(allocation: Allocation, room: Room, allowed: Allowed, seats: Seats) -> Allocation | None:
    """Return ``allocation`` with as many more pods as fit now, the first pod sets first; None when none does."""
    if allocation.gang is None:
        return None
    grown = allocation
    for pod_set in allocation.gang.pod_sets:
        known = allocation.reservation.pod_set(pod_set.name)
        for seat in (known,) if known is not None else seats(allocation, pod_set):
            seated = grown if known is not None else replace(grown, reservation=_with_set(grown.reservation, seat))
            more = pod_set.count - seat.count
            pods = _largest(seated.reservation, pod_set.name, more, old=allocation, room=room)
            if not pods and more and room.is_postponed(allocation, _with_more(seated.reservation, pod_set.name, 1)):
                # Whether there is room is not known yet: none go elsewhere before, nor others first.
                return _if_allowed(grown, allocation, allowed)
            if pods:
                larger = _with_more(seated.reservation, pod_set.name, pods)
                grown = replace(grown, reservation=larger, amounts=larger.usage(allocation.reclaimed))
                break
    return _if_allowed(grown, allocation, allowed)


def _if_allowed(grown: Allocation, before: Allocation, allowed: Allowed) -> Allocation | None:
    return grown if grown is not before and allowed(before, extra(grown.amounts, before)) else None


def one_more(allocation: Allocation, seats: Seats) -> Reservation | None:
    """Return what a gang would hold with one more pod, of the first set that lacks some; None where none can join."""
    gang, reservation = allocation.gang, allocation.reservation
    for pod_set in () if gang is None else gang.pod_sets:
        known = reservation.pod_set(pod_set.name)
        if known is None:
            for seat in seats(allocation, pod_set):
                return _with_more(_with_set(reservation, seat), pod_set.name, 1)
        elif known.count < pod_set.count:
            return _with_more(reservation, pod_set.name, 1)
    return None


def joining(policy: Policy, settings: EngineSettings) -> Seats:
    """Return how pods of new shapes join gangs under a policy."""
    return lambda allocation, pod_set: _seats(allocation, pod_set, policy, settings)


def _seats(
    allocation: Allocation, pod_set: PodSet, policy: Policy, settings: EngineSettings
) -> Iterator[ReservedPodSet]:
    """Yield ``pod_set``, of a shape that the gang was not admitted with, as it could be part of the reservation.

    None where the gang takes in no other shapes, or no flavor of its queue suits this one.
    """
    reservation, gang = allocation.reservation, allocation.gang
    if gang is None or not gang.joinable:
        return
    if reservation.queue is None:
        yield ReservedPodSet(pod_set.name, 0, pod_set.price)
        return
    queue = policy.queues.get(reservation.queue)
    if queue is None:
        return
    request = compile_request(replace(gang, pod_sets=(pod_set,)), queue, policy.flavors, settings)
    if request.refusal is not None:
        return
    charge = (request.charges or {}).get(pod_set.name)
    for ways in product(*(_ways(choice, reservation) for choice in request.choices)):
        flavors = {name: flavor for way in ways for name, flavor in way.items()}
        yield ReservedPodSet(pod_set.name, 0, pod_set.price, flavors, charge)


def _ways(choice: Choice, reservation: Reservation) -> list[dict[str, str]]:
    """Return what each flavor that suits gives to which resources, those first that the gang has already."""
    taken = {(name, flavor) for each in reservation.pod_sets for name, flavor in each.flavors.items()}
    found = [
        # The gang is counted as one already.
        {want.resource: option.flavor for want in choice.wants if want.resource not in COUNTED}
        for option in choice.options
        if option.misfit is None
    ]
    return sorted(found, key=lambda way: taken.isdisjoint(way.items()))


def _largest(grown: Reservation, name: str, most: int, *, old: Allocation, room: Room) -> int:
    """Return by how many pods set ``name`` can grow beyond ``grown``; growing by more never fits better."""
    fits, beyond = 0, most + 1
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        if room.holds(old, _with_more(grown, name, middle)):
            fits = middle
        else:
            beyond = middle
    return fits


def extra(amounts: Mapping[FlavorResource, int], old: Allocation) -> dict[FlavorResource, int]:
    """Return what ``amounts`` are more than what a gang holds."""
    more = {key: amount - old.amounts.get(key, 0) for key, amount in amounts.items()}
    return {key: amount for key, amount in more.items() if amount > 0}


def _with_set(reservation: Reservation, pod_set: ReservedPodSet) -> Reservation:
    return replace(reservation, pod_sets=(*reservation.pod_sets, pod_set))


def _with_more(reservation: Reservation, name: str, extra: int) -> Reservation:
    sets = tuple(replace(s, count=s.count + extra) if s.name == name else s for s in reservation.pod_sets)
    return replace(reservation, pod_sets=sets)
