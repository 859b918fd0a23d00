"""Keeps the engine in step with what is read: which gangs wait in it, and what those that run are charged.

Leader and followers do the same, so that a follower's answers agree with the leader's and fail-over is warm.
"""

from collections.abc import Mapping

from webhook.clock import Clock
from webhook.cluster import waiting
from webhook.cluster.nodes.occupancy import Held
from webhook.cluster.view import NODES, View
from webhook.controllers.gangs import gated_pods
from webhook.controllers.gangs.assess import Step
from webhook.controllers.loop.dirty_set import Marks
from webhook.controllers.reporting.announce import Announcer
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.reasons import Reason
from webhook.core.pod_group.engine import EnsembleEngine
from webhook.jobs.reading.record import JobRecord


class EngineFeed:
    """What the engine and the fences were told of each gang, so that they are told again only what changed."""

    def __init__(self, view: View, engine: EnsembleEngine, marks: Marks, announcer: Announcer, clock: Clock) -> None:
        self._view = view
        self._engine = engine
        self._marks = marks
        self._announcer = announcer
        self._clock = clock
        self._withheld: dict[str, Reason] = {}
        """Why gangs that wait are not in the engine."""
        self._submitted: dict[str, Gang] = {}
        """Gangs that wait in the engine."""
        self._charged: dict[str, tuple[Reservation, Mapping[str, int], Mapping[str, int], Gang | None]] = {}
        """What was last said of a running gang."""
        self._reserved: set[str] = set()
        """Uids that the engine charges."""
        if view.nodes is not None:
            view.nodes.forget_decisions()
            engine.know_nodes(view.nodes.capacity)

    def reason(self, uid: str) -> Reason | None:
        """Return why a gang waits, or None when it does not."""
        return self._withheld.get(uid) or self._engine.reason(uid)

    def withhold(self, uid: str, reason: Reason) -> None:
        """Take note of why a gang cannot wait in the engine."""
        self._withheld[uid] = reason

    def load(self, ledger: Ledger) -> None:
        """Make engine and fences agree with a ledger that was read."""
        for uid in self._reserved - ledger.entries.keys():
            self._engine.release(uid)
            self._marks.gangs.add(uid)
        self._reserved = set(ledger.entries)
        self._charged.clear()
        for uid, reservation in ledger.entries.items():
            gang = self._view.gang_of(self._view.jobs.get(uid))
            self._engine.restore(reservation, gang, self._view.given_back(reservation))
            self._submitted.pop(uid, None)
            self._marks.gangs.add(uid)

    def queue(self, step: Step, uid: str, job: JobRecord | None, held_back: Reason | None = None) -> None:
        """Have the gang of ``job`` wait in the engine if that is its next step and nothing holds it back, else not."""
        gang = (held_back or waiting.waiting_gang(job, self._view)) if step is Step.WAIT and job is not None else None
        if isinstance(gang, Gang):
            self._withheld.pop(uid, None)
            if self._submitted.get(uid) != gang:
                self._submitted[uid] = gang
                self._engine.submit(gang, self._clock.now())
                self._announcer.queued(uid)
            return
        if self._submitted.pop(uid, None) is not None and step in (Step.WAIT, Step.WITHDRAW, Step.CLEAR, Step.RESTORE):
            self._engine.withdraw(uid)
        if isinstance(gang, Reason):
            self._withheld[uid] = gang
            self._announcer.queued(uid)
        else:
            self._withheld.pop(uid, None)

    def settle_nodes(self) -> None:
        """Make what is allotted on nodes agree with what is read, and wake who waited for room there."""
        view, nodes = self._view, self._view.nodes
        if nodes is None:
            return
        self._engine.know_nodes(None if NODES in view.unread else nodes.capacity)
        changed = (
            Held(entry, view.given_back(entry), view.gang_of(view.jobs.get(entry.uid))) for entry in nodes.unsettled()
        )
        if nodes.settle(changed, view.policy.flavors):
            self._engine.wake_nodes()

    def waits(self, uid: str) -> bool:
        """Return whether a gang waits in the engine."""
        return uid in self._submitted

    def admitted(self, uid: str) -> Gang | None:
        """Take note that the engine admits a gang, and return what was submitted of it."""
        return self._submitted.pop(uid, None)

    def reserved(self, uid: str) -> None:
        """Take note that an admission goes into the ledger."""
        self._reserved.add(uid)

    def adopt(self, reservation: Reservation, gang: Gang, job: JobRecord) -> None:
        """Charge what runs already."""
        self._engine.restore(reservation, gang, job.given_back(reservation))
        self._reserved.add(job.uid)

    def reclaim(self, job: JobRecord, reservation: Reservation) -> None:
        """Give back what a running gang does not need any more."""
        given_back = job.given_back(reservation)
        told = (reservation, given_back, job.spared, job.gang if gated_pods.is_pod_group(job) else None)
        if self._charged.get(job.uid) == told:
            return
        self._charged[job.uid] = told
        self._view.fences.put_reservation(reservation, given_back)
        self._engine.restore(reservation, self._view.gang_of(job), given_back)

    def release(self, reservation: Reservation) -> None:
        """Charge a gang no longer: its entry is dropped."""
        uid = reservation.uid
        self._engine.release(uid)
        self._reserved.discard(uid)
        self._charged.pop(uid, None)
        self._submitted.pop(uid, None)
        self._view.fences.drop_reservation(reservation.namespace, uid)
        self._engine.wake_namespace(reservation.namespace)
