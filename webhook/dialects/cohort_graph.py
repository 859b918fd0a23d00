"""Which cohorts form a cycle, by Kueue's rule: the whole tree of a cycle is inactive until it is corrected. Also which
are nested too deeply to be walked.
"""

from collections.abc import Mapping
from typing import Final

MOST_LEVELS: Final = 64
"""Levels of a tree, of any dialect: far more than any organisation has, far fewer than exhaust a stack."""


def cycles(parents: Mapping[str, str | None]) -> dict[str, tuple[str, ...]]:
    """Return, for each cohort that is in a cycle or below one, the cycle in order, starting at its smallest name.

    ``parents`` maps each cohort to its parent; a parent that is not a key is a root.
    """
    result: dict[str, tuple[str, ...]] = {}
    sound: set[str] = set()
    for start in parents:
        path: list[str] = []
        at: str | None = start
        while at is not None and at not in sound and at not in result and at not in path:
            path.append(at)
            at = parents.get(at)
        if at is not None and at in path:
            loop = path[path.index(at) :]
            turn = loop.index(min(loop))
            found = (*loop[turn:], *loop[:turn])
        elif at is not None and at in result:
            found = result[at]
        else:
            sound.update(path)
            continue
        result.update(dict.fromkeys(path, found))
    return result


def too_deep(parents: Mapping[str, str | None]) -> list[str]:
    """Return the cohorts below the last level that is read; ``parents`` has no cycles."""
    result = []
    for name, parent in parents.items():
        at, level = parent, 1
        while at is not None and level < MOST_LEVELS:
            at, level = parents.get(at), level + 1
        if at is not None:
            result.append(name)
    return result
