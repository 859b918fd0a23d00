"""Which nodes changed, in order: whoever has looked at all of them once only has to look at those."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Changes:
    """The latest changes; those before are only counted."""

    _log: list[str] = field(default_factory=list)
    _forgotten: int = 0
    _undone: int = 0

    @property
    def count(self) -> int:
        """How many there have been."""
        return self._forgotten + len(self._log)

    @property
    def lasting(self) -> int:
        """How many there have been, but for those that were undone."""
        return self.count - self._undone

    def note(self, nodes: Iterable[str], among: int, *, undone: bool = False) -> None:
        """Take note that nodes have changed, of so many. The older half is forgotten where there are many more changes
        than nodes, whoever asks for them and when: to look at each of the nodes takes less then. The younger half
        stays, for whoever has fallen behind by little. One that is ``undone`` at once makes for another such change.
        """
        before = len(self._log)
        self._log.extend(nodes)
        self._undone += undone * (len(self._log) - before)
        most = 8 * max(1024, among)
        if len(self._log) > most:
            older = len(self._log) - most // 2
            self._forgotten += older
            del self._log[:older]

    def since(self, count: int) -> Collection[str] | None:
        """Return which nodes changed after the first ``count`` changes; None where that is forgotten."""
        return None if count < self._forgotten else dict.fromkeys(self._log[count - self._forgotten :])
