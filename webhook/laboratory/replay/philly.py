"""Microsoft's Philly log (Jeon et al., ATC'19): the released JSON, and the CSV that later simulators made of it.

The CSV has one row a job: ``timestamp`` of submission, ``duration`` and ``num_gpus``; ``cluster`` is the virtual
cluster, whose quota the job uses. In the JSON a job has attempts: it ran as long as all of them together, on the GPUs
of its widest one. Neither knows run-time limits. Times have no zone.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from webhook.laboratory.replay.job_log import GPU, Job, JobLog, RowError, count, number
from webhook.laboratory.replay.rows import CsvFormat, Row, Unreplayable, unix_seconds


def _job(line: int, row: Row) -> Job:
    size = count("num_gpus", row["num_gpus"], "GPUs")
    if not size:
        raise Unreplayable("asks no GPU")
    submit = unix_seconds("timestamp", row["timestamp"])
    return Job(line, row["cluster"], None, submit, number("duration", row["duration"]), size)


CSV: Final = CsvFormat("Philly CSV", ("timestamp", "duration", "num_gpus", "cluster"), _job)


def read_json(name: str, text: str) -> JobLog:
    """Return the log that the released ``cluster_job_log`` makes; lines are entries of its list."""
    log = JobLog(name, GPU)
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        fix = "give the file as it was released"
        log.problems.append(RowError("", error.msg, "no readable JSON", fix).at(f"{name}:{error.lineno}"))
        return log
    for at, entry in enumerate(entries, 1):
        try:
            log.jobs.append(_json_job(at, entry))
        except RowError as error:
            log.problems.append(error.at(f"{name}:entry {at}"))
        except Unreplayable as why:
            log.leave_out(at, str(why))
    return log


def _json_job(at: int, entry: Any) -> Job:
    if not isinstance(entry, Mapping) or not {"vc", "submitted_time", "attempts"} <= entry.keys():
        raise RowError("", entry, "no job", "give an object with vc, submitted_time and attempts")
    attempts = [a for a in entry["attempts"] or () if _written(a.get("start_time")) and _written(a.get("end_time"))]
    if not attempts:
        raise Unreplayable("never ran, or its end is unknown")
    run = sum(_time(a, "end_time") - _time(a, "start_time") for a in attempts)
    size = max(sum(len(node.get("gpus") or ()) for node in a.get("detail") or ()) for a in attempts)
    if not size:
        raise Unreplayable("asks no GPU")
    if run < 0:
        raise RowError("attempts", run, "ends before it starts", "give times in order")
    user = entry.get("user")
    return Job(at, str(entry["vc"]), None if user is None else str(user), _time(entry, "submitted_time"), run, size)


def _written(text: object) -> bool:
    return text not in (None, "", "None")


def _time(record: Mapping[str, Any], column: str) -> float:
    # The release writes some times with a zone's letters behind them (PST, PDT); all are of the same place.
    return unix_seconds(column, str(record[column])[:19])
