"""Which queue lends to which: all that is borrowed is lent by some queue, and no queue lends what it uses or keeps."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.worlds import cohort, policy, queue
from webhook.core.notation.amounts import FlavorResource
from webhook.core.quota.loans import Loans, loans, spread
from webhook.core.quota.tree import QuotaTree, Usage, Vertex

CPU = FlavorResource("default", "cpu")
QUEUES = ("a", "b", "c", "d")


def tree_of(nominal: list[int], keeps: list[int], pots: tuple[int, int] = (0, 0)) -> QuotaTree:
    """Queues a and b below cohort left, c and d below right, both below top; amounts in cpu."""
    lending = [max(0, owned - kept) for owned, kept in zip(nominal, keeps, strict=True)]
    return QuotaTree(
        policy(
            cohort("top"),
            *(cohort(name, "top", own) for name, own in zip(("left", "right"), pots, strict=True)),
            *(
                queue(name, (owned, None, lent), cohort="left" if name in "ab" else "right")
                for name, owned, lent in zip(QUEUES, nominal, lending, strict=True)
            ),
        )
    )


def loans_of(tree: QuotaTree, used: list[int]) -> dict[Vertex, Loans]:
    usage = Usage(tree)
    for name, amount in zip(QUEUES, used, strict=True):
        usage.add(tree.queues[name], {CPU: amount * 1000})
    return loans([tree.cohorts["top"]], usage.all_of)


def test_two_lenders_lend_in_whole_units_by_how_much_they_leave_idle() -> None:
    tree = tree_of([2, 6, 3, 1], [0, 0, 0, 0])
    found = loans_of(tree, [6, 2, 0, 0])
    borrower = found[tree.queues["a"]]
    assert borrower.borrowed == {CPU: 4000}
    assert borrower.lenders == {tree.queues["b"]: {CPU: 4000}}
    found = loans_of(tree_of([0, 4, 3, 1], [0, 0, 0, 0]), [6, 0, 0, 0])
    named = {vertex.name: of.lent.get(CPU, 0) for vertex, of in found.items()}
    assert (named["b"], named["c"], named["d"], named["right"]) == (4000, 2000, 0, 2000)


def test_what_a_cohort_owns_itself_is_lent_before_what_its_queues_own() -> None:
    tree = tree_of([0, 4, 0, 0], [0, 0, 0, 0], (3, 0))
    found = loans_of(tree, [5, 0, 0, 0])
    lenders = found[tree.queues["a"]].lenders
    assert {vertex.name: amounts[CPU] for vertex, amounts in lenders.items()} == {"left": 3000, "b": 2000}


AMOUNTS = st.lists(st.integers(0, 9), min_size=4, max_size=4)


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.tuples(st.integers(0, 5), st.integers(0, 5)))
def test_all_that_is_borrowed_is_lent_by_somebody_and_nobody_lends_what_it_uses_or_keeps(
    nominal: list[int], keeps: list[int], used: list[int], pots: tuple[int, int]
) -> None:
    tree = tree_of(nominal, keeps, pots)
    usage = Usage(tree)
    for name, amount in zip(QUEUES, used, strict=True):
        usage.add(tree.queues[name], {CPU: amount * 1000})
    found = loans([tree.cohorts["top"]], usage.all_of)
    fits = usage.of(tree.cohorts["top"], CPU) <= tree.cohorts["top"].subtree.get(CPU, 0)
    for vertex, loan in found.items():
        own, private = vertex.subtree.get(CPU, 0), vertex.local.get(CPU, 0)
        if vertex.parent is not None:
            assert loan.borrowed.get(CPU, 0) == max(0, usage.of(vertex, CPU) - own)
            assert 0 <= loan.lent.get(CPU, 0) <= max(0, own - max(usage.of(vertex, CPU), private))
            had = sum(amounts[CPU] for amounts in loan.lenders.values())
            assert had == loan.borrowed.get(CPU, 0) or not fits
    for parent in tree.cohorts.values() if fits else ():
        taken = sum(found[child].borrowed.get(CPU, 0) for child in parent.children) + found[parent].lent.get(CPU, 0)
        lent = sum(found[child].lent.get(CPU, 0) for child in parent.children)
        of_its_own = taken - lent - found[parent].borrowed.get(CPU, 0)
        assert 0 <= of_its_own <= parent.nominal(CPU)


@given(st.lists(st.integers(0, 50), max_size=6), st.sampled_from([1, 500, 1000]), st.data())
def test_parts_make_up_the_whole_and_none_is_above_its_weight(units: list[int], unit: int, data: st.DataObject) -> None:
    amount, weights = data.draw(st.integers(0, sum(units))) * unit, [each * unit for each in units]
    parts = spread(amount, weights)
    assert sum(parts) == amount
    assert unit != 1000 or all(part % unit == 0 for part in parts)
    assert all(0 <= part <= weight for part, weight in zip(parts, weights, strict=True))
