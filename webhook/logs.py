"""Structured logs: one JSON line per event, through orjson; library logs are routed into the same stream."""

import logging
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import structlog

from webhook.clock import SystemClock

_clock: Final = SystemClock()


def _dumps(event: Any, **_: Any) -> str:
    return orjson.dumps(event, default=str).decode()


def _render_bytes(logger: Any, level: str, event: MutableMapping[str, Any]) -> bytes:
    """Do what the separate processors do in one step: the webhook writes a line for every review."""
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(logger, level, event)
    event["level"] = level
    event["timestamp"] = datetime.fromtimestamp(_clock.now(), UTC)
    return orjson.dumps(event, default=str)


def configure(level: str = "info", *, console: bool = False) -> None:
    """Set up logging for a process; ``console`` renders for people (demo, commands) instead of JSON."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(serializer=_dumps)
    stream = getattr(sys.stderr, "buffer", None)
    fast = stream is not None and not console
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, _render_bytes] if fast else [*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.BytesLoggerFactory(stream) if fast else structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
