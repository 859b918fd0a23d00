"""What parked lines wait for: an index from what could change to the lines that the change could help."""

from collections.abc import Iterable, Mapping

from webhook.core.policy import FlavorResource
from webhook.core.queueing import Line

Point = tuple[int, FlavorResource] | str
"""(index of a tree's root, key) whose usage would have to shrink, or a namespace whose fences would have to give."""


class Parking:
    """Index of parked lines by what could help them."""

    def __init__(self) -> None:
        self._at: dict[Point, dict[Line, None]] = {}
        self._points: dict[Line, tuple[Point, ...]] = {}

    def park(self, line: Line, points: Iterable[Point]) -> None:
        """Register a line at everything that could help it."""
        self.forget(line)
        self._points[line] = tuple(points)
        for point in self._points[line]:
            self._at.setdefault(point, {})[line] = None

    def copy(self, lines: Mapping[Line, Line]) -> "Parking":
        """Return an independent index of the copied ``lines``."""
        twin = Parking()
        for line, points in self._points.items():
            twin.park(lines[line], points)
        return twin

    def forget(self, line: Line) -> None:
        """Take a line out of the index."""
        for point in self._points.pop(line, ()):
            lines = self._at[point]
            lines.pop(line, None)
            if not lines:
                del self._at[point]

    def helped_by(self, points: Iterable[Point]) -> list[Line]:
        """Return the lines registered at any of ``points``."""
        return [line for point in points for line in self._at.get(point, ())]
