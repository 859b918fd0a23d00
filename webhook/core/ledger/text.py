"""The ledger as text: the ``data`` of one ConfigMap.

Key ``meta``, keys ``claims`` and ``bookings`` where there are any, and one key per reservation, the uid of its job.
``meta`` carries a checksum over all other keys, so that an edit by hand is noticed and answered by a rebuild from the
jobs rather than believed.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any, Final

from webhook.core.ledger.record import NOTHING, Booked, Claim, Ledger, Membership, Reservation, ReservedPodSet
from webhook.core.model.gang import PodPrice
from webhook.core.model.interning import interned
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.problem import shown

SCHEMA: Final = 2
"""The newest that is known: an index that lists pages."""
PLAIN_SCHEMA: Final = 1
"""Of a page, and of an index that lists none: what earlier releases read as well."""
PAGES: Final = "pages"
META: Final = "meta"
SEEN: Final = "seen"
"""In ``meta``: the number of the last write of other objects that was known to be stored. It is left out by earlier
releases, which take no notice of it either."""
PERMITS: Final = "permits"
"""In ``meta``: who writes this ledger starts no copy from a hub without a permit (rule P7 of the fleet)."""
CLAIMS: Final = "claims"
BOOKINGS: Final = "bookings"
_ENTRY_KEYS: Final = frozenset(
    {
        *("kind", "job", "queue", "podSets", "epoch", "since", "priority", "stopping", "adopted", "notEvictable"),
        *("loosePods", "notPreemptible", "membership", "cohort"),
    }
)
_POD_SET_KEYS: Final = frozenset(
    {
        *(
            "name",
            "count",
            "requests",
            "limits",
            "flavors",
            "deadline",
            "bestEffort",
            "priorityClass",
            "crossNamespace",
        ),
        *("job", "places", "domain", "charge"),
    }
)
BYTES_MAX: Final = 1_048_576
"""What a ConfigMap may hold, by the API server's validation of data."""
FULL_AT: Final = 0.85
"""Share of BYTES_MAX that entries may take when a gang is admitted. The rest is for what a stop adds to them, and for
claims and bookings as far as they fit."""

NUMBER_MAX: Final = 1 << 53
"""No ledger comes to be of such an epoch, nor to have so many writes: somebody else wrote that."""
UNREADABLE: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading any JSON raises where it is not what was written."""


class LedgerCorrupt(ValueError):
    """The stored text is not a ledger this program wrote. The message says which key and why."""


class UnknownSchema(LedgerCorrupt):
    """Another release wrote the stored text: it is to be left alone."""


def encode(ledger: Ledger) -> dict[str, str]:
    """Return the ConfigMap data of ``ledger``."""
    data = {uid: encode_entry(reservation) for uid, reservation in ledger.entries.items()}
    if ledger.claims:
        data[CLAIMS] = encode_claims(ledger.claims)
    if ledger.bookings:
        data[BOOKINGS] = encode_bookings(ledger.bookings)
    if ledger.pages:
        data[PAGES] = encode_pages(ledger.pages)
    data[META] = encode_meta(ledger, checksum(data))
    return data


def encode_entry(reservation: Reservation) -> str:
    """Return the JSON text of one reservation: stable key order, defaults left out."""
    return json.dumps(_encode_reservation(reservation), separators=(",", ":"))


def encode_claims(claims: Mapping[str, Claim]) -> str:
    """Return the JSON text of all claims, by uid."""
    return join_claims({uid: encode_claim(claim) for uid, claim in claims.items()})


def encode_claim(claim: Claim) -> str:
    """Return the JSON text of one claim."""
    record = {"planned": _encode_reservation(claim.planned), "awaits": list(claim.awaits)}
    return json.dumps(record, separators=(",", ":"))


def join_claims(texts: Mapping[str, str]) -> str:
    """Return what ``encode_claims`` does, of the text of each claim by uid."""
    return "{" + ",".join(f"{json.dumps(uid)}:{texts[uid]}" for uid in sorted(texts)) + "}"


def encode_bookings(bookings: Mapping[str, Booked]) -> str:
    """Return the JSON text of all bookings, by uid."""
    records = {
        uid: {
            "queue": each.queue,
            "turn": each.turn,
            "at": each.at_seconds,
            "amounts": [[key.flavor, key.resource, amount] for key, amount in sorted(each.amounts.items())],
        }
        for uid, each in sorted(bookings.items())
    }
    return json.dumps(records, separators=(",", ":"))


def encode_pages(pages: Mapping[str, str]) -> str:
    """Return the JSON text of the list of pages."""
    return json.dumps(dict(sorted(pages.items())), separators=(",", ":"))


def _encode_reservation(reservation: Reservation) -> dict[str, Any]:
    record: dict[str, Any] = {
        "kind": reservation.kind,
        "job": reservation.key,
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
        ("cohort", encode_cohorts(reservation.cohorts)),
    ):
        if value:
            record[key] = value
    record |= reservation.unknown
    return record


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


def encode_cohorts(cohorts: tuple[str, ...]) -> str | list[str]:
    """Return cohorts as they stand in an entry and in a job's annotation: most queues are below one, or none."""
    return list(cohorts) if len(cohorts) > 1 else "".join(cohorts)


def decode_cohorts(written: object) -> tuple[str, ...]:
    """Return what ``encode_cohorts`` wrote."""
    if isinstance(written, list):
        return tuple(intern(str(name)) for name in written)
    return (intern(str(written)),) if written else ()


def _encode_pod_set(pod_set: ReservedPodSet) -> dict[str, Any]:
    price = pod_set.price
    record: dict[str, Any] = {"name": pod_set.name, "count": pod_set.count, "requests": _stated(price.requests)}
    for key, value in (
        ("limits", "requests" if price.limits == price.requests else _stated(price.limits)),
        ("flavors", dict(pod_set.flavors)),
        ("deadline", price.has_deadline),
        ("bestEffort", price.best_effort),
        ("priorityClass", price.priority_class),
        ("crossNamespace", price.cross_namespace_affinity),
        ("job", pod_set.job),
        ("places", dict(pod_set.places)),
        ("domain", dict(pod_set.domain)),
    ):
        if value:
            record[key] = value
    if pod_set.charge is not None:
        record["charge"] = _stated(pod_set.charge)
    record |= pod_set.unknown
    return record


def _stated(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts that are not 0: they say nothing, and a job may have thousands of them."""
    return {name: amount for name, amount in amounts.items() if amount}


def encode_meta(ledger: Ledger, digest: int) -> str:
    """Return the text of the ``meta`` key; ``digest`` is ``checksum`` of all entries."""
    schema = SCHEMA if ledger.pages else PLAIN_SCHEMA
    meta: dict[str, Any] = {"schema": schema, "epoch": ledger.epoch, "seq": ledger.seq, "checksum": f"{digest:016x}"}
    meta[PERMITS] = True
    if ledger.seen:
        meta[SEEN] = dict(sorted(ledger.seen.items()))
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

    _known: dict[str, tuple[str, str, int, Any]] = field(default_factory=dict)
    """Key to key, text, its part of the checksum, and what it says."""
    newest: tuple[int, int] = (0, 0)
    """The newest version that was decoded."""

    def decode(self, data: Mapping[str, str]) -> Ledger:
        """Return the ledger written as ``data``. Raises LedgerCorrupt when ``encode`` cannot have written it."""
        epoch, seq, digest, seen = _decode_meta(data)
        known: dict[str, tuple[str, str, int, Any]] = {}
        for key, text in data.items():
            if key == META:
                continue
            before = self._known.get(key)
            if before is None or before[1] != text:
                before = (key, text, entry_digest(key, text), _decode_key(key, text))
            known[before[0]] = before
            digest ^= before[2]
        if digest:
            raise LedgerCorrupt("checksum differs: an entry was added, removed or edited by another program")
        self._known = known
        said = {key: each[3] for key, each in known.items()}
        claims, bookings, pages = said.pop(CLAIMS, {}), said.pop(BOOKINGS, {}), said.pop(PAGES, {})
        self.newest = max(self.newest, (epoch, seq))
        return Ledger(epoch, seq, said, claims, bookings, pages, seen)

    def decode_newest(self, data: Mapping[str, str]) -> Ledger:
        """Return the ledger written as ``data``. Raises as ``decode``, and where a newer version was decoded before."""
        ledger = self.decode(data)
        if ledger.version < self.newest:
            raise LedgerCorrupt(f"an old copy was put back: version {self.newest} was read, this is {ledger.version}")
        return ledger

    def written(self, key: str, text: str | None, says: Any) -> None:
        """Know what one key says from now on, because this process wrote it: it is not decoded when it is read."""
        if text is None:
            self._known.pop(key, None)
        else:
            self._known[key] = (key, text, entry_digest(key, text), says)

    def kept(self, data: Mapping[str, str]) -> dict[str, str]:
        """Return ``data`` with the very texts that are known: so that whoever keeps it keeps none of them twice."""
        found: dict[str, str] = {}
        for key, text in data.items():
            known = self._known.get(key)
            found[key if known is None else known[0]] = text if known is None or known[1] != text else known[1]
        return found


def decode(data: Mapping[str, str]) -> Ledger:
    """Return the ledger written as ``data``. Raises LedgerCorrupt when ``encode`` cannot have written it."""
    return Decoder().decode(data)


def check_schema(data: Mapping[str, str]) -> None:
    """Raise UnknownSchema when ``data`` says that it is of a schema that this release does not know."""
    try:
        meta = json.loads(data[META])
    except UNREADABLE:
        return
    _check_schema(meta)


def _check_schema(meta: Any) -> None:
    schema = meta.get("schema") if isinstance(meta, dict) else None
    # No release of ours has written anything but a whole number. Whoever wrote it knew what it means.
    if schema is not None and not (type(schema) is int and schema in (PLAIN_SCHEMA, SCHEMA)):
        known = f"this release knows {PLAIN_SCHEMA} and {SCHEMA}"
        fix = "run the release that wrote it, or delete it to have the ledger rebuilt"
        raise UnknownSchema(f"{META}: schema {shown(json.dumps(schema))}: {known}; {fix}")


def epoch_of(data: Mapping[str, str]) -> int:
    """Return the epoch that ``data`` says it is of; 0 where it says none."""
    try:
        return number(json.loads(data[META])["epoch"])
    except UNREADABLE:
        return 0


def _decode_meta(data: Mapping[str, str]) -> tuple[int, int, int, dict[str, int]]:
    """Return epoch, seq, checksum, and what is said of other objects."""
    try:
        meta = json.loads(data[META])
    except UNREADABLE as error:
        raise LedgerCorrupt(f"{META}: {error!r}") from error
    _check_schema(meta)
    try:
        epoch, seq, digest = number(meta["epoch"]), number(meta["seq"]), int(meta["checksum"], 16)
        seen = {str(name): number(at) for name, at in meta.get(SEEN, {}).items()}
    except UNREADABLE as error:
        raise LedgerCorrupt(f"{META}: {error!r}") from error
    if meta.get("schema") is None:
        raise LedgerCorrupt(f"{META}: no schema; this program writes {PLAIN_SCHEMA} and {SCHEMA}")
    return epoch, seq, digest, seen


def number(written: Any) -> int:
    """Return an epoch or the number of a write. Raises one of ``UNREADABLE`` for what is none."""
    found = int(written)
    if not 0 <= found < NUMBER_MAX:
        raise ValueError(f"no number that a ledger comes to: {shown(written)}")
    return found


def _decode_key(key: str, text: str) -> Any:
    """Return what one key says: the claims, the bookings, or a reservation. Raises LedgerCorrupt naming it."""
    try:
        record = json.loads(text)
        if key == CLAIMS:
            return {uid: _decode_claim(uid, each) for uid, each in record.items()}
        if key == BOOKINGS:
            return {uid: _decode_booked(each) for uid, each in record.items()}
        if key == PAGES:
            return {str(name): str(uid) for name, uid in record.items()}
        return _decode_reservation(key, record)
    except UNREADABLE as error:
        raise LedgerCorrupt(f"{key}: {error!r}") from error


def _decode_claim(uid: str, record: Mapping[str, Any]) -> Claim:
    return Claim(_decode_reservation(uid, record["planned"]), tuple(map(str, record["awaits"])))


def _decode_booked(record: Mapping[str, Any]) -> Booked:
    at_seconds = None if record["at"] is None else float(record["at"])
    amounts = {FlavorResource(str(flavor), str(name)): int(amount) for flavor, name, amount in record["amounts"]}
    return Booked(str(record["queue"]), int(record["turn"]), at_seconds, amounts)


def _decode_reservation(uid: str, record: Mapping[str, Any]) -> Reservation:
    namespace, _, name = record["job"].partition("/")
    # Words of the cluster's own are kept once. A tenant's are not: some Pythons never forget what is interned.
    queue = record["queue"]
    return Reservation(
        uid=uid,
        kind=intern(str(record["kind"])),
        namespace=namespace,
        name=name,
        queue=None if queue is None else intern(str(queue)),
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
        cohorts=decode_cohorts(record.get("cohort")),
        unknown=_unknown(record, _ENTRY_KEYS),
    )


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
        ).interned(),
        flavors=interned({str(name): str(flavor) for name, flavor in record.get("flavors", {}).items()}),
        charge=None if charge is None else _amounts(charge),
        job=str(record.get("job", "")),
        places={str(node): int(count) for node, count in record.get("places", {}).items()} or interned({}),
        domain=interned({str(label): str(value) for label, value in record.get("domain", {}).items()}),
        unknown=_unknown(record, _POD_SET_KEYS),
    )


def _unknown(record: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    """Return what a record says besides what is ``known``: a release that writes more under a schema that we know means
    what it can do without, and it is kept for it.
    """
    return NOTHING if record.keys() <= known else {key: value for key, value in record.items() if key not in known}


def _amounts(record: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(amount) for name, amount in record.items()}


def size_bytes(data: Mapping[str, str]) -> int:
    """Return what ``data`` counts against BYTES_MAX, as the API server counts it."""
    return sum(len(key.encode()) + len(text.encode()) for key, text in data.items())
