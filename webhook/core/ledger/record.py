"""The record of what was admitted: reservations, claims, and the epoch that shuts out late writers.

A ``Ledger`` is an immutable value; ``text`` is its form in the ConfigMaps. ``controllers.ledger`` keeps its rules
(compare-and-swap, the order of reading, void by writing the job first); this module only makes illegal records hard to
write.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.core.model.frozen import frozen
from webhook.core.model.gang import Gang, PodPrice
from webhook.core.model.interning import interned
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.names import COUNTED
from webhook.core.notation.quantity import MILLI

MAX_JOBS_REQUEST: Final = 1000
"""Each gang asks one of a pseudo-resource that counts gangs, in thousandths."""

PLACES_MAX: Final = 64
"""Nodes that are written down of a pod set."""

NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Membership:
    """What binds a gang to those that it was admitted with: they share one quorum."""

    ensemble: str
    """Name of their PodGroup."""
    quorum: int
    """Pods that they have to make together."""
    succeeded_pods: int = 0
    """How many of these belonged to members that have succeeded and left."""

    @property
    def still_needed(self) -> int:
        """Pods that those who have not succeeded must make."""
        return max(1, self.quorum - self.succeeded_pods)


@frozen
class ReservedPodSet:
    """What one pod set holds: how many pods may exist, at what price each, and from which flavors."""

    name: str
    count: int
    price: PodPrice
    flavors: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Resource name to flavor, for the resources the queue accounts."""
    charge: Mapping[str, int] | None = None
    """What one pod is charged to the queue, where that differs from its price (transformed or excluded resources)."""
    job: str = ""
    """Uid of the job that it belongs to, where an ensemble's reservation is taken as one."""
    places: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """Node to pods, as they were allotted when it was admitted, in order of their ranks; empty where nobody knew, or
    there are too many."""
    domain: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Labels of the nodes that alone its pods may go to, where it has to be in one domain."""
    unknown: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    """What another release wrote of it besides the rest; kept until the pod set is made again."""


@frozen
class Reservation:
    """The ledger's entry for one admitted gang."""

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str | None
    pod_sets: tuple[ReservedPodSet, ...]
    epoch: int
    since_seconds: float
    """Unix time of the admission."""
    priority: int = 0
    stopping: str | None = None
    """Why the gang is being stopped (its pods still count); None while it may run."""
    adopted: bool = False
    """The job was running before Tutti knew it: its pods carry no gang label."""
    evictable: bool = True
    """Stopping it takes its pods away."""
    loose_pods: bool = False
    """Its pods carry no gang label: the queue is charged, the fences are not."""
    preemptible: bool = True
    """Its owner lets it be stopped for others, or its queue does not ask."""
    membership: Membership | None = None
    """The ensemble that it was admitted with and has not left; None for a gang of its own."""
    cohorts: tuple[str, ...] = ()
    """What its queue was below when it was admitted, upwards: should any of these vanish, its usage counts there."""
    unknown: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    """What another release wrote of it besides the rest, and may find here again."""

    @property
    def may_be_preempted(self) -> bool:
        """It may be stopped to make room for another gang, and would go."""
        return self.evictable and self.preemptible

    @property
    def jobs(self) -> frozenset[str]:
        """Uids of the jobs whose pods it is for: of those of an ensemble, or of its own."""
        return frozenset(pod_set.job or self.uid for pod_set in self.pod_sets)

    @property
    def counts(self) -> dict[str, int]:
        """Reserved pods of each set."""
        return {pod_set.name: pod_set.count for pod_set in self.pod_sets}

    @property
    def flavors(self) -> dict[str, Mapping[str, str]]:
        """Pod set to resource to flavor."""
        return {pod_set.name: pod_set.flavors for pod_set in self.pod_sets}

    def pod_set(self, name: str) -> ReservedPodSet | None:
        """Return the pod set called ``name``."""
        for pod_set in self.pod_sets:
            if pod_set.name == name:
                return pod_set
        return None

    def without(self, pods: Mapping[str, int]) -> "Reservation":
        """Return it with so many pods of each set less."""
        sets = (replace(each, count=each.count - pods.get(each.name, 0)) for each in self.pod_sets)
        return replace(self, pod_sets=tuple(sets))

    def usage(self, reclaimed: Mapping[str, int] | None = None) -> dict[FlavorResource, int]:
        """Return what the queue is charged, less ``reclaimed`` pods of each set that will not run again."""
        usage: dict[FlavorResource, int] = {}
        counted: set[tuple[FlavorResource, str]] = set()
        for pod_set in self.pod_sets:
            live = max(0, pod_set.count - (reclaimed or {}).get(pod_set.name, 0))
            per_pod = pod_set.price.requests if pod_set.charge is None else pod_set.charge
            for resource, flavor in pod_set.flavors.items():
                key = FlavorResource(flavor, resource)
                if resource in COUNTED:
                    if (key, pod_set.job) not in counted:
                        usage[key] = usage.get(key, 0) + MAX_JOBS_REQUEST
                    counted.add((key, pod_set.job))
                elif resource == "pods":
                    usage[key] = usage.get(key, 0) + MILLI * live
                else:
                    usage[key] = usage.get(key, 0) + per_pod.get(resource, 0) * live
        return usage

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind.partition('.')[0]} {self.key}"


def with_places(
    reservation: Reservation,
    places: Mapping[str, Mapping[str, int]],
    domains: Mapping[str, Mapping[str, str]] | None = None,
) -> Reservation:
    """Return a reservation with the nodes (by pod set) that its pods are to go to, and the domains they have to."""
    known = {name: nodes for name, nodes in places.items() if len(nodes) <= PLACES_MAX}
    pod_sets = (
        replace(
            each,
            places=dict(known.get(each.name, {})) or interned({}),
            domain=interned((domains or {}).get(each.name, {})),
        )
        for each in reservation.pod_sets
    )
    return replace(reservation, pod_sets=tuple(pod_sets))


def reserve(  # noqa: PLR0917
    gang: Gang,
    queue: str | None,
    counts: Mapping[str, int],
    flavors: Mapping[str, Mapping[str, str]],
    epoch: int,
    now_seconds: float,
    charges: Mapping[str, Mapping[str, int]] | None = None,
    cohorts: tuple[str, ...] = (),
) -> Reservation:
    """Return the reservation of ``gang`` with ``counts`` pods and ``flavors`` (pod set → resource → flavor).

    ``charges`` (pod set → resource → amount a pod) is given where the queue is charged something else than the price.
    ``cohorts`` are what the queue is below, upwards.
    """
    return Reservation(
        uid=gang.uid,
        kind=gang.kind,
        namespace=gang.namespace,
        name=gang.name,
        queue=queue,
        pod_sets=tuple(
            ReservedPodSet(
                s.name,
                counts[s.name],
                stated(s.price),
                interned(flavors.get(s.name, {})),
                _counted(charges, s.name),
                s.job,
            )
            for s in gang.pod_sets
        ),
        epoch=epoch,
        since_seconds=now_seconds,
        priority=gang.priority,
        evictable=gang.evictable,
        loose_pods=gang.loose_pods,
        preemptible=gang.preemptible,
        cohorts=cohorts,
    )


def _counted(charges: Mapping[str, Mapping[str, int]] | None, pod_set: str) -> Mapping[str, int] | None:
    charge = None if charges is None else charges.get(pod_set)
    if charge is None or all(charge.values()):
        return charge
    return {name: amount for name, amount in charge.items() if amount}


def stated(price: PodPrice) -> PodPrice:
    """Return a price without amounts of 0: who asks for none of something is not told from who leaves it out."""
    if all(price.requests.values()) and all(price.limits.values()):
        return price
    requests = {name: amount for name, amount in price.requests.items() if amount}
    limits = {name: amount for name, amount in price.limits.items() if amount}
    return replace(price, requests=requests, limits=limits)


@dataclass(frozen=True, slots=True)
class Claim:
    """A waiting gang's right to the room that is made for it: nobody else may take it, whoever leads."""

    planned: Reservation
    """What it is going to hold. It lets no pod pass: only a reservation among the entries does."""
    awaits: tuple[str, ...]
    """Uids, as the engine knows them, of the gangs being stopped that it counts on."""


@dataclass(frozen=True, slots=True)
class Booked:
    """What the head of a Backfill queue was told: in which order it came, and what room is kept for it from when on."""

    queue: str
    turn: int
    """Number in the order in which gangs became heads."""
    at_seconds: float | None = None
    """Unix time of its earliest start; None while that depends on gangs without a run-time limit."""
    amounts: Mapping[FlavorResource, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ledger:
    """All reservations, claims and bookings at one version, which grows with every write and orders any two of them."""

    epoch: int = 0
    seq: int = 0
    entries: Mapping[str, Reservation] = field(default_factory=lambda: NOTHING)
    claims: Mapping[str, Claim] = field(default_factory=lambda: NOTHING)
    """By the engine's uid of the gang that claims."""
    bookings: Mapping[str, Booked] = field(default_factory=lambda: NOTHING)
    """By the engine's uid of the head; as of the last write that something else was reason for."""
    pages: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Name to uid of each object besides the index that holds entries; none while all of them fit there."""
    seen: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """Of one object alone: the last writes of others that its writer knew to be stored, as ``witness`` names them."""

    @property
    def version(self) -> tuple[int, int]:
        """(epoch, seq): a later ledger compares greater."""
        return (self.epoch, self.seq)

    def amended(
        self,
        put: Iterable[Reservation] = (),
        drop: Iterable[str] = (),
        claims: Mapping[str, Claim] | None = None,
        bookings: Mapping[str, Booked] | None = None,
    ) -> "Ledger":
        """Return the successor with ``put`` written and ``drop`` (uids) released. A drop of an absent uid is a bug.

        ``claims`` and ``bookings`` are all that are to stand; None leaves them as they are.
        """
        entries = dict(self.entries)
        for uid in drop:
            del entries[uid]
        for reservation in put:
            entries[reservation.uid] = reservation
        claims, bookings = self.claims if claims is None else claims, self.bookings if bookings is None else bookings
        return Ledger(self.epoch, self.seq + 1, entries, claims, bookings, self.pages)

    def taken_over(self) -> "Ledger":
        """Return the first ledger of the next leadership."""
        return replace(self, epoch=self.epoch + 1, seq=self.seq + 1)


@dataclass(frozen=True, slots=True)
class Changes:
    """How a ledger differs from an earlier one, so that who knows that one need not look at all that runs."""

    since: Ledger
    """This very object, not one that says the same."""
    uids: tuple[str, ...]
    """Of all entries that came, went or are other objects, in order."""
