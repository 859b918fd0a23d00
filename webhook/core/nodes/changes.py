"""Which nodes changed, in order: whoever has looked at all of them once only has to look at those."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Changes:
    """The latest changes; those before are only counted."""

    _log: list[str] = field(default_factory=list)
    _forgotten: int = 0

    @property
    def count(self) -> int:
        """How many there have been."""
        return self._forgotten + len(self._log)

    def note(self, nodes: Iterable[str]) -> None:
        """Take note that nodes have changed."""
        self._log.extend(nodes)

    def since(self, count: int) -> Collection[str] | None:
        """Return which nodes changed after the first ``count`` changes; None where that is forgotten."""
        return None if count < self._forgotten else dict.fromkeys(self._log[count - self._forgotten :])

    def shorten(self, nodes: int) -> None:
        """Forget the older half where they are many more than there are ``nodes``: to look at each of these takes less
        then. The younger half stays, for whoever has fallen behind by little.
        """
        most = 8 * max(1024, nodes)
        if len(self._log) > most:
            older = len(self._log) - most // 2
            self._forgotten += older
            del self._log[:older]
