"""Room for what Tutti itself writes on a job: a job whose annotations are full could not be stopped by anybody.

The API server takes no change of an object whose annotations are too long together. Whoever fills them on a job that
runs would keep it from being preempted, and a hub from taking it out of its member.
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.server.review.answer import Answer, Refusal, deny
from webhook.untyped import paths

ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
"""Of one object, as the API server counts them: keys and values."""
SPARE_BYTES: Final = 16 * 1024
"""Several times what the annotations of a gang of many pod sets take."""


def crowded_out(obj: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> Answer | None:
    """Return the refusal of a job whose annotations leave too little room for ours; they may always become shorter."""
    size, most = _annotation_bytes(obj), ANNOTATIONS_BYTES_MAX - SPARE_BYTES
    if size <= most or (old is not None and size <= _annotation_bytes(old)):
        return None
    message = (
        f"metadata.annotations have {size} bytes; at most {most} leave room for what Tutti writes when it stops the "
        "job: put some of it into a ConfigMap"
    )
    return deny(Refusal.MALFORMED, message, 422)


def _annotation_bytes(obj: Mapping[str, Any]) -> int:
    notes = paths.find_mapping(obj, ("metadata", "annotations"))
    return sum(len(text.encode()) for note in notes.items() for text in note if isinstance(text, str))
