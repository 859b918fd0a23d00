"""What is seen of nodes over time in a replay: who waits for them alone, and in what pieces the free ones lie."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.shape import Shape, shape_of
from webhook.core.scheduler.engine import Engine
from webhook.laboratory.replay.job_log import Job
from webhook.laboratory.replay.nodes import Pool


@dataclass(slots=True)
class OnNodes:
    """Sums over the time so far. What is free counts while jobs arrive."""

    pool: Pool
    capacity: Capacity
    window: tuple[float, float]
    """Unix times of the first and the last submission."""
    waited: dict[int, float] = field(default_factory=dict)
    """Size to the seconds for which jobs of it had quota and no nodes."""
    free_unit_seconds: float = 0.0
    in_pieces_unit_seconds: float = 0.0
    """Of what was free: on nodes that had less than a whole node's."""
    _since: float = 0.0
    _shapes: tuple[Shape, Shape] = field(init=False)
    """Of one unit, and of a whole node."""

    def __post_init__(self) -> None:
        self._since = self.window[0]
        self._shapes = (shape_of(self.pool.pod_sets(1)[0]), shape_of(self.pool.pod_sets(self.pool.largest)[0]))

    def until(self, now: float, engine: Engine, partly: Iterable[Job]) -> None:
        """Add the time up to ``now``, in which nothing changed; ``partly`` are jobs that lack nodes for some pods."""
        passed, first, last = now - self._since, *self.window
        if passed <= 0:
            return
        waiting = [(sum(map(self.pool.units, gang.pod_sets)), count) for gang, count in engine.waiting_for_nodes()]
        for size, count in (*waiting, *((job.size, 1) for job in partly)):
            self.waited[size] = self.waited.get(size, 0.0) + passed * count
        counted = max(0.0, min(now, last) - max(self._since, first))
        unit, whole = (self.capacity.ranking(shape).total for shape in self._shapes)
        self.free_unit_seconds += counted * unit
        self.in_pieces_unit_seconds += counted * (unit - whole * self.pool.largest)
        self._since = now
