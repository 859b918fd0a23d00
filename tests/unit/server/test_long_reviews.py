"""A long review is read a part at a time: other reviews get their turn in between."""

import asyncio
import sys
from collections import Counter
from typing import Any

import pytest

from tests.unit.server.reviews import Answered, pod, review, view
from webhook.server.handler import ReviewHandler
from webhook.wire import nesting

PARTS_MAX = 2
"""Stretches of 64 KiB that one turn of the loop may look through."""
DEEP: Any = "1" * 64
for _ in range(nesting.LEVELS_MAX + 50):
    DEEP = [DEEP]


def crowded(name: str) -> dict[str, Any]:
    """Return a pod of a megabyte, some of it nested too deeply to be read."""
    made = pod(name)
    made["metadata"]["annotations"] = {"long": "x" * (1 << 20)}
    made["spec"]["nodeSelector"] = {"deep": DEEP}
    return made


@pytest.mark.parametrize("path", ["/validate/pods", "/mutate/pods"])
async def test_no_turn_of_the_loop_looks_through_more_than_a_part_of_a_long_review(path: str) -> None:
    handler = ReviewHandler(view())
    body = review(crowded("p"), old=crowded("p"), operation="UPDATE", resource="pods")
    parts: Counter[int] = Counter()
    decoded: Counter[int] = Counter()
    turn = 0

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def note(frame: Any, what: str, argument: Any) -> None:
        if what == "call" and frame.f_code is nesting._end_of_part.__code__:
            parts[turn] += 1
        elif what == "c_call" and getattr(argument, "__module__", "") == "orjson" and argument.__name__ == "loads":
            decoded[turn] += 1

    beside = asyncio.create_task(others())
    sys.setprofile(note)
    try:
        answer = await handler.review(path, body, 5.0)
    finally:
        sys.setprofile(None)
        beside.cancel()
    Answered(*answer)
    assert parts.total() >= 2 * len(body) // (1 << 16), "it was looked at"
    assert max(parts.values()) <= PARTS_MAX
    assert (decoded.total(), max(decoded.values())) == (2, 1)
