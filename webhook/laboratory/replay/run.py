"""The loop: a log's jobs arrive, the engine decides, jobs run and end, all in virtual time.

At every moment at which anything happens, first what ends is released, then what arrives is submitted, then cycles are
run until nothing changes, as the reconciler would with an API server that answers at once. Stopping a gang takes no
time. A preempted gang keeps its place in the queue; it starts again from zero, or, with ``resume``, where it was.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import Policy
from webhook.core.model.quantity import MILLI
from webhook.core.model.settings import EngineSettings
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan
from webhook.laboratory.replay.job_log import Job, window_of

KIND: Final = "Job.batch"


@dataclass(slots=True)
class Course:
    """What became of one job."""

    job: Job
    ended_seconds: float | None = None
    """None: it never started, or never again after it was preempted."""
    preemptions: int = 0
    lost_seconds: float = 0.0
    """Run time that was thrown away."""

    @property
    def wait_seconds(self) -> float | None:
        """Time between submission and end in which nothing was done that counted; None without an end."""
        if self.ended_seconds is None:
            return None
        # Times are sums of floats: what is less than a microsecond is no wait.
        return round(max(0.0, self.ended_seconds - self.job.submit_seconds - self.job.lasts_seconds), 6)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of all jobs, in their order."""

    courses: tuple[Course, ...]
    busy_unit_seconds: float
    """GPU-seconds or processor-seconds in use while jobs arrived, thrown away runs included."""


@dataclass(slots=True)
class _Running:
    gang: Gang
    course: Course
    since_seconds: float
    start: int
    """Number of the start, so that the end of a run that was cut short is recognised."""


@dataclass(slots=True)
class _Replay:
    engine: Engine
    resume: bool
    window: tuple[float, float]
    courses: dict[str, Course]
    gangs: dict[str, Gang]
    fences: Fences = field(default_factory=Fences)
    running: dict[str, _Running] = field(default_factory=dict)
    ends: list[tuple[float, str, int]] = field(default_factory=list)
    left: dict[str, float] = field(default_factory=dict)
    """Run time still to do, of preempted gangs that resume."""
    starts: int = 0
    busy: float = 0.0

    def run(self) -> None:
        waiting = list(reversed(self.gangs.values()))
        now = self.window[0]
        while waiting or self.ends:
            times = (
                waiting[-1].created_seconds if waiting else None,
                self.ends[0][0] if self.ends else None,
                self.engine.next_wake(now),
            )
            now = min(time for time in times if time is not None)
            while self.ends and self.ends[0][0] == now:
                self._end(*heappop(self.ends))
            while waiting and waiting[-1].created_seconds == now:
                self.engine.submit(waiting.pop(), now)
            self._decide(now)

    def _decide(self, now: float) -> None:
        plan: Plan | None = None
        while plan is None or plan.preempted:
            plan = self.engine.cycle(now, self.fences, epoch=1)
            for reservation in plan.admitted:
                self._start(reservation.uid, now)
            for preempted in plan.preempted:
                self._preempt(preempted.uid, now)

    def _start(self, uid: str, now: float) -> None:
        self.starts += 1
        course = self.courses[uid]
        self.running[uid] = _Running(self.gangs[uid], course, now, self.starts)
        heappush(self.ends, (now + self.left.get(uid, course.job.lasts_seconds), uid, self.starts))

    def _end(self, now: float, uid: str, start: int) -> None:
        run = self.running.get(uid)
        if run is not None and run.start == start:
            self._stop(uid, now).course.ended_seconds = now

    def _preempt(self, uid: str, now: float) -> None:
        run = self._stop(uid, now)
        ran, job = now - run.since_seconds, run.course.job
        run.course.preemptions += 1
        if self.resume:
            self.left[uid] = self.left.get(uid, job.lasts_seconds) - ran
        else:
            run.course.lost_seconds += ran
        self.engine.submit(run.gang, now)

    def _stop(self, uid: str, now: float) -> _Running:
        run = self.running.pop(uid)
        first, last = self.window
        self.busy += run.course.job.size * max(0.0, min(now, last) - max(run.since_seconds, first))
        self.engine.release(uid)
        self.fences.drop_reservation(run.gang.namespace, uid)
        return run


def replay(
    jobs: Sequence[Job],
    policy: Policy,
    resource: str,
    settings: EngineSettings | None = None,
    *,
    resume: bool = False,
) -> Outcome:
    """Return what becomes of ``jobs``, given in order of submission, when each asks ``size`` of ``resource``.

    ``policy`` must have a local queue ``(name, name)`` for each queue that a job names.
    """
    gangs = {gang.uid: gang for gang in _gangs(jobs, resource)}
    courses = {uid: Course(job) for uid, job in zip(gangs, jobs, strict=True)}
    engine = Engine(settings)
    namespaces: dict[str, dict[str, str]] = {job.queue: {} for job in jobs}
    world = _Replay(engine, resume, window_of(jobs), courses, gangs)
    engine.set_policy(policy, namespaces, world.window[0])
    world.run()
    return Outcome(tuple(courses.values()), world.busy)


def _gangs(jobs: Iterable[Job], resource: str) -> Iterable[Gang]:
    """Yield one gang a job: a pod for each GPU or processor. Uids sort as the log does, which breaks ties."""
    pod = PodPrice({resource: MILLI}, {resource: MILLI})
    sets: dict[int, tuple[PodSet, ...]] = {}
    for place, job in enumerate(jobs):
        pods = sets.setdefault(job.size, (PodSet("main", job.size, pod),))
        yield Gang(
            uid=f"{place:09d}",
            kind=KIND,
            namespace=job.queue,
            name=f"job-{job.line}",
            queue=job.queue,
            pod_sets=pods,
            created_seconds=job.submit_seconds,
            max_run_seconds=job.limit_seconds,
        )
