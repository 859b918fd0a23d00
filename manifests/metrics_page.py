"""Write docs/metrics.md from the metrics that the code declares: ``python -m manifests.metrics_page``."""

from pathlib import Path
from typing import Final

from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

from webhook import metrics
from webhook.server.review import metrics as reviews

PAGE: Final = Path(__file__).parents[1] / "docs" / "metrics.md"
_HEAD: Final = f"""# Metrics

On port 8080 of every pod at `/metrics`. `manifests/overlays/monitoring` has a ServiceMonitor, alerts and two Grafana
dashboards; what to do about an alert is in [on call](on-call.md). This page is written from the code by
`make manifests`.

Amounts are in units of the resource (cores, bytes, devices). Only the leader has series by queue, by cohort and by
reason to wait, so that a sum over replicas counts nothing twice. The first {metrics.QUEUES_MAX} queues and cohorts
by name, and the first {metrics.CLASSES_MAX} priority classes, have series of their own; the others share
`{metrics.OTHERS}`.
`priority_class` is the first class by name with the gang's priority, or empty if there is none. What is borrowed
has no single lender, so it is attributed to all that leave quota idle, in proportion to what they leave.
"""


def declared() -> list[MetricWrapperBase]:
    """Return every metric that either process exposes, in the order of the modules that declare them."""
    return [value for module in (metrics, reviews) for value in vars(module).values() if _is_ours(value)]


def _is_ours(value: object) -> bool:
    return isinstance(value, MetricWrapperBase) and value in REGISTRY._collector_to_names


def exposed_name(metric: MetricWrapperBase) -> str:
    """Return the name under which a metric is found in a scrape."""
    return f"{metric._name}_total" if metric._type == "counter" else metric._name


def page() -> str:
    """Return the page."""
    rows = ["| metric | kind | labels | says |", "|---|---|---|---|"]
    for metric in declared():
        labels = ", ".join(f"`{name}`" for name in metric._labelnames)
        rows.append(f"| `{exposed_name(metric)}` | {metric._type} | {labels} | {metric._documentation} |")
    return _HEAD + "\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
