"""A port of a node is like a resource of which each node has one, though no node says so."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.placement.test_fit import AMOUNTS, capacity, gpus, places, sets, shape, units
from tests.unit.core.worlds import LABELS, gang, policy, queue
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.placement.explain import why_misplaced
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine

PORTS = ("TCP/1", "TCP/2")
NODES = st.lists(st.tuples(AMOUNTS, AMOUNTS, st.sets(st.sampled_from(PORTS))), min_size=1, max_size=4)
ASKED = st.lists(
    st.tuples(st.tuples(AMOUNTS, AMOUNTS, st.integers(0, 3)), st.sets(st.sampled_from(PORTS))), min_size=1, max_size=3
)


def of_ports(nodes: Sequence[tuple[int, int, set[str]]], asked: Sequence[Asked]) -> tuple[Capacity, list[Asked]]:
    there = capacity(*(NodeRecord(f"n{i}", units(gpu=g, cpu=c, pods=9)) for i, (g, c, _) in enumerate(nodes)))
    for i, (_, _, used) in enumerate(nodes):
        there.bind(f"p{i}", Bound(f"n{i}", dict.fromkeys(sorted(used), 1000)))
    return there, list(asked)


def of_resources(nodes: Sequence[tuple[int, int, set[str]]], asked: Sequence[Asked]) -> tuple[Capacity, list[Asked]]:
    """The same, with the ports as amounts."""
    there = Capacity()
    for i, (gpu, cpu, used) in enumerate(nodes):
        left = {port: 1000 * (port not in used) for port in PORTS}
        there.put_node(NodeRecord(f"n{i}", {**units(gpu=gpu, cpu=cpu, pods=9), **left}))
    shapes = [replace(each.shape, requests=tuple(sorted(each.shape.uses.items())), ports=()) for each in asked]
    return there, [replace(each, shape=shape) for each, shape in zip(asked, shapes, strict=True)]


@given(NODES, ASKED)
def test_a_port_is_placed_like_a_resource_of_which_each_node_has_one(
    nodes: list[tuple[int, int, set[str]]], asked: list[tuple[tuple[int, int, int], set[str]]]
) -> None:
    wanted = [
        replace(each, shape=replace(each.shape, ports=tuple(sorted(ports))))
        for each, (_, ports) in zip(sets([amounts for amounts, _ in asked]), asked, strict=True)
    ]
    there, named = of_ports(nodes, wanted)
    twin, counted = of_resources(nodes, wanted)
    found, said = place(there, named), place(twin, counted)
    if isinstance(found, Allotment):
        twin.allot("g", replace(found, shapes={each.name: each.shape for each in counted}))
        assert all(amount >= 0 for free in twin.free.values() for amount in free.values())
    elif found.certain or (isinstance(said, Misplaced) and said.certain):
        assert isinstance(said, Misplaced)


def test_pods_with_a_port_go_to_a_node_each_and_not_where_it_is_used() -> None:
    nodes, asked = gpus(8, 8, 8), replace(shape(gpu=2), ports=("TCP/29500",))
    nodes.bind("theirs", Bound("n1", {"TCP/29500": 1000}))
    assert places(nodes, Asked("main", asked, 2)) == {"main": {"n0": 1, "n2": 1}}
    found = place(nodes, [Asked("main", asked, 3)])
    assert isinstance(found, Misplaced)
    assert why_misplaced(nodes, found).message == (
        "asks for 3 pods of 2 nvidia.com/gpu, port TCP/29500 of its node; 2 fit now; "
        "of 3 nodes 1 takes none: 1 lacks a free port TCP/29500"
    )
    nodes.allot("g", Allotment({"main": asked}, {"main": {"n0": 1, "n2": 1}}))
    assert places(nodes, Asked("main", asked, 1)) is None
    nodes.unbind("theirs")
    assert places(nodes, Asked("main", asked, 1)) == {"main": {"n1": 1}}


def test_a_gang_is_not_told_what_was_decided_about_one_that_differs_in_its_ports_alone() -> None:
    engine, there = Engine(), gpus(8)
    engine.set_policy(policy(queue("q", 16)), LABELS, 0.0)
    there.put_node(NodeRecord("n0", units(cpu=16, pods=9)))
    there.bind("theirs", Bound("n0", {"TCP/29500": 1000}))
    engine.know_nodes(there)
    engine.submit(gang("taken", "q", created=1.0, placement={"host_ports": ("TCP/29500",)}), 0.0)
    engine.submit(gang("other", "q", created=2.0, placement={"host_ports": ("TCP/29501",)}), 0.0)
    engine.submit(gang("free", "q", created=3.0), 0.0)
    assert [each.name for each in engine.cycle(1.0, Fences(), epoch=1).admitted] == ["other", "free"]
