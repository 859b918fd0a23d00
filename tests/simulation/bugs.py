"""A bug of ours that meets some gangs: the engine raises an exception, before or after it has decided about one.

It lasts while all is busy, and is gone with the release that is installed then. Until that is there, these gangs wait,
and nobody else does.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from webhook import metrics
from webhook.core.model.gang import Gang
from webhook.core.scheduler import cycle, engine
from webhook.core.scheduler.cycle import Cycle
from webhook.core.scheduler.state import State


def _asked(state: State, uid: str) -> Gang | None:
    waiting, holding = state.pending.records.get(uid), state.allocations.by_uid.get(uid)
    return waiting.gang if waiting is not None else None if holding is None else holding.gang


WHERE: Final[tuple[tuple[Any, str, Callable[..., Gang | None]], ...]] = (
    (State, "decide", lambda _, eclass: eclass.head),
    (Cycle, "_take_up", lambda cycle, uid: cycle._state.pending.records[uid].gang),
    (cycle, "grow", lambda allocation, *_: allocation.gang),
    (engine, "why_waiting", _asked),
)
"""What fails: a decision; a start into room that was made for it; growth; what a person is told. Each with the
gang that it is about.
"""


class Bugs:
    """What is wrong with the release that runs."""

    def __init__(self, seed: int, chance: float) -> None:
        """Each gang meets each bug with ``chance``."""
        self.met = Counter[str]()
        """How often the engine failed, by what failed."""
        self._seed = seed
        self._chance = chance
        self._failed_before = _failed()

    def mend(self) -> bool:
        """Have nothing fail any more. Return whether anything did."""
        self._chance = 0.0
        return bool(self.met)

    def more_than_given(self) -> bool:
        """Return whether our processes failed on more than the story had them fail on."""
        return _failed() > self._failed_before + self.met.total()

    @contextmanager
    def present(self) -> Iterator[None]:
        """Have the engine of every process be wrong in these ways."""
        usual = [(owner, name, getattr(owner, name)) for owner, name, _ in WHERE]
        for owner, name, gang_of in WHERE:
            setattr(owner, name, self._failing(getattr(owner, name), gang_of))
        try:
            yield
        finally:
            for owner, name, genuine in usual:
                setattr(owner, name, genuine)

    def _failing(self, genuine: Callable[..., Any], gang_of: Callable[..., Gang | None]) -> Callable[..., Any]:
        def failing(*args: Any, **more: Any) -> Any:
            gang, what = gang_of(*args), genuine.__name__
            # A generator of its own for each: it is the same gangs for all processes, whatever else they do.
            chance = Random(f"{self._seed} {what} {gang.namespace}/{gang.name}").random() if gang is not None else 1.0
            if chance < self._chance / 2:
                self._fail(what)
            result = genuine(*args, **more)
            if chance < self._chance:
                self._fail(what)
            return result

        return failing

    def _fail(self, what: str) -> None:
        self.met[what] += 1
        raise AssertionError(f"an invariant of ours that a story breaks, in {what}")


def _failed() -> float:
    value: float = metrics.BROKEN_JOBS._value.get()
    return value
