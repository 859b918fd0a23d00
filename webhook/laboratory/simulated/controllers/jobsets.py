"""The JobSet controller: child Jobs for each replicated job, suspended and resumed together, and one verdict over all.

Follows ``pkg/controllers`` of JobSet 0.10: children are created suspended when the JobSet is; resuming merges the
template's labels, annotations, node selector, tolerations and gates *into* each child (stale keys stay), after its
startTime was cleared; a failed child restarts all of them until ``maxRestarts``; start-up in order and dependencies
are honoured. Not modelled: failure policy rules, coordinator, exclusive placement, the headless service.
"""

import hashlib
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import orjson

from webhook.laboratory.simulated.controllers import pods
from webhook.laboratory.simulated.controllers.base import Controller, Pace
from webhook.laboratory.simulated.controllers.jobs import JOBS
from webhook.laboratory.simulated.objects.conditions import is_true, with_condition
from webhook.laboratory.simulated.objects.store import Event, Stored
from webhook.laboratory.simulated.requests.identity import JOBSET_CONTROLLER
from webhook.laboratory.simulated.requests.refusals import Json, internal
from webhook.laboratory.simulated.server import SimulatedServer

JOBSETS: Final = ("jobset.x-k8s.io", "jobsets")
_PREFIX: Final = "jobset.sigs.k8s.io"
_RESTARTS: Final = f"{_PREFIX}/restart-attempt"
_REPLICATED: Final = f"{_PREFIX}/replicatedjob-name"
_MANAGER: Final = "jobset.sigs.k8s.io/jobset-controller"

Key = tuple[str, str, str]


@dataclass(slots=True)
class _Children:
    active: list[Stored] = field(default_factory=list)
    successful: list[Stored] = field(default_factory=list)
    failed: list[Stored] = field(default_factory=list)
    previous: list[Stored] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        """Names that are taken."""
        return {child.key[1] for child in (*self.active, *self.successful, *self.failed, *self.previous)}


class JobSetController(Controller):
    """Runs ``jobset.x-k8s.io`` JobSets."""

    def __init__(self, server: SimulatedServer, rng: Random, pace: Pace) -> None:
        super().__init__(server, JOBSET_CONTROLLER, rng, pace)
        self._jobsets = server.registry.of("jobsets", "jobset.x-k8s.io")
        self._jobs = server.registry.of("jobs", "batch")
        self.store.subscribe(lambda event: self.enqueue((*event.current.key, event.current.uid)), JOBSETS)
        self.store.subscribe(self._job_changed, JOBS)

    def _job_changed(self, event: Event) -> None:
        owner = pods.controller_of(event.current)
        if owner is not None and owner["kind"] == "JobSet":
            self.enqueue((event.current.key[0], owner["name"], owner["uid"]))

    async def reconcile(self, key: Key) -> None:
        """Look at one JobSet."""
        namespace, name, uid = key
        stored = self.store.get(JOBSETS, namespace, name)
        if stored is None or stored.uid != uid or "deletionTimestamp" in stored.object["metadata"]:
            return
        jobset = stored.object
        if jobset["spec"].get("managedBy") not in (None, _MANAGER):
            return
        before = jobset.get("status") or {}
        children = self._children(uid, before.get("restarts", 0))
        statuses = [_replicated_status(replicated, children) for replicated in _replicated(jobset)]
        status: Json = {**before, "restarts": before.get("restarts", 0), "replicatedJobsStatus": statuses}
        status = await self._advance(jobset, status, children)
        if status != before:
            await self.server.update(
                self._jobsets, namespace, name, lambda now: {**now.object, "status": status}, self.call(), "status"
            )

    def _children(self, uid: str, restarts: int) -> _Children:
        children = _Children()
        for job in self.store.owned(JOBS, uid):
            attempt = job.labels.get(_RESTARTS, "")
            if not attempt.isdecimal():
                # The controller fails on the whole JobSet then, again and again.
                raise internal(f"label {_RESTARTS} of Job {job.key[1]} is {attempt!r}")
            if int(attempt) < restarts:
                children.previous.append(job)
            elif is_true(job.object.get("status"), "Failed"):
                children.failed.append(job)
            elif is_true(job.object.get("status"), "Complete"):
                children.successful.append(job)
            else:
                children.active.append(job)
        return children

    async def _advance(self, jobset: Json, status: Json, children: _Children) -> Json:
        if is_true(status, "Completed") or is_true(status, "Failed"):
            await self._delete(children.active)
            return status
        await self._delete(children.previous)
        if children.failed:
            return self._fail(jobset, status, children.failed[0].key[1])
        if children.successful and _succeeded(jobset, children.successful):
            status = self._condition(status, "Completed", True, "AllJobsCompleted", "jobset completed successfully")
            return {**status, "terminalState": "Completed"}
        suspended = bool(jobset["spec"].get("suspend"))
        status, held = await self._create_missing(jobset, status, children, suspended)
        if suspended:
            for job in children.active:
                if not job.object["spec"].get("suspend"):
                    await self.server.update(self._jobs, *job.key, _suspended, self.call())
            return self._condition(status, "Suspended", True, "SuspendedJobs", "jobset is suspended")
        if await self._resume(jobset, status, children) and not held:
            status = self._condition(status, "Suspended", False, "ResumeJobs", "jobset is resumed")
        return status

    async def _create_missing(
        self, jobset: Json, status: Json, children: _Children, suspended: bool
    ) -> tuple[Json, bool]:
        """Create children that do not exist; returns the status and whether an ordered start-up is under way."""
        in_order = _in_order(jobset) and not suspended
        taken = children.names
        blocking = (jobset["spec"].get("failurePolicy") or {}).get("restartStrategy") == "BlockingRecreate"
        for replicated, counts in zip(_replicated(jobset), status["replicatedJobsStatus"], strict=True):
            if not _dependencies_met(jobset, replicated, status):
                continue
            if in_order and _started(replicated, counts):
                continue
            if not (blocking and children.previous):
                for index in range(replicated["replicas"]):
                    job = _child(jobset, status, replicated, index)
                    if job["metadata"]["name"] not in taken:
                        await self.server.create(self._jobs, jobset["metadata"]["namespace"], job, self.call())
            if in_order:
                message = "in order startup policy is in progress"
                return self._condition(
                    status, "StartupPolicyInProgress", True, "InOrderStartupPolicyInProgress", message
                ), True
        if in_order:
            message = "in order startup policy has completed"
            status = self._condition(status, "StartupPolicyCompleted", True, "InOrderStartupPolicyCompleted", message)
            if is_true(status, "StartupPolicyInProgress"):
                status = self._condition(
                    status, "StartupPolicyInProgress", False, "InOrderStartupPolicyCompleted", message
                )
        return status, False

    async def _resume(self, jobset: Json, status: Json, children: _Children) -> bool:
        """Resume suspended children as far as order and dependencies allow; returns whether it got to the end."""
        for replicated, counts in zip(_replicated(jobset), status["replicatedJobsStatus"], strict=True):
            if not _dependencies_met(jobset, replicated, status):
                continue
            if _in_order(jobset) and _started(replicated, counts):
                continue
            for job in children.active:
                if job.labels.get(_REPLICATED) == replicated["name"] and job.object["spec"].get("suspend"):
                    await self._resume_one(job, replicated["template"]["spec"]["template"])
            if _in_order(jobset):
                return False
        return True

    async def _resume_one(self, job: Stored, template: Json) -> None:
        if (job.object.get("status") or {}).get("startTime"):
            await self.server.update(self._jobs, *job.key, _without_start_time, self.call(), "status")

        def resumed(stored: Stored) -> Json:
            fresh = stored.copy()
            fresh["spec"]["suspend"] = False
            _merge_template(fresh["spec"]["template"], template)
            return fresh

        await self.server.update(self._jobs, *job.key, resumed, self.call())

    async def _delete(self, jobs: list[Stored]) -> None:
        for job in jobs:
            if "deletionTimestamp" not in job.object["metadata"]:
                options = {"propagationPolicy": "Foreground", "preconditions": {"uid": job.uid}}
                await self.server.delete(self._jobs, *job.key, options, self.call())

    def _fail(self, jobset: Json, status: Json, first: str) -> Json:
        most = (jobset["spec"].get("failurePolicy") or {}).get("maxRestarts", 0)
        counted = status.get("restartsCountTowardsMax", 0)
        if counted < most:
            return {**status, "restarts": status["restarts"] + 1, "restartsCountTowardsMax": counted + 1}
        if jobset["spec"].get("failurePolicy"):
            reason, message = "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts"
        else:
            reason, message = "FailedJobs", "jobset failed due to one or more job failures"
        status = self._condition(status, "Failed", True, reason, f"{message} (first failed job: {first})")
        return {**status, "terminalState": "Failed"}

    def _condition(self, status: Json, kind: str, holds: bool, reason: str, message: str) -> Json:
        known = any(c["type"] == kind for c in status.get("conditions") or ())
        if not known and not holds:
            return status
        if known and is_true(status, kind) is holds:
            return status
        return with_condition(status, kind, "True" if holds else "False", self.server.timestamp(), reason, message)


def _replicated(jobset: Json) -> list[Json]:
    found: list[Json] = jobset["spec"].get("replicatedJobs") or []
    return found


def _in_order(jobset: Json) -> bool:
    return bool((jobset["spec"].get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder")


def _started(replicated: Json, counts: Json) -> bool:
    return bool(replicated["replicas"] == counts["failed"] + counts["ready"] + counts["succeeded"])


def _dependencies_met(jobset: Json, replicated: Json, status: Json) -> bool:
    sizes = {other["name"]: other["replicas"] for other in _replicated(jobset)}
    counts = {entry["name"]: entry for entry in status["replicatedJobsStatus"]}
    for dependency in replicated.get("dependsOn") or ():
        entry = counts.get(dependency["name"])
        if entry is None:
            return False
        reached = entry["succeeded"]
        if dependency["status"] == "Ready":
            reached += entry["failed"] + entry["ready"]
        if reached != sizes[dependency["name"]]:
            return False
    return True


def _succeeded(jobset: Json, successful: list[Stored]) -> bool:
    policy = jobset["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or [replicated["name"] for replicated in _replicated(jobset)]
    done = sum(1 for job in successful if job.labels.get(_REPLICATED) in targets)
    if policy.get("operator") == "Any":
        return done >= 1
    wanted = sum(int(replicated["replicas"]) for replicated in _replicated(jobset) if replicated["name"] in targets)
    return done >= wanted


def _replicated_status(replicated: Json, children: _Children) -> Json:
    name = replicated["name"]
    counts: Json = {"name": name, "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    for job in children.active:
        if job.labels.get(_REPLICATED) != name:
            continue
        spec, status = job.object["spec"], job.object.get("status") or {}
        wanted = min(spec["parallelism"], spec["completions"] if spec.get("completions") is not None else 2**31)
        counts["ready"] += status.get("succeeded", 0) + status.get("ready", 0) >= wanted
        counts["active"] += status.get("active", 0) > 0
        counts["suspended"] += bool(spec.get("suspend"))
    counts["succeeded"] = sum(1 for job in children.successful if job.labels.get(_REPLICATED) == name)
    counts["failed"] = sum(1 for job in children.failed if job.labels.get(_REPLICATED) == name)
    return counts


def _child(jobset: Json, status: Json, replicated: Json, index: int) -> Json:
    """Return a new child Job; labelled alike on itself and on its pod template."""
    metadata = jobset["metadata"]
    name = f"{metadata['name']}-{replicated['name']}-{index}"
    everybody, group = _replicated(jobset), replicated.get("groupName", "default")
    companions = [entry for entry in everybody if entry.get("groupName", "default") == group]
    marks = {
        f"{_PREFIX}/jobset-name": metadata["name"],
        f"{_PREFIX}/jobset-uid": metadata["uid"],
        _REPLICATED: replicated["name"],
        _RESTARTS: str(status["restarts"]),
        f"{_PREFIX}/replicatedjob-replicas": str(replicated["replicas"]),
        f"{_PREFIX}/global-replicas": _total(everybody),
        f"{_PREFIX}/job-index": str(index),
        f"{_PREFIX}/job-key": hashlib.sha1(f"{metadata['namespace']}/{name}".encode()).hexdigest(),  # noqa: S324
        f"{_PREFIX}/job-global-index": str(_before(everybody, replicated) + index),
        f"{_PREFIX}/group-name": group,
        f"{_PREFIX}/group-replicas": _total(companions),
        f"{_PREFIX}/job-group-index": str(_before(companions, replicated) + index),
    }
    template: Json = orjson.loads(orjson.dumps(replicated["template"]))
    pod_template = template["spec"]["template"]
    if (jobset["spec"].get("network") or {}).get("enableDNSHostnames"):
        pod_template["spec"].setdefault("subdomain", jobset["spec"]["network"].get("subdomain") or metadata["name"])
    template["spec"]["suspend"] = bool(jobset["spec"].get("suspend"))
    meta = {
        "name": name,
        **_marked(template.get("metadata") or {}, marks),
        "ownerReferences": [pods.controller_reference(jobset)],
    }
    pod_template["metadata"] = {
        **(pod_template.get("metadata") or {}),
        **_marked(pod_template.get("metadata") or {}, marks),
    }
    return {"kind": "Job", "apiVersion": "batch/v1", "metadata": meta, "spec": template["spec"]}


def _total(replicated: list[Json]) -> str:
    return str(sum(entry["replicas"] for entry in replicated))


def _before(replicated: list[Json], of: Json) -> int:
    """Return how many Jobs the entries before ``of`` have."""
    names = [entry["name"] for entry in replicated]
    return sum(int(entry["replicas"]) for entry in replicated[: names.index(of["name"])])


def _marked(metadata: Json, marks: dict[str, str]) -> Json:
    return {key: {**(metadata.get(key) or {}), **marks} for key in ("labels", "annotations")}


def _merge_template(target: Json, template: Json) -> None:
    meta, source = target.setdefault("metadata", {}), template.get("metadata") or {}
    for key in ("labels", "annotations"):
        if source.get(key):
            meta[key] = {**(meta.get(key) or {}), **source[key]}
    spec, wanted = target["spec"], template["spec"]
    if wanted.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **wanted["nodeSelector"]}
    for key in ("tolerations", "schedulingGates"):
        known: list[Any] = spec.get(key) or []
        added = [item for item in wanted.get(key) or () if item not in known]
        if added:
            spec[key] = [*known, *added]


def _suspended(stored: Stored) -> Json:
    return {**stored.object, "spec": {**stored.object["spec"], "suspend": True}}


def _without_start_time(stored: Stored) -> Json:
    status = {key: value for key, value in stored.object["status"].items() if key != "startTime"}
    return {**stored.object, "status": status}
