"""How often a hub looks at one gang: who goes round and round ends no story, and breaks no other law."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from typing import Final

LOOKS_MAX: Final = 40
"""At one gang by one process within a second. Each change of it or of its copy asks for a look, and each step taken."""
_JOB: Final = re.compile(r"/(?:(?:pytorch)?jobs|sparkapplications)/([^/]+)$")


class Pace:
    """Counts what one process asks the hub's cluster about each gang."""

    def __init__(self, on_spin: Callable[[str], None]) -> None:
        self._on_spin = on_spin
        """Told what is wrong, at once: time may hardly pass any more."""
        self._second = -1
        self._looks: Counter[str] = Counter()
        self.most = 0

    def asked(self, method: str, path: str) -> None:
        """Take in a request to the hub's cluster: a look reads the job, or goes by what is known and writes it."""
        job = _JOB.search(path) if method in ("GET", "PATCH") else None
        if job is None:
            return
        if (second := int(asyncio.get_running_loop().time())) != self._second:
            self._second = second
            self._looks.clear()
        self._looks[job[1]] += 1
        self.most = max(self.most, self._looks[job[1]])
        if self._looks[job[1]] == LOOKS_MAX + 1:
            self._on_spin(f"a hub looks at {job[1]} more than {LOOKS_MAX} times within a second, at {second} s")
