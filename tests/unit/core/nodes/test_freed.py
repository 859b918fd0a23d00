"""Whatever becomes free on a node is noted: who waits for room there is woken by nothing else."""

from hypothesis import example, given
from hypothesis import strategies as st

from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.nodes.shape import Shape

NODES, GANGS, PODS = st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from("pqr")
SHAPES = {"small": Shape((("cpu", 1),)), "large": Shape((("cpu", 2),))}
SETS = st.sampled_from(sorted(SHAPES))
places = st.dictionaries(SETS, st.dictionaries(NODES, st.integers(1, 3)))
acts = st.one_of(
    st.tuples(st.just("put"), NODES, st.integers(1, 9)),
    st.tuples(st.just("drop"), NODES),
    st.tuples(st.just("bind"), PODS, NODES, st.integers(1, 3), GANGS | st.none(), SETS),
    st.tuples(st.just("unbind"), PODS),
    st.tuples(st.just("allot"), GANGS, places),
    st.tuples(st.just("more"), GANGS, places),
    st.tuples(st.just("withdraw"), GANGS),
    st.tuples(st.just("split"), GANGS),
)


def carry_out(act: tuple, there: Capacity) -> None:  # type: ignore[type-arg]
    match act:
        case ("put", node, cpus):
            there.put_node(NodeRecord(node, {"cpu": cpus}))
        case ("drop", node):
            there.drop_node(node)
        case ("bind", pod, node, cpus, gang, pod_set):
            there.bind(pod, Bound(node, {"cpu": cpus}, gang, pod_set))
        case ("unbind", pod):
            there.unbind(pod)
        case ("allot", gang, where):
            there.allot(gang, Allotment(SHAPES, {name: dict(nodes) for name, nodes in where.items()}))
        case ("more", gang, where):
            there.allot_more(gang, Allotment(SHAPES, {name: dict(nodes) for name, nodes in where.items()}))
        case ("withdraw", gang):
            there.withdraw(gang)
        case ("split", gang):
            there.split(gang, {"z": {"small": "small"}, "w": {"large": "large"}})


@given(st.lists(acts, max_size=20))
@example([("put", "a", 4), ("allot", "x", {"large": {"a": 1}}), ("bind", "p", "a", 1, "x", "large")])
@example([("put", "a", 4), ("put", "b", 4), ("allot", "x", {"small": {"b": 1}}), ("bind", "p", "a", 1, "x", "small")])
@example([("put", "a", 4), ("allot", "x", {"small": {"a": 2}}), ("allot", "x", {"small": {"a": 1}})])
@example([("put", "a", 4), ("allot", "x", {"small": {"a": 2}}), ("withdraw", "x")])
def test_whatever_becomes_free_is_noted_and_what_takes_room_alone_is_not(story: list[tuple]) -> None:  # type: ignore[type-arg]
    """A gang that was let go, a pod that landed elsewhere than where it was expected: others waited for ever."""
    there = Capacity()
    for act in story:
        before, there.freed = {node: there.free[node].get("cpu", 0) for node in there.nodes}, False
        carry_out(act, there)
        more = [node for node in there.nodes if there.free[node].get("cpu", 0) > before.get(node, 0)]
        if more:
            assert there.freed, f"{act} has freed some of {more}"
        if act[0] in {"more", "split"}:
            assert not there.freed, f"{act} takes room or hands it on"
