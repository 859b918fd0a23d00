"""How deep JSON is nested, told from its bytes without recursion, and what is too deep cut away.

The API server stores objects of preserved unknown fields nested 10,000 deep. JSON decoders, comparisons and every walk
over such an object recurse, and at some depth each of them raises, alone or for all objects of its page. Nothing that
Tutti reads lies deeper than some twenty levels, so what is below ``LEVELS_MAX`` is replaced by null before anything
reads it: such an object is read like any other, and hides none.

A look costs about what decoding the same bytes does; where there are fewer brackets than levels, nothing.
"""

import re
from itertools import accumulate
from typing import Final

LEVELS_MAX: Final = 100
"""Maps and lists inside one another that are kept of one object."""
WRAPPING_LEVELS: Final = 3
"""Levels around an object in a page, a watch event or a review."""

_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BUT_BRACKETS_AND_QUOTES: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))
_STEP: Final = tuple({"[": 1, "{": 1, "]": -1, "}": -1}.get(chr(byte), 0) for byte in range(256))
_SHORT: Final = 4096
"""Up to here folding is the faster way; beyond it would look at all of it once a level."""


def fits(raw: bytes, levels: int = LEVELS_MAX) -> bool:
    """Return whether the JSON in ``raw`` is nested at most ``levels`` deep. What is no JSON may answer either way."""
    if raw.count(b"{") + raw.count(b"[") <= levels:
        return True
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = raw.translate(None, _BUT_BRACKETS_AND_QUOTES).replace(b'""', b"")
    if b'"' in left:
        left = _STRINGS.sub(b"", left)
    return (len(left) <= _SHORT and _folds(left, levels)) or _stays_within(left, levels)


def _folds(brackets: bytes, levels: int) -> bool:
    """Return whether nothing is left of ``brackets`` before ``levels`` can have been exceeded; each turn takes away the
    innermost level, or two.
    """
    for _ in range(levels // 2):
        if not brackets:
            return True
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return not brackets


def _stays_within(brackets: bytes, levels: int) -> bool:
    depth = 0
    # In stretches, since what is far too deep mostly shows that at its beginning.
    for start in range(0, len(brackets), _SHORT):
        depths = list(accumulate(map(_STEP.__getitem__, brackets[start : start + _SHORT]), initial=depth))
        if max(depths) > levels:
            return False
        depth = depths[-1]
    return True


def shallow(raw: bytes, levels: int = LEVELS_MAX) -> bytes:
    """Return the JSON in ``raw`` with null in the place of each map and list below ``levels``; most often ``raw``
    itself. What is no JSON stays none.
    """
    return raw if fits(raw, levels) else _cut(raw, levels)


def _cut(raw: bytes, levels: int) -> bytes:
    bare = _STRINGS.sub(_blank, raw)
    # One byte for each of ``raw``: 1 from a bracket that opens what is too deep up to the one that closes it.
    deep = bytes(map(levels.__lt__, accumulate(map(_STEP.__getitem__, bare))))
    kept: list[bytes] = []
    resumed = 0
    while (opened := deep.find(1, resumed)) >= 0:
        closed = deep.find(0, opened)
        kept += (raw[resumed:opened], b"null")
        resumed = closed + 1 if closed >= 0 else len(raw)
    return b"".join((*kept, raw[resumed:]))


def _blank(string: re.Match[bytes]) -> bytes:
    return bytes(string.end() - string.start())
