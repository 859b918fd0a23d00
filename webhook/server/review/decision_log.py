"""One structured line per review, written in small batches.

A line rendered between two requests costs four times what it costs among its like, because nothing it needs is in the
processor's caches then. So decisions are kept for some milliseconds and written together. A line's timestamp is that of
the writing; what a crash can lose is no older than the window.
"""

import asyncio
from typing import Any, Final

import structlog

from webhook.server.review.answer import Answer
from webhook.wire.admission_review import ReviewRequest

WINDOW_SECONDS: Final = 0.01
LINES_MAX: Final = 256
"""As many are written at once, without waiting for the window."""
TEXT_CHARS_MAX: Final = 256
"""Longest text of a caller in a line."""
MESSAGE_CHARS_MAX: Final = 1024
_FIELDS: Final = ("endpoint", "outcome", "operation", "kind", "namespace", "name", "user", "uid")

log = structlog.get_logger(__name__)


class DecisionLog:
    """Collects decisions and writes them through structlog."""

    def __init__(self) -> None:
        self._kept: list[tuple[tuple[str, ...], Answer, float, bool]] = []
        self._timer: asyncio.TimerHandle | None = None

    def note(self, endpoint: str, request: ReviewRequest, answer: Answer, seconds: float) -> None:
        """Keep one decision; ``seconds`` is what it took."""
        # Cut here and not when it is written, so that nobody's megabytes are kept.
        texts = (
            endpoint,
            answer.outcome,
            request.operation[:TEXT_CHARS_MAX],
            request.kind[:TEXT_CHARS_MAX],
            request.namespace[:TEXT_CHARS_MAX],
            request.name[:TEXT_CHARS_MAX],
            request.username[:TEXT_CHARS_MAX],
            request.uid[:TEXT_CHARS_MAX],
        )
        self._kept.append((texts, answer, seconds, request.dry_run))
        if len(self._kept) >= LINES_MAX:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what was kept."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kept, self._kept = self._kept, []
        write = log.bind().info
        for texts, answer, seconds, dry_run in kept:
            fields: dict[str, Any] = dict(zip(_FIELDS, texts, strict=True))
            fields["millis"] = round(seconds * 1000, 3)
            if not answer.allowed:
                fields["code"] = answer.code
                fields["message"] = answer.message[:MESSAGE_CHARS_MAX]
            if answer.warnings:
                fields["warnings"] = len(answer.warnings)
            if dry_run:
                fields["dry_run"] = True
            write("review", **fields)
