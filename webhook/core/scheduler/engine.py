"""The engine: a deterministic state machine that decides which gangs start, over one quota tree and two fences.

Commands tell it what exists (``set_policy``, ``submit``, ``withdraw``, ``restore`` and its kin, ``release``,
``wake_namespace``); ``cycle`` returns a plan and assumes that it will be carried out. A cycle admits everything that
fits, in the order in which repeated single admissions would: each queue nominates its first gang that is not
unschedulable; among the nominees the lowest borrow level goes first, then priority, time, uid. What does not fit is
unschedulable, with what blocks it, and only a change there has it decided about again: a cycle costs what changed, not
what waits.

The parts: ``pending_queues`` (who waits where), ``allocations`` (who holds what), ``decision`` (one gang),
``preemption`` and ``fair_sharing`` (at whose cost), ``cycle`` (all gangs), ``explain`` (why not).
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Final

from webhook.core.assignment.request import compile_request
from webhook.core.ledger.record import Booked, Claim, Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.interning import interned
from webhook.core.model.policy import Policy, Queue
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes.capacity import Capacity
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.gang_state import GangState
from webhook.core.pending.pending_queue import class_key
from webhook.core.quota.allocations import Allocation
from webhook.core.quota.fences import Fences
from webhook.core.quota.usage_decay import LocalName
from webhook.core.reasons.reasons import Reason
from webhook.core.reasons.wake_keys import NodesFreed
from webhook.core.scheduler import claims
from webhook.core.scheduler.cycle import Cycle, drain
from webhook.core.scheduler.explain import never, why_waiting
from webhook.core.scheduler.plan import Plan
from webhook.core.scheduler.state import State

POTENTIALS_MAX: Final = 1_000
"""Answers that are kept, to what could never start: whoever writes jobs may ask about as many shapes."""


class Engine:
    """Decides which gangs start. Not safe for concurrent use; ``copy`` it for forecasts."""

    def __init__(self, settings: EngineSettings | None = None) -> None:
        self.state = State.empty(settings or EngineSettings())
        """All that is known and decided: read it, and change it by this class alone."""
        self._round_seconds = float("-inf")
        """When a follower last looked at new shapes on the nodes."""
        self._potentials: dict[tuple[object, ...], Reason | None] = {}
        """By queue and what is asked of it: answers of ``potential`` under the present policy."""

    @property
    def policy(self) -> Policy:
        """The policy that is decided by."""
        return self.state.policy

    def reset(self) -> None:
        """Forget everything: what was decided and never carried out is no longer so."""
        self.state = State.empty(self.state.settings)
        self._potentials.clear()

    # -- what exists ------------------------------------------------------------------------------------------------

    def set_policy(self, policy: Policy, namespaces: Mapping[str, Mapping[str, str]], now: float) -> None:
        """Decide by ``policy`` from now on; ``namespaces`` are labels by name."""
        if policy != self.state.policy or namespaces != self.state.pending.namespaces:
            self.state.set_policy(policy, dict(namespaces), now)
            self._potentials.clear()

    def submit(self, gang: Gang, now: float) -> None:
        """Let a gang wait; one of the same uid is replaced. While it holds a reservation it does not."""
        state = self.state
        if gang.uid in state.allocations.by_uid:
            state.after[gang.uid] = gang
            return
        known = state.pending.records.get(gang.uid)
        if known is not None and known.gang != gang:
            state.forget(gang.uid)
        state.pending.submit(gang, now)

    def withdraw(self, uid: str) -> None:
        """Forget a waiting gang; an unknown one is fine."""
        self.state.after.pop(uid, None)
        self.state.forget(uid)

    def restore(
        self, reservation: Reservation, gang: Gang | None = None, reclaimed: Mapping[str, int] | None = None
    ) -> None:
        """Charge what the ledger says, replacing what was known of the gang; ``reclaimed`` pods will not run again.

        Without a ``gang`` it grows no more, whatever was known before: the job that would make its pods may be gone.
        A gang whose stop was planned and that the ledger does not show as stopping is no longer counted as going.
        """
        state, uid = self.state, reservation.uid
        known = state.allocations.by_uid.get(uid)
        state.forget(uid)
        allocation = Allocation(reservation, interned(reservation.usage(reclaimed)), gang, reclaimed)
        if known is not None and uid in state.allocations.stopping and reservation.stopping is None:
            state.renounce(uid)
        elif known is not None and known.tells(allocation):
            return
        state.replace(known, allocation)

    def restore_claims(self, claims: Mapping[str, Claim]) -> None:
        """Let claims that the ledger has stand, whoever made them, from the next cycle on; the gangs that are stopped
        for them are restored before that.
        """
        known = self.state.claims
        known |= {uid: claim for uid, claim in claims.items() if uid not in known}

    def keeps_room_for(self, uid: str) -> bool:
        """Return whether a claim stands for a gang, known to wait or not."""
        return uid in self.state.claims

    def restore_bookings(self, bookings: Mapping[str, Booked]) -> None:
        """Let the heads of Backfill queues keep what an earlier leader booked for them, if they are the heads still."""
        self.state.backfill.recalled |= bookings

    def restore_usage(self, local: LocalName, consumed: Mapping[str, float]) -> None:
        """Say what a local queue (namespace, name) consumed of each resource, in whole units, decayed until now."""
        self.state.usage.restore(local, consumed)

    def release(self, uid: str) -> None:
        """End a reservation and wake what it could help; an unknown uid is fine."""
        state = self.state
        allocation = state.allocations.by_uid.get(uid)
        if allocation is None:
            return
        state.let_go(allocation)
        state.growing.pop(uid, None)
        after = state.after.pop(uid, None)
        if after is not None:
            state.pending.submit(after, after.not_before_seconds - 1)

    def renounce(self, uid: str) -> None:
        """Decide again about claims that await ``uid`` if its stop was planned: what it holds was never stored."""
        if uid in self.state.allocations.stopping:
            self.state.renounce(uid)

    def turn_back(self, uid: str) -> None:
        """Take back an admission that is not carried out, and the claims of those that the same plan stops it for."""
        self.renounce(uid)
        self.release(uid)

    @property
    def nodes(self) -> Capacity | None:
        """What is free on which node; None while the nodes are not known."""
        return self.state.nodes

    def know_nodes(self, nodes: Capacity | None) -> None:
        """Ask of each gang from now on that its pods fit ``nodes``, which it allots room on; None: ask nothing."""
        if nodes is not self.state.nodes:
            for uid in list(self.state.booked):
                self.state.lapse_booking(uid)
            in_line = [uid for uid, _ in self.in_line()]
            claims.know_nodes(self.state, nodes)
            self.state.wake_turns(in_line)
            self.wake_nodes()

    def know_out_of_reach(self, uids: frozenset[str]) -> None:
        """Stop none of these jobs for others from now on, nor let them grow: what is written on them would not be."""
        if uids != self.state.out_of_reach:
            self.state.know_out_of_reach(uids)

    def wake_nodes(self) -> None:
        """Decide again about gangs that fitted no nodes: some became free, or there are more."""
        self.state.wake_nodes()

    def wake_namespace(self, namespace: str) -> None:
        """Decide again about gangs that fences of ``namespace`` blocked: one changed, or a pod went away."""
        self.state.wake_namespace(namespace)

    # -- decisions --------------------------------------------------------------------------------------------------

    def cycle(
        self,
        now: float,
        fences: Fences,
        epoch: int,
        admit: bool = True,
        most: int | None = None,
        *,
        looks: int | None = None,
    ) -> Plan:
        """Decide about everything that changed and return the plan; with ``admit`` false nothing starts.

        ``most`` ends the cycle after so many admissions and preemptions, ``looks`` once searches for victims have
        looked at so many gangs; the next cycle goes on where this one stopped.
        """
        state = self.state
        state.fences, state.now, state.followed = fences, now, None
        state.pending.end_backoffs(now)
        state.usage.age(now)
        self._begin_round()
        stopped = drain(state)
        if not admit:
            return Plan(stopped=stopped)
        plan = self._decide(now, epoch, most, looks)
        return Plan(plan.admitted, plan.grown, plan.preempted, stopped)

    def _decide(self, now: float, epoch: int, most: int | None, looks: int | None) -> Plan:
        """Return what to admit, grow and preempt; a dry run by Kueue's rule of one head a queue decides otherwise."""
        plan = Cycle(self.state, now, epoch, most, looks).run()
        self.state.deciding = None
        return plan

    def follow(self, now: float, fences: Fences, claims: Mapping[str, Claim]) -> None:
        """Let questions be answered as of ``now`` while another process decides; ``claims`` are those of its ledger.

        Nothing is decided: all that waits counts as blocked by what it meets, and the next cycle goes on from there.
        """
        state = self.state
        state.fences, state.now, state.followed = fences, now, claims
        # A question may have noted of some that they may start: here nobody does.
        state.backfill.put_off.clear()
        state.pending.end_backoffs(now)
        if state.nodes is not None and now - self._round_seconds >= 1:
            self._round_seconds = now
            self._begin_round()

    def _begin_round(self) -> None:
        """Have the next nodes looked at for those whose turn it is."""
        nodes = self.state.nodes
        if nodes is not None:
            self.state.wake_turns(nodes.begin_round(self.state.knows))

    def claims(self) -> dict[str, Claim]:
        """Return the claims that stand, by uid, as the ledger is to have them."""
        return dict(self.state.claims)

    def bookings(self) -> dict[str, Booked]:
        """Return what is booked for the heads of Backfill queues, by uid, as the ledger is to have it."""
        return self.state.backfill.written()

    def deciding(self) -> str | None:
        """Return the uid of the gang at which a cycle or a question failed; None if none did, or not while it was about
        one.

        What the engine holds is not to be trusted then, until it is reset.
        """
        return self.state.deciding

    # -- questions --------------------------------------------------------------------------------------------------

    def next_wake(self, now: float) -> float | None:
        """Return when a cycle is due though nothing else changes: the earliest end of a back-off, or a usage sample."""
        state, decayed = self.state, self.state.usage.decayed
        goes_on = state.draining or state.cut or state.counts_on
        if goes_on or (state.nodes is not None and state.nodes.due):
            return now
        times = (state.pending.next_backoff_end(), None if decayed is None else decayed.next_sample())
        return min((max(time, now) for time in times if time is not None), default=None)

    def state_of(self, uid: str) -> GangState:
        """Return where a gang stands."""
        allocations = self.state.allocations
        if uid in allocations.by_uid:
            return GangState.STOPPING if uid in allocations.stopping else GangState.RESERVED
        return self.state.pending.state_of(uid)

    def reason(self, uid: str) -> Reason | None:
        """Return why a gang waits, with the numbers of this moment, or why one that has started is no larger; None when
        it lacks nothing.
        """
        self.state.deciding = uid
        with nullcontext() if self.state.nodes is None else self.state.nodes.questions():
            reason = why_waiting(self.state, uid)
        self.state.deciding = None
        return reason

    def partial(self) -> list[str]:
        """Return the uids of admitted gangs of which pods are still to come."""
        return list(self.state.partial())

    def waiting(self, queue: str | None = None) -> list[Gang]:
        """Return the waiting gangs of one queue in its order, or all of them, queue by queue."""
        if queue is not None:
            found = self.state.pending.queues.get(queue)
            return [] if found is None else list(self.state.pending.in_order(found))
        queues = sorted(self.state.pending.queues.values(), key=lambda queue: queue.name or "")
        lost = [t.gang for t in self.state.pending.records.values() if t.queue is None]
        lost.sort(key=lambda gang: self.state.order(gang.uid))
        return [gang for queue in queues for gang in self.state.pending.in_order(queue)] + lost

    def waiting_for_nodes(self) -> list[tuple[Gang, int]]:
        """Return the gangs that had quota and no nodes when they were decided about: of those that ask the same the
        first, and how many they are.
        """
        eclasses = self.state.pending.waiting_for(NodesFreed())
        return [(eclass.head, len(eclass.order)) for eclass in eclasses if eclass.order]

    def undecided(self) -> frozenset[object]:
        """Return what the next cycle starts from: the heads that it decides about.

        A cycle that starts from what an earlier one started from, with the same reservations, plans what that planned.
        """
        eclasses = (eclass for queue in self.state.pending.queues.values() for eclass in queue.eclasses.values())
        asked = (each for each in (self.state.asked_from, self.state.asked_next) if each is not None)
        heads = (eclass.head.uid for eclass in eclasses if not eclass.unschedulable)
        # Who is asked may have to wait until others' searches are made up for.
        later = (self.state.looks_owed, self.state.ceilings.unanswered)
        return frozenset((*heads, *((place, *later) for place in asked), *self.in_line()))

    def in_line(self) -> list[tuple[str, int]]:
        """Return the uids of the gangs whose nodes are looked at in a later cycle, and how many looks they wait for."""
        due = {} if self.state.nodes is None else self.state.nodes.due
        return [(uid, len(shapes)) for uid, shapes in due.items()]

    def position(self, uid: str) -> int | None:
        """Return the 0-based place of a waiting gang in its queue; None when it does not wait in one."""
        record = self.state.pending.records.get(uid)
        if record is None or record.queue is None:
            return None
        return record.queue.ahead_of(record.gang)

    def queue_of(self, uid: str) -> str | None:
        """Return the queue that a waiting gang waits in or an admitted one is charged to."""
        record = self.state.pending.records.get(uid)
        if record is not None:
            return None if record.queue is None else record.queue.name
        allocation = self.state.allocations.by_uid.get(uid)
        return None if allocation is None else allocation.reservation.queue

    def usage(self, vertex: str) -> Mapping[FlavorResource, int]:
        """Return what a queue or cohort uses; empty when there is none of that name."""
        found = self.state.allocations.usage.tree.find(vertex)
        return {} if found is None else self.state.allocations.usage.all_of(found)

    def potential(self, gang: Gang) -> Reason | None:
        """Return why ``gang`` could never start under the present policy, or None when it could."""
        queue = self.state.policy.queues.get(self.state.policy.queue_of(gang.namespace, gang.queue) or "")
        if queue is None:
            return None
        key = (queue.name, class_key(gang))
        try:
            return self._potentials[key]
        except KeyError:
            found = self._potentials[key] = self._never(gang, queue)
        except TypeError:
            # A node selector of a kind without a schema may say anything, lists too.
            return self._never(gang, queue)
        if len(self._potentials) > POTENTIALS_MAX:
            self._potentials.clear()
        return found

    def _never(self, gang: Gang, queue: Queue) -> Reason | None:
        request = compile_request(gang, queue, self.state.policy.flavors, self.state.settings)
        return never(gang, request, queue, self.state.allocations.usage.tree.queues[queue.name])

    def copy(self) -> "Engine":
        """Return an independent engine in the same state."""
        twin = Engine(self.state.settings)
        twin.state = self.state.copy()
        return twin
