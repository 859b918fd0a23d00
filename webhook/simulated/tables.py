"""What ``kubectl get`` prints: a Table for each kind, with the columns that its users know.

Columns of a custom resource come from its stored CustomResourceDefinition when there is one, else from here.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from webhook.simulated.conditions import is_true
from webhook.simulated.refusals import Json
from webhook.simulated.resources import Resource
from webhook.simulated.store import Store
from webhook.wire.times import age_since, human_age, unix_seconds

Cell = Callable[[Json, float], Any]
"""From an object and now to what stands in its column."""
DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Columns of priority 1 show only in ``-o wide``."""

    name: str
    cell: Cell
    kind: str = "string"
    priority: int = 0


def wanted(accept: str) -> bool:
    """Return whether an Accept header asks for a Table first."""
    return "as=Table" in accept.partition(",")[0]


def table(store: Store, resource: Resource, objects: Iterable[Json], version: str, now: float) -> bytes:
    """Return a ``meta.k8s.io/v1`` Table of ``objects``."""
    columns = columns_of(store, resource)
    metadata = {"resourceVersion": version}
    body = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(columns, item, now) for item in objects],
    }
    return orjson.dumps(body)


def _definition(column: Column) -> Json:
    name_format = "name" if column.name == "Name" else ""
    return {
        "name": column.name,
        "type": column.kind,
        "format": name_format,
        "description": "",
        "priority": column.priority,
    }


def _row(columns: Sequence[Column], item: Json, now: float) -> Json:
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
    return {"cells": [column.cell(item, now) for column in columns], "object": partial}


def columns_of(store: Store, resource: Resource) -> Sequence[Column]:
    """Return the columns of a kind."""
    if resource.custom:
        stored = store.get(DEFINITIONS, "", f"{resource.plural}.{resource.group}")
        for version in stored.object["spec"]["versions"] if stored is not None else ():
            printed = version.get("additionalPrinterColumns")
            if version["name"] == resource.version and printed:
                return (_NAME, *(_printed(entry) for entry in printed))
    return _COLUMNS.get((resource.group, resource.plural), (_NAME, _AGE))


def _printed(entry: Json) -> Column:
    path = entry["jsonPath"]
    if entry.get("type") == "date":
        return Column(entry["name"], lambda item, now: _age(_at(item, path), now), priority=entry.get("priority", 0))
    return Column(
        entry["name"], lambda item, now: _at(item, path), entry.get("type", "string"), entry.get("priority", 0)
    )


# -- cells ----------------------------------------------------------------------------------------------------------

_STEP: Final = re.compile(r"\.(?P<key>[A-Za-z0-9_\-/]+|\*)|\['(?P<quoted>[^']+)'\]|\[(?P<index>-?\d+)\]|"
                          r"\[\?\(@\.(?P<field>\w+)==[\"'](?P<value>[^\"']*)[\"']\)\]")  # fmt: skip


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[re.Match[str], ...]:
    return tuple(_STEP.finditer(path.strip("{}").replace("\\.", "\x00")))


def _at(item: Json, path: str) -> Any:
    """Return what a simple JSONPath leads to: keys, indexes and one equality filter; None when it leads nowhere."""
    found: Any = item
    for step in _steps(path):
        key = step["key"] or step["quoted"]
        if key is not None:
            found = found.get(key.replace("\x00", ".")) if isinstance(found, dict) else None
        elif not isinstance(found, list):
            return None
        elif step["index"] is not None:
            index = int(step["index"])
            found = found[index] if -len(found) <= index < len(found) else None
        else:
            found = next((entry for entry in found if str(entry.get(step["field"])) == step["value"]), None)
        if found is None:
            return None
    return found


def _age(timestamp: Any, now: float) -> str:
    return age_since(timestamp, now) if timestamp else "<unknown>"


def _field(name: str, path: str, kind: str = "string", priority: int = 0, absent: Any = "<none>") -> Column:
    def cell(item: Json, now: float) -> Any:
        found = _at(item, path)
        return absent if found is None else found

    return Column(name, cell, kind, priority)


def _pod_status(pod: Json, now: float) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    phase = pod["status"].get("phase", "Pending")
    if phase == "Succeeded":
        return "Completed"
    if phase == "Failed":
        return "Error"
    if pod["spec"].get("schedulingGates"):
        return "SchedulingGated"
    return "ContainerCreating" if phase == "Pending" and pod["spec"].get("nodeName") else str(phase)


def _pod_ready(pod: Json, now: float) -> str:
    ready = sum(1 for status in pod["status"].get("containerStatuses") or () if status.get("ready"))
    return f"{ready}/{len(pod['spec']['containers'])}"


def _job_status(job: Json, now: float) -> str:
    status = job.get("status") or {}
    for kind in ("Complete", "Failed"):
        if is_true(status, kind):
            return kind
    if "deletionTimestamp" in job["metadata"]:
        return "Terminating"
    if is_true(status, "Suspended"):
        return "Suspended"
    return "FailureTarget" if is_true(status, "FailureTarget") else "Running"


def _job_completions(job: Json, now: float) -> str:
    wanted_completions = job["spec"].get("completions")
    done = (job.get("status") or {}).get("succeeded", 0)
    return (
        f"{done}/{wanted_completions}"
        if wanted_completions is not None
        else f"{done}/1 of {job['spec']['parallelism']}"
    )


def _job_duration(job: Json, now: float) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = unix_seconds(status["completionTime"]) if status.get("completionTime") else now
    return human_age(end - unix_seconds(status["startTime"]))


def _last_condition(item: Json, now: float) -> str:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((str(c["type"]) for c in reversed(conditions) if c["status"] == "True"), "")


def _node_status(node: Json, now: float) -> str:
    ready = "Ready" if is_true(node.get("status"), "Ready") else "NotReady"
    return f"{ready},SchedulingDisabled" if node["spec"].get("unschedulable") else ready


def _quota_amounts(prefixes: tuple[str, ...], kept: bool) -> Cell:
    def cell(quota: Json, now: float) -> str:
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        keys = [key for key in sorted(hard) if key.startswith(prefixes) is kept]
        return ", ".join(f"{key}: {used.get(key, 0)}/{hard[key]}" for key in keys)

    return cell


def _involved(event: Json, now: float) -> str:
    involved = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _last_seen(event: Json, now: float) -> str:
    times = (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return _age(next(filter(None, times), None), now)


_NAME: Final = _field("Name", ".metadata.name")
_AGE: Final = Column("Age", lambda item, now: _age(item["metadata"].get("creationTimestamp"), now))
_TRAINING: Final = (_NAME, Column("State", _last_condition), _AGE)

_COLUMNS: Final[dict[tuple[str, str], tuple[Column, ...]]] = {
    ("", "pods"): (
        _NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", lambda pod, now: "0"),
        _AGE,
        _field("IP", ".status.podIP", priority=1),
        _field("Node", ".spec.nodeName", priority=1),
    ),
    ("", "namespaces"): (_NAME, _field("Status", ".status.phase"), _AGE),
    ("", "configmaps"): (_NAME, Column("Data", lambda item, now: len(item.get("data") or ()), "integer"), _AGE),
    ("", "nodes"): (
        _NAME,
        Column("Status", _node_status),
        Column("GPUs", lambda node, now: (node["status"].get("allocatable") or {}).get("nvidia.com/gpu", "0")),
        _AGE,
    ),
    ("", "resourcequotas"): (
        _NAME,
        Column("Request", _quota_amounts(("limits.",), False)),
        Column("Limit", _quota_amounts(("limits.",), True)),
        _AGE,
    ),
    ("", "events"): (
        Column("Last Seen", _last_seen),
        _field("Type", ".type"),
        _field("Reason", ".reason"),
        Column("Object", _involved),
        Column("Message", lambda event, now: event.get("message") or event.get("note") or ""),
        _field("Name", ".metadata.name", priority=1),
    ),
    ("batch", "jobs"): (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
    ),
    ("apps", "deployments"): (
        _NAME,
        Column("Ready", lambda d, now: f"{d['status'].get('readyReplicas', 0)}/{d['spec'].get('replicas', 1)}"),
        _field("Up-to-date", ".status.updatedReplicas", "integer", absent=0),
        _field("Available", ".status.availableReplicas", "integer", absent=0),
        _AGE,
    ),
    ("scheduling.k8s.io", "priorityclasses"): (_NAME, _field("Value", ".value", "integer"), _AGE),
    ("jobset.x-k8s.io", "jobsets"): (
        _NAME,
        _field("TerminalState", ".status.terminalState", absent=""),
        _field("Restarts", ".status.restarts", absent=""),
        _field("Completed", ".status.conditions[?(@.type=='Completed')].status", absent=""),
        _field("Suspended", ".spec.suspend", absent=""),
        _AGE,
    ),
    **{("kubeflow.org", f"{kind}jobs"): _TRAINING for kind in ("pytorch", "tf", "xgboost", "paddle", "jax", "mpi")},
    ("kueue.x-k8s.io", "clusterqueues"): (
        _NAME,
        _field("Cohort", ".spec.cohortName", absent=""),
        _field("Strategy", ".spec.queueingStrategy", priority=1, absent=""),
        _field("Pending Workloads", ".status.pendingWorkloads", "integer", absent=0),
        _field("Admitted Workloads", ".status.admittedWorkloads", "integer", 1, absent=0),
    ),
    ("kueue.x-k8s.io", "localqueues"): (
        _NAME,
        _field("ClusterQueue", ".spec.clusterQueue", absent=""),
        _field("Pending Workloads", ".status.pendingWorkloads", "integer", absent=0),
        _field("Admitted Workloads", ".status.admittedWorkloads", "integer", absent=0),
    ),
    **{
        (group, "podgroups"): (
            _NAME,
            _field("Phase", ".status.phase", absent=""),
            _field("MinMember", ".spec.minMember", "integer", absent=""),
            _AGE,
        )
        for group in ("scheduling.sigs.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh")
    },
}
