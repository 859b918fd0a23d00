"""What is wrong with something that somebody wrote: a value, made where it is found and turned into text at the edge.

Policy objects, jobs, pods, configuration and files all say it the same way, so that nobody has to read a message back.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, TypeVar

T = TypeVar("T")
_SHOWN_CHARACTERS: Final = 80
_ENCODER: Final = json.JSONEncoder(default=str)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, which value, why, and how to mend it."""

    path: str
    """The place; empty where the caller knows it and adds it by ``within``."""
    value: str
    """What was found there, as ``shown``; empty where there is nothing to show."""
    why: str
    fix: str
    warning: bool = False
    """What has it is used all the same."""

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.path, self.value) if part)
        text = f"{place}: {self.why}" if place else self.why
        return f"{text}; {self.fix}" if self.fix else text

    def within(self, place: str) -> "Problem":
        """Return it with its path continued to the left; ``place`` brings its own separator."""
        return replace(self, path=f"{place}{self.path}")


class Unreadable(ValueError):
    """Something that cannot be read or counted; ``problem`` says what is wrong with it."""

    def __init__(self, path: str, value: object, why: str, fix: str) -> None:
        self.problem = Problem(path, shown(value), why, fix)
        super().__init__(path, value, why, fix)

    def __str__(self) -> str:
        return str(self.problem)

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the error that says ``problem``."""
        return cls(problem.path, problem.value, problem.why, problem.fix)


def shown(value: object) -> str:
    """Return a value as people read it: text as it is, JSON for the rest, never long."""
    if value is None:
        return "absent"
    try:
        text = value if isinstance(value, str) else _beginning(value)
    except (RecursionError, ValueError, TypeError):
        text = f"a {type(value).__name__} that is too deep to show"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def some(things: Sequence[T], most: int, told: Callable[[T], str] = str, between: str = ", ") -> str:
    """Return the first of ``things`` as ``told``, at most so many, and how many more there are."""
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return between.join(map(told, things[:most])) + more


def _beginning(value: object) -> str:
    """Return JSON as far as it is shown: of a map of thousands the rest is not even written."""
    text = ""
    for part in _ENCODER.iterencode(value):
        text += part
        if len(text) > _SHOWN_CHARACTERS:
            break
    return text
