"""Structured logs: one JSON line per event, through orjson; library logs are routed into the same stream."""

import logging
import sys
from typing import Any

import orjson
import structlog


def _dumps(event: Any, **_: Any) -> str:
    return orjson.dumps(event, default=str).decode()


def configure(level: str = "info", *, console: bool = False) -> None:
    """Set up logging for a process; ``console`` renders for people (demo, commands) instead of JSON."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(serializer=_dumps)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
