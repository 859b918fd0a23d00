"""Room that is kept for claims: what is free for others at any moment, whatever happened before."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Bound, Capacity
from webhook.core.nodes.claimed import Claimed
from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import Shape

NODES = ("a", "b")
GANGS = ("x", "y")
CLAIMANTS = ("v", "w")
ROOM = 8
one = st.integers(0, 4)
places = st.fixed_dictionaries(dict.fromkeys(NODES, one)).map(
    lambda p: {node: count for node, count in p.items() if count}
)
acts = st.one_of(
    st.tuples(
        st.just("bind"), st.sampled_from(["p1", "p2", "p3"]), st.sampled_from(NODES), st.sampled_from([*GANGS, None])
    ),
    st.tuples(st.just("unbind"), st.sampled_from(["p1", "p2", "p3"])),
    st.tuples(st.just("allot"), st.sampled_from(GANGS), places),
    st.tuples(st.just("withdraw"), st.sampled_from(GANGS)),
    st.tuples(st.just("claim"), st.sampled_from(CLAIMANTS), places, st.sets(st.sampled_from(GANGS))),
    st.tuples(st.just("unclaim"), st.sampled_from(CLAIMANTS)),
    st.tuples(st.just("left"), st.sampled_from(GANGS)),
)
POD = Shape((("cpu", 1),))


def taking(where: dict[str, int]) -> Allotment:
    return Allotment({"main": POD}, {"main": dict(where)})


def carry_out(act: tuple, there: Capacity, claims: dict[str, tuple[dict[str, int], set[str]]]) -> None:  # type: ignore[type-arg]
    match act:
        case ("bind", pod, node, gang):
            there.bind(pod, Bound(node, {"cpu": 1}, gang, "main"))
        case ("unbind", pod):
            there.unbind(pod)
        case ("allot", gang, where):
            there.allot(gang, taking(where))
        case ("withdraw", gang):
            there.withdraw(gang)
        case ("claim", uid, where, awaits):
            there.claim(uid, Claimed(taking(where), set(awaits)))
            claims[uid] = where, set(awaits)
        case ("unclaim", uid):
            there.unclaim(uid)
            claims.pop(uid, None)
        case ("left", gang):
            there.has_left(gang)
            for _, awaits in claims.values():
                awaits.discard(gang)


@given(st.lists(acts, max_size=30), st.sets(st.sampled_from(GANGS)))
def test_others_may_take_what_neither_stands_there_nor_is_claimed_beyond_what_leaves(
    story: list[tuple],
    gone: set[str],  # type: ignore[type-arg]
) -> None:
    there, claims = Capacity(), dict[str, tuple[dict[str, int], set[str]]]()
    for name in NODES:
        there.put_node(NodeRecord(name, {"cpu": ROOM}, {}))
    for act in story:
        carry_out(act, there, claims)
    held = {gang: dict.fromkeys(NODES, 0) for gang in GANGS}
    for gang in GANGS:
        for (_, node), count in there.bound_of(gang).items():
            held[gang][node] += count
        if gang in there.allotments:
            for node, count in there.allotments[gang].places.get("main", {}).items():
                held[gang][node] += count
    loose = {node: sum(each.node == node and each.gang is None for each in there.all_bound()) for node in NODES}
    awaited = {gang for _, awaits in claims.values() for gang in awaits}

    def free_of(node: str, leaving: set[str], left: set[str]) -> int:
        claimed = sum(where.get(node, 0) for where, _ in claims.values())
        stands = loose[node] + sum(held[gang][node] for gang in GANGS if gang not in left)
        return ROOM - stands - max(0, claimed - sum(held[gang][node] for gang in leaving - left))

    more = there.held_by(gone)
    for node in NODES:
        now = there.free[node].get("cpu", 0)
        assert now == free_of(node, awaited, set())
        assert there.spare(node).get("cpu", 0) == ROOM - loose[node] - sum(held[gang][node] for gang in GANGS)
        assert now + more.get(node, {}).get("cpu", 0) == free_of(node, awaited, gone)
    assert there.copy().free == there.free
    for uid in CLAIMANTS:
        there.unclaim(uid)
    for node in NODES:
        assert there.free[node].get("cpu", 0) == there.spare(node).get("cpu", 0)
