"""SenseTime's Helios logs (Hu et al., SC'21): ``cluster_log.csv`` as released, and the form of validation slices.

Both are Slurm's records of one job a row. The released form has the virtual cluster in ``vc`` and times as text; the
slices have it in ``tenant``, microseconds since their window began, and a run-time limit. Jobs without GPUs are left
out: they did not wait for what the quotas ration.
"""

import math
from typing import Final

from webhook.laboratory.replay.job_log import Job, count, number
from webhook.laboratory.replay.rows import CsvFormat, Row, Unreplayable, unix_seconds

_MICROS: Final = 1_000_000


def _released(line: int, row: Row) -> Job:
    size = _gpus("gpu_num", row["gpu_num"])
    submit = unix_seconds("submit_time", row["submit_time"])
    return Job(line, row["vc"], row["user"], submit, number("duration", row["duration"]), size)


def _slice(line: int, row: Row) -> Job:
    size = _gpus("num_chips", row["num_chips"])
    submit = number("submit_time", row["submit_time"], what="microseconds") / _MICROS
    run = number("duration_s", row["duration_s"])
    limit = row.get("walltime_limit_s")
    most = math.ceil(number("walltime_limit_s", limit)) if limit else None
    return Job(line, row["tenant"], row["user"], submit, run, size, most or None)


def _gpus(column: str, text: str) -> int:
    size = count(column, text, "GPUs")
    if not size:
        raise Unreplayable("asks no GPU")
    return size


RELEASED: Final = CsvFormat(
    "Helios cluster_log.csv", ("job_id", "user", "vc", "gpu_num", "submit_time", "duration"), _released
)
SLICE: Final = CsvFormat(
    "Helios slice CSV", ("job_id", "user", "tenant", "submit_time", "num_chips", "duration_s"), _slice
)
