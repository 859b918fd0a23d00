"""The engine driven at random as a state machine, with a model beside it that knows only what was asked and answered.

Gangs come, change, finish, lose pods for good and go away; quota, strategies and policies change under them; fences
come and go; the engine is rebuilt from the ledger. After each cycle everything that must hold is looked at, each
property by a method of its own name. A second engine is told the same with every mapping the other way round.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.unit.core.random_worlds import gangs, vertices
from tests.unit.core.worlds import policy
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.pods import PodRecord
from webhook.core.model.policy import Policy, PreemptionPolicy, Queue, Strategy
from webhook.core.model.settings import EngineSettings
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.fence import Fence
from webhook.core.quota.fences import Fences
from webhook.core.quota.tree import QuotaTree, Usage, Vertex
from webhook.core.reasons.wake_keys import QueueHead
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan

FAIR = EngineSettings(fair_sharing=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))
NAMESPACES = {"team": {"kubernetes.io/metadata.name": "team"}}


def turned_round(found: Policy) -> Policy:
    """Return the same policy with its mappings in the opposite order."""
    return replace(
        found,
        queues=dict(reversed(found.queues.items())),
        cohorts=dict(reversed(found.cohorts.items())),
        flavors=dict(reversed(found.flavors.items())),
    )


def decided(plan: Plan) -> tuple[object, ...]:
    """Return a plan without the versions of its reservations."""
    return (
        [(r.uid, r.counts, [s.flavors for s in r.pod_sets]) for r in plan.admitted],
        [(r.uid, r.counts) for r in plan.grown],
        sorted((p.uid, p.by, p.reason) for p in plan.preempted),
        sorted((each.uid, each.reason) for each in plan.stopped),
    )


class EngineMachine(RuleBasedStateMachine):
    """One engine, its mirror, and the model."""

    engine_settings = EngineSettings()

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.vertices = data.draw(vertices(strategies=tuple(Strategy)))
        self.names = [vertex.name for vertex in self.vertices if isinstance(vertex, Queue)]
        self.policy = policy(*self.vertices)
        self.engines = [Engine(self.engine_settings), Engine(self.engine_settings)]
        self.fences = [Fences(), Fences()]
        self.now = 0.0
        self.number = 0
        self.waiting: dict[str, Gang] = {}
        self.admitted: dict[str, Reservation] = {}
        self.unread: dict[str, Gang] = {}
        """Gangs that wait and that the present leader does not know yet."""
        self.known: dict[str, Gang] = {}
        self.reclaimed: dict[str, dict[str, int]] = {}
        self.pods: dict[str, PodRecord] = {}
        self.hard: int | None = None
        self._tell_policy()

    # -- telling both engines ----------------------------------------------------------------------------------------

    def _both(self, tell: Callable[[Engine, Fences], object]) -> None:
        for engine, fences in zip(self.engines, self.fences, strict=True):
            tell(engine, fences)

    def _tell_policy(self) -> None:
        self.tree = QuotaTree(self.policy)
        self.engines[0].set_policy(self.policy, NAMESPACES, self.now)
        self.engines[1].set_policy(turned_round(self.policy), NAMESPACES, self.now)

    def _restore(self, uid: str) -> None:
        reservation, gang, gone = self.admitted[uid], self.known[uid], self.reclaimed.get(uid)

        def tell(engine: Engine, fences: Fences) -> None:
            engine.restore(reservation, gang, gone)
            fences.put_reservation(reservation, gone)

        self._both(tell)

    def _wait(self, gang: Gang) -> None:
        self.waiting[gang.uid] = self.known[gang.uid] = gang
        self._both(lambda engine, fences: engine.submit(gang, self.now))

    # -- what happens, most of the time followed by a cycle ----------------------------------------------------------

    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.sampled_from([1, 2, 3, 5]))):
            self.number += 1
            self._wait(data.draw(gangs(f"g{self.number}", self.names)))
        self._maybe_cycle(data)

    more_of_it = submit

    @precondition(lambda self: self.waiting or self.admitted)
    @rule(data=st.data())
    def a_gang_changes(self, data: st.DataObject) -> None:
        waiting, admitted = (self.change_a_waiting_gang, self.withdraw), (self.pods_start, self.pods_end_for_good)
        data.draw(st.sampled_from([*(waiting if self.waiting else ()), *(admitted if self.admitted else ())]))(data)

    @rule(data=st.data())
    def the_world_changes(self, data: st.DataObject) -> None:
        what = (self.change_the_fence, self.change_the_policy, self.tick, self.tick, self.another_leads)
        data.draw(st.sampled_from(what))(data)

    def _maybe_cycle(self, data: st.DataObject) -> None:
        if data.draw(st.sampled_from([True, True, True, False])):
            self.cycle()

    def change_a_waiting_gang(self, data: st.DataObject) -> None:
        gang = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        self._wait(replace(gang, priority=data.draw(st.sampled_from(range(4)))))
        self._maybe_cycle(data)

    def withdraw(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[uid]
        self._both(lambda engine, fences: engine.withdraw(uid))
        self._maybe_cycle(data)

    @precondition(lambda self: self.admitted)
    @rule(data=st.data())
    def last_pod_goes(self, data: st.DataObject) -> None:
        """A gang ends; one that was being stopped waits again at its old place."""
        uid = data.draw(st.sampled_from(sorted(self.admitted)))
        reservation = self.admitted.pop(uid)
        pods = [pod for pod in self.pods.values() if pod.gang == uid]
        for pod in pods:
            del self.pods[pod.uid]
        self.reclaimed.pop(uid, None)

        def tell(engine: Engine, fences: Fences) -> None:
            for pod in pods:
                fences.drop_pod("team", pod.uid)
            engine.release(uid)
            fences.drop_reservation("team", uid)
            engine.wake_namespace("team")

        self._both(tell)
        if reservation.stopping is not None:
            self._wait(self.known[uid])
        self._maybe_cycle(data)

    another_goes = last_pod_goes

    def pods_start(self, data: st.DataObject) -> None:
        reservation = self.admitted[data.draw(st.sampled_from(sorted(self.admitted)))]
        if reservation.stopping is not None:
            return
        for pod_set in reservation.pod_sets:
            for index in range(pod_set.count - self.reclaimed.get(reservation.uid, {}).get(pod_set.name, 0)):
                name = f"{reservation.uid}-{pod_set.name}-{index}"
                pod = PodRecord(name, "team", name, 1, pod_set.price, reservation.uid, pod_set.name, "Running")
                self.pods[name] = pod
                self._both(lambda engine, fences, pod=pod: fences.put_pod(pod))  # type: ignore[misc]

    def pods_end_for_good(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.admitted)))
        if any(pod.gang == uid for pod in self.pods.values()):
            return
        most = self.admitted[uid].counts["main"]
        self.reclaimed[uid] = {"main": max(data.draw(st.integers(0, most)), self.reclaimed.get(uid, {}).get("main", 0))}
        self._restore(uid)
        self._both(lambda engine, fences: engine.wake_namespace("team"))
        self._maybe_cycle(data)

    def change_the_fence(self, data: st.DataObject) -> None:
        pods = self.hard = data.draw(st.sampled_from([None, 3, 6, 12]))

        def tell(engine: Engine, fences: Fences) -> None:
            if pods is None:
                fences.drop_fence("team", "hard")
            else:
                fences.put_fence(Fence("team", "hard", {"pods": pods * MILLI}))
            engine.wake_namespace("team")

        self._both(tell)

    def change_the_policy(self, data: st.DataObject) -> None:
        """Another policy for the same queues: quota may fall below its usage, claims may lose their ground."""
        drawn = data.draw(vertices(strategies=tuple(Strategy), draining=True))
        known = {vertex.name: vertex for vertex in drawn}
        self.vertices = [
            *drawn,
            *(vertex for vertex in self.vertices if isinstance(vertex, Queue) and vertex.name not in known),
        ]
        cohorts = {vertex.name for vertex in self.vertices if not isinstance(vertex, Queue)}
        self.vertices = [
            replace(vertex, cohort=None) if isinstance(vertex, Queue) and vertex.cohort not in cohorts else vertex
            for vertex in self.vertices
        ]
        self.policy = policy(*self.vertices)
        self._tell_policy()

    def tick(self, data: st.DataObject) -> None:
        self.now += data.draw(st.sampled_from([1, 2, 3]))

    def another_leads(self, data: st.DataObject) -> None:
        """It knows the ledger, as text, and who waits; some jobs it reads only later."""
        entries, claims, bookings = self.admitted, self.engines[0].claims(), self.engines[0].bookings()
        stored = ledger_text.decode(ledger_text.encode(Ledger(3, 7, entries, claims, bookings)))
        assert (stored.entries, stored.claims, stored.bookings) == (entries, claims, bookings)
        self.engines = [Engine(self.engine_settings), Engine(self.engine_settings)]
        self._tell_policy()
        for uid in stored.entries:
            self._restore(uid)
        self.engines[0].restore_claims(stored.claims)
        self.engines[1].restore_claims(dict(reversed(stored.claims.items())))
        self.engines[0].restore_bookings(stored.bookings)
        self.engines[1].restore_bookings(dict(reversed(stored.bookings.items())))
        known, self.waiting = {**self.waiting, **self.unread}, {}
        self.unread = {uid: gang for uid, gang in known.items() if data.draw(st.sampled_from([False, False, True]))}
        for uid in known.keys() - self.unread.keys():
            self._wait(known[uid])
        self._maybe_cycle(data)

    @precondition(lambda self: self.unread)
    @rule(data=st.data())
    def jobs_are_read(self, data: st.DataObject) -> None:
        """Some are gone by then."""
        for uid in data.draw(st.lists(st.sampled_from(sorted(self.unread)), min_size=1, unique=True)):
            gang = self.unread.pop(uid)
            if data.draw(st.sampled_from([True, True, True, False])):
                self._wait(gang)
        self._maybe_cycle(data)

    # -- a cycle -----------------------------------------------------------------------------------------------------

    @rule()
    def cycle(self) -> None:
        before, fenced = self._usage(), self._fence_use()
        steps = self._single_steps()
        plan, mirrored = (
            engine.cycle(self.now, fences, 1) for engine, fences in zip(self.engines, self.fences, strict=True)
        )
        note(f"{self.now}: {decided(plan)}")
        self._one_cycle_equals_repeated_single_admissions(steps, plan)
        assert decided(plan) == decided(mirrored), "determinism: the order of mappings decided something"
        self._take(plan)
        self._no_node_is_oversubscribed(before)
        self._no_fence_is_oversubscribed(fenced)
        self._conservation()
        self._nobody_is_reclaimed_from_below_what_it_owns(plan)
        self._strict_order_in_strict_queues(plan)
        self._nobody_is_stopped_who_would_not_go(plan)
        self._room_is_kept_for_nobody_else_than_heads_and_for_whom_others_are_going()
        self._a_second_cycle_plans_nothing()
        self._write_down_stops(plan)

    def _single_steps(self) -> Plan:
        twin, fences = self.engines[0].copy(), self._fences()
        steps: list[Plan] = []
        while plan := twin.cycle(self.now, fences, 1, most=1):
            steps.append(plan)
        return Plan(
            tuple(r for plan in steps for r in plan.admitted),
            tuple(r for plan in steps for r in plan.grown),
            tuple(p for plan in steps for p in plan.preempted),
            tuple(s for plan in steps for s in plan.stopped),
        )

    def _take(self, plan: Plan) -> None:
        for reservation in (*plan.admitted, *plan.grown):
            gang = self.waiting.pop(reservation.uid, None)
            assert (gang is None) == (reservation.uid in self.admitted), f"{reservation.uid} was admitted twice"
            self.admitted[reservation.uid] = reservation

    def _write_down_stops(self, plan: Plan) -> None:
        stops = {preempted.uid: "Preempted" for preempted in plan.preempted} | {
            each.uid: each.reason for each in plan.stopped
        }
        for uid, why in stops.items():
            assert self.admitted[uid].stopping is None, f"{uid} was stopped twice"
            self.admitted[uid] = replace(self.admitted[uid], stopping=why)
            self._restore(uid)

    # -- the properties ----------------------------------------------------------------------------------------------

    def _one_cycle_equals_repeated_single_admissions(self, steps: Plan, plan: Plan) -> None:
        assert decided(steps) == decided(plan)

    def _no_node_is_oversubscribed(self, before: Usage) -> None:
        """Beyond its quota, limits of borrowing and lending included, a vertex is only where the policy changed."""
        after = self._usage()
        for vertex in after.tree.vertices:
            for key, taken in after.all_of(vertex).items():
                if taken > _most(vertex, key):
                    assert taken <= before.of(vertex, key), f"{vertex} took {key} beyond its limit"

    def _no_fence_is_oversubscribed(self, before: int) -> None:
        if self.hard is not None:
            assert self._fence_use() <= max(before, self.hard), "a fence was oversubscribed"

    def _conservation(self) -> None:
        """Each gang is where the model says, and usage is the sum of what is reserved: nothing appears or is lost."""
        for engine in self.engines:
            assert {gang.uid for gang in engine.waiting()} == self.waiting.keys()
            assert engine.state.allocations.by_uid.keys() == self.admitted.keys()
            usage = self._usage()
            for vertex in usage.tree.vertices:
                told = {key: amount for key, amount in engine.usage(vertex.name).items() if amount}
                assert told == {key: amount for key, amount in usage.all_of(vertex).items() if amount}
        for uid, gang in self.waiting.items():
            assert self.engines[0].reason(uid) is not None, f"{gang.uid} waits without a reason"

    def _nobody_is_reclaimed_from_below_what_it_owns(self, plan: Plan) -> None:
        """With any one victim of another queue still there, its queue and all cohorts below the one that it shares with
        the preemptor would use more than they own, counting what preemptors there are promised: no more was taken back
        than had been borrowed, but for whole gangs.
        """
        stopped = {p.uid for p in plan.preempted} | {each.uid for each in plan.stopped}
        stopped |= {uid for uid, entry in self.admitted.items() if entry.stopping is not None}
        rest = Usage(self.tree)
        for uid, reservation in self.admitted.items():
            vertex = rest.tree.queues.get(reservation.queue or "")
            if uid not in stopped and vertex is not None:
                rest.add(vertex, reservation.usage(self.reclaimed.get(uid)))
        for owner, amounts in self.engines[0].state.allocations.promises.values():
            rest.add(rest.tree.queues[owner.name], amounts)
        inside = {self.admitted[p.uid].queue for p in plan.preempted if p.reason == "InClusterQueue"}
        for preempted in plan.preempted:
            victim = self.admitted[preempted.uid]
            mine = self.policy.queue_of("team", self.known[preempted.by].queue)
            if victim.queue == mine or victim.queue in inside:
                continue
            assert victim.queue is not None
            self._some_victim_was_borrowed(rest, victim.queue, mine or "", stopped)

    def _some_victim_was_borrowed(self, rest: Usage, queue: str, preemptor: str, stopped: set[str]) -> None:
        vertex, other = rest.tree.queues[queue], rest.tree.queues[preemptor]
        shared = set(map(id, other.path()))
        below = [each for each in vertex.path() if id(each) not in shared]
        if self.engine_settings.fair_sharing:
            # As in Kueue, a cohort counts as borrowing there when it borrows anything at all.
            below = [vertex]
        for uid in sorted(stopped):
            entry = self.admitted[uid]
            if entry.queue != queue:
                continue
            amounts = entry.usage(self.reclaimed.get(uid))
            rest.add(vertex, amounts)
            borrowed = all(any(rest.of(n, key) > n.subtree.get(key, 0) for key in amounts) for n in below)
            rest.remove(vertex, amounts)
            if borrowed:
                return
        raise AssertionError(f"queue {queue} was reclaimed from below what it owns")

    def _strict_order_in_strict_queues(self, plan: Plan) -> None:
        for reservation in plan.admitted:
            queue = self.policy.queues[reservation.queue or ""]
            if queue.strategy is not Strategy.STRICT_FIFO:
                continue
            for other in self.engines[0].waiting(queue.name):
                if other.not_before_seconds <= self.now:
                    assert _place(self.known[reservation.uid]) < _place(other), "somebody passed a strict head"

    def _nobody_is_stopped_who_would_not_go(self, plan: Plan) -> None:
        for uid in [*(p.uid for p in plan.preempted), *(each.uid for each in plan.stopped)]:
            assert self.admitted[uid].evictable

    def _room_is_kept_for_nobody_else_than_heads_and_for_whom_others_are_going(self) -> None:
        """A claim that has been neither taken up nor given up awaits somebody who is still being stopped."""
        for engine in self.engines:
            state = engine.state
            for uid, claim in engine.claims().items():
                assert any(each in state.allocations.stopping for each in claim.awaits), f"{uid} awaits nobody"
                assert state.is_claiming(uid) == (uid in self.waiting)
            heads = {QueueHead(queue.name) for queue in state.pending.queues.values()}
            assert state.allocations.promises.keys() - heads <= engine.claims().keys()
            assert engine.claims().keys() <= state.allocations.promises.keys()

    def _a_second_cycle_plans_nothing(self) -> None:
        """Fixed point."""
        again = self.engines[0].copy().cycle(self.now, self._fences(), 1)
        assert not again, decided(again)

    # -- the model's own sums ----------------------------------------------------------------------------------------

    def _usage(self) -> Usage:
        usage = Usage(self.tree)
        for uid, reservation in self.admitted.items():
            vertex = usage.tree.queues.get(reservation.queue or "")
            if vertex is not None:
                usage.add(vertex, reservation.usage(self.reclaimed.get(uid)))
        return usage

    def _fences(self) -> Fences:
        """Return fences in the same state."""
        copied = Fences()
        for fence in self.fences[0].fences("team"):
            copied.put_fence(fence)
        for pod in self.pods.values():
            copied.put_pod(pod)
        for uid, reservation in self.admitted.items():
            copied.put_reservation(reservation, self.reclaimed.get(uid))
        return copied

    def _fence_use(self) -> int:
        """Pods that exist, and pods that may come at any moment."""
        use = len(self.pods)
        for uid, reservation in self.admitted.items():
            if reservation.stopping is None:
                here = sum(1 for pod in self.pods.values() if pod.gang == uid)
                use += max(0, reservation.counts["main"] - here - self.reclaimed.get(uid, {}).get("main", 0))
        return use


def _most(vertex: Vertex, key: Any) -> int:
    """Return the most that a vertex may use: what it owns, and what it may borrow."""
    quota = vertex.quotas.get(key)
    if vertex.parent is None:
        return vertex.subtree.get(key, 0)
    if quota is None or quota.borrowing_limit is None:
        return 10**9
    return vertex.subtree.get(key, 0) + quota.borrowing_limit


def _place(gang: Gang) -> tuple[int, float, str]:
    return (-gang.priority, gang.created_seconds, gang.uid)


class FairEngineMachine(EngineMachine):
    """The same under fair sharing."""

    engine_settings = FAIR


HOW = settings(max_examples=40, stateful_step_count=25)
TestEngine = EngineMachine.TestCase
TestEngine.settings = HOW
TestFairEngine = FairEngineMachine.TestCase
TestFairEngine.settings = HOW


def test_every_preemption_policy_is_drawn() -> None:
    """The worlds above would prove nothing about a policy that they never hold."""
    assert {p.name for p in PreemptionPolicy} >= {"NEVER", "LOWER_PRIORITY", "ANY"}
