"""Tells people what was decided: events on jobs and one log line a decision."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from webhook import metrics
from webhook.cluster.view import DAEMON_SETS, NODES, View
from webhook.controllers.reporting.events import NONE, THE_LEDGER, EventRecorder, Regarding
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.notation import amounts, names
from webhook.core.notation.counted import counted
from webhook.core.notation.moments import time_text
from webhook.core.reasons.blockers import StartsBy
from webhook.core.reasons.eviction import HELD
from webhook.core.reasons.reasons import Code, Reason
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.jobs.reading.record import JobRecord, Requeue

log = structlog.get_logger(__name__)

QUEUED_AFTER_SECONDS = 2.0
"""A gang that was admitted sooner never gets a "Queued" event, but for copies from a hub."""
LOOKED_AT_MAX = 100
"""Waiting gangs whose reason is put into words each second: words cost more than decisions."""
UNREADABLE_SECONDS = 6.0
"""At most one event in this time is about an object that cannot be read: whoever writes one may write many."""
REBUILD_WAITS = "LedgerRebuildWaits"
"""Reason of the event which says why there is no ledger."""
_WAITED_FOR = "jobs that depend on them wait, others are not affected"
_AS_BEFORE = "what was read from it before is kept"
_WITHOUT = {
    NODES: "gangs are started by quota alone, whether their pods fit the nodes or not",
    DAEMON_SETS: "room that their pods will need on new nodes is not kept free",
}
"""What is not waited for, and what follows."""


@dataclass(slots=True)
class _Waiting:
    """What people were told of a gang that waits."""

    since_seconds: float
    code: Code | None = None
    """Why it waits."""
    told: tuple[Code, bool] | None = None
    """The last reason that an event gave, and whether it was for good."""


class Announcer:
    """Events and decision lines of one cluster's reconciler. A follower has one too and never speaks."""

    def __init__(
        self, recorder: EventRecorder, view: View, kinds: Mapping[str, JobKind], now: Callable[[], float]
    ) -> None:
        self._recorder = recorder
        self._view = view
        self._kinds = kinds
        self._now = now
        self._waiting: dict[str, _Waiting] = {}
        """By uid, the one that was looked at last at the end."""
        self._growing: dict[str, _Waiting] = {}
        """Those that have started and wait for more of their pods to join, in the same order."""
        self._delayed: set[str] = set()
        """Uids of admitted gangs whose failing start was reported."""
        self._unread: dict[str, str] = {}
        self._unreadable: set[Regarding] = set()
        self._unreadable_at = float("-inf")

    def queued(self, uid: str) -> None:
        """Note that a gang waits, or waits again."""
        self._waiting.setdefault(uid, _Waiting(self._now()))

    def waits_no_more(self, uid: str) -> None:
        """Forget that a gang waits: it holds quota, has ended or is gone. A follower learns of it by this alone."""
        self._waiting.pop(uid, None)

    def admitted(self, reservation: Reservation) -> None:
        """Tell that a gang was admitted."""
        self._waiting.pop(reservation.uid, None)
        self._delayed.discard(reservation.uid)
        pods = sum(reservation.counts.values())
        flavors = sorted({flavor for pod_set in reservation.pod_sets for flavor in pod_set.flavors.values()})
        where = f" of queue {reservation.queue}" if reservation.queue else ""
        asked = amounts.render(amounts.total(amounts.scale(s.price.requests, s.count) for s in reservation.pod_sets))
        log.info("gang.admitted", job=str(reservation), queue=reservation.queue, pods=pods, flavors=flavors)
        shared = reservation.membership
        others = "" if shared is None else f", with the other jobs of PodGroup {shared.ensemble}"
        told = f"{counted(pods, 'pod')}{where} start{'s' if pods == 1 else ' together'}{others}: {asked}"
        job = self._view.jobs.get(reservation.uid)
        if job is not None and job.for_a_member:
            told = f"quota for {counted(pods, 'pod')}{where} is held{others}: {asked}; tutti explain says which member"
            told = f"{told} of the fleet has them, or why none does"
        nothing = "it asks for 0 pods, so nothing starts; to add pods, suspend it first: it then waits in its queue"
        self._note(reservation.uid, "Admitted", told if pods else nothing)

    def start_failed(self, uid: str, why: str) -> None:
        """Tell once why an admitted gang has no pods yet: its start cannot be written."""
        if uid not in self._delayed:
            self._delayed.add(uid)
            self._note(uid, "StartFailed", f"admitted, but its start cannot be written yet: {why}", warning=True)

    def stopped(self, reservation: Reservation, why: str, requeue: Requeue | None) -> None:
        """Tell that a gang is being stopped."""
        message = "" if requeue is None else requeue.message
        log.info("gang.stopped", job=str(reservation), queue=reservation.queue, why=why, message=message)
        self._note(reservation.uid, "Evicted", f"{why}: {message}" if message else why, warning=why != HELD)

    def unread(self) -> None:
        """Tell, once each, what the API server lets nobody read."""
        view = self._view
        for topic, why in (view.unread | view.outdated).items():
            if topic not in self._unread:
                then = _AS_BEFORE if topic in view.outdated else _WITHOUT.get(topic, _WAITED_FOR)
                text = f"Tutti cannot read {topic}: {why}; {then}"
                self._recorder.note(THE_LEDGER, "KindUnread", text, warning=True)
        self._unread = view.unread | view.outdated

    def unreadable(self, now: float, objects: Iterable[tuple[str, str, str, str, str]]) -> None:
        """Tell, one after another and once each, which objects cannot be read: apiVersion, kind, namespace, name, why.

        Events about objects without a namespace go to the ledger: elsewhere nobody would look for them.
        """
        if now - self._unreadable_at < UNREADABLE_SECONDS:
            return
        told, self._unreadable = self._unreadable, set()
        for api_version, kind, namespace, name, why in objects:
            which = Regarding(api_version, kind, namespace, name, "")
            if which in told:
                self._unreadable.add(which)
            elif now - self._unreadable_at >= UNREADABLE_SECONDS:
                self._unreadable_at = now
                self._unreadable.add(which)
                text = f"Tutti cannot read {kind} {namespace}/{name}: {why}; what was read from it before is kept"
                self._recorder.note(which if namespace else THE_LEDGER, "Unreadable", text, warning=True)

    def created(self, ledger: Ledger) -> None:
        """Tell that the first ledger was made, while nothing held anything."""
        log.info("ledger.created", epoch=ledger.epoch)
        self._recorder.note(THE_LEDGER, "LedgerCreated", f"nothing is reserved yet, epoch {ledger.epoch}")

    def rebuilt(self, why: str, ledger: Ledger) -> None:
        """Tell that the ledger was rebuilt."""
        log.warning("ledger.rebuilt", why=why, epoch=ledger.epoch, reservations=len(ledger.entries))
        number = len(ledger.entries)
        held = f"{counted(number, 'reservation')} {'was' if number == 1 else 'were'}"
        text = f"{why}; {held} taken from the jobs themselves, epoch {ledger.epoch}"
        self._recorder.note(THE_LEDGER, "LedgerRebuilt", text, warning=True)

    def rebuild_waits(self, unread: Mapping[str, str], pods: int) -> None:
        """Tell that no ledger is made while some kinds cannot be read; of so many pods nobody knows what they hold."""
        because = (
            f"{counted(pods, 'pod')} may belong to these"
            if pods
            else "without them it is not known what runs, or where"
        )
        tip = "check the CRD's conversion webhook and Tutti's rights, or delete the CRD"
        what = "; ".join(f"Tutti cannot read {topic}: {why}" for topic, why in sorted(unread.items()))
        self._rebuild_waits_for(because, tip, what)

    def rebuild_cannot_write(self, jobs: Sequence[str]) -> None:
        """Tell that no ledger is made while some jobs cannot be written; of each what that is answered."""
        those = f"{counted(len(jobs), 'job')} that an earlier leader may have started cannot be written"
        tip = "repair what answers like this, or delete these jobs"
        self._rebuild_waits_for(those, tip, jobs[0])

    def rebuild_cannot_delete(self, why: str) -> None:
        """Tell that no ledger is made while what is left of the old one cannot be listed and deleted."""
        self._rebuild_waits_for("its old pages stay", "repair what answers like this, or delete these ConfigMaps", why)

    def _rebuild_waits_for(self, why: str, tip: str, answer: str) -> None:
        text = f"no job is admitted until the ledger is rebuilt, and the rebuild waits: {why}; {tip}; {answer}"
        self._recorder.note(THE_LEDGER, REBUILD_WAITS, text, warning=True)

    def stepped_down(self, why: str) -> None:
        """Tell that this replica leads no longer and will try again."""
        self._recorder.note(THE_LEDGER, "SteppedDown", why, warning=True)

    def denied(self, why: str, within_seconds: float) -> None:
        """Tell that this replica cannot lead, and will not until it is allowed what it needs of the ledger."""
        text = f"this replica cannot lead: {why}; it tries again within {within_seconds:g} s"
        self._recorder.note(THE_LEDGER, "LeadingDenied", text, warning=True)

    async def tick(self, now: float, reason_of: Callable[[str], Reason | None], partial: Iterable[str] = ()) -> None:
        """Write the "Queued" events that are due, one a gang and change of reason; count who waits for what. Of the
        gangs that have started and are ``partial``, say why no more of their pods join them.

        Everybody else's turn comes between one reason and the next: a hundred can take half a second.
        """
        self.unread()
        await self._grow(now, reason_of, dict.fromkeys(partial))
        self._delayed &= self._view.ledger.entries.keys()
        for uid in list(itertools.islice(self._waiting, LOOKED_AT_MAX)):
            await asyncio.sleep(0)
            waits = self._waiting.pop(uid, None)
            if waits is None or uid not in self._view.jobs or uid in self._view.ledger.entries:
                continue
            # To the end of the line: with many waiting, each is looked at in turn.
            self._waiting[uid] = waits
            reason = reason_of(uid)
            if reason is None:
                # Held, ended or about to go, it waits for nothing.
                waits.code = None
                continue
            waits.code = reason.code
            if reason.code is Code.PENDING_EVALUATION and not reason.help:
                # The next cycle decides: it would be over before anybody reads it.
                continue
            # A hub that has offered a copy waits for this word, to offer it elsewhere.
            due = self._view.jobs[uid].awaits_permit or now - waits.since_seconds >= QUEUED_AFTER_SECONDS
            if due and waits.told != (told := (reason.code, reason.is_never)):
                waits.told = told
                self._note(uid, "Queued", f"{reason.code}: {reason}", annotations=_for_a_hub(now, reason))
        metrics.WAITING.clear()
        for code, number in Counter(waits.code for waits in self._waiting.values() if waits.code).items():
            metrics.WAITING.labels(code).set(number)

    async def _grow(self, now: float, reason_of: Callable[[str], Reason | None], partial: Mapping[str, None]) -> None:
        known = {uid: waits for uid, waits in self._growing.items() if uid in partial}
        self._growing = known | {uid: _Waiting(now) for uid in partial if uid not in known}
        for uid in list(itertools.islice(self._growing, LOOKED_AT_MAX)):
            await asyncio.sleep(0)
            waits = self._growing.pop(uid)
            self._growing[uid] = waits
            # Meanwhile it may have been stopped, and wait for all of its pods.
            reason = reason_of(uid) if uid in self._view.ledger.entries else None
            waits.code = None if reason is None else reason.code
            told = None if reason is None else (reason.code, reason.is_never)
            if reason is not None and now - waits.since_seconds >= QUEUED_AFTER_SECONDS and waits.told != told:
                waits.told = told
                self._note(uid, "GrowthWaits", f"pods that should join it wait: {reason.code}: {reason}")

    def _note(
        self, uid: str, reason: str, note: str, *, warning: bool = False, annotations: Mapping[str, str] = NONE
    ) -> None:
        job = self._view.jobs.get(uid)
        if job is None:
            return
        kind = self._kinds[job.kind].at(job.version)
        regarding = Regarding(kind.api_version, kind.kind, job.namespace, job.name, uid)
        if job.kind == POD_GROUP.key:
            regarding = self._pod_group(job) or regarding
        self._recorder.note(
            regarding, reason, self._view.told(note, job.namespace), warning=warning, annotations=annotations
        )

    def _pod_group(self, job: JobRecord) -> Regarding | None:
        """Return what people look at for a gang of plain pods: its PodGroup, or its first pod where it has none."""
        group = self._view.pod_groups.get((job.namespace, job.name))
        if group is not None:
            return Regarding(group.api_version, "PodGroup", job.namespace, job.name, group.uid)
        pods = sorted(self._view.fences.pods_of(job.namespace, job.uid), key=lambda pod: pod.name)
        return Regarding("v1", "Pod", job.namespace, pods[0].name, pods[0].uid) if pods else None


def _for_a_hub(now: float, reason: Reason) -> Mapping[str, str]:
    """Return the booked start of a gang, or that it has none to wait for: a hub compares what its members say."""
    if reason.is_never:
        return {names.NEVER_STARTS: "true"}
    booked = next((each.seconds for each in reason.blockers if isinstance(each, StartsBy)), None)
    return NONE if booked is None else {names.STARTS_BY: time_text(int(now + booked))}
