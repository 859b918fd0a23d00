"""What all nodes say to a shape at once is what each says by itself, and costs no more the more a template names."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.gang import Requirement, Toleration
from webhook.core.model.policy import Taint, tolerates
from webhook.core.nodes.bearers import Bearers
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import Shape
from webhook.core.nodes.sieve import sifted
from webhook.core.nodes.tolerated import Tolerated
from webhook.core.notation.names import HOSTNAME, NODE_NAME

LABELS: Final = ("pool", "size")
TEXTS: Final = ("", "a", "b", "1", "02", "3", "-4", "1_0", "9" * 30)
NAMES: Final = ("n0", "n1", "n2", "n3", "7")
EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule")
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Unknown")

texts = st.sampled_from(TEXTS)
taints = st.builds(Taint, st.sampled_from(["slow", "size"]), texts, st.sampled_from(EFFECTS))
cordon = st.just(Toleration("node.kubernetes.io/unschedulable", "Exists"))
tolerations = st.builds(
    Toleration,
    st.sampled_from(["", "slow", "size"]),
    st.sampled_from(["Exists", "Equal", "Gt", "Lt", ""]),
    texts,
    st.sampled_from(["", *EFFECTS]),
)
requirements = st.builds(
    Requirement,
    st.sampled_from([*LABELS, "none", NODE_NAME]),
    st.sampled_from(OPERATORS),
    st.lists(st.sampled_from([*TEXTS, *NAMES]), max_size=3).map(tuple),
)
shapes = st.builds(
    lambda selector, affinity, borne, levels: Shape(
        (("cpu", 1000),), tuple(sorted(selector.items())), affinity, tuple(borne), tuple(levels)
    ),
    st.dictionaries(st.sampled_from(LABELS), texts, max_size=1),
    st.lists(st.lists(requirements, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
    st.lists(st.one_of(tolerations, cordon), max_size=10),
    st.lists(st.sampled_from(LABELS), max_size=1),
)
records = st.builds(
    lambda name, labels, borne, ready, cordoned: NodeRecord(name, {"cpu": 4000}, labels, tuple(borne), ready, cordoned),
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(LABELS), texts),
    st.lists(taints, max_size=2),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([False, False, False, True]),
)


def meets(node: NodeRecord, requirement: Requirement) -> bool:
    """Return what core/v1 says of one requirement."""
    value = node.name if requirement.key == NODE_NAME else node.labels.get(requirement.key)
    if requirement.operator in ("Gt", "Lt"):
        numbers = [whole(each) for each in (value, *requirement.values)]
        if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
            return False
        return numbers[0] > numbers[1] if requirement.operator == "Gt" else numbers[0] < numbers[1]
    said = {
        "In": value in requirement.values,
        "NotIn": value not in requirement.values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return said.get(requirement.operator, False)


def whole(text: str | None) -> int | None:
    """Return what Go's ParseInt reads."""
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isdecimal() and len(digits) < 19 else None


def naive(shape: Shape, node: NodeRecord) -> str | None:
    """Return what keeps the pods away from one node, rule by rule."""
    bears = [taint for taint in node.taints if any(tolerates(each, taint) for each in shape.tolerations)]
    cordon = Taint("node.kubernetes.io/unschedulable")
    if node.cordoned and not any(tolerates(each, cordon) for each in shape.tolerations):
        return "cordoned"
    if not node.ready:
        return "not ready"
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and taint not in bears:
            return f"with taint {taint.key} not tolerated"
    for key, value in shape.selector:
        if node.labels.get(key) != value:
            return f"without label {key}={value}"
    if shape.affinity and not any(all(meets(node, each) for each in term) for term in shape.affinity):
        return "outside its node affinity"
    return next((f"without label {level}" for level in shape.levels if level not in node.labels), None)


@given(st.lists(records, max_size=6), shapes)
def test_all_nodes_at_once_say_what_each_says_by_itself(nodes: list[NodeRecord], shape: Shape) -> None:
    there = Bearers()
    for row, node in enumerate(nodes):
        there.put(row, node)
    assert sifted(shape, there) == [naive(shape, node) for node in nodes] == [shape.why_not(node) for node in nodes]


@given(st.lists(st.one_of(records, st.sampled_from(NAMES)), max_size=12), st.lists(shapes, min_size=1, max_size=3))
def test_so_they_do_whoever_came_changed_and_went(steps: list[NodeRecord | str], asked: list[Shape]) -> None:
    there = Capacity()
    for number, step in enumerate(steps):
        if isinstance(step, str):
            there.drop_node(step)
        else:
            there.put_node(step)
        shape = asked[number % len(asked)]
        said = {name: naive(shape, node) for name, node in there.nodes.items()}
        assert dict(zip(there.names, there.verdict(shape), strict=True)) == said
        ranking = there.ranking(shape)
        assert {name for name in there.nodes if there.room(ranking, name)[0]} == {
            n for n, why in said.items() if not why
        }


@given(st.lists(tolerations, max_size=12), taints)
def test_many_tolerations_bear_what_any_of_them_does(borne: list[Toleration], taint: Taint) -> None:
    assert Tolerated(borne).bear(taint) == any(tolerates(each, taint) for each in borne)


@pytest.mark.parametrize("value", ["0", "1", "2", "3", "4", "5", "x"])
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_several_bounds_bear_what_the_widest_does(operator: str, value: str) -> None:
    taint = Taint("size", value)
    for bounds in (("1", "3"), ("3", "1"), ("2", "x"), ("4",)):
        borne = [Toleration("size", operator, bound) for bound in bounds]
        assert Tolerated(borne).bear(taint) == any(tolerates(each, taint) for each in borne)


@pytest.mark.parametrize("bound", ["0", "1", "2", "3", "4", "5"])
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_who_has_a_larger_number_or_a_smaller_one_is_known_though_nodes_change(operator: str, bound: str) -> None:
    there = Bearers()
    for row, size in enumerate(("3", "1", "04", "x", "2", "3")):
        there.put(row, NodeRecord(f"n{row}", labels={"size": size}))
    shape = Shape(affinity=((Requirement("size", operator, (bound,)),),))

    def said() -> list[str | None]:
        expected = [naive(shape, node) for node in there.nodes]
        assert sifted(shape, there) == expected
        return expected

    said()
    there.put(1, NodeRecord("n1", labels={}))
    said()
    there.put(1, NodeRecord("n1", labels={"size": "3"}))
    said()
    there.put(6, NodeRecord("n6", labels={"size": "0"}))
    said()
    there.drop(0)
    said()


def cluster(nodes: int) -> Capacity:
    """Return nodes with a name each, every second of them with a taint."""
    there = Capacity()
    for number in range(nodes):
        labels = {HOSTNAME: f"n{number}", "size": str(number), "pool": "a"}
        taint = (Taint("slow", "x"),) if number % 2 else ()
        there.put_node(NodeRecord(f"n{number}", {"cpu": 64000}, labels, taint))
    return there


def lists(tag: str) -> tuple[tuple[Requirement, ...], ...]:
    """Return terms of one name each that no node has, as many as there may be."""
    return tuple((Requirement(HOSTNAME, "In", (f"{tag}-{number}",)),) for number in range(333))


TERMS: Final = {
    "names": lists("no"),
    "names of nodes": tuple((Requirement(NODE_NAME, "In", (f"n{number}",)),) for number in range(333)),
    "labels that nobody bears": tuple((Requirement(f"k{number}", "In", ("x",)),) for number in range(333)),
    "labels that all bear and one that none does": tuple(
        (Requirement("pool", "Exists"), Requirement(f"k{number}", "Exists")) for number in range(333)
    ),
    "all but a name": (tuple(Requirement(HOSTNAME, "NotIn", (f"n{number}",)) for number in range(333)),),
    "what nobody bears": (tuple(Requirement(f"k{number}", "DoesNotExist") for number in range(499)),),
    "numbers": tuple((Requirement("size", "Gt", (str(10_000 + number),)),) for number in range(333)),
}
HEAVY: Final = {name: Shape((("cpu", 1000),), affinity=terms) for name, terms in TERMS.items()} | {
    "tolerations": Shape((("cpu", 1000),), tolerations=tuple(Toleration(f"k{n}", "Exists") for n in range(999)))
}


def calls(what: Callable[[], Any]) -> int:
    """Return how many calls, Python's and C's, something takes."""
    found = 0

    def count(_: FrameType, event: str, __: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        what()
    finally:
        sys.setprofile(before)
    return found


def warm(nodes: int) -> Capacity:
    """Return nodes about whose labels somebody has asked before."""
    there = cluster(nodes)
    terms = tuple((Requirement(key, "Exists"), Requirement(key, "Gt", ("0",))) for key in (HOSTNAME, "size", "pool"))
    there.ranking(Shape((("cpu", 998),), affinity=terms))
    return there


def beyond(there: Capacity, shape: Shape) -> int:
    """Return how many calls a look at a shape takes beyond one that asks for a single label."""
    one = Shape((("cpu", 999),), affinity=((Requirement("pool", "In", ("b",)),),))
    return calls(lambda: there.ranking(shape)) - calls(lambda: there.ranking(one))


@pytest.mark.parametrize("shape", HEAVY.values(), ids=HEAVY)
def test_what_a_template_names_costs_the_same_however_many_nodes_there_are(shape: Shape) -> None:
    few, many = (beyond(warm(nodes), shape) for nodes in (60, 600))
    assert few <= 10 * shape.parts + 1000, few
    # What is added up of each node once: its name, or who has a smaller number.
    assert many - few <= 2 * (600 - 60), many - few


@pytest.mark.parametrize("shape", HEAVY.values(), ids=HEAVY)
def test_no_node_is_compared_with_many_parts_by_itself_but_one_that_changes(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, why_not = list[str](), Shape.why_not
    monkeypatch.setattr(Shape, "why_not", lambda self, node: (asked.append(node.name), why_not(self, node))[1])
    there = cluster(50)
    ranking = there.ranking(shape)
    for name in there.nodes:
        there.room(ranking, name)
    assert not asked
    one = there.nodes["n1"]
    there.put_node(replace(one, taints=(*one.taints, Taint("broken"))))
    there.put_node(replace(there.nodes["n2"], allocatable={"cpu": 1000}))
    assert there.ranking(shape) is ranking
    assert asked == ["n1"]
    for node in list(there.nodes.values()):
        there.put_node(replace(node, labels={**node.labels, "new": "x"}))
    there.ranking(shape)
    assert asked == ["n1"]
