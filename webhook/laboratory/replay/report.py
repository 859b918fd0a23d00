"""A replay as a document (``-o yaml``, ``-o json``) and as a table with one column a policy."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from webhook.core.notation.counted import counted
from webhook.core.notation.problem import Problem
from webhook.laboratory.dry_run.report import problem_documents
from webhook.laboratory.dry_run.tables import show_problem
from webhook.laboratory.replay.job_log import GPU, Job, JobLog, window_of
from webhook.laboratory.replay.measures import Measures, Waits

Document = dict[str, Any]
_HOUR: Final = 3600
_DAY: Final = 86_400
PROBLEMS_SHOWN: Final = 20
"""A log of the wrong kind has a thousand bad rows: the table shows so many and counts the rest."""

Row = tuple[str, Callable[[Measures], str]]


def report(log: JobLog, jobs: Sequence[Job], columns: Mapping[str, Measures], problems: Iterable[Problem]) -> Document:
    """Return the document: the ``jobs`` of ``log`` that were replayed, measures by policy, and what is wrong."""
    first, last = window_of(jobs)
    return {
        "log": {
            "file": log.name,
            "resource": log.resource,
            "jobs": len(jobs),
            "queues": len({job.queue for job in jobs}),
            "unitHours": round(sum(job.unit_seconds for job in jobs) / _HOUR, 3),
            "days": round((last - first) / _DAY, 3),
            "firstSubmission": _time(first),
            "lastSubmission": _time(last),
        },
        "policies": [{"policy": name, **_plain(measures)} for name, measures in columns.items()],
        "diagnostics": problem_documents(problems),
    }


def _time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat().replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """Return dataclasses as maps with the keys of JSON, and numbers to the microsecond."""
    if is_dataclass(value) and not isinstance(value, type):
        return {_camel(field.name): _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return round(value, 6) if isinstance(value, float) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


# -- for people --------------------------------------------------------------------------------------------------------


def show(
    out: Console, document: Document, columns: Mapping[str, Measures], *, resume: bool, nodes: bool = False
) -> None:
    """Print the document's log and diagnostics, and the measures as a table."""
    log = document["log"]
    unit = "GPU" if log["resource"] == GPU else "CPU"
    jobs = f"{log['jobs']:,} job{'s' * (log['jobs'] != 1)} of {counted(log['queues'], 'queue')}"
    out.print(
        f"{jobs}, {log['unitHours']:,.0f} {unit}-hours, submitted over {log['days']:,.1f} days",
        highlight=False,
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("seconds, unless said", overflow="fold")
    for name in columns:
        table.add_column(escape(name), justify="right", overflow="fold")
    for title, value in _rows(unit, list(columns.values()), nodes=nodes):
        table.add_row(escape(title), *(value(measures) for measures in columns.values()))
    out.print(table, highlight=False)
    out.print(
        f"[dim]wait: submission to end, less the run that counted; a preempted job "
        f"{'goes on where it was' if resume else 'starts again from zero'}; "
        f"alone: each queue by itself with its nominal quota, more than a minute longer counts[/dim]",
        highlight=False,
    )
    for problem in document["diagnostics"][:PROBLEMS_SHOWN]:
        show_problem(out, problem)
    more = len(document["diagnostics"]) - PROBLEMS_SHOWN
    if more > 0:
        out.print(f"and {more:,} more; -o yaml shows all", highlight=False)


def _rows(unit: str, columns: Sequence[Measures], *, nodes: bool) -> list[Row]:
    rows: list[Row] = [
        ("wait, mean", lambda m: _seconds(m.wait.mean_seconds)),
        (f"wait, {unit}-weighted mean", lambda m: _seconds(m.weighted_wait_seconds)),
        ("wait, p99", lambda m: _seconds(m.wait.p99_seconds)),
        ("wait, max", lambda m: _seconds(m.wait.max_seconds)),
        ("bounded slowdown, mean, times", lambda m: f"{m.bounded_slowdown:,.1f}"),
        ("submission to end, mean", lambda m: _seconds(m.completion_seconds)),
        ("utilisation, %", lambda m: _percent(m.utilisation)),
        ("preemptions, number", lambda m: f"{m.preemptions:,}"),
        (f"run and lost, {unit}-hours", lambda m: f"{m.lost_unit_seconds / _HOUR:,.0f}"),
        ("waited longer than alone, % of jobs", lambda m: _percent(m.loss.jobs_share)),
        (f"waited longer than alone, % of {unit}-hours", lambda m: _percent(m.loss.unit_hours_share)),
        ("waited longer than alone, worst", lambda m: _seconds(m.loss.worst_seconds)),
    ]
    if nodes:
        rows += [
            ("starts, number", lambda m: f"{m.starts.starts:,}"),
            ("starts not whole, %", lambda m: _percent(m.starts.not_whole_share)),
            (f"held by gangs not whole, {unit}-hours", lambda m: f"{m.starts.in_vain_unit_seconds / _HOUR:,.0f}"),
            (f"free {unit}s in pieces, %", lambda m: _percent(m.starts.in_pieces)),
        ]
    if any(m.never_started for m in columns):
        rows.append(("never started, jobs", lambda m: f"{m.never_started:,}"))
    if any(m.at_limit for m in columns):
        rows.append(("ended at their limit, jobs", lambda m: f"{m.at_limit:,}"))
    for name, found in columns[0].by_size.items():
        if any(m.by_size[name].jobs for m in columns):
            title = f"{name} {unit}{'' if name == '1' else 's'} ({found.jobs:,} jobs)"
            rows += _class_rows(title, partial(_of_class, name))
            rows += [("  for nodes, mean", partial(_for_nodes, name))] if nodes else []
    return rows + _class_rows(f"widest 1 % ({columns[0].widest.jobs:,} jobs)", lambda m: m.widest)


def _of_class(name: str, measures: Measures) -> Waits:
    return measures.by_size[name]


def _for_nodes(name: str, measures: Measures) -> str:
    return _seconds(measures.starts.for_nodes_by_size[name])


def _class_rows(title: str, of: Callable[[Measures], Waits]) -> list[Row]:
    return [
        (f"{title}: wait, mean", lambda m: _seconds(of(m).mean_seconds)),
        ("  p99", lambda m: _seconds(of(m).p99_seconds)),
        ("  max", lambda m: _seconds(of(m).max_seconds)),
    ]


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"
