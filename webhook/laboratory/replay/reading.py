"""A file, gzipped or not, to a job log. Which format it has is told by what stands in it, not by its name."""

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from webhook.core.notation.problem import Problem
from webhook.errors import WrongInput, in_words
from webhook.laboratory.replay import helios, philly, swf
from webhook.laboratory.replay.job_log import JobLog
from webhook.laboratory.replay.rows import CsvFormat, fields

CSV_FORMATS: Final[tuple[CsvFormat, ...]] = (philly.CSV, helios.RELEASED, helios.SLICE)
_GZIP: Final = b"\x1f\x8b"
_SWF_ROW: Final = re.compile(r"\s*-?\d[\d.]*(\s+-?\d[\d.]*)+\s*$")


def read(file: Path) -> JobLog:
    """Return the log in ``file``, in order of submission.

    Raises WrongInput when the file cannot be read, has none of the known formats, or has no job in it.
    """
    log = _parse(file.name, _text(file))
    if not log.jobs:
        nothing = Problem(str(file), "no job", "there is nothing to replay", "give a log with jobs that ran")
        raise WrongInput((*log.all_problems()[:10], nothing))
    log.jobs.sort(key=lambda job: job.submit_seconds)
    return log


def _text(file: Path) -> str:
    try:
        data = file.read_bytes()
        return (gzip.decompress(data) if data.startswith(_GZIP) else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        found = Problem(str(file), "", in_words(error), "give a readable text file, gzipped or not")
        raise WrongInput((found,)) from error


def _parse(name: str, text: str) -> JobLog:
    if text.lstrip().startswith("["):
        return philly.read_json(name, text)
    lines = _lines(text)
    at, first = next(lines, (1, ""))
    if first.startswith(";") or _SWF_ROW.match(first):
        return swf.read(name, _lines(text))
    header = fields(first)
    for known in CSV_FORMATS:
        if set(known.columns) <= set(header):
            return known.read(name, header, lines)
    raise WrongInput((_unknown(f"{name}:{at}", first),))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither blank nor comments, with their numbers."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line


def _unknown(place: str, first: str) -> Problem:
    known = "; ".join(f"{each.title}: a header with {', '.join(each.columns)}" for each in CSV_FORMATS)
    return Problem(
        place,
        first.strip()[:80],
        "no known format of job logs" if first else "the file is empty",
        f"give one of: SWF: lines of {swf.FIELDS} numbers; Philly JSON: a list of jobs with attempts; {known}",
    )
