"""What the nodes never hold is found with few looks at them, however many pod sets a gang has."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from webhook.core.nodes import capacity
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.eligible import Eligible, eligible
from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import Shape
from webhook.core.placement import beyond as module
from webhook.core.placement.beyond import beyond
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked


def nodes(cpu: Iterable[int], pools: Sequence[str] = ("a",)) -> Capacity:
    found = Capacity()
    for number, amount in enumerate(cpu):
        found.put_node(NodeRecord(f"n{number}", {"cpu": amount}, {"pool": pools[number % len(pools)]}))
    return found


def sets(asked: Iterable[tuple[int, int]], pools: Sequence[str] = ("a",)) -> list[Asked]:
    return [
        Asked(f"s{number}", Shape((("cpu", cpu),), (("pool", pools[number % len(pools)]),)), count)
        for number, (cpu, count) in enumerate(asked)
    ]


def reason(there: Capacity, asked: Sequence[Asked]) -> str:
    found = place(there, asked)
    assert isinstance(found, Misplaced)
    return str(beyond(there, found))


def test_sets_that_ask_for_the_same_labels_need_one_look_at_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[Shape]()

    def counted(shape: Shape, *rest: object) -> Eligible:
        looked.append(shape)
        return eligible(shape, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(capacity, "eligible", counted)
    there = nodes([100] * 10)
    assert reason(there, sets((1 + number, 1) for number in range(60))).startswith(
        "its 60 pod sets ask for 1830m cpu together; the nodes that could take them (10) have 1 cpu when"
    )
    assert len(looked) == 2, "the first that found no room, and all together"


def test_where_they_ask_for_too_many_labels_all_nodes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    there, asked = nodes([100, 100, 1000], "abc"), sets([(60, 1), (60, 1), (50, 1), (50, 1)], "abba")
    assert reason(there, asked).startswith(
        "its 4 pod sets ask for 220m cpu together; the nodes that could take them (2) have 200m cpu when"
    )
    monkeypatch.setattr(module, "ROUND_VISITS", 5)
    assert reason(there, asked) == "None"
    there.put_node(NodeRecord("n2", {"cpu": 10}))
    assert "; the nodes (3) have 210m cpu when" in reason(there, asked)


AMOUNTS = st.lists(st.integers(1, 6), min_size=1, max_size=4)
SETS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3)), min_size=1, max_size=4)


@given(AMOUNTS, SETS, st.sampled_from([5, 50_000]))
def test_of_no_gang_that_fits_empty_nodes_a_never_is_said(
    cpu: list[int], asked: list[tuple[int, int]], visits: int
) -> None:
    there, gang = nodes(cpu, "ab"), sets(asked, "ab")
    assume(not isinstance(place(there, gang), Misplaced))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROUND_VISITS", visits)
        assert beyond(there, Misplaced(gang[0], 0, certain=False, gang=gang)) is None
