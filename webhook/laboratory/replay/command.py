"""``tutti simulate``: a job log under several policies, side by side.

All columns replay the same jobs: one whose queue any of the policies does not know is left out of all, and said so.
What each queue would have had by itself is computed with the same engine, once for policies that come to the same
alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml
from rich.console import Console

from webhook.commands import terminal
from webhook.config import engine_settings
from webhook.config import load as load_config
from webhook.core.model.policy import Policy
from webhook.core.model.settings import EngineSettings
from webhook.core.notation.problem import Problem
from webhook.dialects import compiler
from webhook.errors import WRONG, WrongInput
from webhook.laboratory.dry_run.files import objects as files
from webhook.laboratory.replay import built_in, queues, reading
from webhook.laboratory.replay.job_log import Job, JobLog
from webhook.laboratory.replay.measures import Measures, measure
from webhook.laboratory.replay.nodes import Pool, StartRule, pool, topologies
from webhook.laboratory.replay.report import report, show
from webhook.laboratory.replay.run import Outcome, replay

ON_NODES = "borrow"
"""The policy that is replayed on nodes where none is named."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to replay."""

    by_user: bool = False
    """Each user is a queue, instead of what the log calls one."""
    load: float = built_in.LOAD
    """Share of the time for which a queue of a built-in policy is busy."""
    resume: bool = False
    """Preempted jobs go on where they were, instead of from zero."""
    nodes: str | None = None
    """SIZE, COUNTxSIZE or a file of Nodes: each policy is replayed on them, by quota alone, checked, and packed."""


def run(
    file: Path,
    policies: Sequence[str],
    options: Options | None = None,
    *,
    output: str = "table",
    config: Path | None = None,
    console: Console | None = None,
) -> int:
    """Replay the log in ``file`` under each of ``policies``, print the measures and return the exit status.

    A policy is a file, or NAME or NAME:STRATEGY of a built-in one; without any, all built-in ones are taken. Raises
    WrongInput when the log or a policy cannot be read, or no job has a queue in all policies.
    """
    options = options or Options()
    settings = engine_settings(load_config(config))
    log = _log(file, options)
    problems = list(log.all_problems())
    without = built_in.NAMES if options.nodes is None else (ON_NODES,)
    compiled = {name: _compiled(name, log, options, problems) for name in policies or without}
    jobs = _known(log, compiled, problems)
    out = console or terminal.console()
    bench = _Bench(jobs, settings, options)
    columns = {}
    for name, policy in compiled.items():
        with Console(stderr=True).status(f"replaying {len(jobs):,} jobs under {name}"):
            resource = queues.resource_in(policy, log.resource)
            if options.nodes is None:
                columns[name] = bench.measures(policy, resource)
                continue
            floor = pool(options.nodes, resource, int(queues.capacity(policy, resource)))
            for fit in StartRule:
                columns[f"{name} {fit}"] = bench.measures(policy, resource, (floor, fit))
    document = report(log, jobs, columns, problems)
    if output == "table":
        show(out, document, columns, resume=options.resume, nodes=options.nodes is not None)
    else:
        terminal.write(out, document, output)
    return WRONG if any(not problem.warning for problem in problems) else 0


def print_policy(file: Path, policies: Sequence[str], options: Options, console: Console | None = None) -> None:
    """Print the one built-in policy that ``policies`` names as YAML. Raises WrongInput."""
    named = [built_in.parse(name) for name in policies]
    if len(named) != 1 or named[0] is None:
        fix = f"give one --policy of {', '.join(built_in.NAMES)}"
        raise WrongInput((Problem("--policy", ", ".join(policies), "not one built-in policy", fix),))
    objects = built_in.objects(_log(file, options), *named[0], options.load)
    (console or Console()).file.write(yaml.safe_dump_all(objects, sort_keys=False))


def _log(file: Path, options: Options) -> JobLog:
    log = reading.read(file)
    if not options.by_user:
        return log
    if any(job.user is None for job in log.jobs):
        wrong = Problem("--by", "user", "this format does not say whose jobs they are", "leave --by out")
        raise WrongInput((wrong,))
    return replace(log, jobs=[replace(job, queue=str(job.user)) for job in log.jobs])


def _compiled(name: str, log: JobLog, options: Options, problems: list[Problem]) -> Policy:
    """Return the policy ``name``, with a way in for each queue of the log that it knows."""
    named = built_in.parse(name)
    objects = built_in.objects(log, *named, options.load) if named is not None else _policy_objects(name, problems)
    known = {files.label(each) for each in objects}
    objects = [*objects, *(each for each in topologies(options.nodes) if files.label(each) not in known)]
    policy = compiler.compile_policy(objects)
    problems += (_under(name, problem) for problem in policy.problems)
    return queues.fitted(replace(policy, problems=()), sorted({job.queue for job in log.jobs}))


def _policy_objects(name: str, problems: list[Problem]) -> list[files.Object]:
    if not Path(name).exists():
        fix = f"give a file, or {', '.join(built_in.NAMES)}, perhaps with :StrictFIFO, :BestEffortFIFO or :Backfill"
        raise WrongInput((Problem("--policy", name, "neither a file nor a built-in policy", fix),))
    objects, unread = files.read([Path(name)])
    if unread:
        raise WrongInput(tuple(unread))
    found = files.sort_policy(objects)
    problems += (_under(name, problem) for problem in found.problems)
    return found.objects


def _under(name: str, problem: Problem) -> Problem:
    return replace(problem, path=f"{name}: {problem.path}")


def _known(log: JobLog, policies: Mapping[str, Policy], problems: list[Problem]) -> list[Job]:
    """Return the jobs whose queue all policies know. Raises WrongInput when there are none."""
    unknown: dict[str, str] = {}
    for name, policy in policies.items():
        for queue in sorted({job.queue for job in log.jobs}):
            if (queue, queue) not in policy.local_queues:
                unknown.setdefault(queue, name)
    jobs = [job for job in log.jobs if job.queue not in unknown]
    fewer = (_not_known(queue, name, log.jobs, warning=bool(jobs)) for queue, name in unknown.items())
    if not jobs:
        raise WrongInput(tuple(fewer))
    problems += fewer
    return jobs


def _not_known(queue: str, policy: str, jobs: Iterable[Job], *, warning: bool) -> Problem:
    number = sum(job.queue == queue for job in jobs)
    what = f"{policy} has no queue for it: {number:,} jobs are left out of every column"
    return Problem(f"queue {queue}", queue, what, f"name a queue, local queue or namespace {queue}", warning)


@dataclass(slots=True)
class _Bench:
    """Replays of the same jobs, each policy once."""

    jobs: Sequence[Job]
    settings: EngineSettings
    options: Options
    done: list[tuple[Policy, str, Outcome]] = field(default_factory=list)

    def measures(self, policy: Policy, resource: str, nodes: tuple[Pool, StartRule] | None = None) -> Measures:
        alone = self._outcome(queues.alone(policy), resource)
        if nodes is None:
            return measure(self._outcome(policy, resource), alone, queues.capacity(policy, resource))
        outcome = replay(self.jobs, policy, resource, self.settings, resume=self.options.resume, nodes=nodes)
        return measure(outcome, alone, queues.capacity(policy, resource))

    def _outcome(self, policy: Policy, resource: str) -> Outcome:
        for known, asked, outcome in self.done:
            if (known, asked) == (policy, resource):
                return outcome
        outcome = replay(self.jobs, policy, resource, self.settings, resume=self.options.resume)
        self.done.append((policy, resource, outcome))
        return outcome
