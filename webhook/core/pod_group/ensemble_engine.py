"""The engine as the rest of Tutti uses it: told about jobs, asked about jobs, and deciding about ensembles as one gang.

Jobs that share a PodGroup wait as one gang once they bring as many pods as it needs, are admitted by one decision and
are victims together; before that they wait with a reason, and the engine does not know them. ``group`` says
which of them are a gang. Everything else passes straight through to the ``Engine`` that it drives.

What changed in a group is settled with the engine before the next decision or question, once for all of it.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from webhook.core.ledger.record import Claim, Reservation
from webhook.core.model.gang import Gang
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.gang_state import HOLDING, GangState
from webhook.core.pod_group import ensemble
from webhook.core.pod_group.ensemble import Key, Part
from webhook.core.pod_group.group import Group
from webhook.core.quota.fences import Fences
from webhook.core.reasons.reasons import Reason
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan, Preempted


class EnsembleEngine:
    """Decides which jobs start, those of one PodGroup together."""

    def __init__(self, engine: Engine | None = None) -> None:
        self._engine = engine = Engine() if engine is None else engine
        # What is the same of jobs and of gangs.
        self.set_policy, self.wake_namespace = engine.set_policy, engine.wake_namespace
        self.claims = engine.claims
        self.restore_bookings, self.bookings = engine.restore_bookings, engine.bookings
        self.know_nodes, self.wake_nodes = engine.know_nodes, engine.wake_nodes
        self.know_out_of_reach = engine.know_out_of_reach
        self.restore_usage, self.follow, self.potential = engine.restore_usage, engine.follow, engine.potential
        self._groups: dict[Key, Group] = {}
        self._key_of: dict[str, Key] = {}
        """Uid of a job, or the engine's of an ensemble, to its group."""
        self._unsettled: dict[Key, None] = {}
        self._now = 0.0

    def reset(self) -> None:
        """Forget everything, as ``Engine.reset`` does."""
        self._engine.reset()
        for table in (self._groups, self._key_of, self._unsettled):
            table.clear()

    # -- what exists ------------------------------------------------------------------------------------------------

    def submit(self, gang: Gang, now: float) -> None:
        """Let a job wait; one of the same uid is replaced."""
        self._now = now
        key = (gang.namespace, gang.ensemble) if gang.ensemble else None
        if self._key_of.get(gang.uid) != key:
            self._part_with(gang.uid)
        if key is None:
            self._engine.submit(gang, now)
        else:
            self._join(gang.uid, key).waiting[gang.uid] = gang

    def withdraw(self, uid: str) -> None:
        """Forget a waiting job; an unknown one is fine."""
        key = self._key_of.get(uid)
        if key is None:
            self._engine.withdraw(uid)
            return
        self._groups[key].waiting.pop(uid, None)
        self._tidy(uid, key)

    def restore(
        self, reservation: Reservation, gang: Gang | None = None, reclaimed: Mapping[str, int] | None = None
    ) -> None:
        """Charge what the ledger says about a job, as ``Engine.restore`` does."""
        uid = reservation.uid
        name = reservation.membership.ensemble if reservation.membership else "" if gang is None else gang.ensemble
        key = (reservation.namespace, name) if name else None
        if self._key_of.get(uid) != key:
            self._part_with(uid)
        if key is not None:
            group = self._join(uid, key)
            group.waiting.pop(uid, None)
            group.held[uid] = Part(reservation, gang, reclaimed or {})
        if reservation.membership is None:
            self._engine.restore(reservation, gang, reclaimed)
        elif self._engine.state_of(uid) in HOLDING:
            self._engine.release(uid)

    def restore_claims(self, claims: Mapping[str, Claim]) -> None:
        """Let claims stand as ``Engine.restore_claims`` does, but none of one job where that waits with others."""
        self._engine.restore_claims(claims)
        self._unsettled |= dict.fromkeys(self._key_of[uid] for uid in claims if uid in self._key_of)

    def release(self, uid: str) -> None:
        """End a reservation and wake what it could help; an unknown uid is fine."""
        key = self._key_of.get(uid)
        part = None if key is None else self._groups[key].held.pop(uid, None)
        if part is None or part.reservation.membership is None:
            self._engine.release(uid)
        if self._engine.nodes is not None:
            # Of an ensemble each job has its own, and leaves by itself.
            self._engine.nodes.withdraw(uid)
            self._engine.nodes.has_left(uid)
        if key is not None:
            self._tidy(uid, key)

    def turn_back(self, uid: str) -> None:
        """Take back an admission that is not carried out, as ``Engine.turn_back`` does."""
        group = self._group_of(uid)
        if group is not None and uid in group.held and group.held[uid].reservation.membership is not None:
            self._engine.renounce(group.uid)
        else:
            self._engine.renounce(uid)
        self.release(uid)

    def siblings(self, uid: str) -> list[str]:
        """Return the uids of the other jobs that hold what they were admitted with together with this one."""
        group = self._group_of(uid)
        members = [] if group is None else [part.reservation.uid for part in group.members]
        return [member for member in members if member != uid] if uid in members else []

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
        """Decide as ``Engine.cycle`` does; what the plan says of an ensemble it says of each of its jobs."""
        self._now = now
        self._settle()
        plan = self._engine.cycle(now, fences, epoch, admit, most, looks=looks)
        if not self._groups:
            return plan
        going = {*(victim.uid for victim in plan.preempted), *(each.uid for each in plan.stopped)}
        # What a plan admits it may stop again: the jobs that were admitted are known before those that go are named.
        admitted = [each for whole in plan.admitted for each in self._admitted(whole, fences, going)]
        grown = [each for larger in plan.grown for each in self._grown(larger, fences)]
        preempted = [each for victim in plan.preempted for each in self._preempted(victim)]
        stopped = [replace(whole, uid=uid) for whole in plan.stopped for uid in self._going(whole.uid)]
        return Plan(tuple(admitted), tuple(grown), tuple(preempted), tuple(stopped))

    def deciding(self) -> tuple[str, ...]:
        """Return the uids of the jobs at which a cycle or a question failed, as ``Engine.deciding`` does."""
        uid = self._engine.deciding()
        group = None if uid is None else self._ensemble_of(uid)
        if group is not None:
            waiting = tuple(gang.uid for gang in group.composed)
            return waiting or tuple(part.reservation.uid for part in group.members)
        return () if uid is None else (uid,)

    def _admitted(self, whole: Reservation, fences: Fences, going: Set[str]) -> Iterable[Reservation]:
        group = self._group_of(whole.uid)
        if group is None:
            return (whole,)
        self._unsettled[group.key] = None
        gang = group.submitted.pop(whole.uid)
        if whole.uid != group.uid:
            if not group.makes_quorum_with(whole, going):
                # The same cycle stops those that it was to join: it waits with them.
                self._engine.turn_back(whole.uid)
                fences.drop_reservation(whole.namespace, whole.uid)
                return ()
            group.held[whole.uid] = Part(whole, group.waiting.pop(whole.uid, gang))
            return (whole,)
        parts = [
            Part(replace(ensemble.reservation_of(whole, job), membership=group.membership), job)
            for job in group.composed
        ]
        assert all(part.pods for part in parts), "fewer jobs would have made the quorum"
        for part in parts:
            del group.waiting[part.reservation.uid]
            group.held[part.reservation.uid] = part
        group.charged = True
        self._hand_over(whole, parts, fences)
        if self._engine.nodes is not None:
            self._engine.nodes.split(whole.uid, {job.uid: _names(job) for job in group.composed})
        return [part.reservation for part in parts]

    def _grown(self, whole: Reservation, fences: Fences) -> Iterable[Reservation]:
        group = self._group_of(whole.uid)
        if group is None:
            return (whole,)
        parts = group.members if whole.uid == group.uid else [group.held[whole.uid]]
        larger = []
        for part in parts:
            known = part.reservation
            sets = whole.pod_sets if known.uid == whole.uid else ensemble.split(whole, known)
            if sets != known.pod_sets:
                larger.append(replace(known, pod_sets=sets))
                group.held[known.uid] = replace(part, reservation=larger[-1])
        if whole.uid == group.uid:
            self._hand_over(whole, group.members, fences)
            if self._engine.nodes is not None:
                self._engine.nodes.split(whole.uid, {part.reservation.uid: _names(part.reservation) for part in parts})
            # While the engine grew it, its jobs and the whole of it claimed the same room.
            self.wake_namespace(whole.namespace)
            self._unsettled[group.key] = None
        return larger

    def _hand_over(self, whole: Reservation, parts: Iterable[Part], fences: Fences) -> None:
        """Let each job of an ensemble claim its own part of the fences, instead of one claim for all."""
        fences.drop_reservation(whole.namespace, whole.uid)
        for part in parts:
            fences.put_reservation(part.reservation, part.reclaimed)

    def _preempted(self, victim: Preempted) -> Iterable[Preempted]:
        group = self._ensemble_of(victim.by)
        by = victim.by if group is None or not group.composed else group.composed[0].uid
        return (replace(victim, uid=uid, by=by) for uid in self._going(victim.uid))

    def _going(self, uid: str) -> list[str]:
        """Return the jobs that go when the engine stops ``uid``."""
        group = self._ensemble_of(uid)
        if group is None:
            return [uid]
        return [part.reservation.uid for part in group.members if part.reservation.stopping is None]

    # -- questions --------------------------------------------------------------------------------------------------

    def next_wake(self, now: float) -> float | None:
        """Return when a cycle is due though nothing else changes."""
        self._settle()
        return self._engine.next_wake(now)

    def reason(self, uid: str) -> Reason | None:
        """Return why a job waits, with the numbers of this moment; None when it does not wait."""
        self._settle()
        group = self._waits_in(uid)
        if group is not None and group.withheld is not None:
            return group.withheld
        if group is not None and group.passed_over(uid):
            first = [job for gang in group.submitted.values() for job in self._expanded(gang)]
            return ensemble.behind(first)
        return self._engine.reason(self._stands_as(uid))

    def partial(self) -> list[str]:
        """Return the uids of admitted gangs of which pods are still to come; of an ensemble its own."""
        self._settle()
        return self._engine.partial()

    def waiting(self, queue: str | None = None) -> list[Gang]:
        """Return the waiting jobs of one queue in its order, or all of them, those that are not considered yet last."""
        self._settle()
        found = [job for gang in self._engine.waiting(queue) for job in self._expanded(gang)]
        if queue is not None:
            return found
        groups = (self._groups[key] for key in sorted(self._groups))
        return found + [
            job for group in groups for job in ensemble.in_order(group.waiting.values()) if group.passed_over(job.uid)
        ]

    def undecided(self) -> frozenset[object]:
        """Return what the next cycle starts from."""
        self._settle()
        return self._engine.undecided()

    def position(self, uid: str) -> int | None:
        """Return the 0-based place of a waiting job, or of its ensemble, in its queue; None when it is not in one."""
        self._settle()
        return self._engine.position(self._stands_as(uid))

    def queue_of(self, uid: str) -> str | None:
        """Return the queue that a waiting job waits in or an admitted one is charged to."""
        self._settle()
        group = self._waits_in(uid)
        if group is not None:
            gang = group.waiting[uid]
            return self._engine.policy.queue_of(gang.namespace, gang.queue)
        known = self._group_of(uid)
        part = None if known is None else known.held.get(uid)
        return self._engine.queue_of(uid) if part is None else part.reservation.queue

    def usage(self, vertex: str) -> Mapping[FlavorResource, int]:
        """Return what a queue or cohort uses; empty when there is none of that name."""
        self._settle()
        return self._engine.usage(vertex)

    def copy(self) -> "EnsembleEngine":
        """Return an independent engine in the same state."""
        twin = EnsembleEngine(self._engine.copy())
        twin._now = self._now
        twin._groups = {key: group.copy() for key, group in self._groups.items()}
        twin._key_of, twin._unsettled = dict(self._key_of), dict(self._unsettled)
        return twin

    def _group_of(self, uid: str) -> Group | None:
        """Return the group of a job, or of what the engine knows as ``uid``."""
        key = self._key_of.get(uid)
        return None if key is None else self._groups[key]

    def _waits_in(self, uid: str) -> Group | None:
        group = self._group_of(uid)
        return group if group is not None and uid in group.waiting else None

    def _stands_as(self, uid: str) -> str:
        """Return the uid under which the engine knows a job that waits."""
        group = self._waits_in(uid)
        return uid if group is None or uid in group.submitted else next(iter(group.submitted), uid)

    def _ensemble_of(self, uid: str) -> Group | None:
        """Return the group whose ensemble the engine knows as ``uid``; None for a job."""
        group = self._group_of(uid)
        return group if group is not None and uid == group.uid else None

    def _expanded(self, gang: Gang) -> Iterable[Gang]:
        """Return the jobs that wait as ``gang``."""
        group = self._ensemble_of(gang.uid)
        return (gang,) if group is None else group.composed

    # -- keeping the engine in step ---------------------------------------------------------------------------------

    def _join(self, uid: str, key: Key) -> Group:
        """Return the group of a PodGroup, of which a job is a part from now on."""
        group = self._groups.setdefault(key, Group(key))
        self._key_of[uid] = self._key_of[group.uid] = key
        self._unsettled[key] = None
        return group

    def _part_with(self, uid: str) -> None:
        """Let a job go that names another PodGroup now, or none."""
        key = self._key_of.get(uid)
        if key is None:
            if self._engine.state_of(uid) is not GangState.ABSENT:
                self._engine.withdraw(uid)
            return
        group = self._groups[key]
        group.waiting.pop(uid, None)
        part = group.held.pop(uid, None)
        self._tidy(uid, key)
        self._settle()
        if part is not None and part.reservation.membership is None:
            self._engine.release(uid)

    def _tidy(self, uid: str, key: Key) -> None:
        group = self._groups[key]
        self._unsettled[key] = None
        if uid not in group.waiting and uid not in group.held:
            del self._key_of[uid]

    def _settle(self) -> None:
        """Tell the engine what changed in the groups."""
        unsettled, self._unsettled = self._unsettled, {}
        for key in unsettled:
            group = self._groups[key]
            self._settle_held(group)
            self._settle_waiting(group)
            if not group.waiting and not group.held:
                del self._groups[key], self._key_of[group.uid]

    def _settle_held(self, group: Group) -> None:
        charged = bool(group.members)
        if charged:
            self._engine.restore(*group.allocation())
        elif group.charged:
            self._engine.release(group.uid)
        group.charged = charged

    def _settle_waiting(self, group: Group) -> None:
        wanted = group.decide_what_waits()
        # An earlier leader may have made room for one that waits with others by now, or for all where each waits alone.
        claimants = [*group.waiting, *((group.uid,) if wanted else ())]
        for uid in (*group.submitted, *filter(self._engine.keeps_room_for, claimants)):
            if uid not in wanted:
                self._engine.withdraw(uid)
        for uid, gang in wanted.items():
            if group.submitted.get(uid) != gang:
                self._engine.submit(gang, self._now)
        group.submitted = wanted


def _names(job: Gang | Reservation) -> dict[str, str]:
    """Return what each pod set of a job is called in its ensemble."""
    return {each.name: ensemble.pod_set_name(job, each.name) for each in job.pod_sets}
