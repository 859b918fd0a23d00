"""What a scrape would say."""

from prometheus_client import REGISTRY


def sample(name: str, **labels: str) -> float:
    """Return the value of a series; 0 while there is none."""
    return REGISTRY.get_sample_value(name, labels) or 0.0
