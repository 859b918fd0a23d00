"""Standard Workload Format of the Parallel Workloads Archive, version 2.2: 18 numbers a line, headers with ``;``.

It reads fields 2 submit time, 4 run time, 5 allocated and 8 requested processors, 9 requested time, 12 user and 15
queue; -1 stands for unknown. A job asks the processors that it requested, or else the ones it got.
"""

import math
import re
from collections.abc import Iterable
from typing import Final

from webhook.laboratory.replay.job_log import CPU, Job, JobLog, RowError, number

FIELDS: Final = 18
_LEAST: Final = -1
_HEADER: Final = re.compile(r";\s*(MaxProcs|UnixStartTime):\s*(\d+)")


def read(name: str, lines: Iterable[tuple[int, str]]) -> JobLog:
    """Return the log that numbered ``lines`` make."""
    log = JobLog(name, CPU)
    header: dict[str, int] = {}
    for at, line in lines:
        if line.startswith(";"):
            found = _HEADER.match(line)
            if found:
                header[found[1]] = int(found[2])
            continue
        try:
            _add(log, at, line, header.get("UnixStartTime", 0))
        except RowError as error:
            log.problems.append(error.at(f"{name}:{at}"))
    log.capacity = header.get("MaxProcs")
    return log


def _add(log: JobLog, at: int, line: str, began: int) -> None:
    texts = line.split()
    if len(texts) != FIELDS:
        raise RowError("", line.strip(), f"{len(texts)} fields", f"give {FIELDS}, with -1 for what is unknown")
    values = [number(f"field {i}", text, _LEAST, what="") for i, text in enumerate(texts, 1)]
    _, submit, _, run, got, _, _, asked, limit, *_ = values
    size = asked if asked > 0 else got
    if submit < 0:
        raise RowError("field 2", texts[1], "no submit time", "give seconds since the log began")
    if run < 0:
        log.leave_out(at, "run time (field 4) unknown")
    elif size <= 0:
        log.leave_out(at, "processors (fields 5 and 8) unknown")
    else:
        most = math.ceil(limit) if limit > 0 else None
        log.jobs.append(Job(at, texts[14], texts[11], began + submit, run, int(size), most))
