"""What must hold of every engine, whatever the policy and whatever happens."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.leaders import next_leader
from tests.unit.core.random_worlds import Run, assert_sound, gangs, limits
from tests.unit.core.worlds import LABELS, World, cohort, gang, queue
from webhook.core.ledger.record import Claim, Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Preemption, PreemptionPolicy, Strategy
from webhook.core.model.settings import EngineSettings
from webhook.core.pending.pending_queue import EquivalenceClass
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan

FAIR = EngineSettings(fair_sharing=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))
BOTH = pytest.mark.parametrize("rules", [EngineSettings(), FAIR], ids=["classical", "fair"])
few = settings(max_examples=40)


def decided(plan: Plan) -> tuple[object, ...]:
    return (
        [(r.uid, r.counts, [s.flavors for s in r.pod_sets]) for r in plan.admitted],
        sorted((p.uid, p.by, p.reason) for p in plan.preempted),
        [(r.uid, r.counts) for r in plan.grown],
    )


@BOTH
@few
@given(st.data())
def test_no_node_is_ever_oversubscribed_and_usage_is_the_sum_of_reservations(
    rules: EngineSettings, data: st.DataObject
) -> None:
    run = Run.start(data, rules)
    for _ in range(data.draw(st.integers(1, 5))):
        run.events()
        plan = run.cycle()
        assert_sound(run)
        run.stop_preempted(plan)
        assert_sound(run)


@BOTH
@few
@given(st.data())
def test_a_second_cycle_on_the_same_state_plans_nothing(rules: EngineSettings, data: st.DataObject) -> None:
    run = Run.start(data, rules)
    for _ in range(data.draw(st.integers(1, 4))):
        run.events()
        run.stop_preempted(run.cycle())
        run.cycle()
        assert not run.cycle()


@BOTH
@settings(max_examples=150)
@given(st.data())
def test_nobody_waits_who_could_start_whatever_became_free(rules: EngineSettings, data: st.DataObject) -> None:
    """Who is blocked is decided about again once it could start: of several flavors, resources and pod sets too."""
    run = Run.start(data, rules, resources=("cpu", "gpu"), strategies=tuple(Strategy))
    for _ in range(data.draw(st.sampled_from([8, 12, 16]))):
        run.submit()
    while True:
        for _ in range(60):
            plan = run.cycle()
            run.stop_preempted(plan)
            if not plan:
                break
        assert not [eclass.head.uid for eclass in in_turn(run) if run.world.engine.state.decide(eclass).fits]
        if not run.admitted:
            break
        run.end()


def in_turn(run: Run) -> list[EquivalenceClass]:
    """Return the classes of which nobody else's turn comes first."""
    queues = [
        queue
        for queue in run.world.engine.state.pending.queues.values()
        if queue.vertex is not None and not queue.closed
    ]
    eclasses = [
        (queue, eclass)
        for queue in queues
        for eclass in queue.eclasses.values()
        if eclass.ineligible is None and eclass.order
    ]
    return [eclass for queue, eclass in eclasses if not queue.strict or eclass is queue.strict_head()]


@pytest.mark.parametrize("bound", [{"most": 1}, {"looks": 1}])
@BOTH
@few
@given(st.data())
def test_one_cycle_decides_what_repeated_shorter_ones_would(
    rules: EngineSettings, bound: dict[str, int], data: st.DataObject
) -> None:
    run = Run.start(data, rules)
    for _ in range(data.draw(st.integers(1, 4))):
        run.events()
        twin, fences = run.world.engine.copy(), _copied(run.world)
        whole = run.cycle()
        steps = []
        while (plan := twin.cycle(run.world.now, fences, 1, **bound)) or twin.state.cut:
            steps.append(plan)
        together = Plan(
            tuple(r for plan in steps for r in plan.admitted),
            tuple(r for plan in steps for r in plan.grown),
            tuple(p for plan in steps for p in plan.preempted),
        )
        assert decided(together) == decided(whole)
        run.stop_preempted(whole)


@BOTH
@settings(max_examples=150)
@given(st.data())
def test_what_others_are_stopped_for_is_kept_for_it_whoever_leads(rules: EngineSettings, data: st.DataObject) -> None:
    """A new leader, which knows the ledger and who waits, starts what the old one would, from the same flavors."""
    run = Run.start(data, rules)
    for _ in range(data.draw(st.integers(4, 12))):
        run.submit()
    claims: dict[str, Claim] = {}
    for _ in range(8):
        run.cycle()
        claims = run.world.engine.claims()
        if claims:
            break
        run.submit()
    old = run.world.engine
    new = next_leader(run.world, run.known)
    assert new.claims() == claims
    newcomers = [data.draw(gangs(f"late{i}", run.queues)) for i in range(data.draw(st.integers(0, 2)))]
    started = []
    for engine in (old, new):
        fences = _copied(run.world)
        for newcomer in newcomers:
            engine.submit(newcomer, run.world.now)
        before = engine.cycle(run.world.now, fences, 2)
        for uid in awaited(claims):
            fences.drop_reservation("team", uid)
            engine.release(uid)
        after = engine.cycle(run.world.now, fences, 2)
        started.append({decided_of(r) for r in (*before.admitted, *after.admitted) if r.uid in claims})
    assert started[0] == started[1]


def awaited(claims: Mapping[str, Claim]) -> list[str]:
    return sorted({uid for claim in claims.values() for uid in claim.awaits})


def decided_of(reservation: Reservation) -> tuple[object, ...]:
    return reservation.uid, tuple((s.name, s.count, tuple(sorted(s.flavors.items()))) for s in reservation.pod_sets)


def _copied(world: World) -> Any:
    from copy import deepcopy

    return deepcopy(world.fences)


@BOTH
@few
@given(st.data())
def test_the_plan_does_not_depend_on_the_order_in_which_things_became_known(
    rules: EngineSettings, data: st.DataObject
) -> None:
    run = Run.start(data, rules)
    for _ in range(5):
        run.submit()
    twin = Engine(rules)
    policy = run.world.policy
    names = data.draw(st.permutations(sorted(policy.queues)))
    shuffled = replace(
        policy,
        queues={name: policy.queues[name] for name in names},
        cohorts=dict(reversed(list(policy.cohorts.items()))),
    )
    twin.set_policy(shuffled, LABELS, 0)
    for uid in data.draw(st.permutations(sorted(run.known))):
        twin.submit(run.known[uid], 0)
    assert decided(twin.cycle(0, _copied(run.world), 1)) == decided(run.cycle())
    assert [g.uid for g in twin.waiting()] == [g.uid for g in run.world.engine.waiting()]
    for waiting in twin.waiting():
        assert twin.reason(waiting.uid) == run.world.engine.reason(waiting.uid)


@BOTH
@few
@given(st.data())
def test_in_a_strict_queue_nobody_passes_the_head(rules: EngineSettings, data: st.DataObject) -> None:
    run = Run.start(data, rules, strategies=(Strategy.STRICT_FIFO,))
    for _ in range(data.draw(st.integers(1, 4))):
        run.events()
        plan = run.cycle()
        for reservation in plan.admitted:
            gang = run.known[reservation.uid]
            place = (-gang.priority, gang.created_seconds, gang.uid)
            for other in run.world.engine.waiting(reservation.queue):
                resting = other.not_before_seconds > run.world.now
                assert resting or (-other.priority, other.created_seconds, other.uid) > place
        run.stop_preempted(plan, again=False)


@BOTH
@few
@given(st.data())
def test_nobody_is_stopped_in_a_queue_that_uses_no_more_than_it_owns_but_by_its_own(
    rules: EngineSettings, data: st.DataObject
) -> None:
    run = Run.start(data, rules)
    for _ in range(data.draw(st.integers(1, 4))):
        run.events()
        plan = run.cycle()
        allocations = run.world.engine.state.allocations
        for preempted in plan.preempted:
            victim = allocations.by_uid[preempted.uid]
            vertex = allocations.vertex_of(victim)
            assert vertex is not None
            if run.known[preempted.by].queue != vertex.name:
                assert any(allocations.usage.of(vertex, key) > vertex.nominal(key) for key in victim.amounts)
        run.stop_preempted(plan)


@BOTH
@few
@given(st.data())
def test_stopping_and_starting_comes_to_an_end(rules: EngineSettings, data: st.DataObject) -> None:
    run = Run.start(data, rules)
    for _ in range(data.draw(st.integers(2, 10))):
        run.submit()
    for _ in range(60):
        plan = run.cycle()
        if not plan:
            break
        run.stop_preempted(plan)
    else:
        pytest.fail("gangs keep stopping each other")


@few
@given(st.data())
def test_every_waiting_gang_has_a_reason_and_no_admitted_one(data: st.DataObject) -> None:
    run = Run.start(data)
    for _ in range(data.draw(st.integers(1, 4))):
        run.events()
        run.stop_preempted(run.cycle())
        run.cycle()
        for waiting in run.world.engine.waiting():
            assert run.world.engine.reason(waiting.uid) is not None
            assert str(run.world.engine.reason(waiting.uid))
            in_queue = run.world.engine.waiting(run.world.engine.queue_of(waiting.uid))
            assert in_queue[run.world.engine.position(waiting.uid) or 0].uid == waiting.uid
        for uid in run.admitted:
            assert run.world.engine.reason(uid) is None


@few
@given(st.data())
def test_an_engine_rebuilt_from_the_ledger_and_the_waiting_decides_alike(data: st.DataObject) -> None:
    run = Run.start(data, preempting=False, strategies=(Strategy.BEST_EFFORT_FIFO,))
    for _ in range(data.draw(st.integers(1, 4))):
        run.events()
        state = run.world.engine.state
        rebuilt = Engine()
        rebuilt.set_policy(run.world.policy, LABELS, run.world.now)
        for allocation in state.allocations.by_uid.values():
            rebuilt.restore(allocation.reservation, allocation.gang)
        for waiting in run.world.engine.waiting():
            rebuilt.submit(waiting, run.world.now)
        other = rebuilt.cycle(run.world.now, _copied(run.world), 1)
        assert decided(other) == decided(run.cycle())


@BOTH
@settings(max_examples=200)
@given(st.data())
def test_sharing_incentive_within_one_gang(rules: EngineSettings, data: st.DataObject) -> None:
    """No queue is worse off than with its quota to itself, but for one gang: what waits does not fit what its queue
    owns and does not use, wherever the queue may take its own back and everybody can be stopped.
    """
    names = ["q0", "q1", "q2", "q3"][: data.draw(st.sampled_from([2, 3, 4]))]
    lower = data.draw(st.sampled_from([None, "low"]))
    back = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    leaves = [
        queue(
            name,
            (data.draw(st.sampled_from([4, 2, 6, 0])), data.draw(limits), data.draw(limits)),
            cohort=data.draw(st.sampled_from(["all", lower or "all"])),
            preemption=back,
        )
        for name in names
    ]
    world = World(*leaves, cohort("all"), *([cohort(lower, "all")] if lower else []), settings=rules)
    known = {}
    for number in range(data.draw(st.sampled_from([12, 4, 8]))):
        known[f"g{number}"] = gang(
            f"g{number}",
            data.draw(st.sampled_from(names)),
            data.draw(st.sampled_from([1, 1, 1, 2, 3])),
            created=number,
        )
        world.submit(known[f"g{number}"])
        if data.draw(st.sampled_from([False, True])):
            settle(world, known)
    settle(world, known)
    for name in names:
        # One that is as large as what its queue owns: many small ones may have to make room for it.
        owned = world.policy.queues[name].resource_groups[0].flavors[0].quotas["cpu"].nominal // 1000
        known[f"all-of-{name}"] = gang(f"all-of-{name}", name, owned, created=99)
        world.submit(known[f"all-of-{name}"])
        settle(world, known)
    for waiting in world.engine.waiting():
        assert waiting.queue is not None
        owned = world.policy.queues[waiting.queue].resource_groups[0].flavors[0].quotas["cpu"].nominal / 1000
        assert world.used(waiting.queue) + waiting.requests()["cpu"] / 1000 > owned


def settle(world: World, known: dict[str, Gang]) -> None:
    """Run cycles until nothing changes; what is stopped goes at once and waits again."""
    for _ in range(60):
        plan = world.plan()
        if not plan:
            return
        for preempted in plan.preempted:
            world.end(preempted.uid).submit(known[preempted.uid])
    pytest.fail("it never comes to rest")
