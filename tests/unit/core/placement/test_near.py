"""Placing sets near each other, in domains and in slices: by Kueue's cases, by all there is to find, and cheaply."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.gang import Nearness
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import PODS, Bound, NodeRecord
from webhook.core.nodes.shape import Shape
from webhook.core.notation.names import HOSTNAME
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked

BLOCK, RACK = "cloud/block", "cloud/rack"
LEVELS = (BLOCK, RACK, HOSTNAME)
SHAPE = Shape((("cpu", 1000), (PODS, 1000)), levels=LEVELS)


def world(*nodes: tuple[str, str, str, int]) -> Capacity:
    """Nodes by block, rack, name and free cpu."""
    there = Capacity()
    for block, rack, name, free in nodes:
        labels = {BLOCK: block, RACK: rack, HOSTNAME: name}
        there.put_node(NodeRecord(name, {"cpu": free * 1000}, labels))
    return there


def sliced(count: int, near: Nearness) -> list[Asked]:
    return [Asked("main", SHAPE, count, near)]


def one_rack(**free: int) -> list[tuple[str, str, str, int]]:
    return [("b1", "r1", name, count) for name, count in free.items()]


TWO_BLOCKS = [("b1", "r1", "x3", 1), ("b1", "r1", "x5", 1), ("b1", "r2", "x1", 1), ("b1", "r2", "x6", 1)]
TWO_BLOCKS += [("b1", "r2", "x2", 1), ("b2", "r1", "x4", 1), ("b2", "r1", "x7", 1)]


@pytest.mark.parametrize(
    ("nodes", "level", "size", "count", "places"),
    [
        (one_rack(x3=3, x5=3, x1=3), HOSTNAME, 2, 6, {"x1": 2, "x3": 2, "x5": 2}),
        (one_rack(x3=6, x5=5, x1=4, x6=2), HOSTNAME, 2, 12, {"x1": 4, "x3": 6, "x6": 2}),
        (one_rack(x3=3, x5=2, x1=2), HOSTNAME, 2, 4, {"x1": 2, "x5": 2}),
        (one_rack(x3=4, x5=3, x1=2), HOSTNAME, 2, 6, {"x1": 2, "x3": 4}),
        (TWO_BLOCKS, RACK, 2, 4, {"x3": 1, "x5": 1, "x1": 1, "x2": 1}),
    ],
)
def test_slices_go_where_kueue_puts_them(
    nodes: list[tuple[str, str, str, int]], level: str, size: int, count: int, places: dict[str, int]
) -> None:
    found = place(world(*nodes), sliced(count, Nearness(BLOCK, True, level, size)))
    assert isinstance(found, Allotment)
    assert list(found.places["main"].items()) == list(places.items())


def test_slices_without_a_domain_of_their_own_fill_the_smallest_holes_first() -> None:
    nodes = world(("a", "r", "n0", 8), ("b", "s", "n1", 4), ("c", "t", "n2", 3))
    asked = sliced(4, Nearness("", False, RACK, 2))
    found = place(nodes, asked)
    assert isinstance(found, Allotment)
    assert found.places == {"main": {"n1": 4}}, "one block holds both"
    found = place(nodes, sliced(10, Nearness("", False, RACK, 2)))
    assert isinstance(found, Allotment)
    assert found.places == {"main": {"n0": 4, "n1": 4, "n2": 2}}


def test_a_set_whose_pods_fit_and_whose_slices_do_not_is_told_how_many_fit() -> None:
    nodes = world(*one_rack(x1=3, x2=3, x3=1))
    for near in (
        Nearness(BLOCK, True, HOSTNAME, 2),
        Nearness(RACK, False, HOSTNAME, 2),
        Nearness("", False, HOSTNAME, 2),
    ):
        found = place(nodes, sliced(6, near))
        assert isinstance(found, Misplaced)
        assert found.found == 4


FREE = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("rs"), st.integers(0, 5)), min_size=1, max_size=7)


@given(FREE, st.integers(1, 3), st.integers(1, 4), st.sampled_from(["", *LEVELS]), st.sampled_from(LEVELS))
def test_slices_fit_if_and_only_if_a_domain_has_so_many_in_which_each_is_whole(
    free: list[tuple[str, str, int]], size: int, slices: int, level: str, inner: str
) -> None:
    for required in {False, bool(level)}:
        judged(free, Nearness(level, required, inner, size), slices)


def judged(free: list[tuple[str, str, int]], near: Nearness, slices: int) -> None:
    level, required, inner, size = near.level, near.required, near.slice_level, near.slice_size
    depth, deep = (LEVELS.index(level) + 1 if level else 0), LEVELS.index(inner) + 1
    if depth > deep:
        return
    nodes = world(*((block, rack, f"n{i}", count) for i, (block, rack, count) in enumerate(free)))
    pods, fits = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for i, (block, rack, count) in enumerate(free):
        pods[(block, rack, f"n{i}")[:deep]] += count
    for domain, count in pods.items():
        fits[domain[:depth] if required else ()] += count // size
    found = place(nodes, sliced(size * slices, near))
    assert isinstance(found, Allotment) is any(count >= slices for count in fits.values())
    if isinstance(found, Allotment):
        held = Counter[tuple[str, ...]]()
        for node, count in found.places["main"].items():
            block, rack, most = free[int(node[1:])]
            assert 0 < count <= most
            held[(block, rack, node)[:deep]] += count
        assert held.total() == size * slices
        assert all(count % size == 0 for count in held.values())
        if required:
            assert len({domain[:depth] for domain in held}) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from("nudbw"), st.integers(0, 3), st.integers(0, 4), st.sampled_from("rst")), max_size=20
    )
)
def test_sums_that_are_kept_up_to_date_say_what_new_ones_say(steps: list[tuple[str, int, int, str]]) -> None:
    there, path = Capacity(), (RACK,)
    shape = replace(SHAPE, levels=())
    for step, which, amount, rack in steps:
        match step:
            case "n":
                labels = {} if rack == "t" else {RACK: rack}
                there.put_node(NodeRecord(f"n{which}", {"cpu": amount * 1000}, labels, cordoned=amount == 3))
            case "u":
                there.drop_node(f"n{which}")
            case "d":
                there.allot(f"g{which}", Allotment({"main": shape}, {"main": {f"n{amount}": 1}}))
            case "b":
                there.bind(f"p{which}", Bound(f"n{amount}", {"cpu": 1000}))
            case "w":
                there.unbind(f"p{which}")
                there.withdraw(f"g{which}")
        expected = Counter[tuple[str, ...]]()
        ranking = there.ranking(shape)
        for name, (count, _) in ranking.rooms.items():
            if RACK in there.nodes[name].labels:
                expected[(there.nodes[name].labels[RACK],)] += count
        assert ranking.sums(there.domains(path)) == +expected
        fresh = there.copy().ranking(shape)
        assert (fresh.rooms, fresh.total) == (ranking.rooms, ranking.total)


class Watched(dict[str, Any]):
    """A dict that counts what is looked up in it."""

    looks = 0

    def get(self, *args: Any) -> Any:
        self.looks += 1
        return super().get(*args)

    def __getitem__(self, key: str) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()

    def __iter__(self) -> Iterator[str]:
        self.looks += len(self)
        return super().__iter__()


def test_a_known_shape_is_placed_by_sums_and_a_look_at_the_nodes_of_one_domain() -> None:
    nodes = [(f"b{i // 64}", f"r{i // 16}", f"n{i:04}", 8) for i in range(1024)]
    for near, looks in (
        (Nearness(RACK, True), 16),
        (Nearness(BLOCK, True), 64),
        (Nearness(BLOCK, True, RACK, 16), 64),
        (Nearness(BLOCK, False), 64),
    ):
        there = world(*nodes)
        assert isinstance(place(there, sliced(64, near)), Allotment)
        there.ranking(SHAPE).rooms = watched = Watched(there.ranking(SHAPE).rooms)
        assert isinstance(place(there, sliced(64, near)), Allotment)
        assert watched.looks <= looks, near


def test_a_new_shape_is_looked_at_only_on_nodes_that_have_what_it_asks_most_of() -> None:
    there = world(*((f"b{i // 64}", "r", f"n{i:04}", 8 if i % 8 else 1) for i in range(1024)))
    for i in range(1024):
        if i % 16:
            there.bind(f"p{i}", Bound(f"n{i:04}", {"cpu": 1000 if i % 8 else 0}))
    there.ranking(SHAPE)
    there.nodes = watched = Watched(there.nodes)
    wide = Shape((("cpu", 8000), (PODS, 1000)), levels=LEVELS)
    assert there.ranking(wide).total == 0
    assert watched.looks == 0
