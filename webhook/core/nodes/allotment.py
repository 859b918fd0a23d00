"""Where a gang's pods are to go."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.core.nodes.shape import Shape


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
