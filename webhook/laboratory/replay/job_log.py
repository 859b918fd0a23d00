"""What a job log says, whatever its format: who asked how much, when, and how long it ran.

Waits that the log itself records are not read: they are what the old scheduler did, and what a replay computes itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from webhook.core.notation.problem import Problem

GPU: Final = "nvidia.com/gpu"
CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a log."""

    line: int
    """Where it stands: a line, or an entry of a JSON list; from 1."""
    queue: str
    """Whose quota it uses by the log: virtual cluster, tenant, queue."""
    user: str | None
    submit_seconds: float
    """Unix time, or since the log began."""
    run_seconds: float
    size: int
    """GPUs or processors, for all of its run."""
    limit_seconds: int | None = None
    """Requested time: the job is ended then."""

    @property
    def lasts_seconds(self) -> float:
        """How long it runs when its limit is enforced."""
        return self.run_seconds if self.limit_seconds is None else min(self.run_seconds, self.limit_seconds)

    @property
    def unit_seconds(self) -> float:
        """GPU-seconds or processor-seconds of one whole run."""
        return self.size * self.lasts_seconds


class RowError(ValueError):
    """A row says something impossible: which field, which value, and what it should be."""

    def __init__(self, column: str, value: object, why: str, fix: str) -> None:
        super().__init__(why)
        self.column, self.value, self.why, self.fix = column, str(value), why, fix

    def at(self, place: str) -> Problem:
        """Return it as a problem of the row at ``place``."""
        return Problem(f"{place}#{self.column}" if self.column else place, self.value, self.why, self.fix)


@dataclass(slots=True)
class LeftOut:
    """Rows that are right and cannot be replayed, for one reason."""

    first_line: int
    rows: int = 0


@dataclass(slots=True)
class JobLog:
    """A log as it was read, its jobs in order of submission; ties stay in the log's order."""

    name: str
    resource: str
    """What ``size`` counts: nvidia.com/gpu or cpu."""
    jobs: list[Job] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """One for each row that cannot be understood."""
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    """By reason."""
    capacity: int | None = None
    """GPUs or processors of the cluster, where the log says."""

    def leave_out(self, line: int, reason: str) -> None:
        """Count a row that cannot be replayed."""
        self.left_out.setdefault(reason, LeftOut(line)).rows += 1

    def all_problems(self) -> tuple[Problem, ...]:
        """Return what is wrong with the log; rows left out are warnings."""
        warnings = (
            Problem(
                f"{self.name}:{found.first_line}",
                f"{found.rows} jobs, the first on this line" if found.rows > 1 else "1 job",
                f"left out: {reason}",
                "nothing to do, unless they should have been replayed",
                warning=True,
            )
            for reason, found in self.left_out.items()
        )
        return (*self.problems, *warnings)


def number(column: str, text: object, least: float = 0, what: str = "seconds") -> float:
    """Return ``text`` as a number of ``what``, if that is known. Raises RowError when it is none or below ``least``."""
    of = f" of {what}" if what else ""
    try:
        value = float(str(text))
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        raise RowError(column, text, f"no number{of}", f"give a number of at least {least:g}")
    return value


def count(column: str, text: object, what: str) -> int:
    """Return ``text`` as a whole number of at least 0. Raises RowError when it is none."""
    value = number(column, text, what=what)
    if value != int(value):
        raise RowError(column, text, f"no whole number of {what}", "give a whole number")
    return int(value)


def window_of(jobs: Iterable[Job]) -> tuple[float, float]:
    """Return the times of the first and the last submission; 0, 0 without jobs."""
    times = [job.submit_seconds for job in jobs]
    return (min(times), max(times)) if times else (0.0, 0.0)
