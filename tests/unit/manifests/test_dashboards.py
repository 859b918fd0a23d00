"""Dashboards and alerts show what they claim: nothing covers anything, names are of labels that are left, units fit."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import promql_parser
import pytest

from manifests import dashboards
from tests.unit.manifests.test_metrics import PLAIN, questions, rules, selectors_of

BOARDS = {path.stem: json.loads(path.read_text()) for path in dashboards.files()}
PANELS = {f"{name}: {panel['title']}": panel for name, board in BOARDS.items() for panel in board["panels"]}
COUNTERS = ("_total", "_bucket", "_sum", "_count")
RATES = {"rate", "increase", "irate"}
UNITS = {"short", "percentunit", "s", "bytes", "reqps", "wps", "Bps"}
"""Those of Grafana's units that we use, by id; one that it does not know would stand behind each number as text."""
GRID = 24
"""Columns of a dashboard."""


def plain(text: str) -> str:
    return PLAIN.sub("x", text)


def nodes_of(text: str) -> Iterator[promql_parser.Expr]:
    found: list[promql_parser.Expr] = []

    def note(node: promql_parser.Expr) -> bool:
        found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(text), note)
    yield from found


def rated(text: str) -> Iterator[str]:
    """Yield each series of which an expression takes a rate."""
    for node in nodes_of(text):
        if isinstance(node, promql_parser.Call) and node.func.name in RATES:
            yield from (str(selector.name) for selector in selectors_of(str(node)))


def lost(text: str, used: set[str]) -> set[str]:
    """Return which of the labels ``used`` an aggregation of the expression takes away."""
    aggregations = [node for node in nodes_of(text) if isinstance(node, promql_parser.AggregateExpr)]
    kept = [set(node.modifier.labels) if node.modifier is not None else set() for node in aggregations]
    return set().union(*(used - labels for labels in kept))


@pytest.mark.parametrize("name", BOARDS)
def test_panels_have_ids_of_their_own_and_cover_no_other(name: str) -> None:
    panels = BOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= GRID for panel in panels)


def test_each_dashboard_has_an_identity_that_grafana_takes() -> None:
    uids = [board["uid"] for board in BOARDS.values()]
    assert len(set(uids)) == len(uids)
    assert all(re.fullmatch(r"[\w-]{1,40}", uid) for uid in uids)


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_asks_the_data_source_that_is_picked_and_uses_each_variable_that_it_offers(name: str) -> None:
    board = BOARDS[name]
    offered = {each["name"]: each for each in board["templating"]["list"]}
    assert offered["datasource"]["type"] == "datasource"
    asked: list[dict[str, Any]] = [*board["panels"], *(each for each in offered.values() if each["type"] == "query")]
    asked += [target for panel in board["panels"] for target in panel["targets"]]
    assert {each["datasource"]["uid"] for each in asked} == {"${datasource}"}
    exprs = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert set(re.findall(r"\$(\w+)", " ".join(exprs))) == offered.keys() - {"datasource"}
    for each in offered.values():
        # One that may stand for several values at once is a pattern: only =~ takes it.
        several = each.get("multi") or each.get("includeAll")
        assert not several or not any(re.search(rf'[^~]"\${each["name"]}"', expr) for expr in exprs)


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_a_panel_names_labels_that_its_series_have_and_their_unit(panel: dict[str, Any]) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    assert unit in UNITS
    for target in panel["targets"]:
        expr = plain(target["expr"])
        assert lost(expr, set(re.findall(r"{{(\w+)}}", target["legendFormat"]))) == set()
        series = {str(selector.name) for selector in selectors_of(expr)}
        if "/" in re.sub(r"\[.*?\]", "", expr):
            assert unit == "percentunit"
        elif any("_seconds" in each for each in series):
            assert unit == "s"
        elif any("_bytes" in each for each in series):
            assert unit == ("Bps" if [*rated(expr)] else "bytes")
        elif "rate(" in expr:
            assert unit in {"reqps", "wps"}
        else:
            assert unit == "short"


@pytest.mark.parametrize(("where", "expr"), [*questions()], ids=[where for where, _ in questions()])
def test_a_rate_is_taken_of_counters_and_of_all_of_them(where: str, expr: str) -> None:
    counters = {str(selector.name) for selector in selectors_of(expr) if str(selector.name).endswith(COUNTERS)}
    assert set(rated(expr)) == counters, where


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_speaks_of_labels_that_its_series_have_and_lasts_as_long_as_it_says(rule: dict[str, Any]) -> None:
    said = " ".join(rule["annotations"].values())
    assert lost(str(rule["expr"]), set(re.findall(r"\$labels\.(\w+)", said))) == set()
    assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s"))


def test_these_tests_see_what_is_wrong() -> None:
    assert lost("sum by (queue) (tutti_queue_usage)", {"queue", "resource"}) == {"resource"}
    assert lost("max(tutti_ledger_bytes)", {"queue"}) == {"queue"}
    two = "sum(rate(tutti_reservations[5m])) / sum(increase(tutti_reviews_total[1h]))"
    assert set(rated(two)) == {"tutti_reservations", "tutti_reviews_total"}
