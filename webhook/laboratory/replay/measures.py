"""What came of a replay, in the numbers that schedulers are compared by. docs/simulate.md defines each.

Wait is everything between submission and end that was not run time that counted: queueing, queueing again after a
preemption, and runs thrown away. A job that never started has no wait and is counted apart.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.laboratory.replay.job_log import window_of
from webhook.laboratory.replay.run import Course, Outcome

SHORT_SECONDS: Final = 10.0
"""Bounded slowdown takes shorter jobs to be this long."""
TOLERANCE_SECONDS: Final = 60.0
"""A job that waits at most so much longer than alone is not counted as a loss."""
SIZES: Final = ((1, 1), (2, 8), (9, 32), (33, None))
"""Least and most GPUs or processors of each size class."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of some jobs; all 0 where there are none."""

    jobs: int
    mean_seconds: float
    p99_seconds: float
    """The least wait that 99 % of the jobs do not exceed."""
    max_seconds: float


@dataclass(frozen=True, slots=True)
class SharingLoss:
    """How much worse off jobs were than if each queue had had its nominal quota to itself."""

    jobs_share: float
    unit_hours_share: float
    worst_seconds: float
    """The longest additional wait of a job that ended."""


@dataclass(frozen=True, slots=True)
class Starts:
    """What the nodes made of starts; without nodes every start is whole."""

    starts: int
    not_whole: int
    """Starts at which some pods found no node."""
    in_vain_unit_seconds: float
    """GPU-seconds or processor-seconds held by pods whose gang was not whole."""
    for_nodes_by_size: Mapping[str, float]
    """Mean seconds, of jobs of each size class that ended, in which they had quota and no nodes."""
    in_pieces: float
    """Share of what was free, while jobs arrived, that lay on nodes which had less than a whole node's left."""

    @property
    def not_whole_share(self) -> float:
        """Share of the starts that were not whole."""
        return self.not_whole / self.starts if self.starts else 0.0


@dataclass(frozen=True, slots=True)
class QueueMeasures:
    """One queue of the log."""

    queue: str
    jobs: int
    mean_wait_seconds: float
    mean_wait_alone_seconds: float
    worse_share: float
    """Share of its jobs that waited longer than alone."""


@dataclass(frozen=True, slots=True)
class Measures:
    """One policy's column."""

    jobs: int
    never_started: int
    wait: Waits
    weighted_wait_seconds: float
    """Each job counts by its size."""
    by_size: Mapping[str, Waits]
    widest: Waits
    """The widest 1 % of the jobs."""
    bounded_slowdown: float
    completion_seconds: float
    """Mean time from submission to end."""
    utilisation: float
    """Of what all queues own, while jobs arrived."""
    at_limit: int
    """Jobs that were ended at their run-time limit."""
    preemptions: int
    lost_unit_seconds: float
    loss: SharingLoss
    starts: Starts
    queues: tuple[QueueMeasures, ...]


def measure(outcome: Outcome, alone: Outcome, capacity: float) -> Measures:
    """Return the measures of ``outcome``; ``alone`` is what became of the same jobs with each queue by itself."""
    courses = outcome.courses
    ended = [course for course in courses if course.ended_seconds is not None]
    first, last = window_of(course.job for course in courses)
    available = capacity * (last - first)
    return Measures(
        jobs=len(courses),
        never_started=len(courses) - len(ended),
        wait=waits(ended),
        weighted_wait_seconds=_mean_by((_wait(c), c.job.size) for c in ended),
        by_size={_size_name(low, high): waits(_of_size(ended, low, high)) for low, high in SIZES},
        widest=waits(_widest(ended)),
        bounded_slowdown=_mean_by((bounded_slowdown(c), 1) for c in ended),
        completion_seconds=_mean_by((_wait(c) + c.job.lasts_seconds, 1) for c in ended),
        utilisation=outcome.busy_unit_seconds / available if available else 0.0,
        at_limit=sum(c.job.lasts_seconds < c.job.run_seconds for c in ended),
        preemptions=sum(course.preemptions for course in courses),
        lost_unit_seconds=sum(course.lost_seconds * course.job.size for course in courses),
        loss=sharing_loss(courses, alone.courses),
        starts=Starts(
            sum(course.starts for course in courses),
            sum(course.not_whole for course in courses),
            math.fsum(course.in_vain_seconds for course in courses),
            {_size_name(low, high): _for_nodes(outcome, ended, low, high) for low, high in SIZES},
            _in_pieces(outcome),
        ),
        queues=_by_queue(courses, alone.courses),
    )


def waits(courses: Iterable[Course]) -> Waits:
    """Return the waits of jobs that ended."""
    seconds = sorted(_wait(course) for course in courses)
    if not seconds:
        return Waits(0, 0.0, 0.0, 0.0)
    place = math.ceil(len(seconds) * 99 / 100) - 1
    return Waits(len(seconds), math.fsum(seconds) / len(seconds), seconds[place], seconds[-1])


def _for_nodes(outcome: Outcome, ended: Sequence[Course], low: int, high: int | None) -> float:
    seen, jobs = outcome.on_nodes, len(list(_of_size(ended, low, high)))
    if seen is None or not jobs:
        return 0.0
    return math.fsum(n for size, n in seen.waited.items() if size >= low and (high is None or size <= high)) / jobs


def _in_pieces(outcome: Outcome) -> float:
    seen = outcome.on_nodes
    return 0.0 if seen is None or not seen.free_unit_seconds else seen.in_pieces_unit_seconds / seen.free_unit_seconds


def bounded_slowdown(course: Course) -> float:
    """Return how many times its run time a job took from submission to end, short jobs counted as SHORT_SECONDS."""
    run = course.job.lasts_seconds
    return max(1.0, (_wait(course) + run) / max(run, SHORT_SECONDS))


def sharing_loss(shared: Sequence[Course], alone: Sequence[Course]) -> SharingLoss:
    """Return what sharing cost; a job that runs alone and never otherwise is a loss too."""
    lost = [course for course, by_itself in zip(shared, alone, strict=True) if _worse(course, by_itself)]
    longer = [
        _wait(course) - _wait(by_itself)
        for course, by_itself in zip(shared, alone, strict=True)
        if course.ended_seconds is not None and by_itself.ended_seconds is not None
    ]
    work = sum(course.job.unit_seconds for course in shared)
    lost_work = sum(course.job.unit_seconds for course in lost)
    return SharingLoss(
        len(lost) / len(shared) if shared else 0.0, lost_work / work if work else 0.0, max([0.0, *longer])
    )


def _worse(shared: Course, alone: Course) -> bool:
    if alone.ended_seconds is None:
        return False
    return shared.ended_seconds is None or _wait(shared) - _wait(alone) > TOLERANCE_SECONDS


def _by_queue(shared: Sequence[Course], alone: Sequence[Course]) -> tuple[QueueMeasures, ...]:
    pairs: dict[str, list[tuple[Course, Course]]] = {}
    for course, by_itself in zip(shared, alone, strict=True):
        pairs.setdefault(course.job.queue, []).append((course, by_itself))
    return tuple(
        QueueMeasures(
            queue=queue,
            jobs=len(found),
            mean_wait_seconds=waits(c for c, _ in found if c.ended_seconds is not None).mean_seconds,
            mean_wait_alone_seconds=waits(a for _, a in found if a.ended_seconds is not None).mean_seconds,
            worse_share=sum(_worse(*pair) for pair in found) / len(found),
        )
        for queue, found in sorted(pairs.items())
    )


def _wait(course: Course) -> float:
    wait = course.wait_seconds
    assert wait is not None
    return wait


def _mean_by(values: Iterable[tuple[float, float]]) -> float:
    """Return the mean of (value, weight) pairs; 0 for none."""
    pairs = list(values)
    weight = math.fsum(weight for _, weight in pairs)
    return math.fsum(value * weight for value, weight in pairs) / weight if weight else 0.0


def _of_size(courses: Iterable[Course], low: int, high: int | None) -> Iterable[Course]:
    return (c for c in courses if c.job.size >= low and (high is None or c.job.size <= high))


def _size_name(low: int, high: int | None) -> str:
    if high is None:
        return f"{low}+"
    return str(low) if low == high else f"{low}-{high}"


def _widest(courses: Sequence[Course]) -> list[Course]:
    """Return the widest 1 %, at least one; among jobs of one size the first submitted."""
    most = math.ceil(len(courses) / 100)
    return sorted(courses, key=lambda course: -course.job.size)[:most]
