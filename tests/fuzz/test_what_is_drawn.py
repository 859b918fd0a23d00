"""The fuzzer itself: an hour of it needs no more memory than a minute."""

import gc
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.strategies import json_bytes

EXAMPLES = 40
LONG = "x" * 1_000_000


kept: list[int] = []


@settings(max_examples=EXAMPLES)
@given(json_bytes(st.integers(0, 1_000).map(lambda number: {"number": number, "long": LONG})))
def long_ones(raw: bytes) -> None:
    assert len(raw) > len(LONG)
    kept.append(tracemalloc.get_traced_memory()[0])


def test_no_bytes_that_were_drawn_are_kept() -> None:
    gc.collect()
    tracemalloc.start()
    long_ones()
    tracemalloc.stop()
    assert len(kept) > EXAMPLES // 2
    assert max(kept) < 10 * len(LONG)
