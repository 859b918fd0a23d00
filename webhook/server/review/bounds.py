"""How much a review may hold before anybody looks into it: a forged one must not cost more than an honest one.

What a decision costs goes with the number of values in its objects, not with their bytes, so values are counted,
roughly and from above, without decoding: a review of 7 MiB in some 20 ms. Decoding in a thread would not help, since
the decoder holds the interpreter's lock; what comes after it is Python, and is bounded by this.
"""

from typing import Final

from webhook.wire.admission_review import ReviewRequest

VALUES_MAX: Final = 20_000
"""Values in one review, object and oldObject together: ten times what jobs of many pod sets have."""
POLICY_VALUES_MAX: Final = 250_000
"""Policy objects are few and may be large; they are judged outside the loop."""
SMALL_BYTES: Final = VALUES_MAX
"""So many bytes cannot hold more values than bytes."""
UID_CHARS_MAX: Final = 128
NAME_CHARS_MAX: Final = 512
NAMESPACE_CHARS_MAX: Final = 63


def values_in(body: bytes, enough: int) -> int:
    """Return at least the number of JSON values in ``body``, at most twice as many; from ``enough`` on it may stop."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = plain.count(b'"')
    if quotes > 4 * enough:  # each string is a value, or the name of one
        return quotes // 4
    outside = b"".join(plain.split(b'"')[::2])
    return outside.count(b",") + outside.count(b"{") + outside.count(b"[")


def crowded(body: bytes, values_max: int) -> str | None:
    """Return why a review holds too many values to be judged, or None."""
    if len(body) <= SMALL_BYTES or values_in(body, values_max) <= values_max:
        return None
    return f"the review holds more than {values_max} JSON values; make the object smaller, or several of it"


def overlong(request: ReviewRequest) -> str | None:
    """Return which of the texts that a decision may remember is longer than the API server lets one be, or None."""
    # So it is of all that the API server sends, thousands of times a second.
    if (
        len(request.uid) <= UID_CHARS_MAX
        and len(request.name) <= NAME_CHARS_MAX
        and len(request.namespace) <= NAMESPACE_CHARS_MAX
    ):
        return None
    for field, text, longest in (
        ("uid", request.uid, UID_CHARS_MAX),
        ("name", request.name, NAME_CHARS_MAX),
        ("namespace", request.namespace, NAMESPACE_CHARS_MAX),
    ):
        if len(text) > longest:
            return f"request.{field} has {len(text)} characters; the API server sends at most {longest}"
    return None
