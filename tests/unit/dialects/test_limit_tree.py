"""Minimums and maximums as nominal quota and limits admit exactly what they say, node by node."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.core.model.policy import Cohort, Quota
from webhook.dialects.limit_tree import Compiled, LimitVertex, compile_tree

RESOURCES = ("cpu", "gpu")


# -- what the tree says ------------------------------------------------------------------------------------------------


def says_yes(root: LimitVertex, used: Mapping[str, Mapping[str, int]], leaf: str, request: Mapping[str, int]) -> bool:
    """Whether no node's maximum is passed; what a node keeps unlent counts as used, up to its ancestors."""
    after = {name: dict(amounts) for name, amounts in used.items()}
    for resource, amount in request.items():
        after[leaf][resource] = after[leaf].get(resource, 0) + amount
    path = path_to(root, leaf)
    return all(
        taken(node, after, resource) <= node.maximum[resource]
        for node in path
        for resource in request
        if resource in node.maximum
    )


def path_to(node: LimitVertex, leaf: str) -> list[LimitVertex]:
    """The nodes from ``node`` down to the leaf."""
    if node.name == leaf:
        return [node]
    for child in node.children:
        rest = path_to(child, leaf)
        if rest:
            return [node, *rest]
    return []


def taken(node: LimitVertex, used: Mapping[str, Mapping[str, int]], resource: str) -> int:
    """What a subtree takes of what lies above it."""
    if not node.children:
        return used[node.name].get(resource, 0)
    total = 0
    for child in node.children:
        unlent = 0
        if resource in child.lendable:
            unlent = max(0, child.minimum.get(resource, 0) - child.lendable[resource])
        total += max(unlent, taken(child, used, resource))
    return total


# -- what Kueue's arithmetic says --------------------------------------------------------------------------------------


@dataclass
class Kueue:
    """Kueue's quota tree for one resource, straight from its definitions."""

    quota: Mapping[str, Quota]
    parent: Mapping[str, str | None]
    usage: dict[str, int] = field(default_factory=dict)

    def subtree(self, name: str) -> int:
        children = [child for child, parent in self.parent.items() if parent == name]
        own = self.quota.get(name, Quota()).nominal
        return own + sum(self.subtree(child) - self.local(child) for child in children)

    def local(self, name: str) -> int:
        lending = self.quota.get(name, Quota()).lending_limit
        return 0 if lending is None else max(0, self.subtree(name) - lending)

    def available(self, name: str) -> int:
        parent = self.parent[name]
        if parent is None:
            return self.subtree(name) - self.usage.get(name, 0)
        used, local = self.usage.get(name, 0), self.local(name)
        above, limit = self.available(parent), self.quota.get(name, Quota()).borrowing_limit
        if limit is not None:
            above = min(self.subtree(name) - local - max(0, used - local) + limit, above)
        return max(0, local - used) + above

    def add(self, name: str, amount: int) -> None:
        free = max(0, self.local(name) - self.usage.get(name, 0))
        self.usage[name] = self.usage.get(name, 0) + amount
        parent = self.parent[name]
        if parent is not None and amount > free:
            self.add(parent, amount - free)


def kueues(tree: Compiled) -> dict[str, Kueue]:
    """One quota tree a resource."""
    result = {}
    for resource in RESOURCES:
        quota = {
            name: flavor.quotas[resource]
            for name, groups in tree.groups.items()
            for group in groups
            for flavor in group.flavors
            if resource in flavor.quotas
        }
        result[resource] = Kueue(quota, tree.parents)
    return result


def kueue_says_yes(trees: Mapping[str, Kueue], leaf: str, request: Mapping[str, int]) -> bool:
    """Whether everything asked fits; what the queue does not declare is ignored."""
    return all(
        amount <= trees[resource].available(leaf)
        for resource, amount in request.items()
        if leaf in trees[resource].quota
    )


# -- trees -------------------------------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn, *, lending: bool, open_root: bool) -> LimitVertex:
    """A sound tree: minimum <= maximum, children's minimums within their parent's."""
    count = 0

    def grow(depth: int, share: Mapping[str, int]) -> LimitVertex:
        nonlocal count
        count += 1
        node = LimitVertex(f"n{count}", minimum={r: m for r in RESOURCES if (m := draw(st.integers(0, share[r]))) > 0})
        if depth == 0:
            node.minimum = dict(share)
        node.maximum = {
            resource: node.minimum.get(resource, 0) + (0 if depth == 0 else draw(st.integers(0, 12)))
            for resource in RESOURCES
            if (depth == 0 and not open_root) or draw(st.booleans())
        }
        if lending and depth and draw(st.booleans()):
            node.lendable = {resource: draw(st.integers(0, 8)) for resource in RESOURCES if draw(st.booleans())}
        left = {resource: node.minimum.get(resource, 0) for resource in RESOURCES}
        for _ in range(draw(st.integers(0 if depth else 1, 3)) if depth < 3 else 0):
            child = grow(depth + 1, left)
            left = {resource: left[resource] - child.minimum.get(resource, 0) for resource in RESOURCES}
            node.children.append(child)
        return node

    return grow(0, {resource: draw(st.integers(0, 20)) for resource in RESOURCES})


REQUESTS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 8), max_size=2)


def agree(root: LimitVertex, data: st.DataObject, *, overfull: bool) -> None:
    """Both say the same on every step of a run; ``overfull`` also lets in some of what does not fit."""
    compiled = compile_tree(root, "default")
    both = kueues(compiled)
    leaves = [node.name for node in root.walk() if not node.children]
    used: dict[str, dict[str, int]] = {leaf: {} for leaf in leaves}
    for _ in range(data.draw(st.integers(1, 12))):
        leaf, request = data.draw(st.sampled_from(leaves)), data.draw(REQUESTS)
        asked = {resource: amount for resource, amount in request.items() if amount}
        wanted = says_yes(root, used, leaf, asked)
        assert kueue_says_yes(both, leaf, asked) == wanted
        if wanted or (overfull and data.draw(st.booleans())):
            for resource, amount in asked.items():
                used[leaf][resource] = used[leaf].get(resource, 0) + amount
                if leaf in both[resource].quota:
                    both[resource].add(leaf, amount)


@settings(max_examples=150)
@given(trees(lending=False, open_root=False), st.data())
def test_a_tree_admits_what_no_node_forbids_even_when_limits_were_passed(
    root: LimitVertex, data: st.DataObject
) -> None:
    agree(root, data, overfull=True)


@settings(max_examples=150)
@given(trees(lending=True, open_root=False), st.data())
def test_what_is_kept_unlent_counts_as_used(root: LimitVertex, data: st.DataObject) -> None:
    agree(root, data, overfull=False)


@settings(max_examples=150)
@given(trees(lending=True, open_root=True), st.data())
def test_a_root_without_a_limit_forbids_nothing(root: LimitVertex, data: st.DataObject) -> None:
    agree(root, data, overfull=False)


@settings(max_examples=150)
@given(trees(lending=True, open_root=True))
def test_no_compiled_amount_is_negative_and_every_cohort_exists(root: LimitVertex) -> None:
    compiled = compile_tree(root, "default")
    cohorts: dict[str, Cohort] = {cohort.name: cohort for cohort in compiled.cohorts}
    for groups in compiled.groups.values():
        for quota in (quota for group in groups for flavor in group.flavors for quota in flavor.quotas.values()):
            assert quota.nominal >= 0
            assert (quota.borrowing_limit or 0) >= 0
    assert all(parent is None or parent in cohorts for parent in compiled.parents.values())
