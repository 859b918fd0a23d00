"""Alerts, dashboards and the page about metrics speak of metrics that exist, in PromQL that Prometheus reads."""

import json
import re
from collections.abc import Iterator

import promql_parser
import pytest
import yaml
from prometheus_client import REGISTRY

from manifests import chart, dashboards, metrics_page
from tests.unit.manifests.documents import MANIFESTS, documents_of, named, of_kind, read
from webhook import metrics
from webhook.controllers.gangs.assess import Step
from webhook.controllers.writes.effects import REBUILD, Denied
from webhook.core.ledger import pages
from webhook.errors import ApiError

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
    rows = re.findall(r"^\| (\w+) \|", page.partition("\n## Alerts\n")[2], re.MULTILINE)
    assert {*rows} - {"alert"} == {rule["alert"] for rule in rules()}


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


def pods() -> Iterator[dict[str, str]]:
    """Yield what service discovery of Prometheus says of each port of our pods."""
    for document in (*documents_of("base"), *documents_of("components/fleet-hub")):
        if document["kind"] == "Deployment":
            template = document["spec"]["template"]
            labels = {re.sub(r"\W", "_", key): value for key, value in template["metadata"]["labels"].items()}
            for port in template["spec"]["containers"][0]["ports"]:
                about = {"pod_name": document["metadata"]["name"], "pod_phase": "Running"}
                about["pod_container_port_name"] = port["name"]
                about |= {f"pod_label_{key}": value for key, value in labels.items()}
                yield {f"__meta_kubernetes_{key}": value for key, value in about.items()}


def relabelled(about: dict[str, str], rules: list[dict[str, object]]) -> dict[str, str] | None:
    """Return the labels of what is scraped, as Prometheus has them after such rules; None where it is dropped."""
    labels = dict(about)
    for rule in rules:
        sources = rule["source_labels"]
        assert isinstance(sources, list)
        value = ";".join(labels.get(source, "") for source in sources)
        matches = re.fullmatch(str(rule.get("regex", ".*")), value) is not None
        if matches is (rule.get("action") == "drop") and rule.get("action") in ("keep", "drop"):
            return None
        if "target_label" in rule:
            labels[str(rule["target_label"])] = value
    return {name: value for name, value in labels.items() if not name.startswith("__")}


def test_who_has_no_operator_scrapes_what_the_alerts_select() -> None:
    """A job of another name had the most urgent of them fire for ever: it says that nothing is scraped."""
    page = (MANIFESTS.parent / "docs" / "administrator.md").read_text()
    (block,) = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "scrape_configs:" in text]
    (job,) = yaml.safe_load(block)["scrape_configs"]
    (service,) = of_kind(documents_of("components/monitoring"), "Service")
    assert job["job_name"] == service["metadata"]["name"]
    (discovered,) = job["kubernetes_sd_configs"]
    assert discovered["namespaces"]["names"] == [service["metadata"]["namespace"]]
    scraped = [labels for pod in pods() if (labels := relabelled(pod, job["relabel_configs"])) is not None]
    assert sorted(labels["component"] for labels in scraped) == ["hub", "reconciler", "webhook"]
    assert all(labels["pod"] for labels in scraped)
    ended = [{**pod, "__meta_kubernetes_pod_phase": "Failed"} for pod in pods()]
    assert [pod for pod in ended if relabelled(pod, job["relabel_configs"]) is not None] == []
    selectors = [each for _, expr in questions() for each in selectors_of(expr) if each.name in FROM_PROMETHEUS]
    assert selectors
    for selector in selectors:
        asked = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
        assert asked.pop("job") == job["job_name"]
        assert asked.pop("component") in {labels["component"] for labels in scraped}
        assert asked == {}


def test_what_a_prometheus_selects_alerts_by_can_be_given_to_those_of_the_chart() -> None:
    (part,) = [part for part in chart.PARTS if part.file == "monitoring"]
    for text in chart.template_of(part).split("---\n"):
        watched = "kind: ServiceMonitor" in text or "kind: PrometheusRule" in text
        assert ("labels: {{ toJson .Values.monitoringLabels }}" in text) is watched


def test_what_a_label_may_say_stands_in_the_help_of_its_metric_and_is_there_from_the_start() -> None:
    """An outcome that is first counted when it occurs grows from nothing: Prometheus sees no increase."""
    for metric, label, words in (
        (metrics.LEDGER_WRITES, "outcome", metrics.LEDGER_OUTCOMES),
        (metrics.STEPPED_DOWN, "why", metrics.TERMS_END),
    ):
        (family,) = metric.collect()
        assert {sample.labels[label] for sample in family.samples} == {*words}
        assert [word for word in words if word not in metric._documentation] == []
        for rule in rules():
            for selector in selectors_of(str(rule["expr"])):
                if selector.name == metrics_page.exposed_name(metric):
                    assert {matcher.value for matcher in selector.matchers.matchers} <= {*words}
    told = metrics.EFFECTS._documentation
    effects = re.split(", ", told.partition("Effects: ")[2].partition(".")[0])
    no_writes = {Step.NOTHING, Step.WAIT, Step.WITHDRAW, Step.RELEASE, Step.HOLD, Step.END}
    assert {*effects} == {*Step, REBUILD} - no_writes
    failures = {error.__name__.lower() for error in (*ApiError.__subclasses__(), Denied)}
    assert [word for word in ("stored", *failures) if word not in told.partition("Outcomes: ")[2]] == []


def test_the_alert_of_the_certificate_begins_when_tutti_status_says_that_it_should_have_been_renewed() -> None:
    """Each had a time of its own, and that of the alert was longer than some certificates last."""
    (rule,) = [rule for rule in rules() if rule["alert"] == "TuttiCertificateEndsSoon"]
    expr = str(rule["expr"])
    assert "tutti_certificate_due_seconds" in {selector.name for selector in selectors_of(expr)}
    assert re.search(r"\d", expr) is None


def test_the_alert_of_a_hubs_credentials_begins_when_the_hub_itself_warns_of_them() -> None:
    """A time of its own was six hours, of a token for thirty days: a night."""
    (rule,) = [rule for rule in rules() if rule["alert"] == "TuttiMemberCredentialsEndSoon"]
    expr = str(rule["expr"])
    assert "tutti_fleet_credentials_renew_timestamp_seconds" in {selector.name for selector in selectors_of(expr)}
    assert re.search(r"\d", expr) is None


def test_the_alert_of_a_ledger_that_is_nearly_full_knows_how_much_it_takes() -> None:
    (rule,) = [rule for rule in rules() if rule["alert"] == "TuttiLedgerNearlyFull"]
    assert str(rule["expr"]).endswith(f"0.8 * {pages.PAGES_MAX * pages.PAGE_BYTES}")
