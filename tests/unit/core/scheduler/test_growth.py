"""Pods of a shape that was not there yet when the others of their gang started."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.core.worlds import World, gang, group, queue
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang, Nearness, PodPrice, PodSet
from webhook.core.model.policy import Flavor
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import shape_of
from webhook.core.notation.names import MAX_JOBS
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.fence import Fence
from webhook.core.reasons.reasons import Code

MAIN = PodSet("main", 2, PodPrice({"cpu": MILLI}))


def shape(name: str, pods: int = 1, **requests: int) -> PodSet:
    return PodSet(name, pods, PodPrice({key: amount * MILLI for key, amount in requests.items()}))


def started(world: World, name: str | None = "a", **settings: bool) -> Gang:
    """Start a gang of two pods of one cpu, and return it."""
    two = gang("crew", name, pod_sets=(MAIN,), quorum=2, **({"joinable": True} | settings))
    world.submit(two)
    plan = world.plan()
    assert [each.counts for each in plan.admitted] == [{"main": 2}]
    return two


def joined(world: World, two: Gang, *more: PodSet) -> Reservation | None:
    """Let pods of other shapes come, and return what the gang holds after the next cycle, if that has changed."""
    known = world.engine.state.allocations.by_uid[two.uid].reservation
    world.engine.restore(known, replace(two, pod_sets=(MAIN, *more)))
    world.fences.put_reservation(known)
    plan = world.plan()
    assert not plan.admitted
    return plan.grown[0] if plan.grown else None


def test_another_shape_joins_when_there_is_room_and_as_many_as_there_is_room_for() -> None:
    world = World(queue("a", 7))
    two = started(world)
    grown = joined(world, two, shape("big", 4, cpu=2), shape("small", cpu=1))
    assert grown is not None
    assert grown.counts == {"main": 2, "big": 2, "small": 1}
    assert world.used("a") == 7
    assert grown.pod_set("big") is not None
    assert not world.plan(), "and then there is nothing more to do"
    world.set_policy(queue("a", 20))
    assert world.plan().grown[0].counts == {"main": 2, "big": 4, "small": 1}


def test_one_that_is_restored_without_what_its_job_asks_grows_no_more() -> None:
    world = World(queue("a", 3))
    two = gang("crew", "a", pod_sets=(replace(MAIN, count=4),), quorum=2)
    world.submit(two)
    (small,) = world.plan().admitted
    assert small.counts == {"main": 3}
    world.engine.restore(small)
    world.set_policy(queue("a", 20))
    assert not world.plan(), "its job is gone: nobody makes the pods"
    world.engine.restore(small, two)
    assert world.plan().grown[0].counts == {"main": 4}


def test_it_waits_while_there_is_none() -> None:
    world = World(queue("a", 3))
    two = started(world)
    assert joined(world, two, shape("big", cpu=2)) is None
    assert world.used("a") == 2
    world.set_policy(queue("a", 4))
    assert world.plan().grown[0].counts == {"main": 2, "big": 1}


def test_it_passes_the_fences_too() -> None:
    world = World(queue("a", 9))
    world.fences.put_fence(Fence("team", "hard", {"pods": 2 * MILLI}))
    two = started(world)
    assert joined(world, two, shape("big", cpu=2)) is None
    world.fences.put_fence(Fence("team", "hard", {"pods": 3 * MILLI}))
    world.engine.wake_namespace("team")
    assert world.plan().grown[0].counts == {"main": 2, "big": 1}


def test_where_only_fences_bind_the_gang_it_joins_without_flavors() -> None:
    world = World()
    grown = joined(world, started(world, None), shape("big", cpu=2))
    assert grown is not None
    assert grown.counts == {"main": 2, "big": 1}
    assert all(not each.flavors for each in grown.pod_sets)


def test_it_takes_the_flavor_of_the_others_or_else_the_first_with_room() -> None:
    late, early = {"cpu": 4}, {"cpu": 2}
    world = World(queue("a", None, group(early=early, late=late)))
    world.submit(gang("before", "a", 1))
    assert world.cycle() == ["before"]
    two = started(world)
    assert world.engine.state.allocations.by_uid["crew"].reservation.pod_sets[0].flavors == {"cpu": "late"}
    grown = joined(world, two, shape("one", cpu=1), shape("also", 2, cpu=1))
    assert grown is not None
    assert {each.name: (each.count, each.flavors) for each in grown.pod_sets[1:]} == {
        "one": (1, {"cpu": "late"}),
        "also": (1, {"cpu": "late"}),
    }
    world.end("before")
    more = joined(world, two, shape("one", cpu=1), shape("also", 2, cpu=1), shape("third", 2, cpu=1))
    assert more is not None
    assert {each.name: (each.count, each.flavors) for each in more.pod_sets[2:]} == {
        "also": (1, {"cpu": "late"}),
        "third": (2, {"cpu": "early"}),
    }


def test_a_flavor_that_does_not_suit_it_is_passed_over() -> None:
    flavors = (Flavor("plain", node_labels={"pool": "plain"}), Flavor("gpu", node_labels={"pool": "gpu"}))
    world = World(queue("a", None, group(plain={"cpu": 4}, gpu={"cpu": 4})), flavors=flavors)
    two = started(world)
    picky = replace(shape("picky", cpu=1), node_selector={"pool": "gpu"})
    grown = joined(world, two, picky)
    assert grown is not None
    assert grown.pod_sets[1].flavors == {"cpu": "gpu"}
    nowhere = replace(shape("nowhere", cpu=1), node_selector={"pool": "none"})
    assert joined(world, two, picky, nowhere) is None


def test_what_no_quota_covers_does_not_join() -> None:
    world = World(queue("a", 9))
    assert joined(world, started(world), replace(shape("odd", cpu=1), price=PodPrice({"odd.example/x": MILLI}))) is None


def test_the_gang_is_counted_once_whatever_joins_it() -> None:
    world = World(queue("a", 9, group(jobs={MAX_JOBS: 1})))
    grown = joined(world, started(world), shape("big", cpu=2))
    assert grown is not None
    assert world.used("a", MAX_JOBS) == 1
    assert world.used("a") == 4


def test_a_gang_of_which_one_object_tells_all_pods_takes_no_others() -> None:
    world = World(queue("a", 9))
    assert joined(world, started(world, joinable=False), shape("big", cpu=2)) is None


def on_nodes(world: World, **cpus: int) -> Capacity:
    nodes = Capacity()
    for name, cpu in cpus.items():
        nodes.put_node(NodeRecord(name, {"cpu": cpu * MILLI}))
    world.engine.know_nodes(nodes)
    return nodes


def test_as_many_pods_join_as_the_nodes_hold_and_the_others_when_there_is_room_on_one() -> None:
    world = World(queue("a", 20))
    nodes = on_nodes(world, one=3, two=3)
    two = started(world)
    grown = joined(world, two, shape("big", 4, cpu=2))
    assert grown is not None
    assert grown.counts == {"main": 2, "big": 1}, "the quota has room for 4 of them"
    assert nodes.allotments["crew"].places == {"main": {"one": 2}, "big": {"two": 1}}
    assert {each.name: each.places for each in grown.pod_sets} == {"main": {"one": 2}, "big": {"two": 1}}
    assert not world.plan()
    nodes.put_node(NodeRecord("three", {"cpu": 4 * MILLI}))
    world.engine.wake_nodes()
    (more,) = world.plan().grown
    assert more.counts == {"main": 2, "big": 3}
    assert nodes.allotments["crew"].places["big"] == {"two": 1, "three": 2}
    assert more.pod_sets[1].places == {"two": 1, "three": 2}, "who takes over keeps the same"


def test_who_may_not_grow_is_told_what_lacks_for_one_more_pod() -> None:
    world = World(queue("a", 20))
    nodes = on_nodes(world, one=3, two=3)
    two = started(world)
    assert (world.engine.reason("crew"), world.engine.partial()) == (None, [])
    joined(world, two, shape("big", 4, cpu=2))
    why = world.engine.reason("crew")
    assert (world.engine.partial(), why and why.code) == (["crew"], Code.NODES_DO_NOT_FIT)
    assert str(why) == (
        "asks for 1 pod of 2 cpu; 0 fit now; of 2 nodes 2 take none: 2 lack cpu (2 free in pieces too small); "
        "it starts when 1 more of its pods fits"
    )
    world.set_policy(queue("a", 5))
    why = world.engine.reason("crew")
    assert why is not None
    assert (why.code, why.asked, why.used, why.limit) == (Code.WAITING_FOR_QUOTA, 2 * MILLI, 4 * MILLI, 5 * MILLI)
    world.set_policy(queue("a", 20))
    nodes.put_node(NodeRecord("three", {"cpu": 6 * MILLI}))
    assert world.engine.reason("crew") is None, "it has room, and grows in the next cycle"


def test_who_joins_passes_over_a_flavor_whose_nodes_are_full() -> None:
    flavors = (Flavor("old", node_labels={"pool": "old"}), Flavor("new", node_labels={"pool": "new"}))
    world = World(queue("a", None, group(old={"cpu": 9}, new={"cpu": 9})), flavors=flavors)
    nodes = on_nodes(world)
    for pool, cpu in (("old", 3), ("new", 4)):
        nodes.put_node(NodeRecord(pool, {"cpu": cpu * MILLI}, {"pool": pool}))
    grown = joined(world, started(world), shape("big", cpu=2))
    assert grown is not None
    assert grown.pod_sets[1].flavors == {"cpu": "new"}
    assert nodes.allotments["crew"].places == {"main": {"old": 2}, "big": {"new": 1}}


def test_who_is_in_one_domain_grows_within_it() -> None:
    world = World(queue("a", 20))
    nodes = on_nodes(world)
    for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2")):
        nodes.put_node(NodeRecord(name, {"cpu": 2 * MILLI}, {"rack": rack}))
    near = replace(MAIN, count=6, near=Nearness("rack", required=True))
    elastic = gang("crew", "a", pod_sets=(near,), quorum=3)
    world.submit(elastic)
    (admitted,) = world.plan().admitted
    assert (admitted.counts, admitted.pod_sets[0].domain) == ({"main": 4}, {"rack": "r1"})
    nodes.put_node(NodeRecord("d", {"cpu": 9 * MILLI}, {"rack": "r2"}))
    world.engine.wake_nodes()
    assert not world.plan().grown
    nodes.put_node(NodeRecord("e", {"cpu": MILLI}, {"rack": "r1"}))
    world.engine.wake_nodes()
    assert [each.counts for each in world.plan().grown] == [{"main": 5}]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=5),
    st.lists(st.integers(1, 5), max_size=3),
)
@example(cpus=[2], asked=[(1, 1, 4), (2, 3, 4)], later=[5])
def test_whoever_starts_or_grows_no_node_is_promised_more_than_it_has(
    cpus: list[int], asked: list[tuple[int, int, int]], later: list[int]
) -> None:
    world = World(queue("a", 1000))
    nodes = on_nodes(world, **{f"n{number}": cpu for number, cpu in enumerate(cpus)})
    for number, (cpu, least, pods) in enumerate(asked):
        world.submit(gang(f"g{number}", "a", cpu=cpu, pods=max(least, pods), quorum=least, created=number))
    held: dict[str, int] = {}
    for number, cpu in enumerate([0, *later]):
        if cpu:
            nodes.put_node(NodeRecord(f"m{number}", {"cpu": cpu * MILLI}))
            world.engine.wake_nodes()
        plan = world.plan()
        held |= {each.uid: sum(each.counts.values()) for each in (*plan.admitted, *plan.grown)}
        assert all(amount >= 0 for free in nodes.free.values() for amount in free.values())
        assert held == {uid: sum(places.places["main"].values()) for uid, places in nodes.allotments.items()}
        for uid, allocation in world.engine.state.partial().items():
            (each,) = allocation.gang.pod_sets if allocation.gang is not None else ()
            assert nodes.ranking(shape_of(each)).total == 0, f"{uid} could have grown"
