"""Writes what users see in policy objects: how many gangs wait and run in each queue, and what they use.

Only the leader writes. A change shows at once; after that an object is written at most once in the configured time,
and only when something in it changed. A write that fails is made again with what is true then: nothing depends on it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import orjson
import structlog

from webhook.cluster.queue_counts import Counts, QueueCounts
from webhook.cluster.view import View
from webhook.controllers.reporting.status_documents import (
    Status,
    cluster_queue_status,
    elastic_quota_tree_status,
    local_queue_status,
    pod_group_status,
)
from webhook.core.model.pods import PodRecord
from webhook.core.notation.moments import time_text
from webhook.dialects import elastic_quota_tree
from webhook.dialects.kueue import objects as kueue
from webhook.errors import ApiError
from webhook.jobs.plain_pods.pod_group import PodGroupRecord
from webhook.jobs.reading.record import JobRecord
from webhook.kube.api import MERGE_PATCH, METADATA, Api
from webhook.wire.watch import version_number

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 0.5
"""Least time between two looks at the counts."""
IDLE_SECONDS: Final = 2.0
"""They are looked at so often even if nothing said that they changed: time brings ends of pods and of stops."""
IN_FLIGHT_MAX: Final = 4
OUR_GENERATIONS: Final = ("scheduling.sigs.k8s.io", "scheduling.x-k8s.io")
"""PodGroups whose status says how many pods run. Volcano and the native scheduler keep that of their own."""
OUR_KINDS: Final = ("ClusterQueue", "LocalQueue", elastic_quota_tree.KIND)

Object = Mapping[str, Any]


@dataclass(slots=True)
class _Written:
    """One object's status as last known to be stored."""

    status: Status
    at: float = float("-inf")
    """Loop time of our last write."""
    basis: object = None
    """What the stored status follows from: while that is the same there is nothing to do."""
    version: int = 0
    """The newest version of the object that is known to say so."""


class _Wanted(NamedTuple):
    """One object whose status is ours to write."""

    plural: str
    obj: Object
    basis: object
    make: Callable[[], Status]


@dataclass(slots=True)
class StatusWriter:
    """Keeps the status of policy objects and PodGroups of one cluster."""

    api: Api
    view: View
    queue_counts: QueueCounts
    leading: Callable[[], bool]
    policy_objects: Callable[[], Iterable[Object]]
    pod_group_object: Callable[[PodGroupRecord], Object | None]
    now: Callable[[], float]
    interval_seconds: float
    with_kueue: bool = True
    """False where Kueue itself serves the cluster and writes the status of its objects."""
    _touched: asyncio.Event = field(default_factory=asyncio.Event)
    _written: dict[str, _Written] = field(default_factory=dict)
    """By uid."""

    def touch(self) -> None:
        """Look soon: something changed."""
        self._touched.set()

    async def run(self) -> None:
        """Write until cancelled, while leading."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                async with asyncio.timeout(IDLE_SECONDS - LOOK_SECONDS):
                    await self._touched.wait()
            except TimeoutError:
                pass
            self._touched.clear()
            if self.leading():
                try:
                    await self.write_due()
                except Exception:
                    # Of numbers for people nothing depends on; the process that decides must not end over them.
                    log.exception("status.failed")
            else:
                # What is stored is another leader's by now: compared again when this one leads again.
                self._written.clear()

    async def write_due(self) -> None:
        """Write every status that changed and was not written lately."""
        now, counts = asyncio.get_running_loop().time(), self.queue_counts.take(LOOK_SECONDS)
        slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        present: set[str] = set()
        due = []
        for wanted in self._wanted(counts):
            uid = wanted.obj["metadata"]["uid"]
            present.add(uid)
            written = self._written.setdefault(uid, _Written(wanted.obj.get("status") or {}))
            if written.basis == wanted.basis:
                continue
            self._take_stored(wanted, written)
            status = wanted.make()
            if _says(written.status, status):
                written.basis = wanted.basis
            elif now - written.at >= self.interval_seconds:
                due.append(self._write(slots, wanted, self._timed(wanted.obj, status, written.status), written))
            else:
                self._touched.set()
        for uid in self._written.keys() - present:
            del self._written[uid]
        await asyncio.gather(*due)

    async def _write(self, slots: asyncio.Semaphore, wanted: _Wanted, status: Status, written: _Written) -> None:
        async with slots:
            if not self.leading():
                return
            written.at = asyncio.get_running_loop().time()
            path, body = _status_path(wanted.obj, wanted.plural), orjson.dumps({"status": status})
            try:
                answer = await self.api.request("PATCH", path, body=body, content_type=MERGE_PATCH, accept=METADATA)
            except ApiError as error:
                log.info("status.not_written", path=path, error=str(error))
                return
            written.status, written.basis = status, wanted.basis
            written.version = _version_of(orjson.loads(answer))

    def _take_stored(self, wanted: _Wanted, written: _Written) -> None:
        """Believe what is stored where it is newer than what we wrote: a leader that died may have written after us."""
        version = _version_of(wanted.obj)
        if wanted.plural != "podgroups" and version > written.version:
            written.status, written.version = wanted.obj.get("status") or {}, version

    def _timed(self, obj: Object, status: Status, before: Status) -> Status:
        """Return the status with the times of its conditions: kept where they say the same as before."""
        if "conditions" not in status:
            return status
        kept = {condition.get("type"): condition for condition in before.get("conditions") or ()}
        stamp = time_text(int(self.now()))
        timed = []
        for condition in status["conditions"]:
            known = kept.get(condition["type"], {})
            same = known.get("status") == condition["status"]
            since = known.get("lastTransitionTime", stamp) if same else stamp
            generation = obj["metadata"].get("generation", 0)
            timed.append({**condition, "lastTransitionTime": since, "observedGeneration": generation})
        return {**status, "conditions": timed}

    # -- what each object should say ---------------------------------------------------------------------------------

    def _wanted(self, counts: Counts) -> Iterator[_Wanted]:
        for obj in self.policy_objects():
            # An object of the policy ConfigMap is not stored by itself.
            if obj["kind"] in OUR_KINDS and obj.get("metadata", {}).get("uid"):
                wanted = self._wanted_of(obj, counts)
                if wanted is not None:
                    yield wanted
        members = self._members()
        for key, record in self.view.pod_groups.items():
            if record.generation not in OUR_GENERATIONS:
                continue
            stored = self.pod_group_object(record)
            if stored is not None:
                yield self._pod_group(stored, record, members.get(key, ()))

    def _wanted_of(self, obj: Object, counts: Counts) -> _Wanted | None:
        policy, metadata = self.view.policy, obj["metadata"]
        # Not the object: it would be kept until its status is written again.
        stored = metadata.get("resourceVersion")
        group, _, version = str(obj["apiVersion"]).partition("/")
        match group, obj["kind"]:
            case (kueue.GROUP, "ClusterQueue") if self.with_kueue:
                queue, tally = policy.queues.get(metadata["name"]), counts.queues.get(metadata["name"])
                if queue is not None and tally is not None and queue.dialect == kueue.DIALECT:
                    make = partial(cluster_queue_status, queue, tally)
                    return _Wanted("clusterqueues", obj, (queue, tally, stored), make)
            case (kueue.GROUP, "LocalQueue") if self.with_kueue:
                key = (metadata["namespace"], metadata["name"])
                local, tally = policy.local_queues.get(key), counts.local_queues.get(key)
                if local is not None and tally is not None:
                    queue = policy.queues.get(local.queue)
                    make = partial(local_queue_status, local, queue, tally, version)
                    return _Wanted("localqueues", obj, (local, queue, tally, version, stored), make)
            case (elastic_quota_tree.GROUP, elastic_quota_tree.KIND):
                if metadata["namespace"] == elastic_quota_tree.NAMESPACE:
                    make = partial(self._elastic_quota_tree, counts)
                    return _Wanted("elasticquotatrees", obj, (policy, counts.queues, counts.inherited, stored), make)
        return None

    def _elastic_quota_tree(self, counts: Counts) -> Status:
        tree, namespaces = self.queue_counts.tree(self.view.policy), dict[str, list[str]]()
        root = tree.find(elastic_quota_tree.ROOT)
        if root is None:
            return {}
        for namespace, name in self.view.policy.namespace_queues.items():
            namespaces.setdefault(name, []).append(namespace)
        return {"root": elastic_quota_tree_status(root, namespaces, counts)}

    def _members(self) -> dict[tuple[str, str], list[JobRecord]]:
        """Return the gangs of every PodGroup."""
        members: dict[tuple[str, str], list[JobRecord]] = {}
        for job in self.view.jobs.values() if self.view.pod_groups else ():
            if job.gang is not None and job.gang.pod_group is not None:
                members.setdefault((job.namespace, job.gang.pod_group), []).append(job)
        return members

    def _pod_group(self, stored: Object, record: PodGroupRecord, members: Iterable[JobRecord]) -> _Wanted:
        pods: list[PodRecord] = []
        started = False
        for job in members:
            pods.extend(self.view.fences.pods_of(record.namespace, job.uid))
            started = started or job.uid in self.view.ledger.entries
        make = partial(pod_group_status, pods, record.min_member, started=started)
        # Without the object: another controller that counts these pods too may write it, and must not be answered.
        return _Wanted("podgroups", stored, (record.min_member, pods, started), make)


def _version_of(obj: Object) -> int:
    return version_number(obj["metadata"].get("resourceVersion", ""))


def _status_path(obj: Object, plural: str) -> str:
    metadata = obj["metadata"]
    space = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
    return f"/apis/{obj['apiVersion']}{space}/{plural}/{metadata['name']}/status"


def _says(stored: Status, wanted: Status) -> bool:
    """Return whether ``stored`` says all that ``wanted`` does; times and other writers' fields do not matter."""
    for name, value in wanted.items():
        found = stored.get(name)
        if name == "conditions":
            by_type = {condition.get("type"): condition for condition in found or ()}
            if not all(_says(by_type.get(condition["type"], {}), condition) for condition in value):
                return False
        elif found != value:
            return False
    return True
