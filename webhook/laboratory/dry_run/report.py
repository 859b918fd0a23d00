"""What a run came to, as the document that ``-o yaml`` and ``-o json`` print; docs/try.md describes it."""

from collections.abc import Iterable
from typing import Any

from webhook.core.ledger.record import Reservation
from webhook.core.notation.problem import Problem
from webhook.laboratory.dry_run.cycles import Cycle, Run, Waiting
from webhook.laboratory.dry_run.workloads.entrant import is_ours
from webhook.visibility.documents.workload import reason_document

Document = dict[str, Any]


def report(run: Run, cycles: Iterable[Cycle]) -> Document:
    """Return the whole report."""
    document: Document = {"cycles": [_cycle(run, cycle) for cycle in cycles]}
    if run.world.skipped:
        document["skipped"] = [{"object": item.object, "why": item.why} for item in run.world.skipped]
    return {**document, "diagnostics": problem_documents(run.world.problems)}


def problem_documents(found: Iterable[Problem]) -> list[Document]:
    """Return problems as the documents that the report calls diagnostics, errors first, each once."""
    unique = dict.fromkeys(found)
    return [_problem(each) for each in sorted(unique, key=lambda each: (each.warning, each.path))]


def _problem(found: Problem) -> Document:
    document: Document = {"path": found.path, "value": found.value, "message": found.why, "fix": found.fix}
    return {**document, "warning": True} if found.warning else document


def _cycle(run: Run, cycle: Cycle) -> Document:
    plan = cycle.plan
    document: Document = {
        "admitted": [_reservation(reservation) for reservation in plan.admitted],
        "preempted": [
            {"gang": run.gang(each.uid), "by": run.gang(each.by), "reason": each.reason} for each in plan.preempted
        ],
        "waiting": [_waiting(each) for each in cycle.waiting],
    }
    if plan.grown:
        document["grown"] = [_reservation(reservation) for reservation in plan.grown]
    if plan.stopped:
        document["stopped"] = [{"gang": run.gang(each.uid), "reason": each.reason} for each in plan.stopped]
    return document


def _reservation(reservation: Reservation) -> Document:
    return {
        "gang": reservation.key,
        "queue": reservation.queue,
        "podSets": [
            {
                "name": pod_set.name,
                "count": pod_set.count,
                "flavors": {name: flavor for name, flavor in sorted(pod_set.flavors.items()) if not is_ours(name)},
                **({"places": dict(pod_set.places)} if pod_set.places else {}),
            }
            for pod_set in reservation.pod_sets
        ],
    }


def _waiting(waiting: Waiting) -> Document:
    gang = waiting.gang
    return {
        "gang": gang.key,
        "queue": waiting.queue,
        "reason": reason_document(waiting.reason),
    }
