"""What is told row by row is what each node says by itself, whatever came, changed and went before."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.gang import Requirement, Toleration
from webhook.core.model.policy import Taint
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.nodes.ranking import Ranking
from webhook.core.nodes.shape import Shape
from webhook.core.notation.names import NODE_NAME

VALUES = st.sampled_from(["", "a", "b"])
RECORDS = st.builds(
    lambda cpu, pool, rack, slow, ready, cordoned: NodeRecord(
        "",
        {"cpu": 1000 * cpu, "pods": 5000},
        {key: value for key, value in (("pool", pool), ("rack", rack)) if value},
        (Taint("slow"),) if slow else (),
        ready,
        cordoned,
    ),
    st.integers(0, 4),
    VALUES,
    VALUES,
    st.booleans(),
    st.sampled_from([True, True, False]),
    st.sampled_from([False, False, True]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 4), RECORDS),
        st.tuples(st.just("drop"), st.integers(0, 4), st.none()),
        st.tuples(st.just("bind"), st.integers(0, 4), st.sampled_from([{"cpu": 1000}, {"TCP/1": 1000}])),
        st.tuples(st.just("unbind"), st.integers(0, 4), st.none()),
    ),
    max_size=14,
)
SHAPES = (
    Shape((("cpu", 1000),)),
    Shape((("cpu", 2000), ("pods", 1000)), (("pool", "a"),)),
    Shape((("cpu", 1000),), affinity=((Requirement("pool", "NotIn", ("a",)),), (Requirement("rack", "Exists"),))),
    Shape((("cpu", 1000),), affinity=((Requirement(NODE_NAME, "In", ("n1",)),), (Requirement("rack", "Exists"),))),
    Shape((("cpu", 1000), ("pods", 1000)), tolerations=(Toleration("", "Exists"),), levels=("rack",)),
    Shape((("cpu", 1000), ("example.com/none", 1000))),
    Shape((("pods", 1000),), ports=("TCP/1",)),
)


@given(STEPS)
def test_what_is_read_in_columns_is_what_each_node_says(steps: list[tuple[str, int, object]]) -> None:
    there = Capacity()
    for step, number, what in steps:
        name = f"n{number}"
        if isinstance(what, NodeRecord):
            there.put_node(NodeRecord(name, what.allocatable, what.labels, what.taints, what.ready, what.cordoned))
        elif step == "drop":
            there.drop_node(name)
        elif isinstance(what, dict):
            there.bind(f"p{number}", Bound(f"n{len(what) + number % 3}", what))
        else:
            there.unbind(f"p{number}")
        for shape in SHAPES:
            for each in (there, there.copy()):
                whys = dict(zip(each.names, each.verdict(shape), strict=True))
                assert whys == {name: shape.why_not(node) for name, node in there.nodes.items()}
                fresh = Ranking(shape, each.largest.scarce(shape))
                fresh.read(each.names, each.asked(shape), each.verdict(shape))
                assert fresh.rooms == {name: room for name in there.nodes if (room := there.room(fresh, name))[0]}
                assert {name: room for room, names in fresh.by_room.items() for name in names} == fresh.rooms
