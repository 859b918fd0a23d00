"""Shortens what others say, at a word: the middle goes, for an API server says last what is wrong with a long value."""

from typing import Final

_GAP: Final = " ... "
_HEAD: Final = 2 / 3
"""How much of what is left is of the beginning."""
_WORD: Final = 30
"""Characters of the longest word that is left out whole; a longer one is cut."""


def shortened(text: str, characters: int) -> str:
    """Return a text of at most so many characters: as it is, or its beginning and its end with ``...`` in between."""
    if len(text) <= characters:
        return text
    room = characters - len(_GAP)
    first = int(room * _HEAD)
    head, tail = text[:first], text[len(text) - room + first :]
    whole, _, part = head.rpartition(" ")
    if len(part) <= _WORD:
        head = whole
    part, _, whole = tail.partition(" ")
    if len(part) <= _WORD:
        tail = whole
    return f"{head.rstrip()}{_GAP}{tail.lstrip()}"
