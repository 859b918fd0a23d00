"""Short ways to write jobs, policies and replays. Times are seconds, sizes GPUs."""

from tests.unit.core.worlds import cohort, group, policy, queue
from webhook.core.model.policy import Preemption, PreemptionPolicy, Strategy
from webhook.laboratory.replay import queues
from webhook.laboratory.replay.job_log import GPU, Job
from webhook.laboratory.replay.run import Course, Outcome, replay

OWNER_TAKES_BACK = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)


def job(name: str, submit: float, run: float, size: int = 1, limit: int | None = None) -> Job:
    """A job of queue ``name``; its line is its time of submission, to tell it by."""
    return Job(int(submit), name, None, submit, run, size, limit)


def gpus(name: str, nominal: int, **settings: object) -> object:
    return queue(name, None, group(default={GPU: nominal}), **settings)


def outcome(jobs: list[Job], *nodes: object, alone: bool = False, resume: bool = False) -> Outcome:
    """Replay ``jobs`` under a policy of ``nodes``."""
    fitted = queues.fitted(policy(*nodes), {each.queue for each in jobs})  # type: ignore[arg-type]
    return replay(jobs, queues.alone(fitted) if alone else fitted, GPU, resume=resume)


def waits(found: Outcome) -> list[float | None]:
    return [course.wait_seconds for course in found.courses]


def course(size: int, run: float, wait: float, *, lost: float = 0.0, name: str = "a", submit: float = 0.0) -> Course:
    """What became of a job that ended."""
    made = Job(1, name, None, submit, run, size)
    return Course(made, submit + wait + run, lost_seconds=lost, preemptions=int(lost > 0))


__all__ = ["GPU", "OWNER_TAKES_BACK", "Strategy", "cohort", "course", "gpus", "job", "outcome", "policy", "waits"]
