"""What one process knows of one cluster, kept current by watches: the meeting point of webhook, reconciler, read API.

A cluster is an object with a name, never a module's global. Everything here is read without waiting; the one thing that
can be waited for is a ledger at least as new as a version somebody has seen.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.cluster.by_name import ByName, is_unlabelled
from webhook.cluster.lineage import Lineage
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.core.ledger.record import Changes, Ledger, Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.pods import PodRecord
from webhook.core.model.policy import Policy
from webhook.core.quota.fences import Fences
from webhook.core.reasons import neighbours
from webhook.core.reasons.reasons import Reason
from webhook.jobs.plain_pods.pod_group import PodGroupRecord
from webhook.jobs.reading.record import JobRecord

POD_GROUPS: Final = "PodGroups"
POLICY: Final = "policy"
"""Queues, cohorts, flavors, classes: whatever lacks, no gang's quota is known."""
NAMESPACE_QUEUES: Final = "ElasticQuotaTrees"
"""Which namespaces have all their jobs wait in a queue."""
CHECKS: Final = "AdmissionChecks"
NODES: Final = "Nodes"
"""Nobody waits for them: without, no gang is asked whether it fits them."""
DAEMON_SETS: Final = "DaemonSets"
"""Nor for them: what their pods will take of new nodes is not known then."""


@dataclass(slots=True)
class View:
    """One cluster as last seen. Fed by ``feeds``; read by everybody."""

    name: str = "local"
    hides_neighbours: bool = False
    """What one namespace is told names no job of another."""
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    """By uid."""
    job_names: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """(kind, namespace, name) to uid."""
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Name to labels."""
    pod_groups: dict[tuple[str, str], PodGroupRecord] = field(default_factory=dict)
    """By (namespace, name)."""
    policy: Policy = field(default_factory=Policy)
    fences: Fences = field(default_factory=Fences)
    lineage: Lineage = field(default_factory=Lineage)
    by_name: ByName = field(default_factory=ByName)
    nodes: Occupancy | None = None
    """Which pods are on which node; None in a process that does not decide."""
    ledger: Ledger = field(default_factory=Ledger)
    ledger_trusted: bool = False
    """The ledger was read and decoded; False while it is missing or corrupt."""
    leads: bool = False
    """A leader here puts every ledger that it writes in; what is read says no more than that until it ends."""
    unsynced: set[str] = field(default_factory=set)
    """Names of feeds that have not finished their first list; those that are unread for a reason are left out."""
    unread: dict[str, str] = field(default_factory=dict)
    """What the API server lets nobody read, and why: a job kind's key or ``POD_GROUPS``, though it may have been read
    before, or what never was, such as ``POLICY``. What needs it to be judged waits; everything else goes on.
    """
    outdated: dict[str, str] = field(default_factory=dict)
    """The same of what was read before and is gone by as it was then: policy and nodes, or a feed that all need."""
    moved: dict[str, JobRecord | None] | None = None
    """Uids of gangs whose job or entry is another one than when this was emptied last, each with its job as it was
    last if that has gone; None while nobody asks.
    """
    _deleted: set[str] = field(default_factory=set)
    """Jobs that were seen to be deleted and have a reservation still."""
    _left: dict[str, tuple[Mapping[str, int], Mapping[str, int]]] = field(default_factory=dict)
    """Of each job that went and has a reservation still: of how many pods that was then, and what was given back."""
    _running: set[str] = field(default_factory=set)
    """Objects of job kinds that may have pods: neither ended nor suspended nor being deleted."""
    _ledger_moved: asyncio.Event = field(default_factory=asyncio.Event)
    _followed: Ledger | None = None
    """The ledger that fences, nodes and counts agree with."""
    _held: Counter[str] = field(default_factory=Counter)
    """Queue to how many gangs it holds."""
    _holding_moved: bool = True

    @property
    def synced(self) -> bool:
        """Every cache has been filled at least once, but for those that ``unread`` tells of."""
        return not self.unsynced

    def job(self, kind: str, namespace: str, name: str) -> JobRecord | None:
        """Return the job object of that name, if it exists."""
        uid = self.job_names.get((kind, namespace, name))
        return None if uid is None else self.jobs.get(uid)

    def put_job(self, record: JobRecord) -> None:
        """Add or replace one job object."""
        before, self.jobs[record.uid] = self.jobs.get(record.uid), record
        self._note_moved((record.uid,))
        self.job_names[(record.kind, record.namespace, record.name)] = record.uid
        reservation = self.fences.reservation(record.namespace, record.uid)
        if reservation is not None:
            self.fences.give_back(record.namespace, record.uid, record.given_back(reservation))
            if self.nodes is not None and (before is None or self._placed_by(before) != self._placed_by(record)):
                self.nodes.touch(record.uid)

    def _placed_by(self, job: JobRecord) -> tuple[object, ...]:
        """Return all of a job that its pods' places follow from."""
        spared = None if job.admission is None else job.admission.spared
        return job.gang, job.ended, job.spared, spared, job.finished, job.deleting

    def drop_job(self, record: JobRecord) -> None:
        """Forget one job object; a successor of the same name is left alone."""
        entry = self.ledger.entries.get(record.uid)
        if entry is not None and record.uid in self.jobs and not is_unlabelled(entry):
            # Pods without a label are told by their job alone: once it is gone, who knows how many there are?
            self._left[record.uid] = entry.counts, self.given_back(entry)
        self.jobs.pop(record.uid, None)
        if self.moved is not None:
            self.moved[record.uid] = record
        key = (record.kind, record.namespace, record.name)
        if self.job_names.get(key) == record.uid:
            del self.job_names[key]

    def put_controller(self, uid: str, namespace: str, owner: str, *, alone: bool = False, made_for: str = "") -> None:
        """Take in an object of a job kind, gated or not, and the owner to whose gang it belongs, empty for none.

        ``alone``: its pods are charged to itself from now on, should it have been orphaned. ``made_for``: what its
        labels say of an owner that it has not.
        """
        self._deleted.discard(uid)
        made_for = made_for if self._is_unseen(made_for) else ""
        if not self.lineage.put(uid, namespace, owner, alone=alone, made_for=made_for):
            # Whose its pods are has not changed: there may be thousands, and anybody may change their job all the time.
            return
        below = [self.fences.pod(namespace, each) for each in self.lineage.pods_below(uid, namespace)]
        for pod in [*below, *self.fences.pods_of(namespace, uid)]:
            if pod is not None and pod.gang is not None:
                self.put_pod(pod)

    def note_made(self, uid: str, names: tuple[str, ...], *, running: bool) -> None:
        """Take note of names of what an object of a job kind may have been made for, and whether it may have pods."""
        self.by_name.put(uid, names)
        (self._running.add if running else self._running.discard)(uid)

    def drop_controller(self, uid: str) -> None:
        """Take note that an object of a job kind was deleted."""
        self._running.discard(uid)
        if uid in self.ledger.entries:
            self._deleted.add(uid)
        try:
            self.by_name.drop(uid)
        finally:
            self.lineage.drop(uid)

    def is_deleted(self, uid: str) -> bool:
        """Return whether a gang's job is gone or on its way, though its reservation is held until its pods are too."""
        job = self.jobs.get(uid)
        return uid in self._deleted or (job is not None and job.deleting)

    def put_pod(self, pod: PodRecord) -> None:
        """Add or replace one pod. One whose controller is known to belong elsewhere is no part of the gang that its
        label names: it is loose.
        """
        self.by_name.put(pod.uid, pod.named)
        made_for = pod.made_for if self._is_unseen(pod.made_for) else ""
        controller = self.lineage.put_pod(pod.uid, pod.owner_uid, made_for)
        if pod.gang is not None and not pod.group and self.is_foreign(controller, pod.gang):
            pod = replace(pod, gang=None)
        self.fences.put_pod(pod)
        if self.nodes is not None:
            self.nodes.put_pod(pod)

    def is_foreign(self, controller: str, gang: str) -> bool:
        """Return whether what ``controller`` controls is known to be no part of ``gang``.

        What has no owner may be an orphan of one that was deleted while this process did not run.
        """
        return self.lineage.belongs(controller, gang) is False and not self._is_unseen(gang)

    def _is_unseen(self, uid: str) -> bool:
        return not self.lineage.knows(uid) and uid not in self._deleted

    def drop_pod(self, namespace: str, uid: str) -> None:
        """Forget one pod. Each part does, should another fail: nobody says again that it is gone."""
        with ExitStack() as parts:
            parts.callback(self.by_name.drop, uid)
            parts.callback(self.lineage.drop_pod, uid)
            parts.callback(self.fences.drop_pod, namespace, uid)
            if self.nodes is not None:
                parts.callback(self.nodes.drop_pod, uid)

    def present(self, namespace: str, uid: str) -> int:
        """Return how many pods of a gang were let go and have not ended, as ``Fences.present`` says.

        Those of some gangs bear no label: what made them tells. What such a gang made and left when it was deleted
        counts as one too, while it may have pods: nobody would keep it from having others.
        """
        entry, job = self.ledger.entries.get(uid), self.jobs.get(uid)
        found = self.fences.present(namespace, uid)
        if is_unlabelled(entry) if entry is not None else job is not None and not job.marked:
            found += len(self.unlabelled_pods(namespace, uid))
            if job is None:
                made = (each for each in self._made_by(namespace, uid) if each in self._running)
                found += sum(self._reserved_above(namespace, each) in ("", uid) for each in made)
        return found

    def unlabelled_pods(self, namespace: str, uid: str) -> list[PodRecord]:
        """Return the pods that were made for a job without our label on them, and that have not ended."""
        below = {pod: None for each in self._made_by(namespace, uid) for pod in self.lineage.pods_of(each)}
        gang = self.ledger.entries.get(uid) or self.jobs.get(uid)
        if gang is not None:
            below |= {each: None for each in self.by_name.of(gang) if self._is_astray(namespace, each)}
        pods = (self.fences.pod(namespace, each) for each in below)
        return [pod for pod in pods if pod is not None and pod.gang is None and not pod.terminal]

    def _made_by(self, namespace: str, uid: str) -> Iterable[str]:
        """Return a job and the objects that were made for it, or for these."""
        gang = self.ledger.entries.get(uid) or self.jobs.get(uid)
        named = () if gang is None else (each for each in self.by_name.of(gang) if self.lineage.knows(each))
        return {each: None for top in (uid, *named) for each in self.lineage.below(top, namespace)}

    def _is_astray(self, namespace: str, pod: str) -> bool:
        """Return whether nobody knows what controls a pod."""
        found = self.fences.pod(namespace, pod)
        line = () if found is None else tuple(self.lineage.line(self.lineage.controller_of(pod), namespace))
        known = bool(line) and (self.lineage.knows(line[-1]) or any(self._holds(namespace, each) for each in line))
        return found is not None and not known

    def holder(self, namespace: str, controller: str) -> str:
        """Return the gang with a reservation of which something is part, by what controls it; empty where none is."""
        for uid in self.lineage.line(controller, namespace):
            if self._holds(namespace, uid):
                return uid
            if found := self.by_name.gang_of(uid):
                return found
        return ""

    def _reserved_above(self, namespace: str, uid: str) -> str:
        """Return which of an object and its owners has a reservation. Names do not tell: two gangs may share one."""
        return next((each for each in self.lineage.line(uid, namespace) if self._holds(namespace, each)), "")

    def _holds(self, namespace: str, uid: str) -> bool:
        """Return whether a gang of a namespace has a reservation. Of one that is gone only that tells where it was."""
        entry = self.ledger.entries.get(uid)
        return entry is not None and entry.namespace == namespace

    def awaiting(self, namespace: str, controller: str) -> list[str]:
        """Return the suspended jobs of which a pod without a label is part, by what controls it: as ``present`` counts
        it, none of them may start while it runs.
        """
        jobs = (self.jobs.get(uid) for uid in self.lineage.line(controller, namespace))
        return [job.uid for job in jobs if job is not None and job.suspended and not job.marked]

    def left_by(self, job: JobRecord) -> str:
        """Return the gang to which what a job runs is charged though it is no part of it any more; empty for none.

        What asks for a queue itself is charged there, unless its pods bear the label of that gang, or it was there
        when that gang was adopted: it was charged to that one then.
        """
        if job.owner is not None or (job.marked and not job.left_over):
            return ""
        found = self.holder(job.namespace, job.uid)
        if not job.asks_itself or found == job.uid:
            return "" if found == job.uid else found
        if job.marked:
            return found if found == job.made_for else ""
        entry = self.ledger.entries.get(found)
        return found if entry is not None and entry.adopted and job.created_seconds <= entry.since_seconds else ""

    def set_ledger(self, ledger: Ledger | None, changes: Changes | None = None) -> None:
        """Take a newer ledger, or None when it is missing or corrupt: then what was known stands, untrusted.

        Where its ``changes`` are known since the one before, nothing else is looked at.
        """
        if ledger is None:
            self.ledger_trusted = False
            return
        before, self.ledger, self.ledger_trusted = self.ledger, ledger, True
        self._left = {uid: left for uid, left in self._left.items() if uid in ledger.entries}
        if changes is not None and changes.since is self._followed:
            uids: Collection[str] | None = changes.uids
            self._deleted.difference_update([uid for uid in changes.uids if uid not in ledger.entries])
            new = self.fences.change_reservations(changes.since.entries, ledger.entries, changes.uids)
            self._note_moved(changes.uids)
            self._count_held(changes.since, changes.uids, -1)
            self._count_held(ledger, changes.uids, 1)
        else:
            uids = None
            self._deleted &= ledger.entries.keys()
            self._note_moved(before.entries.keys() | ledger.entries.keys())
            new = self.fences.set_reservations(ledger.entries.values())
            self.by_name.forget_gangs()
            self._held.clear()
            self._holding_moved = True
            self._count_held(ledger, ledger.entries, 1)
        self._followed = ledger
        for reservation in new:
            self.fences.give_back(reservation.namespace, reservation.uid, self._ended_of(reservation))
        if self.nodes is not None:
            self.nodes.set_reservations(ledger.entries, uids)
        moved, self._ledger_moved = self._ledger_moved, asyncio.Event()
        moved.set()

    def doubt(self) -> None:
        """Compare everything at the next ledger: what follows from this one may be half done."""
        self._followed = None

    def take_holding_moved(self) -> bool:
        """Return whether any queue came to hold gangs, or holds none any more, since this was asked last."""
        moved, self._holding_moved = self._holding_moved, False
        return moved

    @property
    def holding(self) -> Set[str]:
        """Queues that hold gangs."""
        return self._held.keys()

    def _note_moved(self, uids: Iterable[str]) -> None:
        if self.moved is not None:
            for uid in uids:
                self.moved.setdefault(uid)

    def _count_held(self, ledger: Ledger, uids: Iterable[str], sign: int) -> None:
        for uid in uids:
            entry = ledger.entries.get(uid)
            if entry is not None:
                (self.by_name.put_gang if sign > 0 else self.by_name.drop_gang)(entry)
            if entry is not None and entry.queue is not None:
                self._holding_moved |= sign > 0 and entry.queue not in self._held
                self._held[entry.queue] += sign
                if not self._held[entry.queue]:
                    self._holding_moved = True
                    del self._held[entry.queue]

    def ledger_lags(self, version: tuple[int, int], gang: str = "") -> bool:
        """Return whether the ledger is not read as far as ``version``, or as far as the entry of ``gang``.

        What one commit writes on several pages is read one after another, and any of it bears the same version.
        """
        return self.ledger.version < version or (bool(self.ledger.pages and gang) and gang not in self.ledger.entries)

    async def wait_for_ledger(self, version: tuple[int, int], timeout_seconds: float, gang: str = "") -> bool:
        """Return whether the ledger reached ``version``, and the entry of ``gang``, within the time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.ledger_lags(version, gang):
                    await self._ledger_moved.wait()
        except TimeoutError:
            return False
        return True

    def told(self, text: str, namespace: str) -> str:
        """Return ``text`` as it may be told in ``namespace``."""
        return neighbours.text_for(text, namespace, self.namespaces) if self.hides_neighbours else text

    def told_reason(self, reason: Reason, namespace: str) -> Reason:
        """Return a reason as it may be told in ``namespace``."""
        return neighbours.reason_for(reason, namespace, self.namespaces) if self.hides_neighbours else reason

    def pod_group_of(self, gang: Gang) -> PodGroupRecord | None:
        """Return the PodGroup that a gang names, if it exists."""
        return None if gang.pod_group is None else self.pod_groups.get((gang.namespace, gang.pod_group))

    def quorum_of(self, gang: Gang) -> int | None:
        """Return how many pods must run together by the gang's own word or its PodGroup's; None when neither says."""
        pod_group = None if gang.quorum is not None else self.pod_group_of(gang)
        return gang.quorum if pod_group is None else pod_group.min_member

    def with_quorum(self, gang: Gang) -> Gang:
        """Return ``gang`` with the quorum that its PodGroup gives it, where its own object gives none."""
        pod_group = None if gang.quorum is not None else self.pod_group_of(gang)
        return gang if pod_group is None else replace(gang, quorum=min(pod_group.min_member, gang.pods))

    def gang_of(self, job: JobRecord | None) -> Gang | None:
        """Return what a job asks, with its quorum; None when there is no job or it cannot be read as a gang.

        One that has ended or is being deleted makes no quorum with others any more.
        """
        asked = None if job is None else job.asks
        if job is None or asked is None:
            return None
        gang = self.with_quorum(asked)
        return replace(gang, ensemble="") if gang.ensemble and (job.finished or job.deleting) else gang

    def given_back(self, reservation: Reservation) -> Mapping[str, int]:
        """Return of how many pods of each set of a reservation others may have the room: they will not run again, and
        no pod is there in their place.

        A job counts as ended also pods that are being deleted, and others that are not of its gang, as it adopts them.
        Its status may be read before its pods are, and tells itself of those that are there.
        """
        ended, job = self._ended_of(reservation), self.jobs.get(reservation.uid)
        if not ended:
            return ended
        there = max(self.present(reservation.namespace, reservation.uid), 0 if job is None else job.present)
        free = sum(reservation.counts.values()) - there
        given = {}
        for name, number in ended.items():
            given[name] = min(number, max(0, free))
            free -= given[name]
        return {name: number for name, number in given.items() if number}

    def _ended_of(self, reservation: Reservation) -> Mapping[str, int]:
        """Return how many pods of each set of a reservation will not run again, as its job says, or said last."""
        job = self.jobs.get(reservation.uid)
        if job is not None:
            return job.given_back(reservation)
        counts, given = self._left.get(reservation.uid, ({}, {}))
        return given if counts == reservation.counts else {}

    def gangs_in(self, namespace: str) -> Iterable[JobRecord]:
        """Return the job objects of ``namespace`` that are gangs."""
        return [record for record in self.jobs.values() if record.namespace == namespace and record.gang is not None]


def unsynced(view: View) -> list[str]:
    """Return what a process has to read before it is well."""
    return [f"{name} has not been read yet" for name in sorted(view.unsynced)]
