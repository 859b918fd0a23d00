"""The Job controller: pods for running Jobs, no pods for suspended ones, counts, conditions, back-off.

Follows ``pkg/controller/job`` of Kubernetes 1.36: suspending deletes active pods and clears startTime (earlier releases
leave it); resuming sets it again; pods are created in batches that double while none is refused; a refused pod is
retried with a back-off; a pod that its selector does not match is let go of; each ended pod is counted once (by the
tracking finalizer); the interim conditions SuccessCriteriaMet and FailureTarget come before Complete and Failed, which
wait until no pod is left terminating; pods that nobody controls are adopted where the selector matches them; with
backoffLimitPerIndex each index fails by itself. Not modelled: podFailurePolicy, successPolicy, manualSelector, the
back-off of each index.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

from webhook.laboratory.simulated.controllers import pods
from webhook.laboratory.simulated.controllers.base import Controller, Pace
from webhook.laboratory.simulated.controllers.indexes import INDEX, indexes_of, parse_indexes, render_indexes
from webhook.laboratory.simulated.objects.conditions import is_true, with_condition
from webhook.laboratory.simulated.objects.store import Event, Stored
from webhook.laboratory.simulated.objects.validation import CLEARS_START_TIME
from webhook.laboratory.simulated.requests.identity import JOB_CONTROLLER
from webhook.laboratory.simulated.requests.refusals import Json, Refused
from webhook.laboratory.simulated.server import SimulatedServer
from webhook.wire.times import unix_seconds

JOBS: Final = ("batch", "jobs")
_SELECTED: Final = "batch.kubernetes.io/controller-uid"
"""The label that a generated selector matches."""
_MANAGER: Final = "kubernetes.io/job-controller"
_POD_BACKOFF_SECONDS: Final = 10.0
_POD_BACKOFF_MOST_SECONDS: Final = 600.0
_TERMINAL: Final = ("Complete", "Failed")
_COMPLETE: Final = ("SuccessCriteriaMet", "Complete")
_FAILED: Final = ("FailureTarget", "Failed")
"""The interim condition and the one that ends the Job."""

Key = tuple[str, str, str]
"""(namespace, name, uid)."""


@dataclass(slots=True)
class _Tally:
    """What the controller remembers of a Job between two looks."""

    counted: dict[str, None] = field(default_factory=dict)
    """Uids of ended pods that are in the Job's counts and still carry the finalizer."""
    of_indexes: Counter[int] = field(default_factory=Counter)
    """Failures of each index, where it may fail by itself."""
    failures: int = 0
    last_failure: float = 0.0


@dataclass(slots=True)
class _Sync:
    """One look at a Job and its pods."""

    job: Json
    pods: list[Stored]
    status: Json
    active: list[Stored] = field(default_factory=list)
    terminating: int = 0
    error: Refused | None = None


class JobController(Controller):
    """Runs ``batch/v1`` Jobs."""

    def __init__(self, server: SimulatedServer, rng: Random, pace: Pace) -> None:
        super().__init__(server, JOB_CONTROLLER, rng, pace)
        self._jobs = server.registry.of("jobs", "batch")
        self._pods = server.registry.of("pods")
        self._tallies: dict[str, _Tally] = {}
        self._loose: dict[str, dict[tuple[str, str], None]] = {}
        """Uid of a Job to the pods that nobody controls and whose label says that they are its."""
        self.store.subscribe(self._job_changed, JOBS)
        self.store.subscribe(self._pod_changed, pods.PODS)

    def _job_changed(self, event: Event) -> None:
        self.enqueue((*event.current.key, event.current.uid))

    def _pod_changed(self, event: Event) -> None:
        owner = pods.controller_of(event.current)
        self._note_loose(event, loose=owner is None and event.type != "DELETED")
        before = owner if event.previous is None else pods.controller_of(event.previous)
        for each in (owner,) if before == owner else (owner, before):
            if each is not None and each["kind"] == "Job" and each["apiVersion"] == "batch/v1":
                self.enqueue((event.current.key[0], each["name"], each["uid"]))
        if owner is None and pods.TRACKING in (event.current.object["metadata"].get("finalizers") or ()):
            self.enqueue(event.current.key)

    def _note_loose(self, event: Event, *, loose: bool) -> None:
        uids = [None if each is None else each.labels.get(_SELECTED) for each in (event.previous, event.current)]
        for uid in uids:
            if uid is not None:
                self._loose.get(uid, {}).pop(event.current.key, None)
        uid = uids[1]
        if uid is None or not loose:
            return
        self._loose.setdefault(uid, {})[event.current.key] = None
        for stored in self.store.items(JOBS, event.current.key[0]):
            if stored.uid == uid:
                self.enqueue((*stored.key, uid))

    def begin_again(self) -> None:
        """Forget which pods are counted, and look at every Job."""
        super().begin_again()
        self._tallies.clear()
        for stored in self.store.items(JOBS):
            self.enqueue((*stored.key, stored.uid))

    async def reconcile(self, key: Key | tuple[str, str]) -> None:
        """Look at one Job, or at a pod that has lost its Job (a key of two)."""
        if len(key) == 2:
            await self._let_orphan_go(*key)
            return
        namespace, name, uid = key
        stored = self.store.get(JOBS, namespace, name)
        if stored is None or stored.uid != uid:
            self._tallies.pop(uid, None)
            self._loose.pop(uid, None)
            await self._let_go(uid)
            return
        job = stored.object
        if job["spec"].get("managedBy") not in (None, _MANAGER):
            return
        if any(is_true(job["status"], kind) for kind in _TERMINAL):
            await self._let_go(uid)
            await self._expire(stored, key)
            return
        sync = _Sync(job, await self._claimed(job, uid), {**job["status"]})
        await self._advance(sync, key)
        written = await self._write_status(stored, sync.status)
        await self._release_counted(written.uid)
        if sync.error is not None:
            raise sync.error

    # -- one look ---------------------------------------------------------------------------------------------------

    async def _advance(self, sync: _Sync, key: Key) -> None:
        job, status = sync.job, sync.status
        now = self.server.timestamp()
        _forget_indexes(sync)
        self._count(sync)
        sync.active = [pod for pod in sync.pods if pods.is_active(pod)]
        sync.terminating = sum(1 for pod in sync.pods if pods.is_terminating(pod) and not pods.has_ended(pod))
        suspended = bool(job["spec"].get("suspend"))
        if not status.get("startTime") and not suspended:
            status["startTime"] = now
        failure = self._failure(sync, suspended, key)
        if failure is not None:
            await self._stop(sync, sync.active, counted=True)
            sync.status = self._finish(sync, _FAILED, *failure)
        elif "deletionTimestamp" not in job["metadata"]:
            await self._scale(sync, suspended, key)
            if self._is_complete(sync) and not sync.active:
                reason, message = "CompletionsReached", "Reached expected number of succeeded pods"
                sync.status = self._finish(sync, _COMPLETE, reason, message)
            else:
                sync.status = self._suspend_condition(status, suspended, now)
        sync.status["active"] = len(sync.active)
        sync.status["ready"] = sum(1 for pod in sync.active if pods.is_ready(pod))
        sync.status["terminating"] = sync.terminating
        for count in ("active", "succeeded", "failed"):
            if not sync.status.get(count):
                sync.status.pop(count, None)
        sync.status["uncountedTerminatedPods"] = {}

    def _count(self, sync: _Sync) -> None:
        """Add newly ended pods to the counts; a pod being deleted counts as failed unless only failed are replaced."""
        tally = self._tallies.setdefault(sync.job["metadata"]["uid"], _Tally())
        waits_for_failed = sync.job["spec"].get("podReplacementPolicy") == "Failed"
        for pod in sync.pods:
            if pods.TRACKING not in (pod.object["metadata"].get("finalizers") or ()) or pod.uid in tally.counted:
                continue
            lost = pods.is_terminating(pod) and not waits_for_failed
            if pods.phase(pod) == "Succeeded":
                self._count_success(sync, pod)
                tally.failures = 0
            elif pods.phase(pod) == "Failed" or lost:
                self._count_failure(sync, pod, tally)
            else:
                continue
            tally.counted[pod.uid] = None

    def _count_success(self, sync: _Sync, pod: Stored) -> None:
        if sync.job["spec"]["completionMode"] != "Indexed":
            sync.status["succeeded"] = sync.status.get("succeeded", 0) + 1
            return
        done = parse_indexes(sync.status.get("completedIndexes"))
        done |= indexes_of((pod,))
        sync.status["completedIndexes"] = render_indexes(done)
        sync.status["succeeded"] = len(done)

    def _count_failure(self, sync: _Sync, pod: Stored, tally: _Tally) -> None:
        sync.status["failed"] = sync.status.get("failed", 0) + 1
        limit = sync.job["spec"].get("backoffLimitPerIndex")
        if limit is None:
            tally.failures += 1
            tally.last_failure = asyncio.get_running_loop().time()
            return
        tally.of_indexes.update(indexes_of((pod,)))
        failed = parse_indexes(sync.status.get("failedIndexes"))
        failed |= {index for index, failures in tally.of_indexes.items() if failures > limit}
        sync.status["failedIndexes"] = render_indexes(failed - parse_indexes(sync.status.get("completedIndexes")))

    def _failure(self, sync: _Sync, suspended: bool, key: Key) -> tuple[str, str] | None:
        spec, status = sync.job["spec"], sync.status
        met = next(
            (c for c in status.get("conditions") or () if c["type"] == "FailureTarget" and c["status"] == "True"), None
        )
        if met is not None:
            return met["reason"], met["message"]
        if status.get("failed", 0) > spec["backoffLimit"]:
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        failed = len(parse_indexes(status.get("failedIndexes")))
        if failed and failed + status.get("succeeded", 0) >= spec["completions"]:
            return "FailedIndexes", "Job has failed indexes"
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and not suspended:
            left = unix_seconds(status["startTime"]) + deadline - self.server.clock.now()
            if left <= 0:
                return "DeadlineExceeded", "Job was active longer than specified deadline"
            self.enqueue_after(key, left)
        return None

    def _is_complete(self, sync: _Sync) -> bool:
        completions, succeeded = sync.job["spec"].get("completions"), sync.status.get("succeeded", 0)
        return bool(succeeded > 0 if completions is None else succeeded >= completions)

    def _finish(self, sync: _Sync, kinds: tuple[str, str], reason: str, message: str) -> Json:
        now, (interim, final) = self.server.timestamp(), kinds
        status = with_condition(sync.status, interim, "True", now, reason, message, lastProbeTime=now)
        if sync.active or sync.terminating:
            return status
        if final == "Complete":
            status["completionTime"] = now
        return with_condition(status, final, "True", now, reason, message, lastProbeTime=now)

    def _suspend_condition(self, status: Json, suspended: bool, now: str) -> Json:
        was = is_true(status, "Suspended")
        if suspended and not was:
            status = with_condition(
                status, "Suspended", "True", now, "JobSuspended", "Job suspended", lastProbeTime=now
            )
            if self.server.release >= CLEARS_START_TIME:
                status.pop("startTime", None)
        elif was and not suspended:
            status = with_condition(status, "Suspended", "False", now, "JobResumed", "Job resumed", lastProbeTime=now)
            status["startTime"] = now
        return status

    # -- pods -------------------------------------------------------------------------------------------------------

    async def _scale(self, sync: _Sync, suspended: bool, key: Key) -> None:
        spec, active = sync.job["spec"], len(sync.active)
        wanted = 0 if suspended else self._wanted(sync)
        if active > wanted:
            unready_first = sorted(sync.active, key=lambda pod: (pods.phase(pod) == "Running", pods.is_ready(pod)))
            await self._stop(sync, unready_first[: active - wanted], counted=False)
            return
        held = sync.terminating if spec.get("podReplacementPolicy") == "Failed" else 0
        missing = wanted - active - held
        if missing <= 0:
            return
        wait = self._backoff(sync.job["metadata"]["uid"])
        if wait > 0:
            self.enqueue_after(key, wait)
            return
        await self._start(sync, missing)

    def _wanted(self, sync: _Sync) -> int:
        spec, succeeded = sync.job["spec"], sync.status.get("succeeded", 0)
        parallelism = int(spec["parallelism"])
        if spec.get("completions") is None:
            return len(sync.active) if succeeded else parallelism
        ended = int(succeeded) + len(parse_indexes(sync.status.get("failedIndexes")))
        return max(0, min(parallelism, int(spec["completions"]) - ended))

    def _backoff(self, uid: str) -> float:
        tally = self._tallies[uid]
        if not tally.failures:
            return 0.0
        wait = min(_POD_BACKOFF_SECONDS * 2 ** (tally.failures - 1), _POD_BACKOFF_MOST_SECONDS)
        left: float = tally.last_failure + wait - asyncio.get_running_loop().time()
        return left

    async def _start(self, sync: _Sync, missing: int) -> None:
        indexes = self._free_indexes(sync, missing)
        batch = 1
        while missing > 0 and sync.error is None:
            size = min(batch, missing)
            made = await asyncio.gather(
                *(self._create(sync.job, indexes.pop(0) if indexes else None) for _ in range(size)),
                return_exceptions=True,
            )
            for outcome in made:
                if isinstance(outcome, Stored):
                    sync.active.append(outcome)
                elif isinstance(outcome, Refused):
                    sync.error = outcome
                else:
                    raise outcome
            missing -= size
            batch *= 2

    def _free_indexes(self, sync: _Sync, missing: int) -> list[int]:
        if sync.job["spec"]["completionMode"] != "Indexed":
            return []
        taken = parse_indexes(sync.status.get("completedIndexes")) | parse_indexes(sync.status.get("failedIndexes"))
        taken |= indexes_of(sync.active)
        free = [index for index in range(sync.job["spec"]["completions"]) if index not in taken]
        return free[:missing]

    async def _create(self, job: Json, index: int | None) -> Stored:
        name = job["metadata"]["name"]
        metadata: Json = {"generateName": f"{name}-", "finalizers": [pods.TRACKING]}
        if index is not None:
            shown = {INDEX: str(index)}
            metadata |= {"generateName": f"{name}-{index}-", "labels": shown, "annotations": shown}
        pod = pods.from_template(job["spec"]["template"], job, metadata)
        if index is not None:
            pod["spec"].setdefault("hostname", f"{name}-{index}")
        return await self.server.create(self._pods, job["metadata"]["namespace"], pod, self.call())

    async def _stop(self, sync: _Sync, doomed: list[Stored], *, counted: bool) -> None:
        """Delete active pods; those that are not to be counted as failed lose the finalizer first."""
        for pod in doomed:
            try:
                if not counted:
                    await self._unfinalize(pod)
                await self.server.delete(self._pods, *pod.key, {"preconditions": {"uid": pod.uid}}, self.call())
            except Refused as refused:
                if refused.code not in (404, 409):
                    sync.error = refused
                    continue
            sync.active.remove(pod)
            still = self.store.get(pods.PODS, *pod.key)
            sync.terminating += still is not None and still.uid == pod.uid

    async def _unfinalize(self, pod: Stored) -> None:
        if pods.TRACKING in (pod.object["metadata"].get("finalizers") or ()):
            await self.server.update(self._pods, *pod.key, pods.without_finalizer(pods.TRACKING), self.call())

    async def _claimed(self, job: Json, uid: str) -> list[Stored]:
        """Return the Job's pods: those of nobody that its selector matches are adopted, those that somebody gave it and
        that it does not match are let go.
        """
        owned, matched = self.store.owned(pods.PODS, uid), job["spec"]["selector"]["matchLabels"].items()
        claimed = [pod for pod in owned if matched <= (pod.object["metadata"].get("labels") or {}).items()]
        if "deletionTimestamp" in job["metadata"]:
            return claimed
        for pod in owned:
            if pod not in claimed:
                await self.server.update(self._pods, *pod.key, pods.without_owner(uid), self.call())
        for namespace, name in list(self._loose.get(uid, {})):
            loose = self.store.get(pods.PODS, namespace, name)
            if loose is not None and not pods.is_terminating(loose) and matched <= loose.labels.items():
                adopted = pods.adopted_by(job)
                claimed.append(await self.server.update(self._pods, namespace, name, adopted, self.call()))
        return claimed

    async def _let_orphan_go(self, namespace: str, name: str) -> None:
        pod = self.store.get(pods.PODS, namespace, name)
        if pod is not None and pods.controller_of(pod) is None:
            await self._unfinalize(pod)

    async def _let_go(self, uid: str) -> None:
        """Take the finalizer off every pod of a Job that has ended or is gone."""
        for pod in self.store.owned(pods.PODS, uid):
            await self._unfinalize(pod)

    async def _release_counted(self, uid: str) -> None:
        tally = self._tallies.get(uid)
        if tally is None or not tally.counted:
            return
        for pod in self.store.owned(pods.PODS, uid):
            if pod.uid in tally.counted:
                await self._unfinalize(pod)
        tally.counted.clear()

    # -- the Job ----------------------------------------------------------------------------------------------------

    async def _write_status(self, stored: Stored, status: Json) -> Stored:
        if status == stored.object["status"]:
            return stored
        return await self.server.update(
            self._jobs, *stored.key, lambda now: {**now.object, "status": status}, self.call(), "status"
        )

    async def _expire(self, stored: Stored, key: Key) -> None:
        ttl = stored.object["spec"].get("ttlSecondsAfterFinished")
        if ttl is None:
            return
        ended = next(c for c in stored.object["status"]["conditions"] if c["type"] in _TERMINAL)
        left = unix_seconds(ended["lastTransitionTime"]) + ttl - self.server.clock.now()
        if left > 0:
            self.enqueue_after(key, left)
            return
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": stored.uid}}
        await self.server.delete(self._jobs, *stored.key, options, self.call())


def _forget_indexes(sync: _Sync) -> None:
    """Drop the indexes that have ended beyond the completions, which may have been lowered since."""
    spec = sync.job["spec"]
    if spec["completionMode"] != "Indexed":
        return
    for key in ("completedIndexes", "failedIndexes"):
        if sync.status.get(key):
            known = {index for index in parse_indexes(sync.status[key]) if index < spec["completions"]}
            sync.status[key] = render_indexes(known)
            if key == "completedIndexes":
                sync.status["succeeded"] = len(known)
