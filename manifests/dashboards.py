"""Write the two Grafana dashboards from the tables below: ``python -m manifests.dashboards``."""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "components" / "monitoring" / "dashboards"
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3


class Panel(NamedTuple):
    """One panel: what it asks, and how a series is called in it."""

    title: str
    expr: str
    legend: str
    unit: str = "short"
    kind: str = "timeseries"


_PICKED: Final = 'queue=~"$queue", resource=~"$resource"'
_COHORTS: Final = 'cohort=~"$cohort", resource=~"$resource"'
QUEUES: Final = (
    Panel("Used of owned", f"sum by (queue, resource) (tutti_queue_usage{{{_PICKED}}}) / sum by (queue, resource) "
          f"(tutti_queue_nominal{{{_PICKED}}} > 0)", "{{queue}} {{resource}}", "percentunit"),
    Panel("Borrowed", f"sum by (queue, resource) (tutti_queue_borrowed{{{_PICKED}}}) > 0", "{{queue}} {{resource}}"),
    Panel("Lent", f"sum by (queue, resource) (tutti_queue_lent{{{_PICKED}}}) > 0", "{{queue}} {{resource}}"),
    Panel("Left below the limit", f"sum by (queue, resource) (tutti_queue_limit{{{_PICKED}}}) - "
          f"sum by (queue, resource) (tutti_queue_usage{{{_PICKED}}})", "{{queue}} {{resource}}"),
    Panel("Cohorts: used of owned", f"sum by (cohort, resource) (tutti_cohort_usage{{{_COHORTS}}}) / "
          f"sum by (cohort, resource) (tutti_cohort_nominal{{{_COHORTS}}} > 0)", "{{cohort}} {{resource}}",
          "percentunit"),
    Panel("Cohorts: borrowed from and lent to their parents",
          f"sum by (cohort, resource) (tutti_cohort_borrowed{{{_COHORTS}}}) - "
          f"sum by (cohort, resource) (tutti_cohort_lent{{{_COHORTS}}})", "{{cohort}} {{resource}}"),
    Panel("Waiting gangs", 'sum by (queue) (tutti_queue_waiting_gangs{queue=~"$queue"})', "{{queue}}"),
    Panel("Running gangs", 'sum by (queue) (tutti_queue_running_gangs{queue=~"$queue"})', "{{queue}}"),
    Panel("Queues that admit nothing", "sum by (queue) (tutti_queue_active) == 0", "{{queue}}", kind="table"),
    Panel("Admissions an hour", 'sum by (queue) (increase(tutti_admitted_gangs_total{queue=~"$queue"}[1h]))',
          "{{queue}}"),
    Panel("Evictions an hour, by reason",
          'sum by (queue, reason) (increase(tutti_evicted_gangs_total{queue=~"$queue"}[1h])) > 0',
          "{{queue}} {{reason}}"),
    Panel("Wait for admission, 90th percentile", "histogram_quantile(0.9, sum by (le, queue, priority_class) "
          '(rate(tutti_admission_wait_seconds_bucket{queue=~"$queue"}[1h])))', "{{queue}} {{priority_class}}", "s"),
)  # fmt: skip
HEALTH: Final = (
    Panel("Leaders (one is well)", "sum(tutti_leading)", "leaders", kind="stat"),
    Panel("Webhook replicas that answer", 'sum(up{job="tutti-metrics", component="webhook"})', "replicas", kind="stat"),
    Panel("Serving certificate ends in", "min(tutti_certificate_expiry_seconds) - time()", "left", "s", "stat"),
    Panel("Reviews by outcome", "sum by (outcome) (rate(tutti_reviews_total[5m]))", "{{outcome}}", "reqps"),
    Panel("Review time, 99th percentile", "histogram_quantile(0.99, sum by (le, endpoint) "
          "(rate(tutti_review_duration_seconds_bucket[5m])))", "{{endpoint}}", "s"),
    Panel("Reviews that wait", "sum(tutti_reviews_waiting)", "waiting"),
    Panel("Reviews that waited for a newer ledger", "sum(rate(tutti_ledger_waits_total[5m]))", "waits",
          "reqps"),
    Panel("Reviews passed on to another replica", "sum(rate(tutti_reviews_forwarded_total[5m]))", "forwarded", "reqps"),
    Panel("Requests that were no review", "sum by (status) (rate(tutti_bad_requests_total[5m]))", "{{status}}",
          "reqps"),
    Panel("Decision cycle, 99th percentile",
          "histogram_quantile(0.99, sum by (le) (rate(tutti_cycle_duration_seconds_bucket[5m])))", "cycle", "s"),
    Panel("Ledger: share of 2,000 pages", "max(tutti_ledger_bytes) / 65536000", "full", "percentunit"),
    Panel("Ledger writes by outcome", "sum by (outcome) (rate(tutti_ledger_writes_total[5m]))", "{{outcome}}", "wps"),
    Panel("Ledger bytes sent", "sum(rate(tutti_ledger_sent_bytes_total[5m]))", "sent", "Bps"),
    Panel("Reservations", "max(tutti_reservations)", "reservations"),
    Panel("Pages of the ledger", "max(tutti_ledger_pages)", "pages"),
    Panel("Take-overs an hour", "max(max_over_time(tutti_ledger_epoch[1h])) - "
          "max(max_over_time(tutti_ledger_epoch[1h] offset 1h))", "take-overs"),
    Panel("Rebuilds of the ledger an hour", "sum(increase(tutti_ledger_rebuilds_total[1h]))", "rebuilds"),
    Panel("Replicas that may not lead", "sum by (pod) (tutti_leading_denied)", "{{pod}}"),
    Panel("Steps down an hour", "sum by (why) (increase(tutti_stepped_down_total[1h]))", "{{why}}"),
    Panel("Writes to jobs by outcome", "sum by (effect, outcome) (rate(tutti_effects_total[5m]))",
          "{{effect}} {{outcome}}", "wps"),
    Panel("Waiting gangs by reason", "sum by (reason) (tutti_waiting_gangs)", "{{reason}}"),
    Panel("Defects and unreadable objects an hour",
          "sum(increase(tutti_broken_jobs_total[1h])) + "
          "(sum(increase(tutti_unreadable_objects_total[1h])) or vector(0))",
          "failures"),
    Panel("Kinds that cannot be listed", "max by (kind) (tutti_unread_kinds) > 0", "{{kind}}", kind="table"),
    Panel("Events dropped an hour", "sum(increase(tutti_events_dropped_total[1h]))", "dropped"),
    Panel("Offers of a fleet that are over, an hour",
          "sum by (member, outcome) (increase(tutti_fleet_offers_total[1h]))", "{{member}} {{outcome}}"),
    Panel("Gangs taken back from a fleet's members, an hour",
          "sum by (member, outcome) (increase(tutti_fleet_grants_total[1h]))", "{{member}} {{outcome}}"),
    Panel("Members of a fleet that do not answer", "max by (member) (tutti_fleet_member_unreachable) > 0",
          "{{member}}", kind="table"),
    Panel("Jobs of a fleet whose record is broken", "max(tutti_fleet_unreadable_dispatches)", "jobs"),
    Panel("Time until a hub's credentials for a member end",
          "min by (member) (tutti_fleet_credentials_expire_timestamp_seconds - time())", "{{member}}", "s"),
)  # fmt: skip


def dashboard(name: str, title: str, panels: tuple[Panel, ...], variables: dict[str, str]) -> dict[str, Any]:
    """Return a dashboard; ``variables`` are what a user may pick, with the query that lists the choices."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"tutti-{name}",
        "title": title,
        "tags": ["tutti"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, *(_variable(*entry) for entry in variables.items())]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    target = {"refId": "A", "datasource": _DATASOURCE, "expr": panel.expr, "legendFormat": panel.legend}
    if panel.kind == "table":
        target |= {"instant": True, "format": "table"}
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _DATASOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [target],
    }


def files() -> dict[Path, str]:
    """Return each dashboard's file and its text."""
    picks = {
        "queue": "label_values(tutti_queue_nominal, queue)",
        "cohort": "label_values(tutti_cohort_nominal, cohort)",
        "resource": "label_values(tutti_queue_nominal, resource)",
    }
    made = {
        "queues": dashboard("queues", "Tutti: queues and cohorts", QUEUES, picks),
        "health": dashboard("health", "Tutti: health", HEALTH, {}),
    }
    return {FOLDER / f"{name}.json": json.dumps(document, indent=1) + "\n" for name, document in made.items()}


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
