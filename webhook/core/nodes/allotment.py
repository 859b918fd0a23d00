"""Where a gang's pods are to go."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from webhook.core.nodes.shape import Shape
from webhook.core.notation import amounts
from webhook.core.notation.amounts import Amounts


@dataclass(slots=True)
class Allotment:
    """Room on nodes that one gang's pods have until they are bound there."""

    shapes: Mapping[str, Shape]
    """By pod set."""
    places: dict[str, dict[str, int]]
    """Pod set to node to pods that are still to come."""
    domains: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of the nodes that alone a pod set's pods may go to, for sets that have to be in one domain."""

    @property
    def nodes(self) -> set[str]:
        """The nodes that any of the pods are to go to."""
        return {node for of_set in self.places.values() for node in of_set}

    def copy(self) -> "Allotment":
        """Return an independent copy."""
        return Allotment(self.shapes, {name: dict(nodes) for name, nodes in self.places.items()}, self.domains)

    def is_within(self, other: "Allotment") -> bool:
        """Return whether ``other`` keeps all that this does, of each pod set on each node."""
        return all(
            self.shapes[name].uses == other.shapes[name].uses
            and all(pods <= other.places[name].get(node, 0) for node, pods in nodes.items())
            if name in other.places
            else not nodes
            for name, nodes in self.places.items()
        )

    def with_more(self, more: "Allotment") -> "Allotment":
        """Return the same with places for further pods."""
        places = {name: Counter(nodes) for name, nodes in self.places.items()}
        for name, nodes in more.places.items():
            places.setdefault(name, Counter()).update(nodes)
        summed = {name: dict(nodes) for name, nodes in places.items()}
        return Allotment({**more.shapes, **self.shapes}, summed, {**self.domains, **more.domains})

    def part(self, sets: Mapping[str, str]) -> "Allotment":
        """Return what is kept for some pod sets: by their new names, what they are called here."""
        own = {name: here for name, here in sets.items() if here in self.places}
        places = {name: dict(self.places[here]) for name, here in own.items()}
        return Allotment({name: self.shapes[here] for name, here in own.items()}, places)


def summed(held: Iterable[Mapping[str, Amounts]]) -> dict[str, dict[str, int]]:
    """Return what several hold together, by node."""
    sums: dict[str, dict[str, int]] = {}
    for each in held:
        for node, requests in each.items():
            known = sums.get(node)
            sums[node] = dict(requests) if known is None else amounts.total((known, requests))
    return sums
