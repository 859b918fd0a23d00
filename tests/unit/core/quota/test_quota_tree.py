"""The arithmetic of the quota tree, vertex by vertex."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.worlds import cohort, policy, queue
from webhook.core.assignment.fair_sharing import share
from webhook.core.notation.amounts import FlavorResource
from webhook.core.quota.tree import QuotaTree, Usage

CPU = FlavorResource("default", "cpu")
K = 1000


def lending() -> QuotaTree:
    return QuotaTree(policy(queue("a", (10, None, 4), cohort="r"), queue("b", 6, cohort="r")))


def test_private_quota_stays_out_of_the_cohort_in_both_directions() -> None:
    tree = lending()
    a, b, root = tree.queues["a"], tree.queues["b"], tree.cohorts["r"]
    assert (a.local[CPU], root.subtree[CPU]) == (6 * K, 10 * K)
    assert (a.potential(CPU), b.potential(CPU)) == (16 * K, 10 * K)
    usage = Usage(tree)
    usage.add(a, {CPU: 8 * K})
    assert usage.of(root, CPU) == 2 * K
    assert (usage.available(a, CPU), usage.available(b, CPU)) == (8 * K, 8 * K)
    usage.remove(a, {CPU: 5 * K})
    assert (usage.of(root, CPU), usage.available(a, CPU)) == (0, 13 * K)


def test_a_borrowing_limit_caps_what_is_drawn_from_the_parent() -> None:
    tree = QuotaTree(policy(queue("a", (10, None, 4), cohort="r"), queue("b", (6, 1), cohort="r")))
    a, b, usage = tree.queues["a"], tree.queues["b"], Usage(tree)
    usage.add(a, {CPU: 8 * K})
    usage.add(b, {CPU: 6 * K})
    assert usage.available(b, CPU) == 1 * K
    assert b.potential(CPU) == 7 * K
    assert usage.binding(b, CPU, 2 * K) == (b, 2 * K)
    assert usage.binding(a, CPU, 3 * K) == (tree.cohorts["r"], 3 * K)
    assert usage.binding(a, CPU, 2 * K) is None


def test_an_oversubscribed_tree_has_negative_room() -> None:
    tree = QuotaTree(policy(queue("a", 4, cohort="r"), queue("b", 2, cohort="r")))
    usage = Usage(tree)
    usage.add(tree.queues["a"], {CPU: 9 * K})
    assert usage.available(tree.queues["b"], CPU) == -3 * K
    assert not usage.fits(tree.queues["b"], {CPU: 1})
    assert usage.fits(tree.queues["b"], {CPU: 0})


def test_the_borrow_level_is_the_height_of_the_lowest_cohort_that_has_enough() -> None:
    tree = QuotaTree(
        policy(
            cohort("root", cpu=10),
            cohort("mid", "root", cpu=3),
            queue("a", 2, cohort="mid"),
            queue("b", 1, cohort="mid"),
        )
    )
    a, usage = tree.queues["a"], Usage(tree)
    assert [usage.borrow_level(a, CPU, n * K) for n in (2, 3, 6, 7, 17)] == [
        (0, True),
        (1, True),
        (1, True),
        (2, False),
        (2, False),
    ]


def test_a_cycle_of_cohorts_is_cut() -> None:
    tree = QuotaTree(policy(cohort("x", "y", cpu=1), cohort("y", "x", cpu=2), queue("a", 1, cohort="x")))
    assert tree.queues["a"].root.name in ("x", "y")


def test_the_dominant_share_is_the_largest_part_borrowed_by_weight() -> None:
    tree = QuotaTree(
        policy(
            queue("a", (10, None, 4), cohort="r"),
            queue("b", 6, cohort="r"),
            queue("heavy", 0, cohort="r", weight_millis=2000),
            queue("none", 0, cohort="r", weight_millis=0),
            queue("alone", 1),
        )
    )
    usage = Usage(tree)
    assert share(usage, tree.queues["b"]) == (0, 0)
    usage.add(tree.queues["b"], {CPU: 7 * K})
    assert share(usage, tree.queues["b"]) == (0, 100)
    usage.add(tree.queues["heavy"], {CPU: 1 * K})
    assert share(usage, tree.queues["heavy"]) == (0, 50)
    usage.add(tree.queues["none"], {CPU: 1})
    assert share(usage, tree.queues["none"]) == (1, Fraction(1, 10))
    usage.add(tree.queues["alone"], {CPU: 9 * K})
    assert share(usage, tree.queues["alone"]) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9000)), max_size=20))
def test_removing_everything_leaves_nothing(changes: list[tuple[str, int]]) -> None:
    tree = lending()
    usage = Usage(tree)
    for name, amount in changes:
        usage.add(tree.queues[name], {CPU: amount})
    for name, amount in changes:
        usage.remove(tree.queues[name], {CPU: amount})
    assert all(not any(usage.all_of(vertex).values()) for vertex in tree.vertices)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9000)), max_size=9), st.integers(1, 20000))
def test_a_node_refuses_what_does_not_fit_and_nothing_else(held: list[tuple[str, int]], amount: int) -> None:
    low = cohort("low", "top", cpu=(1, 4, 2))
    queues = queue("a", (4, 3, 1), cohort="low"), queue("b", 2, cohort="low"), queue("c", (3, None, 0), cohort="top")
    tree = QuotaTree(policy(*queues, low, cohort("top")))
    usage = Usage(tree)
    for name, taken in held:
        usage.add(tree.queues[name], {CPU: taken})
    for vertex in tree.queues.values():
        assert (usage.binding(vertex, CPU, amount) is None) == usage.fits(vertex, {CPU: amount})


def test_a_policy_told_in_another_order_makes_the_same_tree() -> None:
    vertices = [queue(name, 1, cohort=parent) for name, parent in (("b", "y"), ("a", "y"), ("d", "x"), ("c", "x"))]
    cohorts = [cohort("y", "root"), cohort("x", "root"), cohort("root")]
    before = QuotaTree(policy(*vertices, *cohorts))
    after = QuotaTree(policy(*reversed(vertices), *reversed(cohorts)), before)
    assert all(after.queues[name] is before.queues[name] for name in "abcd"), "no gang is decided about again"
    assert [child.name for child in before.cohorts["root"].children] == ["x", "y"]
    assert [child.name for child in before.cohorts["x"].children] == ["c", "d"]
