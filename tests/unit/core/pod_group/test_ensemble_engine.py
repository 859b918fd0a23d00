"""Jobs that share a PodGroup start together or not at all; all others as if nobody shared anything."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.random_worlds import gangs, vertices
from tests.unit.core.worlds import World, cohort, gang, group, policy, queue
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Preemption, PreemptionPolicy, Queue, StopPolicy
from webhook.core.model.settings import EngineSettings
from webhook.core.notation.names import MAX_JOBS
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.core.quota.fence import Fence
from webhook.core.reasons.barriers import reason_of
from webhook.core.reasons.reasons import Code
from webhook.core.scheduler.engine import Engine

LOWER = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)


class Shared(World):
    """A world whose engine knows of ensembles, and a ledger that takes what it plans."""

    def __init__(self, *queues: Any, **more: Any) -> None:
        super().__init__(*queues, **more)
        self.engine: EnsembleEngine = EnsembleEngine()
        self.set_policy(*queues, **more)
        self.ledger: dict[str, Reservation] = {}

    def start(self) -> list[str]:
        """Run a cycle and keep what it admits; return the names."""
        plan = self.plan()
        for reservation in (*plan.admitted, *plan.grown):
            self.ledger[reservation.uid] = reservation
        return [reservation.name for reservation in plan.admitted]

    def stop(self, *names: str) -> "Shared":
        for name in names:
            self.ledger[name] = replace(self.ledger[name], stopping="Stopped")
            self.engine.restore(self.ledger[name])
        return self

    def gone(self, *names: str) -> "Shared":
        for name in names:
            del self.ledger[name]
        self.end(*names)
        return self

    def code(self, name: str) -> Code | None:
        reason = self.engine.reason(name)
        return None if reason is None else reason.code


def job(name: str, pods: int = 2, quorum: int = 4, **more: Any) -> Gang:
    """A job of the PodGroup ``ring``."""
    return gang(name, "q", pods=pods, quorum=quorum, ensemble="ring", pod_group="ring", **more)


def running(pods: int = 4) -> Shared:
    """Two jobs of two pods each that run together."""
    world = Shared(queue("q", pods, preemption=LOWER))
    world.submit(job("a", created=1.0), job("b", created=2.0))
    assert world.start() == ["a", "b"]
    return world


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_they_wait_until_there_is_room_for_all_and_then_start_in_one_plan() -> None:
    world = Shared(queue("q", 4))
    world.submit(gang("first", "q"))
    assert world.start() == ["first"]
    world.submit(job("a"), job("b"))
    assert world.start() == []
    for name in "ab":
        assert world.code(name) is Code.WAITING_FOR_QUOTA
        assert "asks for 4 cpu; queue q has 4, 1 used" in world.why(name)
        assert world.engine.queue_of(name) == "q"
    plan = world.gone("first").plan()
    assert [r.uid for r in plan.admitted] == ["a", "b"]
    assert all(r.membership is not None and r.membership.quorum == 4 for r in plan.admitted)
    assert world.used("q") == 4


def test_one_whose_group_is_incomplete_is_told_how_many_pods_are_missing() -> None:
    world = Shared(queue("q", 9))
    world.submit(job("a", quorum=8), job("b", quorum=8))
    assert world.start() == []
    assert world.code("a") is Code.POD_GROUP_INCOMPLETE
    assert "PodGroup team/ring needs 8 pods, its jobs that wait bring 4" in world.why("a")
    assert world.engine.position("a") is None
    assert [g.uid for g in world.engine.waiting()] == ["a", "b"]
    world.submit(job("c", pods=4, quorum=8))
    assert world.start() == ["a", "b", "c"]


def test_jobs_of_different_queues_or_priorities_are_told_so() -> None:
    world = Shared(queue("q", 9), queue("r", 9))
    world.submit(job("a"), replace(job("b"), queue="r"))
    assert world.start() == []
    assert world.code("a") is world.code("b") is Code.MISCONFIGURED
    world.submit(job("b", priority=1))
    assert world.start() == []
    assert "priorities (0, 1)" in world.why("a")
    world.submit(job("b"))
    assert world.start() == ["a", "b"]


def test_the_place_is_that_of_the_earliest_and_others_stand_behind_all() -> None:
    world = Shared(queue("q", 1))
    world.submit(job("a", created=5.0), gang("lone", "q", created=3.0, pods=2), job("b", created=1.0))
    assert [g.uid for g in world.engine.waiting("q")] == ["b", "a", "lone"]
    assert [world.engine.position(name) for name in ("a", "b", "lone")] == [0, 0, 1]


def test_who_joins_leaves_or_changes_while_it_waits_changes_what_is_asked() -> None:
    world = Shared(queue("q", 4))
    world.submit(job("a"), job("b", pods=3))
    assert world.start() == ["a", "b"], "5 pods of which 4 are enough"
    world = Shared(queue("q", 3))
    world.submit(job("a"), job("b"))
    assert world.start() == []
    world.engine.withdraw("b")
    assert world.code("a") is Code.POD_GROUP_INCOMPLETE
    world.submit(job("b", pods=1, quorum=3), job("a", quorum=3))
    assert world.start() == ["a", "b"]


def test_one_that_names_another_pod_group_now_is_part_of_that() -> None:
    world = Shared(queue("q", 4))
    world.submit(job("a"), job("b"), replace(job("b"), ensemble="", quorum=None))
    assert world.start() == ["b"]
    assert world.code("a") is Code.POD_GROUP_INCOMPLETE


def test_the_first_jobs_that_bring_enough_start_and_grow_and_the_others_follow_each_by_itself() -> None:
    world = Shared(queue("q", 3))
    world.submit(*(job(name, pods=2, quorum=3, created=float(i)) for i, name in enumerate("abcd")))
    assert world.code("c") is Code.BEHIND_HEAD
    assert world.start() == ["a", "b"]
    assert [world.ledger[name].counts["main"] for name in "ab"] == [2, 1]
    assert world.code("d") is Code.WAITING_FOR_QUOTA
    world.set_policy(queue("q", 6))
    plan = world.plan()
    assert [(r.uid, r.counts["main"], r.membership) for r in plan.admitted] == [("c", 2, None)], "by itself, whole"
    assert {r.uid: r.counts["main"] for r in plan.grown} == {"b": 2}
    assert all(r.membership is not None for r in plan.grown)


def test_a_job_that_is_enough_by_itself_starts_whole_and_the_other_after_it() -> None:
    world = Shared(queue("q", 4))
    world.submit(job("a", pods=4), job("b", pods=4, created=1.0))
    assert [gang.uid for gang in world.engine.waiting()] == ["a", "b"]
    assert world.start() == ["a"]
    assert world.ledger["a"].counts == {"main": 4}
    assert world.code("b") is Code.WAITING_FOR_QUOTA
    world.set_policy(queue("q", 8))
    assert world.start() == ["b"]


def test_a_job_of_no_pods_is_no_part_of_what_starts_together() -> None:
    world = Shared(queue("q", 4))
    world.submit(job("none", pods=0))
    assert world.start() == []
    assert world.code("none") is Code.POD_GROUP_INCOMPLETE
    world.submit(job("a", created=1.0), job("b", created=2.0))
    assert world.start() == ["a", "b"]


def test_each_job_counts_where_jobs_are_counted() -> None:
    world = Shared(queue("q", 9, group(default={MAX_JOBS: 1})))
    world.submit(job("a"), job("b"))
    assert world.start() == []
    world.set_policy(queue("q", 9, group(default={MAX_JOBS: 2})))
    assert world.start() == ["a", "b"]
    assert world.used("q", MAX_JOBS) == 2


# -- running ----------------------------------------------------------------------------------------------------------


def test_a_job_that_comes_when_its_group_runs_is_a_gang_of_its_own() -> None:
    world = running(pods=5)
    world.submit(job("c", created=3.0))
    assert world.start() == []
    assert world.code("c") is Code.WAITING_FOR_QUOTA, "it is judged whole"
    world.set_policy(queue("q", 6))
    assert world.start() == ["c"]
    assert world.ledger["c"].membership is None


def test_a_job_whose_group_runs_by_jobs_admitted_alone_is_a_gang_of_its_own_too() -> None:
    world = Shared(queue("q", 9))
    world.submit(job("a", pods=4))
    assert world.start() == ["a"]
    assert world.ledger["a"].membership is None
    world.submit(job("b", pods=1))
    assert world.start() == ["b"]


def test_what_runs_of_a_group_counts_for_those_who_come_to_it() -> None:
    world = Shared(queue("q", 9))
    world.submit(job("a", pods=4))
    assert world.start() == ["a"]
    world.submit(job("b", pods=1, quorum=6))
    assert world.start() == []
    assert "needs 6 pods, its jobs that wait bring 1 and 4 run" in world.why("b")
    world.submit(job("c", pods=1, quorum=6), job("b", pods=1, quorum=6))
    assert world.start() == ["b", "c"]
    assert world.ledger["b"].membership is not None
    assert world.ledger["b"].membership.quorum == 2


def test_victims_are_whole_ensembles() -> None:
    world = running()
    world.submit(gang("high", "q", pods=1, priority=9))
    plan = world.plan()
    assert [(p.uid, p.by) for p in plan.preempted] == [("a", "high"), ("b", "high")]
    assert world.stop("a", "b").start() == []
    assert world.gone("a").start() == ["high"], "it needs no more than that"


def test_a_preemptor_that_is_an_ensemble_is_named_by_a_job() -> None:
    world = Shared(queue("q", 4, preemption=LOWER))
    world.submit(gang("low", "q", pods=1))
    assert world.start() == ["low"]
    world.submit(job("a", priority=5), job("b", priority=5))
    plan = world.plan()
    assert [(p.uid, p.by) for p in plan.preempted] == [("low", "a")]
    assert world.code("a") is world.code("b") is Code.WAITING_FOR_PREEMPTED
    assert world.stop("low").gone("low").start() == ["a", "b"]


def test_the_pods_of_an_ensemble_that_is_stopped_leave_the_fence() -> None:
    world = running()
    world.fences.put_fence(Fence("team", "hard", {"pods": 4000}))
    world.submit(gang("urgent", "q", pods=4, priority=9))
    assert [p.uid for p in world.plan().preempted] == ["a", "b"]
    assert world.stop("a", "b").gone("a", "b").start() == ["urgent"]


def in_one_cohort(*more: Gang) -> Shared:
    """Two queues of 2 cpu in a cohort, of which ``q`` borrows what ``owners`` take back in the same cycle."""
    reclaims = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    world = Shared(*(queue(name, 2, cohort="all", preemption=reclaims) for name in ("q", "owners")), cohort("all"))
    large, owner = (gang(name, "owners", pods=pods, created=9.0 + pods) for name, pods in (("large", 4), ("owner", 2)))
    return world.submit(*more, large, replace(owner, created_seconds=20.0))


def test_what_one_plan_admits_and_stops_is_named_job_by_job() -> None:
    world = in_one_cohort(job("a", pods=1, quorum=3, created=1.0), job("b", pods=2, quorum=3, created=2.0))
    plan = world.plan()
    assert [r.uid for r in plan.admitted] == ["a", "b"]
    assert [(p.uid, p.by) for p in plan.preempted] == [("a", "owner"), ("b", "owner")]


def test_what_one_plan_admits_and_stops_and_is_turned_back_is_awaited_by_nobody() -> None:
    together = (job("a", pods=1, quorum=3, created=1.0), job("b", pods=2, quorum=3, created=2.0))
    for admitted in (together, (gang("alone", "q", pods=3, created=1.0),)):
        world = in_one_cohort(*admitted)
        assert (len(world.plan().preempted), world.engine.claims().keys()) == (len(admitted), {"owner"})
        for each in admitted:
            world.engine.turn_back(each.uid)
            world.fences.drop_reservation(each.namespace, each.uid)
        assert world.engine.claims() == {}
        assert [each.uid for each in world.plan().admitted] == ["large"], "nobody claims, the first in order goes"


def test_who_was_to_join_those_that_the_same_plan_stops_waits_with_them() -> None:
    world = Shared(queue("q", 4, preemption=LOWER))
    world.submit(job("a", pods=1, quorum=2, created=1.0), job("b", pods=1, quorum=2, created=2.0))
    assert world.start() == ["a", "b"]
    world.submit(job("late", pods=1, quorum=2, created=3.0, priority=5), gang("urgent", "q", pods=3, priority=4))
    plan = world.plan()
    assert [p.uid for p in plan.preempted] == ["a", "b"]
    assert plan.admitted == ()
    world.stop("a", "b")
    assert world.code("late") is Code.SUSPENDED


def test_who_was_to_join_one_that_made_the_quorum_by_itself_and_is_stopped_waits_too() -> None:
    world = Shared(queue("q", 4, preemption=LOWER))
    world.submit(job("first", pods=2, quorum=2, created=1.0))
    assert world.start() == ["first"]
    world.submit(job("late", pods=1, quorum=2, created=3.0, priority=5), gang("urgent", "q", pods=3, priority=4))
    plan = world.plan()
    assert [p.uid for p in plan.preempted] == ["first"]
    assert plan.admitted == ()
    assert world.stop("first").gone("first").start() == ["urgent"]
    assert world.code("late") is Code.POD_GROUP_INCOMPLETE, "of the two pods it needs it brings one"


def test_they_wait_for_the_last_of_them_and_come_back_as_one() -> None:
    world = running().stop("a", "b").gone("a")
    world.submit(job("a", created=1.0))
    assert world.start() == []
    assert world.code("a") is Code.SUSPENDED
    assert "team/b" in world.why("a")
    world.gone("b").submit(job("b", created=2.0))
    assert world.start() == ["a", "b"]


def test_the_part_of_one_that_has_ended_is_free_while_the_others_run() -> None:
    world = running()
    world.engine.restore(replace(world.ledger["a"], membership=None))
    assert world.engine.siblings("b") == []
    assert world.engine.siblings("a") == []
    assert world.used("q") == 4
    world.gone("a")
    assert world.used("q") == 2
    world.submit(gang("lone", "q", pods=2))
    assert world.start() == ["lone"]


def test_what_is_left_of_an_ensemble_needs_so_much_less_when_it_comes_back() -> None:
    world = Shared(queue("q", 4))
    world.submit(replace(job("b"), succeeded_pods=2))
    assert world.start() == ["b"]
    kept = world.ledger["b"].membership
    assert kept is not None
    assert (kept.quorum, kept.succeeded_pods, kept.still_needed) == (4, 2, 2), "and it is remembered for the next time"


def test_another_leader_composes_the_ensemble_from_the_ledger() -> None:
    ledger = Ledger(1, 1, dict(running().ledger))
    world = Shared(queue("q", 4, preemption=LOWER))
    for reservation in ledger.entries.values():
        world.engine.restore(reservation, job(reservation.name))
        world.ledger[reservation.uid] = reservation
    assert world.engine.siblings("a") == ["b"]
    world.submit(gang("high", "q", pods=1, priority=9))
    assert [p.uid for p in world.plan().preempted] == ["a", "b"]


def test_an_ensemble_has_no_pods_to_come_of_a_job_that_another_leader_does_not_know() -> None:
    """As where it is gone and its pods are not: each change had it looked at again, whether it could grow."""
    ledger, world = running().ledger, Shared(queue("q", 9))
    for name, known in (("a", job("a", pods=3)), ("b", None)):
        world.engine.restore(ledger[name], known)
    assert world.engine.partial() == ["ensemble team/ring"]
    assert [each.counts for each in world.plan().grown] == [{"main": 3}]
    assert world.engine.partial() == []


def test_a_queue_that_drains_takes_all_of_them() -> None:
    world = running()
    world.set_policy(queue("q", 4, stop_policy=StopPolicy.HOLD_AND_DRAIN))
    assert [each.uid for each in world.plan().stopped] == ["a", "b"]


def test_each_claims_its_own_part_of_a_fence() -> None:
    world = Shared(queue("q", 9))
    world.fences.put_fence(Fence("team", "hard", {"pods": 4000}))
    world.submit(job("a"), job("b"), gang("c", "q", created=9.0))
    assert world.start() == ["a", "b"]
    short = world.fences.pod_shortfall("team", gang("x", None).pod_sets[0].price)
    assert short is not None
    assert "team/a (2)" in str(reason_of(short))
    world.gone("a")
    assert world.start() == ["c"]


def test_a_grown_ensemble_claims_once() -> None:
    world = Shared(queue("q", 9))
    world.fences.put_fence(Fence("team", "hard", {"pods": 3000}))
    world.submit(job("a", quorum=3), job("b", quorum=3))
    assert world.start() == ["a", "b"]
    world.fences.put_fence(Fence("team", "hard", {"pods": 5000}))
    world.engine.wake_namespace("team")
    assert world.start() == []
    assert sum(r.counts["main"] for r in world.ledger.values()) == 4
    world.submit(gang("lone", "q"))
    assert world.start() == ["lone"], "4 of 5 pods are claimed, not 8"


def test_a_copy_goes_its_own_way() -> None:
    world = Shared(queue("q", 3))
    world.submit(job("a"), job("b"))
    twin = world.engine.copy()
    twin.set_policy(policy(queue("q", 4)), {"team": {}}, 0.0)
    assert [r.name for r in twin.cycle(0.0, world.fences, 1).admitted] == ["a", "b"]
    assert world.start() == []


# -- in general -------------------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=60)
def test_a_group_of_one_job_is_decided_as_if_it_shared_nothing(data: st.DataObject) -> None:
    drawn = data.draw(vertices())
    names = [node.name for node in drawn if isinstance(node, Queue)]
    plain, shared = World(*drawn), World(*drawn)
    shared.engine = EnsembleEngine()
    shared.set_policy(*drawn)
    for number in range(data.draw(st.integers(1, 8))):
        each = data.draw(gangs(f"g{number}", names))
        lone = replace(each, ensemble=f"of-{each.uid}") if each.quorum is not None else each
        plain.submit(each)
        shared.submit(lone)
    one, other = plain.plan(), shared.plan()
    assert one == other
    uids = [g.uid for g in plain.engine.waiting()]
    assert uids == [g.uid for g in shared.engine.waiting()]
    for uid in uids:
        assert str(plain.engine.reason(uid)) == str(shared.engine.reason(uid))
        assert plain.engine.position(uid) == shared.engine.position(uid)


@given(st.data())
@settings(max_examples=100)
def test_no_plan_starts_stops_or_counts_part_of_an_ensemble(data: st.DataObject) -> None:
    drawn = data.draw(vertices(draining=True))
    names = [node.name for node in drawn if isinstance(node, Queue)]
    world = Shared(*drawn)
    known: dict[str, Gang] = {}
    for step in range(data.draw(st.integers(2, 12))):
        each = data.draw(gangs(f"g{step}", names))
        if data.draw(st.booleans()):
            shared = {"ensemble": data.draw(st.sampled_from(["ring", "star"])), "quorum": 4, "evictable": True}
            each = replace(each, **shared, queue=data.draw(st.sampled_from([names[0], each.queue])))
        known[each.uid] = each
        world.submit(each)
        before = dict(world.ledger)
        plan = world.plan()
        for reservation in (*plan.admitted, *plan.grown):
            world.ledger[reservation.uid] = reservation
        stopped = [*(p.uid for p in plan.preempted), *(each.uid for each in plan.stopped)]
        for uid in stopped:
            world.ledger[uid] = replace(world.ledger[uid], stopping="Stopped")
            world.engine.restore(world.ledger[uid])
        _whole_or_not_at_all(world, known, before)
        _engine_charges_what_the_ledger_says(world)
        for uid in [uid for uid, entry in world.ledger.items() if entry.stopping and data.draw(st.booleans())]:
            world.gone(uid)
            world.submit(known[uid])


def _whole_or_not_at_all(world: Shared, known: dict[str, Gang], before: dict[str, Reservation]) -> None:
    for name in ("ring", "star"):
        held = [r for uid, r in world.ledger.items() if known[uid].ensemble == name and r.stopping is None]
        if any(r.uid not in before for r in held):
            assert sum(sum(r.counts.values()) for r in held) >= 4
        members = [r for r in world.ledger.values() if r.membership is not None and r.membership.ensemble == name]
        assert len({r.stopping for r in members}) <= 1
        assert len({r.queue for r in members}) <= 1


def _engine_charges_what_the_ledger_says(world: Shared) -> None:
    charged: dict[Any, int] = {}
    for name in world.policy.queues:
        for key, amount in world.engine.usage(name).items():
            if amount:
                charged[name, key] = amount
    held: dict[Any, int] = {}
    for reservation in world.ledger.values():
        for key, amount in reservation.usage().items():
            if amount and reservation.queue is not None:
                held[reservation.queue, key] = held.get((reservation.queue, key), 0) + amount
    assert charged == held


def test_an_engine_without_shared_groups_is_the_plain_engine() -> None:
    plain, shared = Engine(EngineSettings()), EnsembleEngine(Engine(EngineSettings()))
    assert plain.next_wake(0.0) == shared.next_wake(0.0)
    assert shared.reason("nobody") is None
    assert shared.queue_of("nobody") is None
    assert shared.siblings("nobody") == []
    shared.withdraw("nobody")
    shared.release("nobody")
