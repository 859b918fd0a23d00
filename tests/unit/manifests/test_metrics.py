"""Alerts, dashboards and the page about metrics speak of metrics that exist, in PromQL that Prometheus reads."""

import json
import re
from collections.abc import Iterator

import promql_parser
import pytest
from prometheus_client import REGISTRY

from manifests import dashboards, metrics_page
from tests.unit.manifests.documents import MANIFESTS, documents_of, named, of_kind, read
from webhook.core.ledger import pages

PLAIN = re.compile(r"\$(queue|cohort|resource)\b")
FROM_PROMETHEUS = {"up"}


def rules() -> list[dict[str, object]]:
    """Return every alert."""
    groups = named(documents_of("components/monitoring"), "PrometheusRule", "tutti")["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def questions() -> Iterator[tuple[str, str]]:
    """Yield each alert and panel with what it asks, as the files have it."""
    for rule in rules():
        yield str(rule["alert"]), str(rule["expr"])
    for path in sorted((MANIFESTS / "components" / "monitoring" / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", PLAIN.sub("x", target["expr"])


def selectors_of(text: str) -> Iterator[promql_parser.VectorSelector]:
    """Yield every selector of an expression. Raises ValueError where it is no PromQL."""
    found: list[promql_parser.VectorSelector] = []

    def note(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        elif isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)
        return True

    promql_parser.walk(promql_parser.parse(text), note)
    yield from found


def exposed() -> dict[str, set[str]]:
    """Return the series that are exposed, with their labels."""
    series: dict[str, set[str]] = {}
    for metric in metrics_page.declared():
        name, labels = metrics_page.exposed_name(metric), set(metric._labelnames)
        if metric._type == "histogram":
            series |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            series[name] = labels
    return series


@pytest.mark.parametrize(("where", "expr"), [*questions()], ids=[where for where, _ in questions()])
def test_every_alert_and_panel_asks_for_series_and_labels_that_are_exposed(where: str, expr: str) -> None:
    known = exposed()
    asked = list(selectors_of(expr))
    assert asked, where
    for selector in asked:
        if selector.name in FROM_PROMETHEUS:
            continue
        assert selector.name in known, where
        assert {matcher.name for matcher in selector.matchers.matchers} <= known[selector.name], where


def test_every_metric_is_on_a_dashboard_or_wakes_somebody() -> None:
    asked = {selector.name for _, expr in questions() for selector in selectors_of(expr)}
    families = {re.sub(r"_(bucket|sum|count)$", "", str(name)) for name in asked}
    assert {metrics_page.exposed_name(metric) for metric in metrics_page.declared()} <= families


def test_every_alert_says_what_it_means_and_what_on_call_does_about_it() -> None:
    page = (MANIFESTS.parent / "docs" / "on-call.md").read_text()
    for rule in rules():
        annotations, labels = rule["annotations"], rule["labels"]
        assert isinstance(annotations, dict)
        assert isinstance(labels, dict)
        assert annotations["summary"]
        assert annotations["description"]
        assert labels["severity"] in ("info", "warning", "critical")
        assert f"| {rule['alert']} |" in page


def test_what_is_written_from_the_code_is_up_to_date() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.page(), "run `make manifests`"
    declared = {family.name for family in REGISTRY.collect() if family.name.startswith("tutti_")}
    assert declared == {metrics_page.exposed_name(metric).removesuffix("_total") for metric in metrics_page.declared()}
    for path, text in dashboards.files().items():
        assert path.read_text() == text, "run `make manifests`"


def test_both_dashboards_are_installed_where_grafana_looks_for_them() -> None:
    (kustomization,) = read(MANIFESTS / "components" / "monitoring" / "kustomization.yaml")
    (generated,) = kustomization["configMapGenerator"]
    assert {f"dashboards/{path.name}" for path in dashboards.files()} == set(generated["files"])
    assert generated["options"]["labels"] == {"grafana_dashboard": "1"}


def test_what_is_scraped_is_the_port_that_serves_metrics() -> None:
    documents = documents_of("components/monitoring")
    (service,) = of_kind(documents, "Service")
    (monitor,) = of_kind(documents, "ServiceMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
    assert ports[monitor["spec"]["endpoints"][0]["port"]] == "health"


def test_the_alert_of_a_hubs_credentials_begins_when_the_hub_itself_warns_of_them() -> None:
    """A time of its own was six hours, of a token for thirty days: a night."""
    (rule,) = [rule for rule in rules() if rule["alert"] == "TuttiMemberCredentialsEndSoon"]
    expr = str(rule["expr"])
    assert "tutti_fleet_credentials_renew_timestamp_seconds" in {selector.name for selector in selectors_of(expr)}
    assert re.search(r"\d", expr) is None


def test_the_alert_of_a_ledger_that_is_nearly_full_knows_how_much_it_takes() -> None:
    (rule,) = [rule for rule in rules() if rule["alert"] == "TuttiLedgerNearlyFull"]
    assert str(rule["expr"]).endswith(f"0.8 * {pages.PAGES_MAX * pages.PAGE_BYTES}")
