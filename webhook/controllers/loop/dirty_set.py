"""What changed since the last cycle: the feeds' listener marks it and decides nothing."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Set
from itertools import accumulate, islice, takewhile
from typing import Final

from webhook.cluster.listener import Listener
from webhook.cluster.view import View
from webhook.controllers.gangs.late_pods import LatePods
from webhook.core.ledger.record import Changes
from webhook.core.model.pods import PodRecord
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.jobs.reading.record import JobRecord

TAKEN_MAX: Final = 400
"""Pod sets of the gangs looked at in a row, some 20 ms: a new leader looks at all there are, and must renew its lease
meanwhile. A gang may have hundreds, each of which costs as much as another's whole gang.
"""


class DirtySet(Listener):
    """Gangs to look at, and whether the policy is new. When a gang loses a pod, or its job ends, is noted at once."""

    def __init__(self, view: View, engine: EnsembleEngine, on_ledger: Callable[[Changes | None], None]) -> None:
        """``on_ledger`` is told that the ledger was read."""
        self._view = view
        self._engine = engine
        self._on_ledger = on_ledger
        self._late_pods: LatePods | None = None
        self.wake = asyncio.Event()
        """Something changed."""
        self.gangs: set[str] = set()
        """Uids."""
        self.lagging: set[str] = set()
        """Gangs to look at again soon: their pods are not read yet, or there is no room in the ledger to adopt them."""
        self.quiet: dict[str, None] = {}
        """Running gangs for which a follower saw that nothing is to be done, in that order."""
        self.ended: dict[str, None] = {}
        """The same for those that hold nothing and do not wait, most of which have ended."""
        self.more = False
        """What was taken last is not all that there was."""
        self._last = ""
        """The last gang taken, while there are more."""
        self.policy = True
        self.ledger_doubted = False
        """What was read of the ledger cannot be as this leader wrote it."""
        self.pages_gone: set[str] = set()
        """Pages of the ledger that were deleted, by whoever it was."""
        self.pages_read: dict[str, int] = {}
        """Pages that were written while this process leads, by whoever it was, and their newest version."""

    def add(self, *uids: str) -> None:
        """Mark gangs."""
        if uids:
            self.gangs.update(uids)
            self.wake.set()

    def add_lagging(self) -> None:
        """Mark what was to be looked at again soon, which is no reason to hurry."""
        self.gangs |= self.lagging
        self.lagging.clear()

    def can_wait(self, uid: str, *, runs: bool) -> None:
        """Take note that nothing is to be done about a gang."""
        (self.quiet if runs else self.ended)[uid] = None

    def urgent(self, uids: Set[str]) -> Set[str]:
        """Return those of which that is not known."""
        return uids - self.quiet.keys() - self.ended.keys()

    def add_quiet(self) -> None:
        """Mark some of what can wait: first what runs, since it may have run for too long."""
        self.add(*islice(self.quiet or self.ended, TAKEN_MAX))

    def begin_term(self, late_pods: LatePods) -> None:
        """Mark all there is, with nothing known of it; ``late_pods`` is told what it is to note at once."""
        self._late_pods = late_pods
        self.lagging.clear()
        self.quiet.clear()
        self.ended.clear()
        self.pages_read.clear()
        self.gangs.update(self._view.jobs)
        self.policy = True
        self.wake.set()

    @property
    def rounds(self) -> int:
        """How often to take until all that is marked now was taken, and what that marks in turn."""
        return 4 * sum(map(self._pod_sets, self.gangs)) // TAKEN_MAX + 4

    def take(self) -> list[str]:
        """Return gangs to look at now, in order; where there are many, the others are left for next time.

        Then it goes on from where it was left, so that those who change all the time keep nobody from their turn.
        """
        if not self.gangs:
            self.more, self._last = False, ""
            return []
        dirty = sorted(self.gangs)
        first = bisect_right(dirty, self._last)
        dirty = dirty[first:] + dirty[:first]
        pod_sets = accumulate(map(self._pod_sets, dirty))
        number = max(1, sum(1 for _ in takewhile(lambda so_far: so_far <= TAKEN_MAX, pod_sets)))
        taken, self.gangs = dirty[:number], set(dirty[number:])
        for uid in taken:
            self.quiet.pop(uid, None)
            self.ended.pop(uid, None)
        self.more, self._last = bool(self.gangs), ""
        if self.more:
            self._last = taken[-1]
            self.wake.set()
        return taken

    def job_changed(self, old: JobRecord | None, new: JobRecord | None) -> None:
        """Mark a job."""
        changed = new or old
        assert changed is not None
        self.add(changed.uid)
        if self._late_pods is not None:
            self._late_pods.note_job(changed.uid)

    def pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Mark the gang of a pod, and its namespace when room may have come free."""
        if old is not None and old.live and self._late_pods is not None:
            self._late_pods.note_loss(old, new)
        for pod in (old, new):
            if pod is None:
                continue
            if pod.gang is not None:
                self.add(pod.gang)
            else:
                # It may be of a gang whose pods bear no label, or whose reservation was released before it was read
                # that this pod had gone.
                made_by = pod.owner_uid or pod.made_for
                holder = self._view.holder(pod.namespace, made_by)
                self.add(*self._view.by_name.gangs(pod.named), *((holder,) if holder else ()))
                self.add(*self._view.awaiting(pod.namespace, made_by))
        if old is not None and (new is None or new.terminal or new.gang != old.gang):
            self._engine.wake_namespace(old.namespace)
            self.wake.set()

    def fences_changed(self, namespace: str) -> None:
        """A ResourceQuota changed: gangs that wait for it are looked at again."""
        self._engine.wake_namespace(namespace)
        self._add_namespace(namespace)

    def nodes_changed(self) -> None:
        """There may be more room on nodes."""
        self.wake.set()

    def pod_group_changed(self, namespace: str, name: str) -> None:
        """Mark the gangs that belong to a PodGroup."""
        self.add(*(job.uid for job in self._view.gangs_in(namespace) if job.gang and job.gang.pod_group == name))

    def namespace_changed(self, name: str) -> None:
        """Labels decide what may wait and which queues serve it."""
        self.policy = True
        self._add_namespace(name)

    def policy_changed(self) -> None:
        """Take the new policy at the next cycle."""
        self.policy = True
        self.wake.set()

    def ledger_changed(self, changes: Changes | None = None) -> None:
        """The ledger was read."""
        self._on_ledger(changes)
        if self.pages_gone and not self._view.leads:
            # A follower forgets what is not listed any more. What is listed and gone may be so since a take-over whose
            # leader does not lead yet: it must not miss it.
            self.pages_gone &= self._view.ledger.pages.keys()
        self.wake.set()

    def page_deleted(self, name: str) -> None:
        """A page of the ledger is gone: if it was listed, by somebody else's hand."""
        self.pages_gone.add(name)
        self.wake.set()

    def page_read(self, name: str, resource_version: int) -> None:
        """A page of the ledger was written: if not by us, by somebody else's hand."""
        if self._view.leads:
            self.pages_read[name] = resource_version

    def take_doubts(self) -> tuple[bool, set[str], dict[str, int]]:
        """Return whether what was read of the ledger is doubted, which pages went, and which versions of others were
        read, since this was asked last.
        """
        doubts = self.ledger_doubted, self.pages_gone, self.pages_read
        self.ledger_doubted, self.pages_gone, self.pages_read = False, set(), {}
        return doubts

    def unread_changed(self) -> None:
        """What gangs are judged by can be read again, or not: all are looked at."""
        self.gangs.update(self._view.jobs)
        self.wake.set()

    def _pod_sets(self, uid: str) -> int:
        job = self._view.jobs.get(uid)
        return 1 if job is None or job.gang is None else max(1, len(job.gang.pod_sets))

    def _add_namespace(self, namespace: str) -> None:
        self.add(*(job.uid for job in self._view.gangs_in(namespace)))
