"""The record of what was admitted: reservations, the epoch that fences late writers, and their text form.

A ``Ledger`` is an immutable value. Its text form is the ``data`` of one ConfigMap: key ``meta`` and one key per
reservation, the uid of its job. ``meta`` carries a checksum over all entries, so that an edit by hand is noticed and
answered by a rebuild from the jobs rather than believed.

The rules around it (compare-and-swap, objects read before the ledger, void by writing the job first) are kept by
``controllers.ledger_keeper``; this module only makes illegal records hard to write.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.core.gang import Gang, PodPrice
from webhook.core.names import COUNTED
from webhook.core.policy import FlavorResource
from webhook.core.quantity import MILLI

SCHEMA: Final = 1
META: Final = "meta"
BYTES_MAX: Final = 1_048_576
"""What a ConfigMap may hold, by the API server's validation of data."""
FULL_AT: Final = 0.85
"""Share of BYTES_MAX beyond which no new gang is admitted; releases always fit because they only shrink it."""
MAX_JOBS_REQUEST: Final = 1000
"""Each gang asks one of a pseudo-resource that counts gangs, in thousandths."""


class LedgerCorrupt(ValueError):
    """The stored text is not a ledger this program wrote. The message says which key and why."""


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


@dataclass(frozen=True, slots=True)
class ReservedPodSet:
    """What one pod set holds: how many pods may exist, at what price each, and from which flavors."""

    name: str
    count: int
    price: PodPrice
    flavors: Mapping[str, str] = field(default_factory=dict)
    """Resource name to flavor, for the resources the queue accounts."""
    charge: Mapping[str, int] | None = None
    """What one pod is charged to the queue, where that differs from its price (transformed or excluded resources)."""
    job: str = ""
    """Uid of the job that it belongs to, where an ensemble's reservation is taken as one."""


@dataclass(frozen=True, slots=True)
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

    @property
    def may_be_preempted(self) -> bool:
        """It may be stopped to make room for another gang, and would go."""
        return self.evictable and self.preemptible

    @property
    def counts(self) -> dict[str, int]:
        """Reserved pods of each set."""
        return {pod_set.name: pod_set.count for pod_set in self.pod_sets}

    def pod_set(self, name: str) -> ReservedPodSet | None:
        """Return the pod set called ``name``."""
        return next((pod_set for pod_set in self.pod_sets if pod_set.name == name), None)

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

    def __str__(self) -> str:
        return f"{self.kind.partition('.')[0]} {self.namespace}/{self.name}"


def reserve(  # noqa: PLR0917
    gang: Gang,
    queue: str | None,
    counts: Mapping[str, int],
    flavors: Mapping[str, Mapping[str, str]],
    epoch: int,
    now_seconds: float,
    charges: Mapping[str, Mapping[str, int]] | None = None,
) -> Reservation:
    """Return the reservation of ``gang`` with ``counts`` pods and ``flavors`` (pod set → resource → flavor).

    ``charges`` (pod set → resource → amount a pod) is given where the queue is charged something else than the price.
    """
    return Reservation(
        uid=gang.uid,
        kind=gang.kind,
        namespace=gang.namespace,
        name=gang.name,
        queue=queue,
        pod_sets=tuple(
            ReservedPodSet(s.name, counts[s.name], s.price, flavors.get(s.name, {}), (charges or {}).get(s.name), s.job)
            for s in gang.pod_sets
        ),
        epoch=epoch,
        since_seconds=now_seconds,
        priority=gang.priority,
        evictable=gang.evictable,
        loose_pods=gang.loose_pods,
        preemptible=gang.preemptible,
    )


@dataclass(frozen=True, slots=True)
class Ledger:
    """All reservations at one version. ``version`` grows with every write and orders any two of them."""

    epoch: int = 0
    seq: int = 0
    entries: Mapping[str, Reservation] = field(default_factory=dict)

    @property
    def version(self) -> tuple[int, int]:
        """(epoch, seq): a later ledger compares greater."""
        return (self.epoch, self.seq)

    def amended(self, put: Iterable[Reservation] = (), drop: Iterable[str] = ()) -> "Ledger":
        """Return the successor with ``put`` written and ``drop`` (uids) released. A drop of an absent uid is a bug."""
        entries = dict(self.entries)
        for uid in drop:
            del entries[uid]
        for reservation in put:
            entries[reservation.uid] = reservation
        return Ledger(self.epoch, self.seq + 1, entries)

    def taken_over(self) -> "Ledger":
        """Return the first ledger of the next leadership."""
        return replace(self, epoch=self.epoch + 1, seq=self.seq + 1)


def encode(ledger: Ledger) -> dict[str, str]:
    """Return the ConfigMap data of ``ledger``."""
    data = {uid: encode_entry(reservation) for uid, reservation in ledger.entries.items()}
    data[META] = encode_meta(ledger, checksum(data))
    return data


def encode_entry(reservation: Reservation) -> str:
    """Return the JSON text of one reservation: stable key order, defaults left out."""
    record: dict[str, Any] = {
        "kind": reservation.kind,
        "job": f"{reservation.namespace}/{reservation.name}",
        "queue": reservation.queue,
        "podSets": [_encode_pod_set(pod_set) for pod_set in reservation.pod_sets],
        "epoch": reservation.epoch,
        "since": round(reservation.since_seconds, 3),
    }
    for key, value in (
        ("priority", reservation.priority),
        ("stopping", reservation.stopping),
        ("adopted", reservation.adopted),
        ("notEvictable", not reservation.evictable),
        ("loosePods", reservation.loose_pods),
        ("notPreemptible", not reservation.preemptible),
        ("membership", encode_membership(reservation.membership)),
    ):
        if value:
            record[key] = value
    return json.dumps(record, separators=(",", ":"))


def encode_membership(membership: Membership | None) -> dict[str, Any] | None:
    """Return the fields of a membership, as they stand in an entry and in a job's annotation."""
    if membership is None:
        return None
    fields: dict[str, Any] = {"ensemble": membership.ensemble, "quorum": membership.quorum}
    return fields | ({"succeeded": membership.succeeded_pods} if membership.succeeded_pods else {})


def decode_membership(fields: Mapping[str, Any] | None) -> Membership | None:
    """Return what ``encode_membership`` wrote. Raises KeyError, TypeError or ValueError when it did not."""
    if fields is None:
        return None
    return Membership(str(fields["ensemble"]), int(fields["quorum"]), int(fields.get("succeeded", 0)))


def _encode_pod_set(pod_set: ReservedPodSet) -> dict[str, Any]:
    price = pod_set.price
    record: dict[str, Any] = {"name": pod_set.name, "count": pod_set.count, "requests": dict(price.requests)}
    for key, value in (
        ("limits", "requests" if price.limits == price.requests else dict(price.limits)),
        ("flavors", dict(pod_set.flavors)),
        ("deadline", price.has_deadline),
        ("bestEffort", price.best_effort),
        ("priorityClass", price.priority_class),
        ("crossNamespace", price.cross_namespace_affinity),
    ):
        if value:
            record[key] = value
    if pod_set.charge is not None:
        record["charge"] = dict(pod_set.charge)
    return record


def encode_meta(ledger: Ledger, digest: int) -> str:
    """Return the text of the ``meta`` key; ``digest`` is ``checksum`` of all entries."""
    meta = {"schema": SCHEMA, "epoch": ledger.epoch, "seq": ledger.seq, "checksum": f"{digest:016x}"}
    return json.dumps(meta, separators=(",", ":"))


def checksum(data: Mapping[str, str]) -> int:
    """Return a 64-bit digest of all entries of ``data``; independent of order, so it can be kept incrementally."""
    digest = 0
    for uid, text in data.items():
        if uid != META:
            digest ^= entry_digest(uid, text)
    return digest


def entry_digest(uid: str, text: str) -> int:
    """Return one entry's part of the checksum; parts combine by exclusive or."""
    return int.from_bytes(hashlib.blake2b(f"{uid}={text}".encode(), digest_size=8).digest(), "big")


@dataclass(slots=True)
class Decoder:
    """Decodes successive versions of one ledger: entries whose text did not change are the same objects as before."""

    _known: dict[str, tuple[str, int, Reservation]] = field(default_factory=dict)
    """Uid to text, its part of the checksum, and what it says."""

    def decode(self, data: Mapping[str, str]) -> Ledger:
        """Return the ledger written as ``data``. Raises LedgerCorrupt when ``encode`` cannot have written it."""
        epoch, seq, digest = _decode_meta(data)
        known: dict[str, tuple[str, int, Reservation]] = {}
        for uid, text in data.items():
            if uid != META:
                before = self._known.get(uid)
                if before is None or before[0] != text:
                    before = (text, entry_digest(uid, text), decode_entry(uid, text))
                known[uid] = before
                digest ^= before[1]
        if digest:
            raise LedgerCorrupt("checksum differs: an entry was added, removed or edited by another program")
        self._known = known
        return Ledger(epoch, seq, {uid: entry[2] for uid, entry in known.items()})


def decode(data: Mapping[str, str]) -> Ledger:
    """Return the ledger written as ``data``. Raises LedgerCorrupt when ``encode`` cannot have written it."""
    return Decoder().decode(data)


def _decode_meta(data: Mapping[str, str]) -> tuple[int, int, int]:
    """Return epoch, seq and checksum."""
    try:
        meta = json.loads(data[META])
        schema, epoch, seq, digest = meta["schema"], int(meta["epoch"]), int(meta["seq"]), int(meta["checksum"], 16)
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerCorrupt(f"{META}: {error!r}") from error
    if schema != SCHEMA:
        raise LedgerCorrupt(f"{META}: schema {schema}, this program writes {SCHEMA}")
    return epoch, seq, digest


def decode_entry(uid: str, text: str) -> Reservation:
    """Return the reservation written as ``text``. Raises LedgerCorrupt naming ``uid``."""
    try:
        record = json.loads(text)
        namespace, _, name = record["job"].partition("/")
        return Reservation(
            uid=uid,
            kind=record["kind"],
            namespace=namespace,
            name=name,
            queue=record["queue"],
            pod_sets=tuple(_decode_pod_set(pod_set) for pod_set in record["podSets"]),
            epoch=int(record["epoch"]),
            since_seconds=float(record["since"]),
            priority=int(record.get("priority", 0)),
            stopping=record.get("stopping"),
            adopted=bool(record.get("adopted", False)),
            evictable=not record.get("notEvictable", False),
            loose_pods=bool(record.get("loosePods", False)),
            preemptible=not record.get("notPreemptible", False),
            membership=decode_membership(record.get("membership")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LedgerCorrupt(f"{uid}: {error!r}") from error


def _decode_pod_set(record: Mapping[str, Any]) -> ReservedPodSet:
    requests = _amounts(record["requests"])
    limits = record.get("limits", {})
    charge = record.get("charge")
    return ReservedPodSet(
        name=str(record["name"]),
        count=int(record["count"]),
        price=PodPrice(
            requests=requests,
            limits=requests if limits == "requests" else _amounts(limits),
            has_deadline=bool(record.get("deadline", False)),
            best_effort=bool(record.get("bestEffort", False)),
            priority_class=str(record.get("priorityClass", "")),
            cross_namespace_affinity=bool(record.get("crossNamespace", False)),
        ),
        flavors={str(name): str(flavor) for name, flavor in record.get("flavors", {}).items()},
        charge=None if charge is None else _amounts(charge),
    )


def _amounts(record: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(amount) for name, amount in record.items()}


def size_bytes(data: Mapping[str, str]) -> int:
    """Return what ``data`` counts against BYTES_MAX, as the API server counts it."""
    return sum(len(key.encode()) + len(text.encode()) for key, text in data.items())
