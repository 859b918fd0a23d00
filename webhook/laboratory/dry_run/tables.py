"""A report for people: one table a cycle, then what is skipped and what is wrong."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

PLACES_SHOWN: Final = 3


def show(out: Console, document: Mapping[str, Any]) -> None:
    """Print a report."""
    for number, cycle in enumerate(document["cycles"], start=1):
        if not any(cycle.values()):
            out.print("nothing to decide: no gang in these files waits", highlight=False)
            continue
        out.print(_cycle(f"cycle {number}", cycle), highlight=False)
    for item in document.get("skipped", ()):
        out.print(f"[dim]skipped[/dim]  {escape(item['object'])}: {escape(item['why'])}", highlight=False)
    for problem in document["diagnostics"]:
        show_problem(out, problem)


def _cycle(title: str, cycle: Mapping[str, Any]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("", "GANG", "QUEUE", "WHAT"):
        table.add_column(heading, overflow="fold")
    for word, colour in (("admitted", "green"), ("grown", "green")):
        for each in cycle.get(word, ()):
            table.add_row(f"[{colour}]{word}[/{colour}]", *_cells(each, _pod_sets(each["podSets"])))
    for each in cycle["preempted"]:
        why = f"for {each['by']}: {each['reason']}"
        table.add_row("[red]preempted[/red]", escape(each["gang"]), "", escape(why))
    for each in cycle.get("stopped", ()):
        table.add_row("[red]stopped[/red]", escape(each["gang"]), "", escape(each["reason"]))
    for each in cycle["waiting"]:
        table.add_row("[yellow]waiting[/yellow]", *_cells(each, _reason(each["reason"])))
    return table


def _cells(each: Mapping[str, Any], what: str) -> Iterable[str]:
    return escape(each["gang"]), escape(each["queue"] or "-"), escape(what)


def _pod_sets(pod_sets: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{each['name']} x{each['count']}"
        + "".join(f" {name}={flavor}" for name, flavor in each["flavors"].items())
        + _places(each.get("places", {}))
        for each in pod_sets
    )


def _places(places: Mapping[str, int]) -> str:
    shown = ", ".join(f"{node} x{count}" for node, count in list(places.items())[:PLACES_SHOWN])
    more = len(places) - PLACES_SHOWN
    return (f" on {shown}" if shown else "") + (f" and {more} more nodes" if more > 0 else "")


def _reason(reason: Mapping[str, Any]) -> str:
    parts = [reason["code"]]
    if "message" in reason:
        parts.append(reason["message"])
    if "asked" in reason:
        parts.append(f"asks for {reason['asked']} {reason.get('resource', '')}".rstrip())
    if "limit" in reason:
        parts.append(f"{reason.get('where', '')} has {reason['limit']}, {reason.get('used', '0')} used")
    return ": ".join((parts[0], "; ".join(parts[1:]))) if parts[1:] else parts[0]


def show_problem(out: Console, problem: Mapping[str, Any]) -> None:
    """Print one problem."""
    word = "[yellow]warning[/yellow]" if problem.get("warning") else "[red]error[/red]"
    grid = Table.grid(padding=(0, 2))
    grid.add_row(word, f"[bold]{escape(problem['path'])}[/bold]")
    for name in ("file", "value", "message", "fix"):
        if problem.get(name):
            grid.add_row(f"[dim]{name}[/dim]", escape(problem[name]))
    out.print(grid, highlight=False)
