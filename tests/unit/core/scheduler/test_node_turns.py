"""More shapes wait for nodes than are looked at in one round, or than are kept: who may start does so all the same."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.core.worlds import LABELS, gang, group, policy, queue
from webhook.core.assignment.decision import Decision
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import Flavor, NodeFit, Preemption, PreemptionPolicy
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes import capacity, turns
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.nodes.ranking import Ranking
from webhook.core.nodes.shape import Shape, shape_of
from webhook.core.pending.pending_queue import EquivalenceClass
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.quota.fences import Fences
from webhook.core.reasons.reasons import Code
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan
from webhook.core.scheduler.state import State

NAMED = {"kubernetes.io/hostname": "n0"}
OWN, RENTED = Flavor("own", {"kind": "own"}), Flavor("rented", {"kind": "rented"}, node_fit=NodeFit.OBSERVE)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round looks at four new shapes at ten nodes, and eight are kept."""
    monkeypatch.setattr(turns, "ROUND_VISITS", 40)
    monkeypatch.setattr(turns, "ROUND_SHAPES", 4)
    monkeypatch.setattr(capacity, "SHAPES_MAX", 8)


class Crowd:
    """An engine and ten nodes, beside many gangs of another tenant that no node is large enough for."""

    def __init__(self, crowd: int) -> None:
        self.engine, self.nodes, self.now = Engine(EngineSettings()), Capacity(), 0.0
        preemption = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
        both = queue("both", None, group(own={"cpu": 100}, rented={"cpu": 8}), preemption=preemption)
        queues = (queue("crowd", 10**6), queue("q", 1000), both)
        self.engine.set_policy(policy(*queues, flavors=(OWN, RENTED)), LABELS, 0.0)
        for number in range(10):
            self.nodes.put_node(
                NodeRecord(f"n{number}", {"cpu": 4000}, {"kind": "own", "kubernetes.io/hostname": f"n{number}"})
            )
        self.engine.know_nodes(self.nodes)
        for number in range(crowd):
            self.engine.submit(gang(f"big{number}", "crowd", cpu=5 + number, created=float(number)), 0.0)

    def cycle(self) -> Plan:
        self.now += 1.0
        return self.engine.cycle(self.now, Fences(), epoch=1)

    def starts_within(self, rounds: int) -> list[str]:
        return [each.name for _ in range(rounds) for each in self.cycle().admitted]


AMOUNTS = st.integers(1, 60)
GANGS = st.lists(AMOUNTS, min_size=1, max_size=3, unique=True)
EVENTS = st.one_of(
    st.tuples(st.just("submit"), GANGS), st.tuples(st.just("withdraw"), AMOUNTS), st.tuples(st.just("cycle"), AMOUNTS)
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, min_size=10, max_size=60))
def test_when_all_is_quiet_nobody_waits_who_fits(events: list[tuple[str, int | list[int]]]) -> None:
    """Each gang asks one to three shapes, in tenths of a node and up to six nodes' worth."""
    world, there = Crowd(0), list[str]()
    for event, chosen in events:
        if isinstance(chosen, list):
            there.append(f"gang{len(there)}")
            sets = tuple(PodSet(f"s{cpu}", 1, PodPrice({"cpu": 400 * cpu})) for cpu in chosen)
            world.engine.submit(gang(there[-1], "q", pod_sets=sets, created=world.now), world.now)
        elif event == "withdraw" and there:
            world.engine.withdraw(there[chosen % len(there)])
            world.engine.release(there[chosen % len(there)])
        else:
            world.cycle()
    for _ in range(3 * len(events)):
        world.cycle()
    assert world.engine.next_wake(world.now) is None
    for waiting in world.engine.waiting():
        asked = [Asked(each.name, shape_of(each, ()), each.count) for each in waiting.pod_sets]
        assert isinstance(place(world.nodes.copy(), asked), Misplaced), waiting.name


def two_shapes(name: str) -> PodSet:
    return PodSet(name, 1, PodPrice({"cpu": 1000}), node_selector={"kind": "own"} if name == "worker" else {})


@pytest.mark.parametrize("crowd", [6, 8, 9, 20, 60])
def test_a_gang_of_two_shapes_has_its_turn_among_any_number_of_others(crowd: int) -> None:
    world = Crowd(crowd)
    for _ in range(crowd):
        world.cycle()
    sets = (two_shapes("leader"), two_shapes("worker"))
    world.engine.submit(gang("wide", "q", pod_sets=sets, created=100.0), world.now)
    assert world.starts_within(3) == ["wide"]


@pytest.mark.parametrize("freed", [False, True])
def test_its_turn_comes_also_while_nodes_become_free_all_the_time(freed: bool) -> None:
    world = Crowd(60)
    sets = tuple(
        PodSet(f"s{number}", 1, PodPrice({"cpu": 100 * (1 + number)}), node_selector={"kind": "own"})
        for number in range(7)
    )
    world.engine.submit(gang("wide", "q", pod_sets=sets, created=-1.0), world.now)
    started: list[str] = []
    for _ in range(40):
        if freed:
            world.engine.wake_nodes()
        started += world.starts_within(1)
    assert started == ["wide"]


@pytest.mark.parametrize("crowd", [6, 9, 30, 60])
@pytest.mark.parametrize("period", [2, 3])
def test_its_turn_is_not_lost_in_a_cycle_that_is_cut_short(crowd: int, period: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(capacity, "CHANGES_UNCOUNTED", 3)
    world = Crowd(crowd)
    world.engine.submit(gang("waits", "q", cpu=1, created=100.0), 0.0)
    for turn in range(30):
        # Nodes change all the time, and most cycles end before it is decided about.
        if turn % period:
            world.engine.submit(gang(f"first{turn}", "q", cpu=1, priority=9), world.now)
        for number in range(5):
            world.nodes.bind(f"pod{number}", Bound(f"n{(turn + number) % 10}", {"cpu": 1 + turn % 5}))
        world.engine.wake_nodes()
        world.now += 1.0
        started = [each.name for each in world.engine.cycle(world.now, Fences(), epoch=1, most=1).admitted]
        if "waits" in started:
            return
        for name in started:
            world.engine.release(name)
    pytest.fail("it waits for ever")


def test_pods_that_ask_nothing_of_nodes_may_go_anywhere_however_much_was_asked_before(monkeypatch: Any) -> None:
    monkeypatch.setattr(capacity, "ROUND_VISITS", 90)
    world, crew = Crowd(0), gang("crew", "both", cpu=1)
    assert not world.nodes.too_many([Shape((("cpu", number),)) for number in range(1, 10)], "crew")
    for number in range(10):
        world.nodes.put_node(NodeRecord(f"more{number}", {"cpu": 1}))
    assert world.engine.state.decider.places(crew, crew.counts, {"main": {"cpu": "rented"}}) is None


@pytest.mark.parametrize("crowd", [3, 8, 9, 60])
def test_cycles_end_when_all_were_looked_at_though_not_all_are_kept(crowd: int) -> None:
    world = Crowd(crowd)
    for _ in range(crowd):
        world.cycle()
    assert world.engine.next_wake(world.now) is None


def test_what_is_freed_is_given_to_those_that_are_not_kept() -> None:
    world = Crowd(30)
    world.engine.submit(gang("waits", "q", cpu=40, created=-1.0), 0.0)
    for _ in range(30):
        world.cycle()
    world.nodes.put_node(NodeRecord("large", {"cpu": 64_000}))
    world.engine.wake_nodes()
    assert "waits" in world.starts_within(15)


def wide(name: str, shapes: int, **settings: Any) -> Gang:
    """A gang of so many pods that all ask something else."""
    sets = tuple(PodSet(f"s{number}", 1, PodPrice({"cpu": 1 + number})) for number in range(shapes))
    return gang(name, "q", pod_sets=sets, **settings)


@pytest.mark.parametrize("shapes", [3, 7, 8])
@pytest.mark.parametrize("freed", [False, True])
def test_a_gang_of_as_many_shapes_as_are_kept_starts_beside_any_number_of_others(shapes: int, *, freed: bool) -> None:
    world = Crowd(30)
    for number in range(20):
        # They fit one by one and not together, so they are decided about again whenever nodes become free.
        sets = tuple(PodSet(f"{each}", 1, PodPrice({"cpu": 3990 + number}), node_selector=NAMED) for each in "ab")
        world.engine.submit(gang(f"pair{number}", "q", pod_sets=sets), 0.0)
    world.engine.submit(wide("wide", shapes, priority=100, created=100.0), 0.0)
    started: list[str] = []
    for _ in range(100):
        if freed:
            world.engine.wake_nodes()
        started += world.starts_within(1)
    assert "wide" in started


def test_a_gang_of_more_shapes_than_are_kept_starts_where_there_are_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "ROUND_VISITS", 90)
    world = Crowd(0)
    world.engine.submit(wide("wide", 9), 0.0)
    world.engine.submit(wide("wider", 10), 0.0)
    assert world.starts_within(12) == ["wide"]
    assert world.engine.next_wake(world.now) is None
    reason = world.engine.reason("wider")
    assert reason is not None
    assert reason.code is Code.NODES_DO_NOT_FIT
    assert reason.message == "its pods ask 10 different things of nodes, too many to be looked at together"


def test_a_gang_is_looked_at_on_one_flavor_after_the_other_though_they_are_not_all_kept() -> None:
    world = Crowd(12)
    flavors = tuple(Flavor(f"f{number}", {"kind": f"{number}"}) for number in range(9))
    many = queue("many", None, group(**{each.name: {"cpu": 100} for each in flavors}))
    world.engine.set_policy(policy(queue("crowd", 10**6), many, flavors=flavors), LABELS, 0.0)
    for number in range(9):
        amount = 4000 if number == 8 else 1
        world.nodes.put_node(NodeRecord(f"f{number}", {"cpu": amount}, {"kind": f"{number}"}))
    sets = tuple(PodSet(f"s{number}", 1, PodPrice({"cpu": 100 + number})) for number in range(4))
    world.engine.submit(gang("train", "many", pod_sets=sets), 0.0)
    found = [each for _ in range(150) for each in world.cycle().admitted]
    assert [each.name for each in found] == ["train"]
    assert {name for flavor in found[0].flavors.values() for name in flavor.values()} == {"f8"}


class Kinds:
    """An engine and nodes of several kinds, one after the other tried by one queue; it counts looks at all nodes."""

    def __init__(self, kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine, self.nodes, self.now, self.looks = Engine(EngineSettings()), Capacity(), 0.0, 0
        flavors = tuple(Flavor(f"f{number}", {"kind": f"{number}"}) for number in range(kinds))
        many = queue("q", None, group(**{each.name: {"cpu": 10**6} for each in flavors}))
        self.engine.set_policy(policy(many, flavors=flavors), LABELS, 0.0)
        for number in range(10):
            self.nodes.put_node(NodeRecord(f"n{number}", {"cpu": 4000}, {"kind": f"{number % kinds}"}))
        self.engine.know_nodes(self.nodes)

        def counted(shape: Shape, scarce: str) -> Ranking:
            self.looks += 1
            return Ranking(shape, scarce)

        monkeypatch.setattr(capacity, "Ranking", counted)

    def cycle(self) -> Plan:
        self.now, self.looks = self.now + 1.0, 0
        return self.engine.cycle(self.now, Fences(), epoch=1)


def of_shapes(shapes: int) -> Gang:
    """A gang that fits one kind pod set by pod set, and not all of them together."""
    sets = tuple(PodSet(f"s{number}", 2, PodPrice({"cpu": 3900 + number})) for number in range(shapes))
    return gang("wide", "q", pod_sets=sets)


@pytest.mark.parametrize(("kinds", "shapes"), [(2, 4), (4, 2), (2, 6), (5, 4), (9, 4)])
def test_no_round_looks_at_more_than_its_share_on_however_many_flavors(
    kinds: int, shapes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "ROUND_VISITS", 40)
    world = Kinds(kinds, monkeypatch)
    world.engine.submit(of_shapes(shapes), 0.0)
    rounds = 0
    while world.engine.next_wake(world.now) is not None or not rounds:
        world.cycle()
        rounds += 1
        assert world.looks <= 4
        assert rounds < 50
    reason = world.engine.reason("wide")
    assert reason is not None
    assert reason.code is Code.NODES_DO_NOT_FIT
    assert ("too many to be looked at together" in reason.message) is (kinds * shapes > 8)


@pytest.mark.parametrize("kinds", [2, 4, 8])
def test_a_gang_whose_shapes_are_kept_on_all_flavors_starts_on_the_last(
    kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "ROUND_VISITS", 40)
    world = Kinds(kinds, monkeypatch)
    for number in range(8 // kinds):
        world.nodes.put_node(NodeRecord(f"last{number}", {"cpu": 6000}, {"kind": f"{kinds - 1}"}))
    sets = tuple(PodSet(f"s{number}", 1, PodPrice({"cpu": 5000 + number})) for number in range(8 // kinds))
    world.engine.submit(gang("wide", "q", pod_sets=sets), 0.0)
    started = [each.name for _ in range(20) for each in world.cycle().admitted]
    assert started == ["wide"]


KINDS_EVENTS = st.one_of(EVENTS, st.tuples(st.just("use"), AMOUNTS))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(KINDS_EVENTS, min_size=10, max_size=60))
def test_when_all_is_quiet_nobody_waits_who_fits_some_flavor(events: list[tuple[str, int | list[int]]]) -> None:
    """Pods of others come and go meanwhile, so that what was looked at falls behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "ROUND_VISITS", 40)
        patch.setattr(capacity, "CHANGES_UNCOUNTED", 3)
        world, there, used = Kinds(2, patch), list[str](), list[str]()
        for event, chosen in events:
            if isinstance(chosen, list):
                there.append(f"gang{len(there)}")
                sets = tuple(PodSet(f"s{cpu}", 1, PodPrice({"cpu": 100 * cpu})) for cpu in chosen)
                world.engine.submit(gang(there[-1], "q", pod_sets=sets, created=world.now), world.now)
            elif event == "withdraw" and there:
                world.engine.withdraw(there[chosen % len(there)])
                world.engine.release(there[chosen % len(there)])
            elif event == "use":
                for number in range(chosen % 11):
                    used.append(f"pod{len(used)}")
                    world.nodes.bind(used[-1], Bound(f"n{number}", {"cpu": 100}))
                for uid in used[: -chosen // 2]:
                    world.nodes.unbind(uid)
                world.engine.wake_nodes()
            else:
                world.cycle()
                assert world.looks <= 4
        for _ in range(6 * len(events)):
            world.cycle()
        assert world.engine.next_wake(world.now) is None
        for waiting in world.engine.waiting():
            for kind in range(2):
                flavors = {"f": Flavor(f"f{kind}", {"kind": f"{kind}"})}
                asked = [Asked(each.name, shape_of(each, flavors), each.count) for each in waiting.pod_sets]
                assert isinstance(place(world.nodes.copy(), asked), Misplaced), (waiting.name, kind)


def test_no_turn_is_kept_for_gangs_that_are_gone() -> None:
    world = Crowd(60)
    world.cycle()
    for number in range(60):
        world.engine.withdraw(f"big{number}")
    world.engine.submit(gang("small", "q", cpu=1), world.now)
    assert world.starts_within(1) == ["small"]
    assert not world.nodes.due


def test_a_look_that_is_put_off_sends_no_gang_to_another_flavor() -> None:
    world = Crowd(12)
    world.engine.submit(gang("train", "both", cpu=4, pods=2, created=50.0), 0.0)
    plans = [world.cycle() for _ in range(6)]
    found = [each for plan in plans for each in plan.admitted]
    assert [(each.name, each.flavors) for each in found] == [("train", {"main": {"cpu": "own"}})]


def test_a_look_that_is_put_off_stops_nobody_on_another_flavor() -> None:
    world = Crowd(0)
    rented = gang("low", "both", cpu=4, pods=2, priority=-1, placement={"node_selector": {"kind": "rented"}})
    world.engine.submit(rented, 0.0)
    assert world.starts_within(1) == ["low"]
    for number in range(12):
        world.engine.submit(gang(f"big{number}", "crowd", cpu=5 + number, priority=5), world.now)
    world.engine.submit(gang("train", "both", cpu=4, pods=2, created=50.0), world.now)
    plans = [world.cycle() for _ in range(6)]
    assert [each.name for plan in plans for each in plan.admitted] == ["train"]
    assert not any(plan.preempted for plan in plans)


def test_a_smaller_size_does_not_win_because_a_larger_one_was_put_off() -> None:
    world = Crowd(12)
    elastic = gang("train", "both", cpu=4, pods=4, min_count=1, created=50.0)
    # Two pods fit the quota of the rented flavor, whose nodes nobody asks about.
    world.engine.submit(replace(elastic), 0.0)
    found = [each for _ in range(8) for each in world.cycle().admitted]
    assert [(each.name, each.counts, each.flavors) for each in found] == [
        ("train", {"main": 4}, {"main": {"cpu": "own"}})
    ]


def test_a_copy_goes_on_with_those_whose_turn_is_to_come() -> None:
    world = Crowd(12)
    world.engine.submit(gang("small", "q", cpu=1, created=50.0), 0.0)
    world.cycle()
    twin = world.engine.copy()
    found = [each.name for number in range(6) for each in twin.cycle(2.0 + number, Fences(), epoch=1).admitted]
    assert found == ["small"]


@pytest.mark.parametrize("crowd", [0, 12])
def test_a_look_that_is_put_off_lets_no_gang_grow_on_another_flavor(crowd: int) -> None:
    world = Crowd(0)
    main = PodSet("main", 2, PodPrice({"cpu": 1000}))
    crew = gang("crew", "both", pod_sets=(main,), quorum=2, joinable=True)
    world.engine.submit(crew, 0.0)
    (admitted,) = world.cycle().admitted
    for number in range(crowd):
        world.engine.submit(gang(f"big{number}", "crowd", cpu=5 + number, created=float(number)), world.now)
    joins = (PodSet("new", 1, PodPrice({"cpu": 2000})), PodSet("other", 1, PodPrice({"cpu": 1500})))
    world.engine.restore(admitted, replace(crew, pod_sets=(main, *joins)))
    grown = [each for _ in range(6) for each in world.cycle().grown]
    assert grown[-1].flavors == {name: {"cpu": "own"} for name in ("main", "new", "other")}


def test_cycles_are_not_taken_for_the_same_while_looks_are_still_to_come() -> None:
    world = Crowd(20)
    seen: list[object] = []
    while True:
        world.cycle()
        if not world.nodes.due:
            break
        seen.append(world.engine.undecided())
    assert len(seen) > 2
    assert len(set(seen)) == len(seen)


def test_no_round_looks_at_more_than_its_share_whoever_had_a_turn_before(monkeypatch: pytest.MonkeyPatch) -> None:
    world, looks = Crowd(60), list[Shape]()
    for _ in range(60):
        world.cycle()

    def counted(shape: Shape, scarce: str) -> Ranking:
        looks.append(shape)
        return Ranking(shape, scarce)

    monkeypatch.setattr(capacity, "Ranking", counted)
    for number in range(40):
        if number % 8 == 0:
            world.engine.wake_nodes()
        before = len(looks)
        world.cycle()
        assert len(looks) - before <= 4
    assert len(looks) > 60


@pytest.mark.parametrize("growing", [6, 9, 30])
def test_gangs_that_lack_pods_keep_no_cycle_going(growing: int) -> None:
    world = Crowd(0)
    for number in range(growing):
        main = PodSet("main", 2, PodPrice({"cpu": 10 + number}), 1)
        more = PodSet("more", 1, PodPrice({"cpu": 5000 + number}), 0)
        world.engine.submit(gang(f"crew{number}", "q", pod_sets=(main, more), quorum=2), 0.0)
    for _ in range(3 * growing):
        world.cycle()
    assert len(world.engine.partial()) == growing
    world.engine.wake_nodes()
    for _ in range(3 * growing):
        world.cycle()
    assert world.engine.next_wake(world.now) is None


def test_a_round_decides_again_only_about_those_whose_turn_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Crowd(40)
    world.cycle()
    decided: list[str] = []
    decide = State.decide

    def counted(state: State, eclass: EquivalenceClass, **how: bool) -> Decision:
        decided.append(eclass.head.uid)
        return decide(state, eclass, **how)

    monkeypatch.setattr(State, "decide", counted)
    world.cycle()
    assert len(decided) == 4


def test_a_question_changes_no_decision_and_waits_for_none() -> None:
    def starts(*, asked: bool) -> list[str]:
        world = Crowd(30)
        for _ in range(30):
            world.cycle()
        world.engine.submit(gang("low", "both", cpu=3, pods=10, created=40.0), world.now)
        if asked:
            reasons = [world.engine.reason(f"big{number}") for number in range(30)]
            assert not world.nodes.due
            assert all(reason is not None for reason in reasons)
            for each in ("low", *(f"big{number}" for number in range(30))):
                world.engine.reason(each)
        world.engine.submit(gang("high", "both", cpu=4, pods=10, priority=100, created=41.0), world.now)
        return world.starts_within(10)

    assert starts(asked=True) == starts(asked=False) == ["high"]


def test_questions_have_as_many_looks_in_each_round_as_decisions() -> None:
    world = Crowd(60)
    for _ in range(60):
        world.cycle()
    told: set[str] = set()
    for _ in range(20):
        world.cycle()
        for number in range(60):
            reason = world.engine.reason(f"big{number}")
            if reason is not None and reason.code is Code.NODES_DO_NOT_FIT:
                told.add(f"big{number}")
    assert len(told) > 8
    assert world.engine.next_wake(world.now) is None
