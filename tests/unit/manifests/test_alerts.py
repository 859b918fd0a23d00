"""Alerts speak of metrics that exist."""

import re

from tests.unit.manifests.documents import MANIFESTS, documents_of, named, of_kind

SOURCES = MANIFESTS.parent / "webhook"


def declared() -> set[str]:
    """Return the names of all metrics in the code, as they are exposed."""
    found: set[str] = set()
    for path in SOURCES.rglob("metrics.py"):
        for kind, name in re.findall(r"\b(Counter|Gauge|Histogram)\(\s*\"(tutti_[a-z_]+)\"", path.read_text()):
            found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "Histogram" else {name}
    return found


def test_every_metric_of_an_alert_is_one_the_programs_expose() -> None:
    names = declared()
    assert "tutti_leading" in names
    for group in named(documents_of("components/monitoring"), "PrometheusRule", "tutti")["spec"]["groups"]:
        for rule in group["rules"]:
            used = set(re.findall(r"\btutti_[a-z_]+", rule["expr"]))
            assert used <= names, rule["alert"]
            assert rule["annotations"]["summary"]
            assert rule["annotations"]["description"]
            assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_what_is_scraped_is_the_port_that_serves_metrics() -> None:
    documents = documents_of("components/monitoring")
    (service,) = of_kind(documents, "Service")
    (monitor,) = of_kind(documents, "ServiceMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
    assert ports[monitor["spec"]["endpoints"][0]["port"]] == "health"
