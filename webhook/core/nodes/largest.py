"""The most that any one node has to give: by it shapes are told apart that no node could ever take."""

from collections.abc import Mapping

from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import Shape
from webhook.core.notation import amounts
from webhook.core.notation.amounts import Amounts


class Largest:
    """The most of each resource that any one of some nodes has to give, when nothing runs there."""

    def __init__(self, nodes: Mapping[str, NodeRecord]) -> None:
        """``nodes`` are by name; ``changed`` is to be told of each change."""
        self._nodes = nodes
        self._known: Amounts | None = None

    @property
    def amounts(self) -> Amounts:
        """By resource."""
        if self._known is None:
            self._known = {}
            for node in self._nodes.values():
                self._known = amounts.maximum(self._known, node.capacity)
        return self._known

    def changed(self, before: NodeRecord | None, now: NodeRecord | None) -> None:
        """Take note that a node came, went, or is another than it was."""
        if now is None or (before is not None and before.capacity != now.capacity):
            self._known = None
        elif before is None and self._known is not None:
            self._known = amounts.maximum(self._known, now.capacity)

    def might_take(self, shape: Shape) -> bool:
        """Return whether some node could be large enough for a pod of a shape; False is certain, and costs nothing."""
        return all(amount <= self.amounts.get(name, 0) for name, amount in shape.requests)

    def scarce(self, shape: Shape) -> str:
        """Return the resource of which one pod asks the largest share of what the largest node has."""
        return max(shape.requests, key=lambda asked: (self.share(*asked), asked[0]))[0]

    def share(self, resource: str, amount: int) -> float:
        """Return which share ``amount`` is of what the largest node has of ``resource``."""
        largest = self.amounts.get(resource, 0)
        return amount / largest if largest else float("inf")
