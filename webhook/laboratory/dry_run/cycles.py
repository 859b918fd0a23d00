"""Runs the engine over a world until nothing changes, and says of each cycle what came of it.

Time stands still. What a cycle stops is gone before the next one and waits again at the place where the reconciler
would put it; what a cycle admits runs and does not end.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from webhook.cluster.nodes.settling import Held
from webhook.core.ledger.record import Reservation
from webhook.core.ledger.text import encode_entry
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Policy, StopPolicy
from webhook.core.model.settings import EngineSettings
from webhook.core.notation.problem import Problem
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.core.reasons.reasons import Code, Reason
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan
from webhook.laboratory.dry_run.one_head import OneHeadEngine
from webhook.laboratory.dry_run.workloads.entrant import Entrant
from webhook.laboratory.dry_run.world import World

_EPOCH: Final = 1
_TAKE_TURNS: Final = (Code.MISCONFIGURED, Code.PENDING_EVALUATION)
"""Why Kueue turns a head down before it looks for quota. What else keeps a gang out keeps it out of the queue."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A gang that waits after a cycle."""

    gang: Gang
    queue: str | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle decided, and who waits after it."""

    plan: Plan
    waiting: tuple[Waiting, ...]

    @property
    def who_waits(self) -> frozenset[str]:
        """Uids of the waiting gangs."""
        return frozenset(each.gang.uid for each in self.waiting)


@dataclass(slots=True)
class Run:
    """The engine over a world, and what is going on in it."""

    world: World
    now: float
    settings: EngineSettings
    one_head_per_queue: bool = False
    """A cycle considers only the head of each queue, all against the same state, as Kueue does."""
    engine: EnsembleEngine = field(init=False)
    _held: dict[str, Reservation] = field(default_factory=dict)
    """By uid."""
    _going: dict[str, None] = field(default_factory=dict)
    """Uids of gangs that are being stopped."""
    _withheld: dict[str, tuple[Gang, Reason]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        view = self.world.view
        self.engine = EnsembleEngine((OneHeadEngine if self.one_head_per_queue else Engine)(self.settings))
        policy = _closed_spared(view.policy) if self.one_head_per_queue else view.policy
        self.engine.set_policy(policy, view.namespaces, self.now)
        for local, consumed in self.world.consumed.items():
            self.engine.restore_usage(local, consumed)
        for uid, entrant in self.world.entrants.items():
            if entrant.reservation is None:
                self._queue(entrant)
                continue
            if entrant.written_off and self.one_head_per_queue:
                continue
            self._hold(entrant.reservation)
            if entrant.reservation.stopping is not None:
                self._going[uid] = None
            self.engine.restore(entrant.reservation, entrant.gang, entrant.reclaimed)
        if view.nodes is not None:
            self._settle()
            self.engine.know_nodes(view.nodes.capacity)

    def cycles(self, *, only_one: bool = False) -> list[Cycle]:
        """Return the cycles until nothing changes; the last one changed something unless it is the only one."""
        done: list[Cycle] = []
        seen: set[object] = set()
        for _ in range(1 if only_one else 100 + 10 * len(self.world.entrants)):
            start = (self.engine.undecided(), frozenset(map(encode_entry, self._held.values())))
            plan = self.engine.cycle(self.now, self.world.view.fences, _EPOCH)
            self._take(plan)
            self._settle()
            done.append(Cycle(plan, self._waiting()))
            if not plan and not self._going and start in seen:
                return _without_rest(done)
            if plan and self.one_head_per_queue and start in seen:
                break
            seen.add(start)
            self._let_go()
        if not only_one:
            self._never_settles(len(done))
        return done

    # -- carrying out -----------------------------------------------------------------------------------------------

    def _take(self, plan: Plan) -> None:
        for reservation in (*plan.admitted, *plan.grown):
            self._held[reservation.uid] = reservation
        for preempted in plan.preempted:
            self._going[preempted.uid] = None
        for uid in (each.uid for each in plan.stopped):
            self._going[uid] = None

    def _hold(self, reservation: Reservation) -> None:
        entrant = self.world.entrants[reservation.uid]
        self._held[reservation.uid] = reservation
        # A dry run has no pods that could go: until it is gone, what is being stopped claims what it held.
        self.world.view.fences.put_reservation(replace(reservation, stopping=None), entrant.reclaimed)

    def _let_go(self) -> None:
        """End what is being stopped, and let it wait again."""
        going, self._going = self._going, {}
        for uid in going:
            reservation = self._held.pop(uid)
            self.engine.release(uid)
            self._drop(reservation)
            self.engine.wake_namespace(reservation.namespace)
        self._settle()
        for uid in going:
            if not self.world.entrants[uid].leaves:
                self._queue(self.world.entrants[uid])

    def _drop(self, reservation: Reservation) -> None:
        """Free what a gang and its pods took of the ResourceQuotas; pods that wait behind their gates stay."""
        fences, namespace = self.world.view.fences, reservation.namespace
        fences.drop_reservation(namespace, reservation.uid)
        unmarked = set(self.world.followers.get(reservation.uid, ()))
        for pod in list(fences.pods(namespace)):
            if (pod.gang == reservation.uid or pod.uid in unmarked) and not pod.gated:
                fences.drop_pod(namespace, pod.uid)
                if self.world.view.nodes is not None:
                    self.world.view.nodes.drop_pod(pod.uid)

    def _settle(self) -> None:
        """Keep room on nodes for what is held and has no pods there yet, and wake who waits where some became free."""
        view, entrants = self.world.view, self.world.entrants
        if view.nodes is None:
            return
        view.nodes.set_reservations(dict(self._held))
        changed = [(entry, entrants[entry.uid]) for entry in view.nodes.unsettled()]
        if view.nodes.settle([Held(e, by.reclaimed, by.gang) for e, by in changed], view.policy.flavors):
            self.engine.wake_nodes()

    def _queue(self, entrant: Entrant) -> None:
        if entrant.withheld is None:
            self.engine.submit(entrant.gang, self.now)
        elif self.one_head_per_queue and entrant.withheld.code in _TAKE_TURNS:
            self.engine.submit(replace(entrant.gang, refusal=entrant.withheld), self.now)
        else:
            self._withheld[entrant.gang.uid] = (entrant.gang, entrant.withheld)

    # -- telling ----------------------------------------------------------------------------------------------------

    def _waiting(self) -> tuple[Waiting, ...]:
        found = [
            Waiting(gang, self.engine.queue_of(gang.uid), self.engine.reason(gang.uid) or _UNDECIDED)
            for gang in self.engine.waiting()
        ]
        policy = self.world.view.policy
        for uid in sorted(self._withheld):
            gang, reason = self._withheld[uid]
            found.append(Waiting(gang, policy.queue_of(gang.namespace, gang.queue), reason))
        return tuple(found)

    def _never_settles(self, number: int) -> None:
        text = "would go on for ever: gangs stop each other in turn"
        fix = "report it with these files"
        if self.one_head_per_queue:
            fix = "one head a queue promises nothing to a preemptor; without --one-head-per-queue its claim is kept"
        self.world.problems.append(Problem("cycles", str(number), text, fix))

    def gang(self, uid: str) -> str:
        """Return ``namespace/name`` of a gang."""
        return self.world.entrants[uid].gang.key


def _closed_spared(policy: Policy) -> Policy:
    """Return ``policy`` with what runs in queues that admit nothing safe from others: to Kueue it is out of sight."""
    spared = {
        name: replace(queue, reclaimable=False)
        for name, queue in policy.queues.items()
        if queue.inactive is not None or queue.stop_policy is not StopPolicy.NONE
    }
    return replace(policy, queues={**policy.queues, **spared})


def _without_rest(done: list[Cycle]) -> list[Cycle]:
    """Return the cycles up to the last one that decided something or after which others wait than before."""
    while len(done) > 1 and not done[-1].plan and done[-1].who_waits == done[-2].who_waits:
        done = done[:-1]
    return done


_UNDECIDED: Final = Reason(Code.PENDING_EVALUATION, "has not been decided about")
