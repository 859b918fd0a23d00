"""The loop: a log's jobs arrive, the engine decides, jobs run and end, all in virtual time.

At every moment at which anything happens, first what ends is released, then what arrives is submitted, then cycles are
run until nothing changes, as the reconciler would with an API server that answers at once. Stopping a gang takes no
time. A preempted gang keeps its place in the queue; it starts again from zero, or, with ``resume``, where it was.

With nodes, a gang runs once all its pods are bound. Where only quota is asked, kube-scheduler binds those it can: they
hold their GPUs until the rest follows, or the start time-out stops the gang whole and it is queued again, behind.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final

from webhook.config import Start
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import Flavor, Policy
from webhook.core.model.settings import EngineSettings
from webhook.core.notation.quantity import MILLI
from webhook.core.placement.overlay import Asked
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan
from webhook.laboratory.replay.job_log import Job, window_of
from webhook.laboratory.replay.nodes import Floor, Pool, StartRule
from webhook.laboratory.replay.on_nodes import OnNodes

KIND: Final = "Job.batch"
START: Final = Start()
"""Start time-out and back-off of a cluster where nobody has set any."""


@dataclass(slots=True)
class Course:
    """What became of one job."""

    job: Job
    ended_seconds: float | None = None
    """None: it never started, or never again after it was preempted."""
    preemptions: int = 0
    lost_seconds: float = 0.0
    """Run time that was thrown away."""
    starts: int = 0
    not_whole: int = 0
    """Starts at which some pods found no node."""
    in_vain_seconds: float = 0.0
    """GPU-seconds or processor-seconds that bound pods held while their gang was not whole."""

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
    on_nodes: OnNodes | None = None
    """What was seen of the nodes, where there are any."""


@dataclass(slots=True)
class _Running:
    gang: Gang
    course: Course
    since_seconds: float
    start: int
    """Number of the start, so that the end of a run that was cut short is recognised."""
    asked: Sequence[Asked] = ()
    """What kube-scheduler is asked for it, where that chooses the nodes."""
    bound: int = 0
    """Units that its pods hold on nodes, while it is not whole."""
    whole: bool = True


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
    floor: "Floor | None" = None
    """The nodes; None: there are as many as the quota allows, and every pod finds one."""
    partial: dict[str, None] = field(default_factory=dict)
    """Gangs with pods that found no node, in order of their start."""
    on_nodes: OnNodes | None = None
    resting: dict[str, float] = field(default_factory=dict)
    """Gangs that were stopped because they did not become whole, and when each is considered again."""

    def run(self) -> None:
        waiting = list(reversed(self.gangs.values()))
        now = self.window[0]
        while waiting or self.ends or self.resting:
            times = (
                waiting[-1].created_seconds if waiting else None,
                self.ends[0][0] if self.ends else None,
                self.engine.next_wake(now),
            )
            now = min(time for time in times if time is not None)
            if self.on_nodes is not None:
                self.on_nodes.until(now, self.engine, (self.courses[uid].job for uid in (*self.partial, *self.resting)))
            while self.ends and self.ends[0][0] == now:
                self._end(*heappop(self.ends))
            self._bind_the_rest(now)
            while waiting and waiting[-1].created_seconds == now:
                self.engine.submit(waiting.pop(), now)
            self.resting = {uid: until for uid, until in self.resting.items() if until > now}
            self._decide(now)

    def _decide(self, now: float) -> None:
        plan: Plan | None = None
        # Where kube-scheduler chooses the nodes, it has bound one gang before the next is decided about.
        most = 1 if self.floor is not None and self.floor.fit is StartRule.CHECK else None
        while plan is None or plan.preempted or (most and plan.admitted):
            plan = self.engine.cycle(now, self.fences, epoch=1, most=most)
            for reservation in plan.admitted:
                self._start(reservation, now)
            for preempted in plan.preempted:
                self._preempt(preempted.uid, now)

    def _start(self, reservation: Reservation, now: float) -> None:
        self.starts += 1
        uid = reservation.uid
        course = self.courses[uid]
        course.starts += 1
        run = self.running[uid] = _Running(self.gangs[uid], course, now, self.starts)
        if self.floor is not None and self.floor.fit is not StartRule.PACK:
            run.asked = self.floor.asked(run.gang, reservation)
            run.bound = self.floor.start(uid, run.asked)
            run.whole = run.bound == course.job.size
        if run.whole:
            heappush(self.ends, (now + self._lasts(uid), uid, self.starts))
        else:
            course.not_whole += 1
            self.partial[uid] = None
            heappush(self.ends, (now + START.timeout_seconds, uid, self.starts))

    def _lasts(self, uid: str) -> float:
        return self.left.get(uid, self.courses[uid].job.lasts_seconds)

    def _bind_the_rest(self, now: float) -> None:
        """Have kube-scheduler try the pods again that found no node; a gang that is whole now begins to run."""
        for uid in list(self.partial):
            run = self.running[uid]
            assert self.floor is not None
            self._hold_in_vain(run, now)
            run.bound = self.floor.bind(uid, run.asked)
            if run.bound == run.course.job.size:
                del self.partial[uid]
                self.starts += 1
                run.whole, run.start = True, self.starts
                heappush(self.ends, (now + self._lasts(uid), uid, self.starts))

    @staticmethod
    def _hold_in_vain(run: _Running, now: float) -> None:
        run.course.in_vain_seconds += run.bound * (now - run.since_seconds)
        run.since_seconds = now

    def _end(self, now: float, uid: str, start: int) -> None:
        run = self.running.get(uid)
        if run is None or run.start != start:
            return
        if run.whole:
            self._stop(uid, now).course.ended_seconds = now
            return
        # Its pods did not all come in time: it is stopped whole and goes back, behind those that wait now.
        self._stop(uid, now)
        attempts = run.course.not_whole
        rest = min(START.backoff_max_seconds, START.backoff_seconds * 2.0 ** min(attempts - 1, 20))
        gang = replace(self.gangs[uid], created_seconds=now, not_before_seconds=now + rest)
        self.gangs[uid], self.resting[uid] = gang, gang.not_before_seconds
        self.engine.submit(gang, now)

    def _preempt(self, uid: str, now: float) -> None:
        run = self._stop(uid, now)
        ran, job = now - run.since_seconds, run.course.job
        run.course.preemptions += 1
        if not run.whole:
            pass
        elif self.resume:
            self.left[uid] = self.left.get(uid, job.lasts_seconds) - ran
        else:
            run.course.lost_seconds += ran
        self.engine.submit(run.gang, now)

    def _stop(self, uid: str, now: float) -> _Running:
        run = self.running.pop(uid)
        first, last = self.window
        if not run.whole:
            del self.partial[uid]
            self._hold_in_vain(run, now)
        self.busy += run.course.job.size * max(0.0, min(now, last) - max(run.since_seconds, first))
        self.engine.release(uid)
        self.fences.drop_reservation(run.gang.namespace, uid)
        if self.floor is not None:
            self.floor.capacity.withdraw(uid)
        return run


def replay(
    jobs: Sequence[Job],
    policy: Policy,
    resource: str,
    settings: EngineSettings | None = None,
    *,
    resume: bool = False,
    nodes: "tuple[Pool, StartRule] | None" = None,
) -> Outcome:
    """Return what becomes of ``jobs``, given in order of submission, when each asks ``size`` of ``resource``.

    ``policy`` must have a local queue ``(name, name)`` for each queue that a job names.
    """
    pool = None if nodes is None else nodes[0]
    gangs = {gang.uid: gang for gang in _gangs(jobs, resource, pool)}
    courses = {uid: Course(job) for uid, job in zip(gangs, jobs, strict=True)}
    engine = Engine(settings)
    if pool is not None and pool.alike:
        policy = replace(policy, flavors={name: Flavor(name) for name in policy.flavors})
    namespaces: dict[str, dict[str, str]] = {job.queue: {} for job in jobs}
    world = _Replay(engine, resume, window_of(jobs), courses, gangs)
    if nodes is not None:
        world.floor = Floor(nodes[0].capacity(), nodes[1], policy.flavors)
        world.on_nodes = OnNodes(nodes[0], world.floor.capacity, world.window)
        if nodes[1] is not StartRule.QUOTA:
            engine.know_nodes(world.floor.capacity)
    engine.set_policy(policy, namespaces, world.window[0])
    world.run()
    return Outcome(tuple(courses.values()), world.busy, world.on_nodes)


def _gangs(jobs: Iterable[Job], resource: str, pool: Pool | None) -> Iterable[Gang]:
    """Yield one gang a job: a pod for each GPU or processor, or for each node's. Uids sort as the log does."""
    pod = PodPrice({resource: MILLI}, {resource: MILLI})
    sets: dict[int, tuple[PodSet, ...]] = {}
    for place, job in enumerate(jobs):
        if job.size not in sets:
            one_each = (PodSet("main", job.size, pod),)
            sets[job.size] = one_each if pool is None else pool.pod_sets(job.size)
        pods = sets[job.size]
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
