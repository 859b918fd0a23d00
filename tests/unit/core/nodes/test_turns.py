"""A round of decisions looks at as many new shapes as it may cost, whatever a pod template names."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import pytest

from webhook.core.model.gang import Requirement, Toleration
from webhook.core.nodes.capacity import SHAPES_MAX, Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.nodes.ranking import Ranking, Room
from webhook.core.nodes.shape import Shape
from webhook.core.nodes.turns import CHANGES_UNCOUNTED, ROUND_SHAPES, ROUND_VISITS, TURN_SHAPES, Turns, work

NODES: Final = 500
PLAIN: Final = Shape((("cpu", 1000),))
VALUES: Final = tuple(f"no-{number}" for number in range(998))
HEAVY: Final = {
    "values": Shape((("cpu", 1000),), affinity=((Requirement("rack", "In", VALUES),),)),
    "terms": Shape((("cpu", 1000),), affinity=tuple((Requirement("rack", "In", (each,)),) for each in VALUES[:333])),
    "tolerations": Shape((("cpu", 1000),), tolerations=(Toleration("a"),) * 1000),
    "labels": Shape((("cpu", 1000),), selector=tuple((f"k{number}", "x") for number in range(1000))),
}


def nobody_leaves(_: str) -> bool:
    return True


def taken(turns: Turns, shapes: Collection[Shape], nodes: int, gang: str) -> bool:
    """Return whether a gang may have new ``shapes`` looked at."""
    return turns.take({shape: work(shape, nodes) for shape in shapes}, gang)


def asked(turns: Turns, shapes: Collection[Shape], nodes: int, gang: str) -> bool:
    """The same, of one that has not asked about all of them before in this round."""
    turns.asked.setdefault(gang, {}).update(dict.fromkeys(shapes))
    return taken(turns, shapes, nodes, gang)


def following(turns: Turns, nodes: int) -> Shape | None:
    """Return what is looked at next."""
    return turns.next(lambda shape: work(shape, nodes))


def round_of(shapes: list[Shape], nodes: int) -> int:
    """Return at how many of ``shapes`` the first round looks."""
    turns = Turns()
    turns.begin(nobody_leaves)
    return sum(taken(turns, [shape], nodes, f"g{number}") for number, shape in enumerate(shapes))


def alike(shape: Shape) -> list[Shape]:
    """Return many that ask something else each."""
    return [replace(shape, levels=(f"l{number}",)) for number in range(200)]


def test_a_round_looks_at_each_node_so_often() -> None:
    assert round_of(alike(PLAIN), NODES) == ROUND_VISITS // NODES == 100


@pytest.mark.parametrize("shape", HEAVY.values(), ids=HEAVY)
def test_what_a_template_names_counts_in_a_round(shape: Shape) -> None:
    assert shape.parts in (999, 1000)
    assert round_of(alike(shape), NODES) == 34


def test_what_one_pod_requests_counts_where_it_takes_time() -> None:
    requests = tuple((f"r{number}", 1000) for number in range(64))
    ports = tuple(f"TCP/{number}" for number in range(64))
    assert work(replace(PLAIN, requests=requests[:15], ports=ports[:1]), NODES) == NODES
    assert work(replace(PLAIN, requests=requests), NODES) == 5 * NODES
    assert work(replace(PLAIN, ports=ports), NODES) == 33 * NODES


def test_who_waits_has_its_turn_in_order_however_much_it_takes() -> None:
    turns, shapes = Turns(), alike(HEAVY["terms"])[:3]
    turns.begin(nobody_leaves)
    nodes = 2 * ROUND_VISITS
    assert [taken(turns, [shape], nodes, gang) for shape, gang in zip(shapes, "abc", strict=True)] == [
        True,
        False,
        False,
    ]
    for shape in shapes[1:]:
        turns.begin(nobody_leaves)
        assert following(turns, nodes) == shape
        assert following(turns, nodes) is None
    assert not turns.due
    turns.begin(nobody_leaves)
    assert following(turns, nodes) is None


def test_a_small_job_of_somebody_else_is_looked_at_after_a_few_rounds() -> None:
    there = Capacity()
    for number in range(NODES):
        there.put_node(NodeRecord(f"n{number}", {"cpu": 4000}))
    there.begin_round(nobody_leaves)
    asked = [*alike(HEAVY["values"])[:70], PLAIN]
    assert [there.may_ask([shape], f"g{number}") for number, shape in enumerate(asked)].count(True) == 34
    rounds = 0
    while there.due:
        there.begin_round(nobody_leaves)
        rounds += 1
    assert rounds == 2
    assert there.may_ask([PLAIN], "a")


def test_a_round_looks_at_no_more_than_half_of_what_is_kept() -> None:
    assert round_of(alike(PLAIN), 1) == ROUND_SHAPES
    assert 2 * ROUND_SHAPES <= SHAPES_MAX
    assert TURN_SHAPES <= SHAPES_MAX


def test_who_is_gone_has_no_turn_and_who_asks_again_keeps_the_place() -> None:
    turns, shapes = Turns(), alike(PLAIN)[:4]
    turns.begin(nobody_leaves)
    taken(turns, shapes[:1], 2 * ROUND_VISITS, "first")
    for gang, new in (("a", shapes[1:2]), ("b", shapes[2:3]), ("c", shapes[3:]), ("b", shapes[1:3])):
        assert not taken(turns, new, 1, gang)
    assert turns.begin({"b", "c"}.__contains__) == ["a"]
    assert list(turns.due.items()) == [("b", shapes[2:3]), ("c", shapes[3:])]


def test_one_gang_at_a_time_has_all_its_shapes_looked_at_in_as_many_rounds_as_it_takes() -> None:
    turns, shapes = Turns(), alike(PLAIN)[:7]
    nodes = ROUND_VISITS // 2
    turns.begin(nobody_leaves)
    assert not taken(turns, shapes[:5], nodes, "wide")
    assert taken(turns, shapes[5:6], nodes, "single")
    assert not taken(turns, shapes[5:], nodes, "pair"), "one is left of this round"
    rounds = []
    while turns.due:
        turns.begin(nobody_leaves)
        looked = list(iter(lambda: following(turns, nodes), None))
        rounds.append([shapes.index(shape) for shape in looked])
        if len(rounds) == 3:
            assert taken(turns, shapes[:5], nodes, "wide"), "whatever is kept of it"
    assert rounds == [[0, 1], [2, 3], [4, 5], [6]]


def test_a_turn_lasts_to_the_end_of_its_round() -> None:
    turns, shapes = Turns(), alike(PLAIN)[:3]
    nodes = 2 * ROUND_VISITS
    turns.begin(nobody_leaves)
    assert not taken(turns, shapes[:2], nodes, "a")
    for _ in shapes[:2]:
        assert not turns.granted
        turns.begin(nobody_leaves)
        following(turns, nodes)
    assert list(turns.granted) == ["a"]
    assert taken(turns, shapes[:2], nodes, "a")
    turns.begin(nobody_leaves)
    taken(turns, shapes[:1], nodes, "b")
    assert not taken(turns, shapes, nodes, "a")


def test_what_was_looked_at_in_a_turn_may_be_asked_until_the_gang_is_decided_about() -> None:
    turns, shapes = Turns(), alike(PLAIN)[:3]
    nodes = 2 * ROUND_VISITS
    turns.begin(nobody_leaves)
    assert not taken(turns, shapes[:2], nodes, "a")
    for number in range(5):
        turns.begin(nobody_leaves)
        following(turns, nodes)
        assert turns.granted == (["a"] if number == 1 else []), "it is told once"
    taken(turns, shapes[2:], nodes, "b")
    assert taken(turns, shapes[:2], nodes, "a")
    turns.begin(nobody_leaves)
    taken(turns, shapes[2:], nodes, "b")
    assert not taken(turns, shapes[:2], nodes, "a")


def test_gangs_that_are_not_decided_about_look_at_no_more_together_than_one_turn_may() -> None:
    turns, rounds = Turns(), 3 * TURN_SHAPES
    of_each = {f"g{number}": [replace(PLAIN, levels=(f"l{number}",))] for number in range(rounds)}
    turns.begin(nobody_leaves)
    for gang, shapes in of_each.items():
        taken(turns, shapes, 2 * ROUND_VISITS, gang)
    for _ in of_each:
        turns.begin("g767".__ne__)
        following(turns, 2 * ROUND_VISITS)
    turns.begin("g767".__ne__)
    taken(turns, [PLAIN], 2 * ROUND_VISITS, "other")
    may = [gang for gang, shapes in of_each.items() if taken(turns, shapes, 2 * ROUND_VISITS, gang)]
    assert may == [f"g{number}" for number in range(rounds - 1 - TURN_SHAPES, rounds - 1)]


def test_a_turn_goes_on_for_the_next_flavor_before_others() -> None:
    turns, shapes = Turns(), alike(PLAIN)[:6]
    nodes = ROUND_VISITS // 2
    turns.begin(nobody_leaves)
    assert not asked(turns, shapes[:3], nodes, "a")
    assert not asked(turns, shapes[3:], nodes, "b")
    looked = []
    for _ in range(2):
        turns.begin(nobody_leaves)
        looked += list(iter(lambda: following(turns, nodes), None))
    assert looked == shapes[:4]
    assert turns.granted == ["a"]
    assert asked(turns, shapes[:3], nodes, "a")
    assert not asked(turns, shapes[5:], nodes, "a"), "the round is over"
    assert list(turns.due.items()) == [("a", [*shapes[:3], shapes[5]]), ("b", shapes[4:])], "some may be forgotten then"


def test_who_asks_for_something_else_each_time_goes_to_the_end_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.core.nodes.turns.TURN_SHAPES", 2)
    turns, shapes = Turns(), alike(PLAIN)[:4]
    nodes, first = 2 * ROUND_VISITS, list[str]()
    turns.begin(nobody_leaves)
    taken(turns, shapes[3:], nodes, "other")
    taken(turns, shapes[:1], nodes, "a")
    taken(turns, shapes[3:], nodes, "b")
    for shape in shapes[1:3]:
        turns.begin(nobody_leaves)
        following(turns, nodes)
        taken(turns, [shape], nodes, "a")
        first.append(next(iter(turns.due)))
    assert first == ["a", "b"]


def test_a_gang_asks_about_no_more_on_all_flavors_together_than_can_be_kept() -> None:
    there = Capacity()
    for number in range(NODES):
        there.put_node(NodeRecord(f"n{number}", {"cpu": 4000}))
    shapes = [replace(PLAIN, levels=(f"l{number}",)) for number in range(SHAPES_MAX + 1)]
    there.begin_round(nobody_leaves)
    assert not there.too_many(shapes[:200], "a")
    assert not there.too_many(shapes[200:], "b")
    assert there.too_many(shapes[200:], "a") == len(shapes)
    assert not there.too_many(shapes[201:], "a"), "what was refused does not count"
    there.begin_round(nobody_leaves)
    assert not there.too_many(shapes[200:], "a")


def behind(changes: int) -> Capacity:
    """Return nodes so many of which have changed since two shapes were looked at."""
    there = Capacity()
    for number in range(NODES):
        there.put_node(NodeRecord(f"n{number}", {"cpu": 4000}))
    there.begin_round(nobody_leaves)
    assert there.may_ask(TWO, "a")
    for shape in TWO:
        there.ranking(shape)
    for number in range(changes):
        there.bind(f"p{number}", Bound(f"n{number % NODES}", {"cpu": 1}))
    there.looked = 0
    return there


TWO: Final = (PLAIN, Shape((("cpu", 2000),)))


def test_few_changes_are_looked_at_outside_of_all_turns() -> None:
    there = behind(CHANGES_UNCOUNTED)
    known = there.known_ranking(PLAIN)
    assert known is not None
    assert known.seen == there.changes.count
    assert there.looked == 0, "no search has to make up for them"
    assert CHANGES_UNCOUNTED * SHAPES_MAX <= ROUND_VISITS


@pytest.mark.parametrize("changes", [CHANGES_UNCOUNTED + 1, NODES, 20 * NODES])
def test_what_has_fallen_behind_is_looked_at_in_turn_and_costs_what_has_changed(changes: int) -> None:
    there = behind(changes)
    assert there.known_ranking(PLAIN) is None
    there.begin_round(nobody_leaves)
    many = [[replace(PLAIN, levels=(f"l{number}",))] for number in range(ROUND_SHAPES)]
    left = ROUND_VISITS - 2 * min(changes, NODES)
    assert there.may_ask(TWO, "a")
    assert sum(there.may_ask(each, f"g{number}") for number, each in enumerate(many)) == -(-left // NODES)
    assert not there.may_ask(TWO, "b"), "nobody has looked yet"
    for shape in TWO:
        there.ranking(shape)
    assert there.may_ask(TWO, "c")


@pytest.mark.parametrize(("nodes", "changes"), [(50, 3), (50, 4), (100, 5), (100, 6), (100, 100), (100, 1000)])
def test_where_many_nodes_changed_all_are_read_again(nodes: int, changes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.core.nodes.turns.CHANGES_UNCOUNTED", 3)
    there, looked = Capacity(), list[str]()
    for number in range(nodes):
        there.put_node(NodeRecord(f"n{number}", {"cpu": 4000}))
    there.ranking(PLAIN)
    for number in range(changes):
        there.bind(f"p{number}", Bound(f"n{number % nodes}", {"cpu": 100 * (1 + number % 37)}))
    usual = Capacity.room

    def counted(capacity: Capacity, ranking: Ranking, name: str) -> Room:
        looked.append(name)
        return usual(capacity, ranking, name)

    monkeypatch.setattr(Capacity, "room", counted)
    known, fresh = there.ranking(PLAIN), there.copy().ranking(PLAIN)
    assert len(looked) == (changes if changes <= max(3, nodes // 20) else 0)
    assert (known.rooms, known.by_room, known.total) == (fresh.rooms, fresh.by_room, fresh.total)


def test_what_a_question_looks_at_or_gives_back_for_a_moment_counts_as_before_for_decisions() -> None:
    there = behind(CHANGES_UNCOUNTED)
    with there.questions():
        known = there.ranking(PLAIN)
        for number in range(CHANGES_UNCOUNTED):
            there.unbind(f"p{number}")
            there.bind(f"p{number}", Bound(f"n{number}", {"cpu": 1}))
        assert there.ranking(PLAIN) is known
    fresh = there.copy().ranking(PLAIN)
    assert (known.rooms, known.by_room, known.total) == (fresh.rooms, fresh.by_room, fresh.total)
    there.bind("more", Bound("n0", {"cpu": 1}))
    assert there.known_ranking(PLAIN) is None


def test_who_may_look_may_do_so_to_the_end_of_the_round_whatever_changes() -> None:
    there = behind(0)
    assert there.may_ask(TWO, "a")
    others = [replace(PLAIN, levels=(f"l{number}",)) for number in range(ROUND_SHAPES)]
    assert not all(there.may_ask([each], f"g{number}") for number, each in enumerate(others))
    # What is kept for it alone is given back while it asks again.
    for number in range(2 * CHANGES_UNCOUNTED):
        there.bind(f"p{number}", Bound(f"n{number}", {"cpu": 1}))
    assert there.may_ask(TWO, "a")
    assert not there.may_ask(TWO, "b")


def test_what_a_node_larger_than_all_makes_old_is_looked_at_in_turn() -> None:
    there, both = behind(0), Shape((("cpu", 1000), ("gpu", 1000)))
    there.put_node(NodeRecord("x", {"cpu": 4000, "gpu": 1000}))
    there.ranking(both)
    assert there.known_ranking(both) is not None
    there.put_node(NodeRecord("y", {"cpu": 4000, "gpu": 9000}))
    assert there.known_ranking(both) is None


def test_what_a_gang_lacks_takes_not_the_place_of_what_is_kept_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.core.nodes.capacity.SHAPES_MAX", 3)
    there, (one, two) = behind(0), TWO
    other, new = (replace(PLAIN, levels=(each,)) for each in "ab")
    there.ranking(other)
    assert there.may_ask([one, two, new], "a")
    there.ranking(new)
    assert there.known_ranking(one) is not None
    assert there.known_ranking(two) is not None


def test_a_round_says_whose_turn_it_was_and_who_is_gone() -> None:
    there = Capacity()
    there.put_node(NodeRecord("n", {"cpu": 4000}))
    shapes = [replace(PLAIN, levels=(f"l{number}",)) for number in range(2 * ROUND_SHAPES)]
    assert there.begin_round(nobody_leaves) == []
    for number, shape in enumerate(shapes):
        assert there.may_ask([shape], f"g{number}") is (number < ROUND_SHAPES)
    told = there.begin_round(lambda gang: gang != "g200")
    assert told == ["g200", *(f"g{number}" for number in range(ROUND_SHAPES, 2 * ROUND_SHAPES) if number != 200)]


def test_what_only_is_kept_up_to_date_is_kept_no_longer_for_that() -> None:
    there = Capacity()
    there.put_node(NodeRecord("n", {"cpu": 4000}))
    shapes = [replace(PLAIN, levels=(f"l{number}",)) for number in range(SHAPES_MAX + 1)]
    for shape in shapes[:-1]:
        there.ranking(shape)
    assert there.known_ranking(shapes[0]) is not None
    there.ranking(shapes[-1])
    assert there.known_ranking(shapes[0]) is None


@pytest.mark.parametrize("labels", [{}, {"rack": "a"}, {"rack": "a", "zone": "w"}])
def test_nodes_that_bear_some_labels_are_found_in_any_state(labels: dict[str, str]) -> None:
    there = Capacity()
    assert not there.has_nodes(labels)
    there.put_node(NodeRecord("n", {"cpu": 4000}, {"rack": "a", "zone": "w"}, ready=False))
    assert there.has_nodes(labels)
    assert not there.has_nodes({**labels, "rack": "b"})
    assert not there.has_nodes({**labels, "unborne": "x"})
    there.put_node(NodeRecord("n", {"cpu": 4000}, {"rack": "b"}))
    assert there.has_nodes({"rack": "b"})
    there.drop_node("n")
    assert not there.has_nodes({"rack": "b"})
