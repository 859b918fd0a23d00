"""How deep JSON is nested, told from its bytes without recursion, and what is too deep cut away.

The API server stores objects of preserved unknown fields nested 10,000 deep. JSON decoders, comparisons and every walk
over such an object recurse, and at some depth each of them raises, alone or for all objects of its page. Nothing that
Tutti reads lies deeper than some twenty levels, so what is below ``LEVELS_MAX`` is replaced by null before anything
reads it: such an object is read like any other, and hides none.

A look costs about what decoding the same bytes does, and a tenth of it if there are too few brackets. Cutting costs
up to a hundred times that. So both are done in steps of a few milliseconds, between which a caller can let others run.
"""

import asyncio
import re
from collections.abc import Generator, Iterator
from itertools import accumulate
from typing import Final, TypeVar

LEVELS_MAX: Final = 100
"""Maps and lists inside one another that are kept of one object."""
WRAPPING_LEVELS: Final = 3
"""Levels around an object in a page, a watch event or a review."""
LONG_BYTES: Final = 1 << 16
"""What is longer takes several steps."""

_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BUT_BRACKETS_AND_QUOTES: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))
_STEP: Final = tuple({"[": 1, "{": 1, "]": -1, "}": -1}.get(chr(byte), 0) for byte in range(256))
_SHORT: Final = 4096
"""Up to here folding is the faster way; beyond it would look at all of it once a level."""
_RUNS: Final = re.compile(rb'(?:"(?:[^"\\]++|\\.)*+"[^][{}"]*+)++|[\[{]++|[\]}]++|"', re.DOTALL)
"""Strings with what is between them, so that no bracket of theirs is one; brackets that open; brackets that close; the
quote of a string that has no end here.
"""
_REST_OF_STRING: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_RUNS_A_STEP: Final = 4_000
_BYTES_A_STEP: Final = 1 << 16

T = TypeVar("T")
Steps = Generator[None, None, bytes]
"""Work that stops between its steps, and its result."""


def fits(raw: bytes, levels: int = LEVELS_MAX) -> bool:
    """Return whether the JSON in ``raw`` is nested at most ``levels`` deep. What is not JSON may answer either way."""
    return _finished(_looked(raw, levels))


def shallow(raw: bytes, levels: int = LEVELS_MAX) -> bytes:
    """Return the JSON in ``raw`` with null in the place of each map and list below ``levels``; most often ``raw``
    itself. What is not JSON stays none.
    """
    if too_few_brackets(raw, levels):
        return raw
    return _finished(shallow_in_steps(raw, levels))


async def shallow_with_pauses(raw: bytes, levels: int = LEVELS_MAX) -> bytes:
    """Return what ``shallow`` returns; others get their turn after each step."""
    if len(raw) <= LONG_BYTES:
        return shallow(raw, levels)
    steps = shallow_in_steps(raw, levels)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: bytes = end.value
            return result
        await asyncio.sleep(0)


def shallow_in_steps(raw: bytes, levels: int = LEVELS_MAX) -> Steps:
    """Do what ``shallow`` does, a step at a time."""
    if (yield from _looked(raw, levels)):
        return raw
    return (yield from _cut(raw, levels))


def _finished(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def too_few_brackets(raw: bytes, levels: int) -> bool:
    """Return whether ``levels`` cannot be exceeded: up to the middle each level has opened, from there on each one has
    yet to close.
    """
    middle = len(raw) // 2
    head, tail = raw[:middle], raw[middle:]
    # Leaving them out takes a third of the time of ``count``, which looks at each byte.
    opened = 2 * len(head) - len(head.replace(b"{", b"")) - len(head.replace(b"[", b""))
    closed = 2 * len(tail) - len(tail.replace(b"}", b"")) - len(tail.replace(b"]", b""))
    if opened <= levels and closed <= levels:
        return True
    # Managed fields are full of empty maps, and nothing is inside these.
    return opened - head.count(b"{}") < levels and closed - tail.count(b"{}") < levels


def _looked(raw: bytes, levels: int) -> Generator[None, None, bool]:
    if too_few_brackets(raw, levels):
        return True
    left = yield from _brackets(raw)
    if len(left) <= _SHORT and _folds(left, levels):
        return True
    return (yield from _stays_within(left, levels))


def _brackets(raw: bytes) -> Generator[None, None, bytes]:
    """Return the brackets that are in no string. Each part begins outside an escape, not always outside a string."""
    kept: list[bytes] = []
    start = 0
    in_string = False
    while start < len(raw):
        part = raw[start : _end_of_part(raw, start)]
        start += len(part)
        if b"\\" in part:
            part = part.replace(b"\\\\", b"").replace(b'\\"', b"")
        left = (b'"' if in_string else b"") + part.translate(None, _BUT_BRACKETS_AND_QUOTES)
        left = left.replace(b'""', b"")
        if b'"' in left:
            left = _STRINGS.sub(b"", left)
        outside, quote, _ = left.partition(b'"')
        in_string = bool(quote)
        kept.append(outside)
        if start < len(raw):
            yield
    return b"".join(kept)


def _folds(brackets: bytes, levels: int) -> bool:
    """Return whether nothing is left of ``brackets`` before ``levels`` can have been exceeded; each turn takes away the
    innermost level, or two.
    """
    for _ in range(levels // 2):
        if not brackets:
            return True
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return not brackets


def _stays_within(brackets: bytes, levels: int) -> Generator[None, None, bool]:
    depth = 0
    # In stretches, since what is far too deep mostly shows that at its beginning.
    for start in range(0, len(brackets), _SHORT):
        depths = list(accumulate(map(_STEP.__getitem__, brackets[start : start + _SHORT]), initial=depth))
        if max(depths) > levels:
            return False
        depth = depths[-1]
        if not (start + _SHORT) % _BYTES_A_STEP:
            yield
    return True


def _cut(raw: bytes, levels: int) -> Steps:
    kept: list[bytes] = []
    resumed = depth = 0
    for run, step in _runs(raw):
        if not step:
            yield
        elif depth <= levels < depth + step:
            kept += (raw[resumed : run + levels - depth], b"null")
        elif depth + step <= levels < depth:
            resumed = run + depth - levels
        depth += step
    return b"".join((*kept, b"" if depth > levels else raw[resumed:]))


def _runs(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield where brackets stand beside one another and how many levels they go down, or up; and now and then 0 levels,
    which is time for a pause.
    """
    start, in_string = 0, False
    while start < len(raw):
        end = _end_of_part(raw, start)
        if in_string:
            rest = _REST_OF_STRING.match(raw, start, end)
            assert rest is not None, "it matches nothing, too"
            start = rest.end() + 1
        in_string = start > end
        for number, run in enumerate(_RUNS.finditer(raw, start, end), start=1):
            step = _STEP[raw[run.start()]]
            if step:
                yield run.start(), step * (run.end() - run.start())
            elif run.end() - run.start() == 1:
                in_string = True
                break
            if not number % _RUNS_A_STEP:
                yield run.start(), 0
        start = end
        yield start, 0


def _end_of_part(raw: bytes, start: int) -> int:
    """Return where a part ends that begins at ``start``: not within an escape, if it does not begin in one."""
    part = raw[start : start + _BYTES_A_STEP]
    odd = (len(part) - len(part.rstrip(b"\\"))) % 2
    return min(len(raw), start + len(part) + odd)
