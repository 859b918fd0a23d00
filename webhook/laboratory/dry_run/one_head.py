"""The engine with a cycle as Kueue does it, for comparison: one head of each queue, all nominated against one state.

Heads are decided about one by one in order on a snapshot that earlier ones have changed: what was nominated may no
longer fit, two heads may want the same victims, and a gang that preempts waits for a later cycle. Nothing is promised
between cycles; a preempted gang keeps its quota within the cycle that stops it. What a gang is told is what was said
when it last had its turn, in Kueue's words.
"""

from collections.abc import Mapping

from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.settings import EngineSettings
from webhook.core.reasons.reasons import Code, Reason
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan
from webhook.laboratory.dry_run.one_head_cycle import one_head_cycle
from webhook.laboratory.dry_run.turns import Turns


class OneHeadEngine(Engine):
    """Decides about one head of each queue in a cycle."""

    def __init__(self, settings: EngineSettings | None = None) -> None:
        super().__init__(settings)
        self.turns = Turns()

    def submit(self, gang: Gang, now: float) -> None:
        """Let a gang wait; one of the same uid is replaced."""
        record = self.state.pending.records.get(gang.uid)
        if record is not None and record.gang != gang:
            self.turns.forget(gang.uid)
        super().submit(gang, now)

    def withdraw(self, uid: str) -> None:
        """Forget a waiting gang."""
        self.turns.forget(uid)
        super().withdraw(uid)

    def restore(
        self, reservation: Reservation, gang: Gang | None = None, reclaimed: Mapping[str, int] | None = None
    ) -> None:
        """Charge what the ledger says."""
        self.turns.forget(reservation.uid)
        super().restore(reservation, gang, reclaimed)

    def release(self, uid: str) -> None:
        """End a reservation, and give everybody in its tree another turn, as Kueue does."""
        allocations = self.state.allocations
        allocation = allocations.by_uid.get(uid)
        vertex = None if allocation is None else allocations.vertex_of(allocation)
        super().release(uid)
        if vertex is not None:
            self.turns.moved[vertex.root] = self.turns.number
            for queue in self.state.pending.queues.values():
                for eclass in (
                    queue.eclasses.values() if queue.vertex is not None and queue.vertex.root is vertex.root else ()
                ):
                    if eclass.unschedulable and eclass.ineligible is None:
                        self.state.pending.wake_class(eclass)

    def undecided(self) -> frozenset[object]:
        """Return what the next cycle starts from: the heads, the flavors tried for them, how many gangs of a namespace
        that is not selected had their turn, and whose nodes are still to be looked at.
        """
        eclasses = (eclass for queue in self.state.pending.queues.values() for eclass in queue.eclasses.values())
        scans = ((eclass, self.turns.unfinished(eclass)) for eclass in eclasses if not eclass.unschedulable)
        heads = (
            (
                self.turns.head(eclass).uid,
                tuple(sorted(scan.flavors.items())) if scan else (),
                eclass.ineligible and len(self.turns.verdicts.get(eclass, ())),
            )
            for eclass, scan in scans
        )
        return frozenset((*heads, *self.in_line()))

    def reason(self, uid: str) -> Reason | None:
        """Return what Kueue would have said when the gang last had its turn, with the numbers of then."""
        record = self.state.pending.records.get(uid)
        if record is not None and record.queue is None:
            what, fix = self.policy.why_no_queue(record.gang.namespace, record.gang.queue)
            return Reason(Code.MISCONFIGURED, what, help=fix)
        if record is None or record.queue is None or record.eclass is None:
            return super().reason(uid)
        queue, eclass = record.queue, record.eclass
        if queue.closed is not None:
            return queue.closed
        if eclass.ineligible is not None and eclass.ineligible.code is Code.SUSPENDED:
            return eclass.ineligible
        ahead = queue.ahead_of(record.gang)
        untold = Reason(Code.PENDING_EVALUATION, f"has not had its turn; {ahead} of queue {queue.name} are ahead of it")
        return self.turns.verdicts.get(eclass, {}).get(uid, untold)

    def _decide(self, now: float, epoch: int, most: int | None, looks: int | None) -> Plan:
        del most
        return one_head_cycle(self.turns, self.state, now, epoch)
