"""Moments as people and Kubernetes read them. The core counts in Unix time and never looks at a clock."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=256)
def time_text(seconds: int) -> str:
    """Return Unix time as metav1.Time is written: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
