"""What a review costs is what it runs through: code that is met once a review has left the processor's caches by then.

So calls of our own functions are counted, which no load and no machine changes. Who adds a check may raise a figure,
knowingly; who looks for the same thing twice is told so here.
"""

import sys
from types import FrameType
from typing import Any

import pytest

import webhook
from benchmarks import reviews

OURS = webhook.__path__[0]
CALLS_MAX = {
    ("/mutate/jobs", "created"): 65,
    ("/validate/jobs", "created"): 189,
    ("/validate/jobs", "created, queue known"): 210,
    ("/validate/jobs", "updated, same spec"): 45,
    ("/validate/pods", "created"): 103,
}


@pytest.mark.parametrize("asked", CALLS_MAX, ids=" ".join)
async def test_a_review_makes_no_more_calls_than_it_needs(asked: tuple[str, str]) -> None:
    handler, body = reviews.handler(), (await reviews.bodies())[asked]
    await handler.review(asked[0], body, 1.0)  # the first one fills what is kept
    calls = 0

    def note(frame: FrameType, event: str, _about: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(OURS)

    sys.setprofile(note)
    try:
        await handler.review(asked[0], body, 1.0)
    finally:
        sys.setprofile(None)
    assert calls <= CALLS_MAX[asked], f"{calls} calls"
