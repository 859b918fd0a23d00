"""Tutti's own annotations on jobs, as JSON text: admission, re-queue, hold.

Each carries the uid of the job it was written for, so that a copy on another job (a template copied from a cluster, a
job re-created from ``kubectl get -o yaml``) is not believed. The webhook lets only Tutti's account write them; reading
still takes them as untrusted text.
"""

from collections.abc import Mapping
from sys import intern
from typing import Any, Final

import orjson

from webhook.core.ledger.record import Reservation
from webhook.core.ledger.text import decode_cohorts, decode_membership, encode_cohorts, encode_membership, number
from webhook.core.model.interning import interned
from webhook.jobs.reading.record import Admission, JobRecord, Requeue
from webhook.wire.nesting import shallow

SECONDS_MAX: Final = 1e11
"""In the year 5138."""


def admission_of(reservation: Reservation, job: JobRecord, version: tuple[int, int]) -> Admission:
    """Return what is written on a job that starts by ``reservation`` in the ledger of ``version`` (epoch, seq)."""
    return Admission(
        uid=reservation.uid,
        epoch=version[0],
        seq=version[1],
        queue=reservation.queue,
        counts=reservation.counts,
        flavors={s.name: s.flavors for s in reservation.pod_sets},
        since_seconds=reservation.since_seconds,
        attempts=job.attempts,
        ran_seconds=job.ran_seconds,
        membership=reservation.membership,
        charges={s.name: s.charge for s in reservation.pod_sets if s.charge is not None},
        adopted=reservation.adopted,
        cohorts=reservation.cohorts,
        domains={s.name: s.domain for s in reservation.pod_sets if s.domain},
        spared=_spared(reservation, job),
    )


def _spared(reservation: Reservation, job: JobRecord) -> dict[str, int]:
    """Return the pods that are not in the reservation because they have ended, by what the job says as it starts."""
    counts = {} if job.gang is None else job.gang.counts
    spared = {s.name: min(job.spared.get(s.name, 0), counts.get(s.name, 0) - s.count) for s in reservation.pod_sets}
    return {name: number for name, number in spared.items() if number > 0}


def encode_admission(admission: Admission) -> str:
    """Return the text of the annotation ``tutti.dev/admission``."""
    return _text(_admission_fields(admission))


def decode_admission(text: object, uid: str) -> Admission | None:
    """Return the admission written for ``uid``, or None when the text is malformed or was written for another job."""
    record = _parsed(text, uid)
    return None if record is None else _admission(record, uid)


def encode_requeue(requeue: Requeue, uid: str) -> str:
    """Return the text of the annotation ``tutti.dev/requeue``."""
    fields: dict[str, Any] = {"uid": uid, "reason": requeue.reason, "place": round(requeue.place_seconds, 3)}
    for key, value in (
        ("attempts", requeue.attempts),
        ("notBefore", round(requeue.not_before_seconds, 3)),
        ("message", requeue.message),
        ("ran", round(requeue.ran_seconds, 3)),
        ("succeeded", requeue.succeeded_pods),
        ("undo", None if requeue.undo is None else _admission_fields(requeue.undo)),
        ("start", None if requeue.start is None else _admission_fields(requeue.start)),
    ):
        if value:
            fields[key] = value
    return _text(fields)


def decode_requeue(text: object, uid: str) -> Requeue | None:
    """Return the re-queue state written for ``uid``, or None when the text is malformed or for another job."""
    record = _parsed(text, uid)
    if record is None:
        return None
    try:
        undo, start = record.get("undo"), record.get("start")
        return Requeue(
            reason=str(record["reason"]),
            place_seconds=_seconds(record["place"]),
            attempts=number(record.get("attempts", 0)),
            not_before_seconds=_seconds(record.get("notBefore", 0)),
            message=str(record.get("message", "")),
            ran_seconds=_seconds(record.get("ran", 0)),
            succeeded_pods=number(record.get("succeeded", 0)),
            undo=_admission(undo, uid) if isinstance(undo, dict) else None,
            start=_admission(start, uid) if isinstance(start, dict) else None,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def encode_hold(uid: str) -> str:
    """Return the text of the annotation ``tutti.dev/hold``."""
    return _text({"uid": uid})


def decode_hold(text: object, uid: str) -> bool:
    """Return whether the text is a hold of ``uid``."""
    return _parsed(text, uid) is not None


def original_count(undo: Admission, pod_set: str, written: int | None) -> int | None:
    """Return the number of pods to put back for a set whose count now reads ``written``; None when there is nothing to
    put back: it was not lowered, or its owner has written another number since.
    """
    return undo.original_counts.get(pod_set) if written == undo.counts.get(pod_set) else None


def _admission_fields(admission: Admission) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "uid": admission.uid,
        "epoch": admission.epoch,
        "seq": admission.seq,
        "queue": admission.queue,
        "counts": dict(admission.counts),
        "since": round(admission.since_seconds, 3),
    }
    for key, value in (
        ("flavors", {name: dict(flavors) for name, flavors in admission.flavors.items() if flavors}),
        ("injected", {name: dict(change) for name, change in admission.injected.items() if change}),
        ("originalCounts", dict(admission.original_counts)),
        ("attempts", admission.attempts),
        ("ran", round(admission.ran_seconds, 3)),
        ("membership", encode_membership(admission.membership)),
        ("charges", {name: dict(charge) for name, charge in admission.charges.items()}),
        ("adopted", admission.adopted),
        ("cohort", encode_cohorts(admission.cohorts)),
        ("domains", {name: dict(labels) for name, labels in admission.domains.items()}),
        ("spared", dict(admission.spared)),
    ):
        if value:
            fields[key] = value
    return fields


def _admission(record: Mapping[str, Any], uid: str) -> Admission | None:
    try:
        queue = record.get("queue")
        return Admission(
            uid=uid,
            epoch=number(record["epoch"]),
            seq=number(record["seq"]),
            queue=None if queue is None else intern(str(queue)),
            counts=_counts(record["counts"]),
            flavors=_texts_by_set(record.get("flavors", {})),
            since_seconds=_seconds(record.get("since", 0)),
            injected=_injections(record.get("injected", {})),
            original_counts=_counts(record.get("originalCounts", {})),
            attempts=number(record.get("attempts", 0)),
            ran_seconds=_seconds(record.get("ran", 0)),
            membership=decode_membership(record.get("membership")),
            charges=interned({str(name): _counts(charge) for name, charge in record.get("charges", {}).items()}),
            adopted=record.get("adopted") is True,
            cohorts=decode_cohorts(record.get("cohort")),
            domains=_texts_by_set(record.get("domains", {})),
            spared=_counts(record.get("spared", {})),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _texts_by_set(record: Mapping[str, Any]) -> Mapping[str, Mapping[str, str]]:
    return interned(
        {str(name): interned({str(key): str(value) for key, value in texts.items()}) for name, texts in record.items()}
    )


def _counts(record: Mapping[str, Any]) -> Mapping[str, int]:
    counts = {str(name): int(count) for name, count in record.items()}
    if any(count < 0 for count in counts.values()):
        # Reserved, it would give others room that there is not.
        raise ValueError("less than nothing")
    return interned(counts)


def _seconds(written: Any) -> float:
    """Return a time, or how long something took. Raises ValueError where nobody could tell when that is."""
    seconds = float(written)
    if not 0 <= seconds < SECONDS_MAX:
        raise ValueError("no time")
    return seconds


def _injections(record: Mapping[str, Any]) -> Mapping[str, Mapping[str, object]]:
    return {str(name): _injected(change) for name, change in record.items()} or interned({})


def _injected(change: Mapping[str, Any]) -> dict[str, object]:
    injected: dict[str, object] = {}
    if change.get("nodeSelector"):
        injected["nodeSelector"] = [str(key) for key in change["nodeSelector"]]
    if change.get("tolerations"):
        injected["tolerations"] = int(change["tolerations"])
    return injected


def _parsed(text: object, uid: str) -> dict[str, Any] | None:
    if not isinstance(text, str) or not uid:
        return None
    try:
        record = orjson.loads(shallow(text.encode()))
    except ValueError:
        return None
    return record if isinstance(record, dict) and record.get("uid") == uid else None


def _text(fields: Mapping[str, Any]) -> str:
    return orjson.dumps(fields).decode()
