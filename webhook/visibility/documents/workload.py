"""One gang as a Workload document: the shape of Kueue's Workload, with the typed reason and the place in its queue.

Nothing of it is stored: name, uid and times follow from the job, so every replica writes the same document.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from webhook.core.ledger.record import ReservedPodSet
from webhook.core.model.gang import PodSet
from webhook.core.notation import amounts, quantity
from webhook.core.notation.moments import time_text
from webhook.core.reasons.reasons import Reason
from webhook.jobs.kinds.kind import JobKind
from webhook.visibility.documents.conditions import Facts, conditions
from webhook.visibility.http.group import API_VERSION, JOB_UID_LABEL, WORKLOADS

_NAME_CHARACTERS_MAX: Final = 253
_HASH_CHARACTERS: Final = 5


def workload_name(kind: JobKind, job_name: str, uid: str) -> str:
    """Return the name of a job's workload, as Kueue makes it."""
    text = "\n".join((kind.kind, kind.group, job_name, uid))
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:_HASH_CHARACTERS]
    prefix = f"{kind.singular}-{job_name}"[: _NAME_CHARACTERS_MAX - _HASH_CHARACTERS - 1]
    return f"{prefix}-{digest}"


def workload(facts: Facts) -> dict[str, Any]:
    """Return the document, without a resourceVersion."""
    return {
        "apiVersion": API_VERSION,
        "kind": WORKLOADS.kind,
        "metadata": _metadata(facts),
        "spec": _spec(facts),
        "status": _status(facts),
    }


def brief_workload(facts: Facts, *, with_labels: bool) -> dict[str, Any]:
    """Return of the document what it is selected by, and what each event and table needs: it costs little, however
    large the gang is.
    """
    status: dict[str, Any] = {"conditions": [], "pods": {"wanted": _wanted(facts), "present": facts.pods}}
    if facts.admitted_seconds is not None:
        status["admission"] = _charged_to(facts)
    return {"metadata": _metadata(facts, with_labels=with_labels), "spec": _asks_for(facts), "status": status}


def _metadata(facts: Facts, *, with_labels: bool = True) -> dict[str, Any]:
    source = facts.job or facts.reservation
    assert source is not None
    gang = None if facts.job is None or not with_labels else facts.job.gang
    kind = facts.kind if facts.job is None else facts.kind.at(facts.job.version)
    owner = {
        "apiVersion": kind.api_version,
        "kind": facts.kind.kind,
        "name": source.name,
        "uid": source.uid,
        "controller": True,
    }
    return {
        "name": workload_name(facts.kind, source.name, source.uid),
        "namespace": source.namespace,
        "uid": source.uid,
        "creationTimestamp": time_text(int(facts.created_seconds)),
        "labels": {**({} if gang is None else gang.labels), JOB_UID_LABEL: source.uid},
        "ownerReferences": [owner],
    }


# -- spec ------------------------------------------------------------------------------------------------------------


def _spec(facts: Facts) -> dict[str, Any]:
    job, reservation = facts.job, facts.reservation
    asked = reservation if job is None or job.gang is None else job.gang
    return {
        **_asks_for(facts),
        "priority": 0 if asked is None else asked.priority,
        "active": job is None or not job.held,
        "podSets": [] if asked is None else [_pod_set(pod_set) for pod_set in asked.pod_sets],
        **({} if facts.quorum is None else {"quorum": facts.quorum}),
        **(
            {}
            if job is None or job.run_limit_seconds is None
            else {"maximumExecutionTimeSeconds": job.run_limit_seconds}
        ),
    }


def _asks_for(facts: Facts) -> dict[str, str]:
    job = facts.job
    queue = facts.queue if job is None or job.queue_label is None else job.queue_label
    return {"queueName": queue} if queue else {}


def _pod_set(pod_set: PodSet | ReservedPodSet) -> dict[str, Any]:
    document: dict[str, Any] = {"name": pod_set.name, "count": pod_set.count}
    if isinstance(pod_set, PodSet) and pod_set.min_count is not None:
        document["minCount"] = pod_set.min_count
    document["requests"] = amounts.quantities(pod_set.price.requests)
    return document


# -- status ----------------------------------------------------------------------------------------------------------


def _status(facts: Facts) -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": conditions(facts)}
    admission = _admission(facts)
    if admission is not None:
        status["admission"] = admission
    requeue = None if facts.job is None else facts.job.requeue
    if requeue is not None and requeue.attempts:
        status["requeueState"] = {"count": requeue.attempts}
        if requeue.not_before_seconds:
            status["requeueState"]["requeueAt"] = time_text(int(requeue.not_before_seconds))
    if facts.job is not None and facts.job.ran_seconds >= 1:
        status["accumulatedPastExecutionTimeSeconds"] = int(facts.job.ran_seconds)
    if facts.job is not None and facts.job.gives_back and facts.job.reclaimed:
        status["reclaimablePods"] = [{"name": s, "count": count} for s, count in sorted(facts.job.reclaimed.items())]
    status["pods"] = {"wanted": _wanted(facts), "present": facts.pods}
    if facts.position is not None:
        status["position"] = facts.position
    if facts.reason is not None:
        status["reason"] = reason_document(facts.reason)
    return status


def _wanted(facts: Facts) -> int:
    if facts.reservation is not None:
        return sum(facts.reservation.counts.values())
    asked = None if facts.job is None else facts.job.asks
    return 0 if asked is None else asked.pods


def _admission(facts: Facts) -> dict[str, Any] | None:
    if facts.admitted_seconds is None:
        return None
    if facts.reservation is not None:
        assignments = [
            _assignment(s.name, s.flavors, s.price.requests if s.charge is None else s.charge, s.count)
            for s in facts.reservation.pod_sets
        ]
    else:
        assert facts.admission is not None
        assert facts.job is not None
        assignments = list(_past_assignments(facts))
    return {**_charged_to(facts), "podSetAssignments": assignments}


def _charged_to(facts: Facts) -> dict[str, str]:
    return {"clusterQueue": facts.queue} if facts.queue else {}


def _assignment(name: str, flavors: Mapping[str, str], usage: Mapping[str, int], count: int) -> dict[str, Any]:
    used = amounts.quantities(amounts.scale(usage, count))
    return {"name": name, "flavors": dict(flavors), "resourceUsage": used, "count": count}


def _past_assignments(facts: Facts) -> Iterable[dict[str, Any]]:
    """Yield what a job that has ended was admitted with."""
    assert facts.admission is not None
    gang = None if facts.job is None else facts.job.gang
    prices = {} if gang is None else {s.name: s.price.requests for s in gang.pod_sets}
    for name, count in facts.admission.counts.items():
        yield _assignment(name, facts.admission.flavors.get(name, {}), prices.get(name, {}), count)


def reason_document(reason: Reason) -> dict[str, Any]:
    """Return a typed reason as it stands in a status: amounts as quantities, empty parts left out."""
    document: dict[str, Any] = {"code": str(reason.code)}
    for name in ("message", "where", "resource", "flavor", "help"):
        if text := getattr(reason, name):
            document[name] = text
    for name in ("asked", "used", "limit"):
        if (amount := getattr(reason, name)) is not None:
            document[name] = quantity.render(amount, reason.resource)
    if reason.holders:
        document["holders"] = [
            {"gang": holder.gang, "amount": quantity.render(holder.amount, reason.resource)}
            for holder in reason.holders
        ]
    return document
