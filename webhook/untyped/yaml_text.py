"""YAML that somebody wrote, read within bounds: no deeper than JSON is read, and no longer than it looks.

An alias costs a few bytes and stands for all that its anchor holds, so ten lines can stand for a billion values. What
a text stands for is counted from its events, before anything is built.
"""

from dataclasses import dataclass
from typing import Any, Final

import yaml

LEVELS_MAX: Final = 100
VALUES_MAX: Final = 100_000
"""Values that one text, or one ConfigMap, may stand for, aliases counted as what they repeat: more than 1 MiB of policy
has, and a second of work."""

# libyaml reads ten times faster, but wheels without it exist.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class UnreadableYaml(ValueError):
    """The text is no YAML, or too much of it. The message is for whoever wrote it, with the line where there is one."""

    def __init__(self, why: str, mark: Any = None) -> None:
        self.line = None if mark is None else mark.line + 1
        super().__init__(why if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {why}")


def document(text: str) -> Any:
    """Return the one document that is written in ``text``, None for an empty text. Raises UnreadableYaml."""
    found = documents(text)
    if len(found) > 1:
        raise UnreadableYaml(f"holds {len(found)} documents, where one is read")
    return found[0] if found else None


def documents(text: str, measure: "Measure | None" = None) -> list[Any]:
    """Return the documents that are written in ``text``. Raises UnreadableYaml.

    Texts with one ``measure`` stand for no more together than one may alone.
    """
    try:
        (measure or Measure()).take(text)
        return list(yaml.load_all(text, _LOADER))
    except yaml.YAMLError as error:
        said = getattr(error, "problem", None) or getattr(error, "context", None) or "cannot be read"
        raise UnreadableYaml(said, getattr(error, "problem_mark", None)) from error
    except UnreadableYaml:
        raise
    except (ValueError, OverflowError, TypeError, AttributeError, RecursionError) as error:
        # A date of no calendar, a number of thousands of digits.
        raise UnreadableYaml(f"holds a value that cannot be read: {error}") from error


class Measure:
    """Counts what texts stand for."""

    def __init__(self) -> None:
        self._values = 0
        self._opened: list[_Opened] = []
        self._anchors: dict[str, tuple[int, int]] = {}
        """Anchor to the values that it stands for, and the levels."""

    def take(self, text: str) -> None:
        """Raise UnreadableYaml where the text stands for more values, or more levels, than may be read."""
        self._opened, self._anchors = [], {}
        for event in yaml.parse(text, _LOADER):
            levels = 0
            if isinstance(event, yaml.CollectionStartEvent):
                self._opened.append(_Opened(event.anchor, self._values))
                self._values += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close(self._opened.pop())
            elif isinstance(event, yaml.ScalarEvent):
                self._values += 1
            elif isinstance(event, yaml.AliasEvent):
                if any(each.anchor == event.anchor for each in self._opened):
                    raise UnreadableYaml(f"the alias *{event.anchor} is inside its own anchor", event.start_mark)
                values, levels = self._anchors.get(event.anchor or "", (1, 0))
                self._values += values
                self._note(levels)
            if len(self._opened) + levels > LEVELS_MAX:
                raise UnreadableYaml(f"is nested deeper than {LEVELS_MAX} levels", event.start_mark)
            if self._values > VALUES_MAX:
                raise UnreadableYaml(f"stands for more than {VALUES_MAX} values", event.start_mark)

    def _close(self, closed: "_Opened") -> None:
        if closed.anchor is not None:
            self._anchors[closed.anchor] = (self._values - closed.before, closed.levels)
        self._note(closed.levels)

    def _note(self, levels: int) -> None:
        if self._opened:
            self._opened[-1].levels = max(self._opened[-1].levels, levels + 1)


@dataclass(slots=True)
class _Opened:
    """A map or list that has not ended yet."""

    anchor: str | None
    before: int
    """Values before it."""
    levels: int = 1
