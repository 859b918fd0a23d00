"""How jobs that start only together come to be in one member, though each is offered by itself.

Each goes from member to member at the same pace, and where they have set out at different times they may miss each
other in each, for ever. So such a job stays a little longer than others, by another time at each offer.
"""

from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from webhook.core.fleet.dispatch import Dispatch
from webhook.fleet.members.copies import offer_text
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading.gating import joins_pod_group
from webhook.untyped import paths
from webhook.untyped.values import text

LONGER_SECONDS: Final = 10
"""At most. Two that are in one member for a second or two start there, if it has the room."""


def lingers_seconds(kind: JobKind, copy: Mapping[str, Any] | None, dispatch: Dispatch) -> float:
    """Return how much longer than others a job stays in the member that was asked; 0 for one of no PodGroup."""
    if copy is None or not joins_pod_group(kind, copy):
        return 0.0
    which = offer_text(text(paths.find(copy, ("metadata", "uid"))), dispatch.offer)
    return crc32(which.encode()) % (LONGER_SECONDS * 1000) / 1000
