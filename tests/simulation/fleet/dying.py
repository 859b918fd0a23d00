"""Stories in which nothing goes wrong but what is lain in wait for: hubs that die at a write over a link that fails."""

from collections.abc import Coroutine, Iterable
from typing import Any

from tests.simulation.fleet.story import Story


class Dying(Story):
    """Many short gangs, so that something is written nearly always; each hub lives for a few of these writes."""

    rough = False
    jobs = 36
    runtimes = (1, 4)
    restart_seconds = (0.0, 1.0)

    def _weather(self) -> Iterable[Coroutine[Any, Any, None]]:
        return self._lie_in_wait(), self._let_pods_linger()
