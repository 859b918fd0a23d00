"""Room for what Tutti itself writes on a job: one that is full to the brim could not be stopped by anybody.

The API server takes no change of an object whose annotations are too long together, nor etcd one that is itself too
long. Whoever fills a job that runs would keep it from being preempted, and a hub from taking it out of its member.
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.server.review.answer import Answer, Refusal, deny
from webhook.untyped import paths
from webhook.wire.admission_review import ReviewRequest

ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
"""Of one object, as the API server counts them: keys and values."""
SPARE_BYTES: Final = 16 * 1024
"""Several times what the annotations of a gang of many pod sets take."""
OBJECT_BYTES_MAX: Final = 1_572_864
"""Of one write to etcd, unless it is told otherwise."""
SPARE_OBJECT_BYTES: Final = 128 * 1024
"""Also for what a job's controller writes when its pods end, and what the API server notes of who set what."""


def crowded_out(request: ReviewRequest, obj: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> Answer | None:
    """Return the refusal of a job that leaves too little room for what we write; it may always become shorter."""
    most = ANNOTATIONS_BYTES_MAX - SPARE_BYTES
    if request.lengths_bytes[0] <= most:
        # As nearly every job: what it holds is no longer than its text.
        return None
    size = _annotation_bytes(obj)
    if size > most and (old is None or size > _annotation_bytes(old)):
        return _too_long("metadata.annotations have", size, most)
    (size, before), most = request.lengths_bytes, OBJECT_BYTES_MAX - SPARE_OBJECT_BYTES
    return _too_long("it has", size, most) if size > most and (old is None or size > before) else None


def _too_long(what: str, size: int, most: int) -> Answer:
    message = (
        f"{what} {size} bytes; at most {most} leave room for what Tutti writes when it stops the job: put some of it "
        "into a ConfigMap"
    )
    return deny(Refusal.MALFORMED, message, 422)


def _annotation_bytes(obj: Mapping[str, Any]) -> int:
    notes = paths.find_mapping(obj, ("metadata", "annotations"))
    return sum(len(text.encode()) for note in notes.items() for text in note if isinstance(text, str))
