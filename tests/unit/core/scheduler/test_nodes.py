"""The engine with nodes: a gang starts where its pods fit, and not merely where its sums do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.worlds import LABELS, gang, group, policy, queue
from webhook.core.model.gang import Nearness, PodPrice, PodSet
from webhook.core.model.policy import Flavor, NodeFit, Preemption, PreemptionPolicy, Taint
from webhook.core.nodes import turns
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import PODS, Bound, NodeRecord
from webhook.core.nodes.shape import shape_of
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.quota.fences import Fences
from webhook.core.reasons.reasons import Code
from webhook.core.scheduler.engine import Engine


def engine(*queues: object, nodes: dict[str, int], flavors: tuple[Flavor, ...] = ()) -> tuple[Engine, Capacity]:
    """Nodes are called ``flavor-name`` where they belong to one."""
    made, there = Engine(), Capacity()
    made.set_policy(policy(*queues, flavors=flavors), LABELS, 0.0)  # type: ignore[arg-type]
    for name, cpu in nodes.items():
        there.put_node(NodeRecord(name, {"cpu": 1000 * cpu}, {"kind": name.partition("-")[0]}))
    made.know_nodes(there)
    return made, there


def admitted(made: Engine, now: float = 1.0) -> list[str]:
    return [each.name for each in made.cycle(now, Fences(), epoch=1).admitted]


def test_a_gang_whose_sums_fit_waits_until_its_pods_do_and_one_that_fits_starts() -> None:
    made, there = engine(queue("q", 16), nodes={"a": 4, "b": 4, "c": 4})
    there.bind("x", Bound("a", {"cpu": 2000}))
    there.bind("y", Bound("b", {"cpu": 2000}))
    made.submit(gang("small", "q", cpu=2, pods=3), 0.0)
    made.submit(gang("wide", "q", cpu=4, pods=2, created=1.0), 0.0)
    assert admitted(made) == ["small"]
    reason = made.reason("wide")
    assert reason is not None
    assert reason.code is Code.NODES_DO_NOT_FIT
    assert str(reason) == (
        "asks for 2 pods of 4 cpu; 0 fit now; of 3 nodes 3 take none: 3 lack cpu (2 free in pieces too small); "
        "held by team/small (6); "
        "it starts when 2 more of its pods fit"
    )
    for name in ("a", "b"):
        there.put_node(NodeRecord(f"{name}-large", {"cpu": 4000}))
    made.wake_nodes()
    assert admitted(made, 2.0) == ["wide"]


def test_of_a_pod_larger_than_any_node_it_is_told_that_no_room_will_ever_do() -> None:
    kinds = (Flavor("large", {"kind": "large"}),)
    made, there = engine(queue("q", None, group(large={"cpu": 64})), nodes={"large-a": 2, "large-b": 3}, flavors=kinds)
    there.put_node(NodeRecord("other", {"cpu": 8000}))
    made.submit(gang("giant", "q", cpu=4, pods=2), 0.0)
    assert admitted(made) == []
    text = "no node is large enough: one pod asks for 4 cpu, the largest that may take it has 3 cpu; "
    assert str(made.reason("giant")) == f"{text}let each pod ask for less, or have a larger node added"
    there.put_node(NodeRecord("large-c", {"cpu": 4000}, {"kind": "large"}))
    made.wake_nodes()
    assert str(made.reason("giant")) == (
        "pod set main asks for 2 pods of 4 cpu; the nodes that could take them (3) hold 1 when nothing else runs "
        "there, 1 too few; it cannot start: ask for fewer or smaller pods, or have nodes added"
    )


def test_a_gang_larger_than_all_nodes_is_told_by_how_much_and_promised_nothing_until_nodes_are_added() -> None:
    made, there = engine(queue("q", 64), nodes={"a": 4, "b": 4})
    there.put_node(NodeRecord("c", {"cpu": 4000}, cordoned=True))
    made.submit(gang("first", "q", pods=6), 0.0)
    assert admitted(made) == ["first"]
    made.submit(gang("wide", "q", cpu=2, pods=8, created=1.0), 1.0)
    assert admitted(made, 2.0) == []
    assert str(made.reason("wide")) == (
        "pod set main asks for 8 pods of 2 cpu; the nodes that could take them (3) hold 6 when nothing else runs "
        "there, 2 too few; it cannot start: ask for fewer or smaller pods, or have nodes added"
    ), "what is cordoned may come back, and who runs there may go"
    there.put_node(NodeRecord("d", {"cpu": 4000}))
    made.wake_nodes()
    reason = made.reason("wide")
    assert reason is not None
    assert not reason.is_never
    assert str(reason).startswith("asks for 8 pods of 2 cpu; 3 fit now; of 4 nodes 2 take none: ")
    assert "it starts when 5 more of its pods fit" in str(made.reason("wide"))


def test_pod_sets_that_would_fit_alone_and_never_together_are_told_what_they_ask_together() -> None:
    made, _ = engine(queue("q", 64), nodes={"a": 4, "b": 4})
    sets = tuple(PodSet(name, 2, PodPrice({"cpu": cpu * 1000})) for name, cpu in (("leader", 2), ("worker", 3)))
    made.submit(gang("pair", "q", pod_sets=sets), 0.0)
    assert admitted(made) == []
    assert str(made.reason("pair")) == (
        "its 2 pod sets ask for 10 cpu together; the nodes that could take them (2) have 8 cpu when nothing else runs "
        "there; it cannot start: ask for fewer or smaller pods, or have nodes added"
    )


def test_of_a_label_that_no_node_bears_it_is_told_which_and_no_start_is_promised() -> None:
    made, there = engine(queue("q", 16), nodes={"a": 4, "b": 4})
    made.submit(gang("picky", "q", placement={"node_selector": {"gpu": "h100"}}), 0.0)
    assert admitted(made) == []
    text = "asks for 1 pod of 1 cpu; 0 fit now; of 2 nodes 2 take none: 2 without label gpu=h100; "
    assert str(made.reason("picky")) == f"{text}change the labels that it asks of nodes, or have such nodes added"
    there.put_node(NodeRecord("c", {"cpu": 500}, {"gpu": "h100"}))
    made.wake_nodes()
    assert str(made.reason("picky")).endswith("or have a larger node added"), "one is there now, and too small"
    there.put_node(NodeRecord("c", {"cpu": 4000}, {"gpu": "h100"}, cordoned=True))
    made.wake_nodes()
    assert str(made.reason("picky")).endswith("it starts when 1 more of its pods fits"), "it may be uncordoned"


def test_of_taints_that_keep_a_gang_off_every_node_it_is_told_what_helps_and_no_start_is_promised() -> None:
    made, there = engine(queue("q", 16), nodes={})
    for name in ("a", "b"):
        there.put_node(NodeRecord(name, {"cpu": 4000}, taints=(Taint("repair", "", "NoSchedule"),)))
    made.submit(gang("train", "q", pods=2), 0.0)
    assert admitted(made) == []
    assert str(made.reason("train")) == (
        "asks for 2 pods of 1 cpu; 0 fit now; of 2 nodes 2 take none: 2 with taint repair not tolerated; "
        "have a taint removed, or give the pods a toleration for it"
    )


def test_what_one_cycle_admits_is_allotted_before_the_next_gang_is_asked_about() -> None:
    made, _ = engine(queue("q", 8), nodes={"a": 4, "b": 3})
    made.submit(gang("one", "q", cpu=3), 0.0)
    made.submit(gang("two", "q", cpu=3, created=1.0), 0.0)
    made.submit(gang("three", "q", cpu=2, created=2.0), 0.0)
    assert admitted(made) == ["one", "two"]
    made.release("one")
    assert admitted(made, 2.0) == ["three"]


def test_a_flavor_with_quota_and_without_nodes_is_passed_over() -> None:
    both = queue("q", None, group(old={"cpu": 8}, new={"cpu": 8}))
    flavors = (Flavor("old", {"kind": "old"}), Flavor("new", {"kind": "new"}))
    made, there = engine(both, nodes={"old-a": 2, "new-a": 4}, flavors=flavors)
    made.submit(gang("g", "q", cpu=4), 0.0)
    (reservation,) = made.cycle(1.0, Fences(), epoch=1).admitted
    assert reservation.flavors == {"main": {"cpu": "new"}}
    assert there.allotments["g"].places == {"main": {"new-a": 1}}


def test_nobody_is_stopped_for_a_gang_that_would_fit_no_node_all_the_same() -> None:
    preempts = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
    made, _ = engine(queue("q", 4, preemption=preempts), nodes={"a": 2, "b": 2})
    for name in ("x", "y"):
        made.submit(gang(name, "q", cpu=2), 0.0)
    assert sorted(admitted(made)) == ["x", "y"]
    made.submit(gang("wide", "q", cpu=4, priority=5), 1.0)
    plan = made.cycle(2.0, Fences(), epoch=1)
    assert not plan.preempted
    reason = made.reason("wide")
    assert reason is not None
    assert reason.code is Code.NODES_DO_NOT_FIT
    made.submit(gang("narrow", "q", cpu=2, priority=4), 2.0)
    assert [each.uid for each in made.cycle(3.0, Fences(), epoch=1).preempted] != []


def test_those_are_stopped_whose_nodes_make_the_gang_fit_and_nobody_else() -> None:
    """By the quota alone the four latest would go, two of either node."""
    preempts = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
    made, there = engine(queue("q", 16, preemption=preempts), nodes={"a": 8, "b": 8})
    for number in range(8):
        made.submit(gang(f"low-{number}", "q", cpu=2, created=number), 0.0)
    for number in range(8):
        # One after the other: the latest start goes first.
        (reservation,) = made.cycle(1.0 + number, Fences(), epoch=1, most=1).admitted
        there.allot(reservation.uid, moved(there, reservation.uid, "ab"[number % 2]))
    made.submit(gang("wide", "q", cpu=8, priority=5), 20.0)
    plan = made.cycle(21.0, Fences(), epoch=1)
    assert sorted(each.uid for each in plan.preempted) in (
        [f"low-{number}" for number in (0, 2, 4, 6)],
        [f"low-{number}" for number in (1, 3, 5, 7)],
    )
    for each in plan.preempted:
        made.release(each.uid)
    assert admitted(made, 22.0) == ["wide"]


def test_who_holds_none_of_what_the_quota_lacks_is_stopped_where_the_nodes_need_it() -> None:
    rules = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
    quotas = group(default={"gpu": 8, "cpu": 64})
    made, there = engine(queue("q", None, quotas, preemption=rules), nodes={})
    there.put_node(NodeRecord("a", {"gpu": 8000, "cpu": 64_000, PODS: 2000}))
    made.submit(gang("gpus", "q", also={"gpu": 8}), 0.0)
    made.submit(gang("cores", "q"), 0.0)
    assert set(admitted(made)) == {"gpus", "cores"}
    made.submit(gang("urgent", "q", pods=2, also={"gpu": 4}, priority=5), 2.0)
    plan = made.cycle(2.0, Fences(), epoch=1)
    assert {each.uid for each in plan.preempted} == {"gpus", "cores"}
    for each in plan.preempted:
        made.release(each.uid)
    assert admitted(made, 3.0) == ["urgent"]


@given(
    st.lists(st.integers(2, 6), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(0, 2)), max_size=9),
    st.tuples(st.integers(1, 6), st.integers(1, 3)),
)
def test_whoever_is_stopped_had_to_go_and_the_gang_fits_when_they_are_gone(
    nodes: list[int], low: list[tuple[int, int, int]], wide: tuple[int, int]
) -> None:
    preempts = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
    rules = queue("q", sum(nodes), preemption=preempts)
    made, there = engine(rules, nodes={f"node-{number}": cpu for number, cpu in enumerate(nodes)})
    for number, (cpu, pods, priority) in enumerate(low):
        made.submit(gang(f"low-{number}", "q", cpu=cpu, pods=pods, priority=priority, created=number), 0.0)
    running = {each.uid: each for each in made.cycle(1.0, Fences(), epoch=1).admitted}
    wanted = [Asked("main", shape_of(gang("wide", "q", cpu=wide[0]).pod_sets[0]), wide[1])]
    made.submit(gang("wide", "q", cpu=wide[0], pods=wide[1], priority=5), 2.0)
    gone = [each.uid for each in made.cycle(3.0, Fences(), epoch=1).preempted]
    # What is kept for it is there for it.
    there.unclaim("wide")

    def starts_without(uids: list[str]) -> bool:
        taken = sum(cpu * pods for n, (cpu, pods, _) in enumerate(low) if f"low-{n}" in running.keys() - uids)
        seated = not isinstance(place(there, wanted, there.held_by(uids)), Misplaced)
        return seated and taken + wide[0] * wide[1] <= sum(nodes)

    if gone:
        assert starts_without(gone)
        assert not any(starts_without([each for each in gone if each != spared]) for spared in gone)
    elif "wide" not in there.allotments:
        assert not starts_without(sorted(running))


def moved(there: Capacity, uid: str, node: str) -> Allotment:
    known = there.allotments[uid]
    return Allotment(known.shapes, {"main": {node: 1}})


def test_a_claim_is_taken_up_where_its_victims_were() -> None:
    preempts = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
    made, there = engine(queue("q", 4, preemption=preempts), nodes={"a": 4})
    made.submit(gang("low", "q", cpu=4), 0.0)
    assert admitted(made) == ["low"]
    made.submit(gang("high", "q", cpu=4, priority=5), 1.0)
    assert [each.uid for each in made.cycle(2.0, Fences(), epoch=1).preempted] == ["low"]
    made.release("low")
    assert admitted(made, 3.0) == ["high"]
    assert there.allotments["high"].places == {"main": {"a": 1}}


def test_a_copy_allots_on_nodes_of_its_own() -> None:
    made, there = engine(queue("q", 4), nodes={"a": 4})
    made.submit(gang("g", "q", cpu=4), 0.0)
    assert admitted(made.copy()) == ["g"]
    assert not there.allotments
    assert admitted(made) == ["g"]


def test_an_engine_that_knows_no_nodes_asks_nothing_of_them() -> None:
    made = Engine()
    made.set_policy(policy(queue("q", 8)), LABELS, 0.0)
    made.submit(gang("wide", "q", cpu=4, pods=2), 0.0)
    assert admitted(made) == ["wide"]


def test_a_reservation_says_where_its_pods_are_to_go() -> None:
    made, _ = engine(queue("q", 8), nodes={"a": 4, "b": 3})
    made.submit(gang("g", "q", cpu=2, pods=3), 0.0)
    (reservation,) = made.cycle(1.0, Fences(), epoch=1).admitted
    assert reservation.pod_sets[0].places == {"a": 2, "b": 1}


def test_who_makes_many_jobs_that_all_ask_something_else_holds_up_others_and_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "ROUND_VISITS", 4)
    made, _ = engine(queue("q", 1000), nodes={"a": 60, "b": 60})
    for size in range(1, 8):
        made.submit(gang(f"g{size}", "q", cpu=size), float(size))
    rounds = []
    while len(rounds) < 10 and sum(map(len, rounds)) < 7:
        assert not rounds or made.next_wake(1.0) == 1.0
        rounds.append(admitted(made))
        waits = made.reason("g7")
        assert waits is None or waits.code is Code.PENDING_EVALUATION
    assert rounds == [["g1", "g2"], ["g3", "g4"], ["g5", "g6"], ["g7"]]
    made.submit(gang("known", "q", cpu=3), 9.0)
    assert admitted(made) == ["known"]
    assert made.next_wake(1.0) is None


def test_who_fits_no_nodes_is_decided_about_again_when_as_many_of_its_pods_fit_as_it_lacks() -> None:
    made, there = engine(queue("q", 100), nodes={"a": 2, "b": 4})
    made.submit(gang("wide", "q", cpu=4, pods=3), 0.0)
    assert admitted(made) == []
    for name in ("c", "d"):
        assert not made.undecided()
        there.put_node(NodeRecord(name, {"cpu": 4000}))
        made.wake_nodes()
    assert made.undecided() == {"wide"}
    assert admitted(made, 2.0) == ["wide"]


def test_who_waits_for_nodes_that_are_all_gone_waits_no_longer() -> None:
    made, there = engine(queue("q", 100), nodes={"a": 2})
    made.submit(gang("wide", "q", cpu=4), 0.0)
    assert admitted(made) == []
    there.drop_node("a")
    made.wake_nodes()
    assert admitted(made, 2.0) == ["wide"]


def test_a_gang_that_has_to_be_in_one_rack_waits_for_one_and_its_reservation_names_it() -> None:
    made, there = engine(queue("q", 32), nodes={})
    for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2")):
        there.put_node(NodeRecord(name, {"cpu": 4000}, {"rack": rack}))
    made.wake_nodes()
    near = {"near": Nearness("rack", required=True)}
    made.submit(gang("wide", "q", pods=10, placement=near), 0.0)
    made.submit(gang("narrow", "q", pods=3, placement=near, created=1.0), 0.0)
    (reservation,) = made.cycle(1.0, Fences(), epoch=1).admitted
    assert (reservation.name, reservation.pod_sets[0].domain) == ("narrow", {"rack": "r2"})
    reason = made.reason("wide")
    assert reason is not None
    assert reason.code is Code.TOPOLOGY_PLACEMENT_FAILED
    assert reason.is_never
    assert str(reason) == (
        "pod set main asks for 10 pods of 1 cpu within one rack; the largest, r1, holds 8 when nothing else runs "
        "there, 2 too few; it cannot start: ask for fewer or smaller pods, for a wider label, or with "
        "kueue.x-k8s.io/podset-preferred-topology"
    )
    there.put_node(NodeRecord("d", {"cpu": 4000}, {"rack": "r1"}))
    made.wake_nodes()
    (reservation,) = made.cycle(2.0, Fences(), epoch=1).admitted
    assert (reservation.name, reservation.pod_sets[0].domain) == ("wide", {"rack": "r1"})


def test_workers_in_a_topology_start_beside_their_launcher_on_the_one_node_of_its_size() -> None:
    kinds = (Flavor("k", {"kind": "k"}, levels=("rack",)),)
    made, there = engine(queue("q", None, group(k={"cpu": 999})), nodes={}, flavors=kinds)
    for number in range(20):
        cpu = 32 if number == 7 else 64
        there.put_node(NodeRecord(f"n{number}", {"cpu": 1000 * cpu}, {"kind": "k", "rack": "r"}))
    made.wake_nodes()
    sets = (PodSet("launcher", 1, PodPrice({"cpu": 20_000})), PodSet("workers", 8, PodPrice({"cpu": 4000})))
    made.submit(gang("job", "q", pod_sets=sets), 0.0)
    assert admitted(made) == ["job"]
    assert [len(each.places) for each in made.state.allocations.by_uid["job"].reservation.pod_sets] == [1, 1]


def test_who_finds_no_rack_is_told_who_holds_the_nearest_and_until_when_and_that_a_wish_would_do() -> None:
    made, there = engine(queue("q", 32), nodes={})
    for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2")):
        there.put_node(NodeRecord(name, {"cpu": 4000}, {"rack": rack}))
    made.wake_nodes()
    made.submit(gang("x", "q", cpu=4, max_run_seconds=60), 0.0)
    made.submit(gang("y", "q", pods=2, placement={"node_selector": {"rack": "r2"}}), 0.0)
    assert admitted(made) == ["x", "y"]
    near = {"near": Nearness("rack", required=True)}
    made.submit(gang("wide", "q", pods=6, placement=near), 2.0)
    assert admitted(made, 2.0) == []
    assert str(made.reason("wide")) == (
        "asks for 6 pods of 1 cpu within one rack; none has room for all, r1 for most: 4; 6 fit anywhere; "
        "held by team/x (4); it starts when 2 more fit in r1, or all in another, "
        "or with kueue.x-k8s.io/podset-preferred-topology; it has booked a, b, free when team/x has ended, "
        "by 1970-01-01T00:01:01Z"
    )
    made.submit(gang("wider", "q", pods=7, priority=-1, placement=near), 2.0)
    assert admitted(made, 3.0) == []
    assert "; 4 fit anywhere; of 3 nodes 1 takes none: 1 lacks cpu" in str(made.reason("wider"))


def test_a_gang_in_slices_waits_until_each_is_whole_in_a_rack_and_lists_its_places_slice_by_slice() -> None:
    made, there = engine(queue("q", 32), nodes={})
    for name, rack in (("a", "r2"), ("b", "r1")):
        there.put_node(NodeRecord(name, {"cpu": 3000}, {"rack": rack}))
    made.wake_nodes()
    made.submit(gang("sliced", "q", pods=6, placement={"near": Nearness("", False, "rack", 2)}), 0.0)
    assert admitted(made) == []
    assert str(made.reason("sliced")) == (
        "asks for 6 pods of 1 cpu, 2 and 2 within one rack; 4 fit now; it starts when 2 more fit"
    )
    there.put_node(NodeRecord("c", {"cpu": 1000}, {"rack": "r1"}))
    made.wake_nodes()
    (reservation,) = made.cycle(2.0, Fences(), epoch=1).admitted
    assert list(reservation.pod_sets[0].places.items()) == [("b", 3), ("c", 1), ("a", 2)]


def test_a_gang_that_has_to_be_in_one_rack_does_not_start_where_nobody_knows_the_nodes() -> None:
    made = Engine()
    made.set_policy(policy(queue("q", 32)), LABELS, 0.0)
    made.submit(gang("g", "q", pods=2, placement={"near": Nearness("rack", required=True)}), 0.0)
    made.submit(gang("any", "q", pods=2, placement={"near": Nearness("rack", required=False)}), 0.0)
    made.submit(gang("sliced", "q", pods=2, placement={"near": Nearness("", False, "rack", 2)}), 0.0)
    assert admitted(made) == ["any"]
    assert "within one rack; the nodes are not known" in str(made.reason("g"))


def test_a_flavor_that_only_observes_its_nodes_still_keeps_a_gang_in_the_rack_that_it_requires() -> None:
    flavor = Flavor("f", {"kind": "f"}, node_fit=NodeFit.OBSERVE)
    made, there = engine(queue("q", None, group(f={"cpu": 32})), nodes={}, flavors=(flavor,))
    there.put_node(NodeRecord("a", {"cpu": 4000}, {"kind": "f", "rack": "r1"}))
    made.submit(gang("g", "q", pods=5, placement={"near": Nearness("rack", required=True)}), 0.0)
    assert admitted(made) == []


@pytest.mark.parametrize("ranks", [64, 66])
def test_ranks_over_two_racks_are_written_rack_by_rack_of_at_most_64_nodes_and_all_room_is_kept_of_more(
    ranks: int,
) -> None:
    made, there = engine(queue("q", ranks + 1), nodes={})
    for number in range(ranks):
        # By their names alone the nodes of both racks take turns.
        there.put_node(NodeRecord(f"node-{number:02d}", {"cpu": 1000}, {"rack": f"r{number % 2}"}))
    made.submit(gang("ranked", "q", pods=ranks, placement={"near": Nearness("rack", required=False)}), 0.0)
    made.submit(gang("late", "q", created=1.0), 0.0)
    (reservation,) = made.cycle(1.0, Fences(), epoch=1).admitted
    assert reservation.name == "ranked"
    assert sum(there.allotments["ranked"].places["main"].values()) == ranks, "nobody else has a node of it"
    racks = [there.nodes[node].labels["rack"] for node in reservation.pod_sets[0].places]
    assert racks == (["r0"] * 32 + ["r1"] * 32 if ranks == 64 else []), (
        "which ranks go where is then left to the scheduler"
    )


@pytest.mark.parametrize("quota", [2, 3, 4])
def test_a_gang_whose_smallest_start_alone_has_quota_starts_when_nodes_have_room_for_that(quota: int) -> None:
    """All of it never fits the quota, or waits for some that others hold; what its quorum waits for is the nodes."""
    made, there = engine(queue("q", quota), nodes={"a": 4})
    there.bind("x", Bound("a", {"cpu": 4000}))
    if quota == 3:
        made.submit(gang("other", "q", cpu=1), 0.0)
        there.put_node(NodeRecord("b", {"cpu": 1000}))
        assert admitted(made) == ["other"]
    made.submit(gang("quorate", "q", cpu=1, pods=3, quorum=2), 1.0)
    assert admitted(made) == []
    there.unbind("x")
    made.wake_nodes()
    assert admitted(made, 2.0) == ["quorate"]
