"""What the CSV formats share: a header, comments with ``#``, one job a line, and times written without a zone."""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from webhook.laboratory.replay.job_log import GPU, Job, JobLog, RowError

Row = Mapping[str, str]


class Unreplayable(Exception):
    """A row that is right and is no job to replay; the message says why."""


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """One CSV format: by which columns it is known, and how a row is read."""

    title: str
    columns: tuple[str, ...]
    job: Callable[[int, Row], Job]
    """Raises RowError and Unreplayable."""

    def read(self, name: str, header: tuple[str, ...], lines: Iterable[tuple[int, str]]) -> JobLog:
        """Return the log whose rows, with their numbers, follow ``header``."""
        log = JobLog(name, GPU)
        for number, line in lines:
            try:
                log.jobs.append(self.job(number, _row(header, line)))
            except RowError as error:
                log.problems.append(error.at(f"{name}:{number}"))
            except Unreplayable as why:
                log.leave_out(number, str(why))
        return log


def fields(line: str) -> tuple[str, ...]:
    """Return the fields of one line."""
    return tuple(field.strip() for field in next(csv.reader([line]), ()))


def _row(header: tuple[str, ...], line: str) -> Row:
    values = fields(line)
    if len(values) != len(header):
        fix = f"give {len(header)} fields: {', '.join(header)}"
        raise RowError("", line.strip(), f"{len(values)} fields where the header has {len(header)}", fix)
    return dict(zip(header, values, strict=True))


def unix_seconds(column: str, text: str) -> float:
    """Return a written time as Unix time; without a zone it is taken as UTC. Raises RowError."""
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise RowError(column, text, "no time", "write it as 2017-10-09 07:01:55") from error
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
