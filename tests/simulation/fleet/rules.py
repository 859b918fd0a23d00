"""What must hold of a fleet after each write that is stored in any of its clusters."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from tests.unit.fleet.clusters import NAMESPACE, Side
from webhook.core.fleet.dispatch import NOWHERE, Dispatch, DispatchPhase
from webhook.core.fleet.sight import Copy
from webhook.core.fleet.text import decode
from webhook.core.notation import names
from webhook.fleet.members.copies import copy_read
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.reading import status
from webhook.laboratory.simulated.objects.store import Stored

STORAGES = {
    "Job.batch": ("batch", "jobs"),
    "PyTorchJob.kubeflow.org": ("kubeflow.org", "pytorchjobs"),
    "SparkApplication.sparkoperator.k8s.io": ("sparkoperator.k8s.io", "sparkapplications"),
}
_PODS, _CONFIG_MAPS, _NAMESPACES = ("", "pods"), ("", "configmaps"), ("", "namespaces")
_BY_THE_SERVER = ("resourceVersion", "generation", "managedFields")

Json = Mapping[str, Any]


class Rules:
    """Looks at all clusters after every stored write; ``broken`` keeps what it saw, for the end of the story.

    What is raised inside a write would reach whoever wrote, not the test.
    """

    def __init__(self, hub: Side, members: Mapping[str, Side]) -> None:
        self._hub = hub
        self._members = members
        self.foreign: dict[tuple[str, str, str], Stored] = {}
        """(member, kind, name) of jobs that are not the hub's, as they were created."""
        self.hub_queues = False
        """The hub has queues of its own."""
        self.bare: tuple[str, ...] = ()
        """Members without a Tutti, which get nothing."""
        self.clusters = {name: _uid(side) for name, side in members.items()}
        """The uid of each member, which is what a record says, whatever name leads there."""
        self.forgiven: set[str] = set()
        """Members that were declared lost, or whose past has come back, a moment ago: what runs there may run twice."""
        self.records_lost = False
        """The hub's cluster was set back a moment ago: what runs need not stand in a record yet."""
        self.writes = 0
        self._records: dict[str, Dispatch] | None = None
        """As of the last write; None until somebody asks."""
        self.broken: list[str] = []
        self.started: dict[str, set[str]] = {}
        """Copies that were ever un-suspended, by the uid of the hub's job."""
        self.ended: dict[str, Json] = {}
        """The status with which a copy ended, by the uid of the hub's job."""
        self.failed_in: dict[str, list[str]] = {}
        """In which members copies failed, one after another, by the uid of the hub's job."""
        self._failed: set[str] = set()
        self._jobs_of_copies: dict[str, str] = {}
        for side in (hub, *members.values()):
            for storage in (_PODS, *STORAGES.values()):
                side.cluster.server.store.subscribe(lambda event: self._after_write(), storage)
        # What the hub's queues hold stands in its ledger.
        hub.cluster.server.store.subscribe(lambda event: self._after_ledger_write(), _CONFIG_MAPS)

    def _after_write(self) -> None:
        self._records = None
        self.look()

    def _after_ledger_write(self) -> None:
        if self.hub_queues:
            self.look()

    def look(self) -> None:
        self.writes += 1
        records = self.records()
        places: dict[str, set[str]] = {}
        for name, side in self._members.items():
            for gang, copy in self._running(side):
                if name in self.forgiven:
                    continue
                places.setdefault(gang, set()).add(name)
                if not self.records_lost:
                    self._check_leave(gang, copy, side, records.get(gang, NOWHERE))
        for gang, found in places.items():
            if len(found) > 1:
                self.say(f"{gang} in {sorted(found)} at once")
        if self.hub_queues:
            self._check_quota({gang: f"runs in {sorted(found)}" for gang, found in places.items()}, records)
        self._check_foreign()

    def _check_quota(self, running: Mapping[str, str], records: Mapping[str, Dispatch]) -> None:
        """See that what runs in a member, or may, holds its quota in the hub."""
        may_run = {gang: f"is {record.phase} in {record.member}" for gang, record in records.items() if record.holds}
        held = reserved(self._hub)
        for gang, how in {**may_run, **running}.items():
            if gang not in held:
                self.say(f"{gang} {how} and holds nothing in the hub")

    def records(self) -> dict[str, Dispatch]:
        """Return the record of each of the hub's jobs, by its uid."""
        if self._records is None:
            self._records = {stored.uid: record_of(stored) for _, stored in stored_jobs(self._hub)}
        return self._records

    def gang(self, kind: str, name: str) -> tuple[str, Dispatch] | None:
        """Return uid and record of one of the hub's jobs; None where there is none of that name, or it is all over."""
        stored = self._hub.cluster.server.store.get(STORAGES[kind], NAMESPACE, name)
        if stored is None:
            return None
        record = record_of(stored)
        over = record.phase is DispatchPhase.NOWHERE and ended(stored.object, kind)
        return None if over else (stored.uid, record)

    def _running(self, side: Side) -> Iterator[tuple[str, str]]:
        """Yield (uid of the hub's job, uid of the copy) of what has pods or may get some in a member."""
        for kind, stored in stored_jobs(side):
            copy, permitted = copy_of(kind, stored)
            if not copy.job:
                continue
            self._jobs_of_copies[copy.uid] = copy.job
            if side.name in self.bare:
                self.say(f"{copy.job} was offered to {side.name}, which knows no permits")
            if copy.finished:
                self.ended[copy.job] = stored.object["status"]
            if copy.failed and copy.uid not in self._failed:
                self._failed.add(copy.uid)
                self.failed_in.setdefault(copy.job, []).append(side.name)
            if not copy.suspended:
                if not permitted:
                    self.say(f"copy {copy.uid} of {copy.job} runs without a permit in {side.name}")
                self.started.setdefault(copy.job, set()).add(copy.uid)
                if not copy.finished:
                    yield copy.job, copy.uid
        for pod in side.cluster.server.store.unordered(_PODS, NAMESPACE):
            copy_uid = pod.labels.get(names.GANG_LABEL, "")
            live = pod.object["status"].get("phase") not in ("Succeeded", "Failed")
            if live and copy_uid in self._jobs_of_copies:
                yield self._jobs_of_copies[copy_uid], copy_uid

    def _check_leave(self, gang: str, copy: str, side: Side, record: Dispatch) -> None:
        if not record.holds or record.copy_uid != copy or record.cluster != self.clusters[side.name]:
            self.say(f"copy {copy} of {gang} runs in {side.name} while its record says {record}")

    def _check_foreign(self) -> None:
        for (member, kind, name), created in self.foreign.items():
            storage = self._members[member].cluster.server.store.get(STORAGES[kind], NAMESPACE, name)
            if storage is None or _theirs(storage) != _theirs(created):
                self.say(f"{name} of somebody else in {member} was touched")

    def say(self, words: str) -> None:
        """Keep what did not hold."""
        if words not in self.broken:
            self.broken.append(words)


def jobs(side: Side) -> Iterator[tuple[str, Json]]:
    """Yield (key of the kind, object) of all jobs of a cluster."""
    return ((kind, stored.object) for kind, stored in stored_jobs(side))


def stored_jobs(side: Side) -> Iterator[tuple[str, Stored]]:
    """Yield (key of the kind, what is stored) of all jobs of a cluster."""
    for kind, storage in STORAGES.items():
        for stored in side.cluster.server.store.items(storage, NAMESPACE):
            yield kind, stored


@lru_cache(4096)
def record_of(job: Stored) -> Dispatch:
    """Return the record of one of the hub's jobs."""
    written = (job.object["metadata"].get("annotations") or {}).get(names.DISPATCH)
    return NOWHERE if written is None else decode(written)


@lru_cache(4096)
def copy_of(kind: str, job: Stored) -> tuple[Copy, bool]:
    """Return what a job of a member says it is, and whether it bears a permit for itself: that in our own words."""
    notes = job.object["metadata"].get("annotations") or {}
    return copy_read(KINDS[kind], job.object), notes.get(names.PERMIT) == f"{notes.get(names.OFFER)} {job.uid}"


@lru_cache(4096)
def _theirs(job: Stored) -> tuple[str, str]:
    """Return all of a job that a hub, or a Tutti that takes it for a copy, could touch."""
    told = {key: value for key, value in job.object["metadata"].items() if key not in _BY_THE_SERVER}
    return repr(sorted(told.items())), repr(job.object["spec"])


def reserved(side: Side) -> set[str]:
    """Return the uids of the jobs that hold something in the ledger of a cluster."""
    maps = side.cluster.server.store.items(("", "configmaps"), names.SYSTEM_NAMESPACE)
    ledgers = [each.object for each in maps if each.object["metadata"]["name"].startswith(names.LEDGER_NAME)]
    return {uid for ledger in ledgers for uid in ledger.get("data") or {}}


def ended(job: Json, kind: str) -> bool:
    """Return whether a job shows that it is over."""
    return status.finished(KINDS[kind], job) is not None


def _name(job: Json) -> str:
    return str(job["metadata"]["name"])


def _uid(side: Side) -> str:
    found = side.cluster.server.store.get(_NAMESPACES, "", "kube-system")
    assert found is not None
    return found.uid
