"""``tutti try``: what would be admitted, preempted and kept waiting, decided from files alone.

Ends with 2 when there are problems, whatever could be decided all the same; warnings count, as they may change what
was decided.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from webhook.clock import Clock, SystemClock
from webhook.commands import terminal
from webhook.config import Config, engine_settings, load
from webhook.core.notation.problem import Problem
from webhook.errors import WRONG, WrongInput
from webhook.laboratory.dry_run import tables
from webhook.laboratory.dry_run.cycles import Run
from webhook.laboratory.dry_run.files import objects as files
from webhook.laboratory.dry_run.files.objects import Object
from webhook.laboratory.dry_run.report import problem_documents, report
from webhook.laboratory.dry_run.world import build

_YEAR_10000: Final = 253_402_300_800
"""Unix time; Python has no dates from there on."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run."""

    one_cycle: bool = False
    one_head_per_queue: bool = False
    now: float = 0.0
    """Unix time."""


def run(
    paths: Sequence[Path],
    *,
    output: str = "table",
    now: str | None = None,
    config: Path | None = None,
    one_cycle: bool = False,
    one_head_per_queue: bool = False,
    console: Console | None = None,
    clock: Clock | None = None,
) -> int:
    """Decide about the objects in ``paths``, print the report and return the exit status."""
    out = console or terminal.console()
    objects, problems = files.read(paths)
    at, settings = 0.0, Config()
    try:
        at = (clock or SystemClock()).now() if now is None else _time(now)
        settings = load(config)
        document = decide(objects, settings, Options(one_cycle, one_head_per_queue, at), problems)
    except WrongInput as error:
        document = {"cycles": [], "diagnostics": problem_documents([*problems, *error.problems])}
    if output == "table":
        tables.show(out, document)
    else:
        terminal.write(out, document, output)
    return WRONG if document["diagnostics"] else 0


def decide(
    objects: Sequence[Object], config: Config, options: Options, problems: Sequence[Problem] = ()
) -> dict[str, Any]:
    """Return the report about ``objects``; ``problems`` were found before.

    Raises WrongInput for custom kinds of ``config`` that are wrong.
    """
    world = build(objects, config, options.now)
    world.problems[:0] = problems
    dry = Run(world, options.now, engine_settings(config), options.one_head_per_queue)
    return report(dry, dry.cycles(only_one=options.one_cycle))


def _time(text: str) -> float:
    """Return Unix time. Raises WrongInput for what is no time from 1970 to 9999."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = _written(text)
    if not 0 <= seconds < _YEAR_10000:
        fix = "write 2026-01-31T12:00:00Z or seconds since 1970"
        raise WrongInput((Problem("--now", text, "is no time from 1970 to 9999", fix),))
    return seconds


def _written(text: str) -> float:
    """Return the Unix time of RFC 3339, in UTC unless a zone is given; NaN for what is no time."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
