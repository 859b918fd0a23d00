"""A leader and its workers in one domain: by all there is to find, beside what each of them alone would get."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from webhook.core.model.gang import Nearness
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.ranking import Ranking, Room
from webhook.core.nodes.shape import Shape
from webhook.core.notation.amounts import Amounts
from webhook.core.notation.names import HOSTNAME
from webhook.core.placement.fit import place
from webhook.core.placement.near import MOST_SEATS
from webhook.core.placement.overlay import Asked

RACK = "rack"
LEVELS = (RACK, HOSTNAME)


def world(nodes: list[tuple[str, int]]) -> Capacity:
    """Nodes by rack and free cpu."""
    there = Capacity()
    for number, (rack, cpu) in enumerate(nodes):
        labels = {RACK: rack, HOSTNAME: f"n{number}"}
        there.put_node(NodeRecord(f"n{number}", {"cpu": cpu * 1000}, labels))
    return there


def group(leader: int, workers: int, worker: int, size: int) -> list[Asked]:
    """A leader of so many cpu, and so many workers of so many each, in slices of a node."""
    near = Nearness(RACK, True, HOSTNAME if size > 1 else "", size if size > 1 else 0)
    return [
        Asked("leader", Shape((("cpu", leader * 1000),), levels=LEVELS), 1, Nearness(RACK, True), "g"),
        Asked("workers", Shape((("cpu", worker * 1000),), levels=LEVELS), workers, near, "g"),
    ]


def could(nodes: list[tuple[str, int]], leader: int, workers: int, worker: int, size: int) -> bool:
    """Whether a rack has a node for the leader and as many slices beside it."""
    for at, (rack, cpu) in enumerate(nodes):
        left = [free - leader * (number == at) for number, (of, free) in enumerate(nodes) if of == rack]
        if cpu >= leader and sum(free // worker // size for free in left) >= workers // size:
            return True
    return False


@given(
    st.lists(st.tuples(st.sampled_from("rs"), st.integers(0, 6)), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 2),
    st.integers(1, 3),
)
@example([("r", 2), ("r", 4), ("r", 3)], 1, 4, 1, 2)
def test_a_group_is_placed_where_any_node_of_a_rack_leaves_its_workers_room(
    nodes: list[tuple[str, int]], leader: int, slices: int, worker: int, size: int
) -> None:
    asked = group(leader, slices * size, worker, size)
    found = place(world(nodes), asked)
    assert isinstance(found, Allotment) is could(nodes, leader, slices * size, worker, size)
    if isinstance(found, Allotment):
        taken = Counter[str]()
        for each, cpu in zip(asked, (leader, worker), strict=True):
            assert sum(found.places[each.name].values()) == each.count
            for node, count in found.places[each.name].items():
                taken[node] += count * cpu
        assert all(amount <= nodes[int(node[1:])][1] for node, amount in taken.items())
        assert len({nodes[int(node[1:])][0] for node in taken}) == 1
        assert all(count % size == 0 for count in found.places["workers"].values())


def test_of_a_large_domain_not_every_node_is_looked_at_for_a_leader() -> None:
    there, asked = world([("r", 4)] * 2 * MOST_SEATS), group(1, 8, 2, 1)
    assert isinstance(place(there, asked), Allotment)
    looked, usual = set[str](), there.room

    def room(ranking: Ranking, name: str, more: Amounts | None = None) -> Room:
        looked.add(name)
        return usual(ranking, name, more)

    there.room = room  # type: ignore[method-assign]
    assert isinstance(place(there, asked), Allotment)
    assert 0 < len(looked) <= MOST_SEATS
