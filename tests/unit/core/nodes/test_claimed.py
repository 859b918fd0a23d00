"""Room that is kept for claims: what is free for others at any moment, whatever happened before."""

from hypothesis import example, given
from hypothesis import strategies as st

from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.claimed import Claimed
from webhook.core.nodes.node import Bound, NodeRecord
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
    st.tuples(st.just("claim"), st.sampled_from(CLAIMANTS), places, st.sets(st.sampled_from(GANGS)), st.booleans()),
    st.tuples(st.just("unclaim"), st.sampled_from(CLAIMANTS)),
    st.tuples(st.just("left"), st.sampled_from(GANGS)),
)
POD = Shape((("cpu", 1),))
Claims = dict[str, tuple[dict[str, int], set[str], bool]]
"""By who claims: where, which gangs it awaits, whether it is booked."""


def taking(where: dict[str, int]) -> Allotment:
    return Allotment({"main": POD}, {"main": dict(where)})


def carry_out(act: tuple, there: Capacity, claims: Claims) -> None:  # type: ignore[type-arg]
    match act:
        case ("bind", pod, node, gang):
            there.bind(pod, Bound(node, {"cpu": 1}, gang, "main"))
        case ("unbind", pod):
            there.unbind(pod)
        case ("allot", gang, where):
            there.allot(gang, taking(where))
        case ("withdraw", gang):
            there.withdraw(gang)
        case ("claim", uid, where, awaits, booked):
            there.claim(uid, Claimed(taking(where), set(awaits), booked))
            claims[uid] = where, set(awaits), booked
        case ("unclaim", uid):
            there.unclaim(uid)
            claims.pop(uid, None)
        case ("left", gang):
            there.has_left(gang)
            for _, awaits, _ in claims.values():
                awaits.discard(gang)


def told(story: list[tuple]) -> tuple[Capacity, Claims]:  # type: ignore[type-arg]
    there, claims = Capacity(), Claims()
    for name in NODES:
        there.put_node(NodeRecord(name, {"cpu": ROOM}, {}))
    for act in story:
        carry_out(act, there, claims)
    return there, claims


@given(st.lists(acts, max_size=30), st.sets(st.sampled_from(GANGS)))
def test_others_may_take_what_neither_stands_there_nor_is_claimed_beyond_what_leaves(
    story: list[tuple],  # type: ignore[type-arg]
    gone: set[str],
) -> None:
    there, claims = told(story)
    held = {gang: dict.fromkeys(NODES, 0) for gang in GANGS}
    for gang in GANGS:
        for (_, node), count in there.bound_of(gang).items():
            held[gang][node] += count
        if gang in there.allotments:
            for node, count in there.allotments[gang].places.get("main", {}).items():
                held[gang][node] += count
    loose = {node: sum(each.node == node and each.gang is None for each in there.all_bound()) for node in NODES}

    def free_of(node: str, left: set[str]) -> int:
        stands, kept = loose[node] + sum(held[gang][node] for gang in GANGS if gang not in left), [0]
        for counted in (claims.values(), [each for each in claims.values() if not each[2]]):
            claimed = sum(where.get(node, 0) for where, _, _ in counted)
            leaving = {gang for _, awaits, _ in counted for gang in awaits}
            kept.append(claimed - sum(held[gang][node] for gang in leaving - left))
        return ROOM - stands - max(kept)

    more = there.held_by(gone)
    for node in NODES:
        now = there.free[node].get("cpu", 0)
        assert now == free_of(node, set())
        assert there.spare(node).get("cpu", 0) == ROOM - loose[node] - sum(held[gang][node] for gang in GANGS)
        assert now + more.get(node, {}).get("cpu", 0) == free_of(node, gone)
    assert there.copy().free == there.free
    for uid in CLAIMANTS:
        there.unclaim(uid)
    for node in NODES:
        assert there.free[node].get("cpu", 0) == there.spare(node).get("cpu", 0)


@given(st.lists(acts, max_size=30))
def test_a_booking_that_ends_or_awaits_another_takes_no_claim_its_room(story: list[tuple]) -> None:  # type: ignore[type-arg]
    there, claims = told(story)
    kept = {uid for uid, (_, _, booked) in claims.items() if not booked and there.keeps(uid)}
    for uid, (_, _, booked) in claims.items():
        if booked:
            there.unclaim(uid)
    assert {uid for uid in kept if there.keeps(uid)} == kept


def test_a_seat_that_one_claim_awaits_is_not_promised_again_because_a_booking_awaits_who_sits_beside_it() -> None:
    there = Capacity()
    for name in NODES:
        there.put_node(NodeRecord(name, {"cpu": 2}, {}))
    there.bind("p1", Bound("a", {"cpu": 1}, "stopped", "main"))
    there.bind("p2", Bound("a", {"cpu": 1}, "runs", "main"))
    there.claim("first", Claimed(taking({"a": 1}), {"stopped"}))
    there.claim("wide", Claimed(taking({"b": 2}), {"stopped", "runs"}, booked=True))
    more = there.held_by(["stopped"])
    assert there.free["a"].get("cpu", 0) + more.get("a", {}).get("cpu", 0) == 0
    there.unbind("p1")
    assert there.free["a"].get("cpu", 0) == 0, "it is kept for the first, however long the other runs"
    there.bind("p1", Bound("a", {"cpu": 1}, "stopped", "main"))
    there.claim("second", Claimed(taking({"b": 1}), {"stopped"}))
    assert there.keeps("first")
    assert there.keeps("second"), "claims go before bookings"
    assert not there.keeps("wide")


STILL_LEAVING = [("allot", "x", {"a": 4}), ("allot", "y", {"a": 4}), ("claim", "v", {"b": 1}, {"x"}, False)]


@example([*STILL_LEAVING, ("claim", "w", {"a": 4}, set(), False)], "v")
@example([*STILL_LEAVING, ("claim", "w", {"a": 4}, set(), True)], "v")
@given(st.lists(acts, max_size=30), st.sampled_from(CLAIMANTS))
def test_what_is_kept_stays_kept_when_another_claim_ends_whose_gangs_are_still_leaving(
    story: list[tuple],  # type: ignore[type-arg]
    ended: str,
) -> None:
    """Each claim counts on all gangs that any claim awaits."""
    there, claims = told(story)
    kept = [uid for uid in there.claimants() if uid != ended and there.keeps(uid)]
    _, awaits, booked = claims.get(ended, ({}, set[str](), False))
    there.unclaim(ended)
    if not booked:
        there.hand_over(sorted(awaits))
        assert [uid for uid in kept if not there.keeps(uid)] == []
