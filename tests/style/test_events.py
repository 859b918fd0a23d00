"""Every event that Tutti writes is explained where who reads it looks."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.style.test_tidy import ROOT

RECORDED = ("note", "_note")
"""What records an event, whose reason is the second argument."""
OF_RECONCILERS = sorted((ROOT / "webhook" / "controllers" / "reporting").glob("*.py"))
OF_HUBS = ROOT / "webhook" / "fleet" / "jobs" / "events.py"


def constants(tree: ast.Module) -> dict[str, str]:
    """Return the names that a module gives to texts."""
    found: dict[str, str] = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and isinstance(value := getattr(node, "value", None), ast.Constant):
            found[target.id] = str(value.value)
    return found


def words(node: ast.expr, names: dict[str, str]) -> Iterator[str]:
    """Yield what an expression may be."""
    if isinstance(node, ast.IfExp):
        yield from words(node.body, names)
        yield from words(node.orelse, names)
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.Name) and node.id in names:
        yield names[node.id]


def reasons(path: Path) -> Iterator[str]:
    """Yield the reasons of the events that a module records, or makes the documents of."""
    tree = ast.parse(path.read_text())
    names = constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RECORDED:
            yield from (word for each in node.args[1:2] for word in words(each, names))
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "reason":
                    yield from words(value, names)


def test_every_event_has_its_line_in_the_runbook() -> None:
    found = {reason for path in (*OF_RECONCILERS, OF_HUBS) for reason in reasons(path)}
    assert {"Queued", "StartFailed", "LedgerRebuildWaits", "RegistrationChanged", "NoMember", "FailedInMember"} <= found
    page = (ROOT / "docs" / "operating.md").read_text().partition("\n## Events\n")[2].partition("\n## ")[0]
    firsts = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {word for first in firsts for word in first.split("`")[1::2]} == found
