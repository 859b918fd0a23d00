"""Tables for kubectl: the columns Kueue's and kube-queue's users know, more of them with ``-o wide``.

Times become ages as kubectl writes them, because a table is made by the server.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.untyped import paths
from webhook.visibility.documents.conditions import UNSATISFIED
from webhook.visibility.http.group import FULL_NAME, QUEUES, WORKLOADS, Document
from webhook.wire.times import age_since

TABLE_VERSION: Final = "meta.k8s.io/v1"
_WIDE: Final = 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its definition, and what stands in it for a document at a Unix time."""

    name: str
    kind: str
    description: str
    cell: Callable[[Document, float], Any]
    priority: int = 0
    format: str = ""

    def definition(self) -> dict[str, Any]:
        """Return the TableColumnDefinition."""
        return {
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def table(resource: str, rows: list[dict[str, Any]], version: int) -> dict[str, Any]:
    """Return a Table of ``rows``."""
    return {
        "kind": "Table",
        "apiVersion": TABLE_VERSION,
        "metadata": {"resourceVersion": str(version)},
        "columnDefinitions": [column.definition() for column in COLUMNS[resource]],
        "rows": rows,
    }


def row(resource: str, document: Document, now: float, include: str) -> dict[str, Any]:
    """Return a document's row; ``include`` is the query's includeObject (None, Metadata, Object)."""
    cells = [column.cell(document, now) for column in COLUMNS[resource]]
    return {"cells": cells, "object": _included(document, include)}


def _included(document: Document, include: str) -> Document | None:
    if include == "None":
        return None
    if include == "Object":
        return document
    return {"kind": "PartialObjectMetadata", "apiVersion": TABLE_VERSION, "metadata": document["metadata"]}


# -- cells -----------------------------------------------------------------------------------------------------------


def _at(*path: str) -> Callable[[Document, float], Any]:
    def cell(document: Document, _now: float) -> Any:
        found = paths.find(document, path)
        return "" if found is None else found

    return cell


def _condition(kind: str) -> Callable[[Document, float], str]:
    def cell(document: Document, _now: float) -> str:
        return next((str(c["status"]) for c in document["status"]["conditions"] if c["type"] == kind), "")

    return cell


def _age(document: Document, now: float) -> str:
    created = document["metadata"].get("creationTimestamp")
    return "<unknown>" if created is None else age_since(created, now)


def _pods(document: Document, _now: float) -> str:
    pods = document["status"]["pods"]
    return f"{pods['present']}/{pods['wanted']}"


def _position(document: Document, _now: float) -> str:
    ahead = document["status"].get("position")
    return "" if ahead is None else str(ahead + 1)


def _why(document: Document, _now: float) -> str:
    if "reason" in document["status"]:
        return str(document["status"]["reason"]["code"])
    conditions = document["status"]["conditions"]
    held = [c for c in conditions if c["type"] in ("Evicted", "Finished") and c["status"] == "True"]
    lacking = [
        c for c in conditions if (c["type"], c["status"]) == ("PodsReady", "False") or c["reason"] == UNSATISFIED
    ]
    return str((held or lacking)[-1]["reason"]) if held or lacking else ""


def _amounts(*path: str) -> Callable[[Document, float], str]:
    found = _at(*path)

    def cell(document: Document, now: float) -> str:
        amounts = found(document, now)
        return ",".join(f"{name}={amount}" for name, amount in amounts.items()) if amounts else ""

    return cell


_NAME: Final = Column("Name", "string", "Name of the object.", _at("metadata", "name"), format="name")
_AGE: Final = Column("Age", "string", "Time since it was created.", _age)

COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    WORKLOADS.plural: (
        _NAME,
        Column("Queue", "string", "Queue that the gang asks for.", _at("spec", "queueName")),
        Column(
            "Reserved in",
            "string",
            "Queue that holds its quota.",
            _at("status", "admission", "clusterQueue"),
        ),
        Column("Admitted", "string", "Whether the gang may run.", _condition("Admitted")),
        Column("Finished", "string", "Whether the job has ended.", _condition("Finished")),
        _AGE,
        Column("Position", "string", "Its place among those that wait in its queue; 1 is next.", _position, _WIDE),
        Column("Pods", "string", "Pods that exist, of those it starts with.", _pods, _WIDE),
        Column("Priority", "integer", "Higher goes first.", _at("spec", "priority"), _WIDE),
        Column("Reason", "string", "Why it waits, lacks pods, or was stopped.", _why),
    ),
    QUEUES.plural: (
        _NAME,
        Column(
            "Full name",
            "string",
            "Path in the quota tree, or the queue behind it.",
            lambda document, now: (
                _at("metadata", "annotations", FULL_NAME)(document, now) or _at("spec", "clusterQueue")(document, now)
            ),
            _WIDE,
        ),
        Column("Strategy", "string", "How later gangs may pass the head.", _at("spec", "queueingStrategy"), _WIDE),
        Column("Pending", "integer", "Gangs that wait for quota.", _at("status", "pending"), _WIDE),
        Column("Admitted", "integer", "Gangs that run.", _at("status", "admitted"), _WIDE),
        Column("Usage", "string", "What admitted gangs hold.", _amounts("status", "usage"), _WIDE),
        Column("Nominal", "string", "What the queue owns.", _amounts("status", "nominal"), _WIDE),
        Column("Limit", "string", "Most that it may hold.", _amounts("status", "limit"), _WIDE),
        Column("Borrowed", "string", "What it holds above what it owns.", _amounts("status", "borrowed"), _WIDE),
        _AGE,
    ),
}
