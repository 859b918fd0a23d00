"""Text that is kept takes no more memory than it has bytes."""

import tracemalloc

from webhook.untyped.kept_text import kept_text

SPARE_BYTES = 200


def test_text_that_is_kept_takes_what_it_needs() -> None:
    said = {f"field-{number}": number for number in range(100)}
    tracemalloc.start()
    try:
        text = kept_text(said)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < len(text) + SPARE_BYTES
