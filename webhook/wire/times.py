"""Times as Kubernetes writes them in objects, and ages as kubectl shows them."""

from datetime import UTC, datetime


def micro_time_text(seconds: float) -> str:
    """Return Unix time as metav1.MicroTime is written: RFC 3339 in UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def unix_seconds(text: str) -> float:
    """Return the Unix time that is written in RFC 3339. Raises ValueError or OverflowError for what is no time."""
    return datetime.fromisoformat(text).timestamp()


def human_age(seconds: float) -> str:
    """Return a duration as kubectl writes ages (k8s.io/apimachinery ``duration.HumanDuration``): two units at most, the
    second one only while the first is small.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{whole % 60}s" if whole % 60 else "")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y" + (f"{rest}d" if days < 8 * 365 and rest else "")


def age_since(moment: str, now: float) -> str:
    """Return how long ago a metav1.Time was, as kubectl writes ages."""
    return human_age(now - unix_seconds(moment))
