"""Pods that say that they may lie anywhere: the smallest holes are filled first, as Kueue does."""

from hypothesis import example, given
from hypothesis import strategies as st

from webhook.core.model.gang import Nearness, PodPrice, PodSet
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import Shape, shape_of
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked

ONE = shape_of(PodSet("main", 1, PodPrice({"cpu": 1000})))
IN_RACKS = Shape(ONE.requests, levels=("rack", "host"))


def placed(nodes: dict[str, tuple[str, int]], count: int) -> dict[str, int] | None:
    """Return where so many pods of one cpu go on ``nodes``: name to (rack, cpus)."""
    there = Capacity()
    for name, (rack, cpu) in nodes.items():
        there.put_node(NodeRecord(name, {"cpu": cpu * 1000}, {"rack": rack, "host": name}))
    found = place(there, [Asked("main", IN_RACKS, count, Nearness("", required=False))])
    return None if isinstance(found, Misplaced) else found.places["main"]


def test_one_node_that_holds_all_is_taken_or_else_the_smallest_one_after_another() -> None:
    nodes = {"a": ("r2", 5), "b": ("r1", 3), "c": ("r1", 1), "d": ("r2", 3), "e": ("r1", 3)}
    assert placed(nodes, 4) == {"a": 4}
    assert placed(nodes, 3) == {"b": 3}
    assert placed(nodes, 6) == {"b": 3, "c": 1, "e": 2}, "of equal ones the first by rack"
    assert placed(nodes, 9) == {"b": 3, "c": 1, "e": 3, "d": 2}
    assert placed(nodes, 15) == {"b": 3, "c": 1, "e": 3, "a": 5, "d": 3}
    assert placed(nodes, 16) is None


@given(st.lists(st.tuples(st.sampled_from("rst"), st.integers(0, 4)), min_size=1, max_size=7), st.integers(1, 20))
def test_it_is_what_kueue_would_assign(drawn: list[tuple[str, int]], count: int) -> None:
    """Sorted by free capacity and the values of all levels: the first that holds all, or one after another."""
    nodes = {f"n{number}": each for number, each in enumerate(drawn)}
    order = sorted((cpu, rack, name) for name, (rack, cpu) in nodes.items() if cpu)
    alone = next((name for cpu, _, name in order if cpu >= count), None)
    wanted: dict[str, int] = {}
    for cpu, _, name in order:
        left = count - sum(wanted.values())
        if left:
            wanted[name] = min(cpu, left)
    if alone is not None:
        wanted = {alone: count}
    assert placed(nodes, count) == (wanted if sum(wanted.values()) == count else None)


def test_it_is_placed_beside_what_the_gangs_other_sets_take() -> None:
    there = Capacity()
    for name, cpu in (("a", 4), ("b", 2)):
        there.put_node(NodeRecord(name, {"cpu": cpu * 1000}, {"rack": "r", "host": name}))
    big = shape_of(PodSet("big", 1, PodPrice({"cpu": 3000})))
    found = place(there, [Asked("main", IN_RACKS, 3, Nearness("", required=False)), Asked("big", big, 1)])
    assert isinstance(found, Allotment)
    assert found.places == {"big": {"a": 1}, "main": {"a": 1, "b": 2}}


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.dictionaries(st.integers(0, 5), st.integers(-3, 3)),
    st.integers(1, 12),
)
@example([4, 5], {0: -3}, 4)
def test_it_finds_the_room_that_there_is_once_others_have_come_or_gone(
    nodes: list[int], changes: dict[int, int], count: int
) -> None:
    """Also where no node has the room any more that alone was as little as is enough."""
    there, cpus = Capacity(), dict(enumerate(nodes))
    for number, cpu in cpus.items():
        there.put_node(NodeRecord(f"n{number}", {"cpu": 1000 * cpu}, {"rack": "r", "host": f"n{number}"}))
    more = {number: max(change, -cpus[number]) for number, change in changes.items() if number in cpus}
    found = place(
        there,
        [Asked("main", IN_RACKS, count, Nearness("", required=False))],
        {f"n{number}": {"cpu": 1000 * change} for number, change in more.items()},
    )
    assert isinstance(found, Allotment) is (sum(cpus.values()) + sum(more.values()) >= count)
