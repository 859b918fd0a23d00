"""How long a replay of a real log takes: Philly's 82,247 jobs, under policies that the engine finds easy and hard.

Printed for each policy: CPU seconds of the replay alone and of reading the log, events and decisions of the engine a
second, and the mean wait, so that a faster engine that decides otherwise is noticed.

Run: ``python -m benchmarks.bench_replay [--policy NAME[:STRATEGY]]... [--log FILE]``
"""

import argparse
import gc
import platform
import resource
import time
from pathlib import Path

from webhook.dialects.compiler import compile_policy
from webhook.laboratory.replay import built_in, queues, reading
from webhook.laboratory.replay.job_log import JobLog
from webhook.laboratory.replay.measures import waits
from webhook.laboratory.replay.run import replay

PHILLY = Path(__file__).parent / "traces" / "philly.csv.gz"
POLICIES = (
    "private:StrictFIFO",
    "borrow:BestEffortFIFO",
    "reclaim:BestEffortFIFO",
    "reclaim:StrictFIFO",
    "borrow:Backfill",
    "reclaim:Backfill",
)


def measure(log: JobLog, text: str) -> None:
    named = built_in.parse(text)
    if named is None:
        raise SystemExit(f"{text}: give one of {', '.join(built_in.NAMES)}, perhaps with :StrictFIFO")
    names = {job.queue for job in log.jobs}
    policy = queues.fitted(compile_policy(built_in.objects(log, *named)), names)
    gc.collect()
    start = time.process_time()
    outcome = replay(log.jobs, policy, log.resource)
    took = time.process_time() - start
    wait = waits(course for course in outcome.courses if course.ended_seconds is not None)
    preemptions = sum(course.preemptions for course in outcome.courses)
    starts = wait.jobs + preemptions
    print(
        f"{text:<24}{took:>8.1f} s CPU  {(len(log.jobs) + starts) / took:>8,.0f} arrivals and ends a second"
        f"  ({wait.jobs:,} jobs ran, {preemptions:,} preemptions, mean wait {wait.mean_seconds:,.0f} s)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", help="a built-in policy; repeat for more")
    parser.add_argument("--log", type=Path, default=PHILLY)
    options = parser.parse_args()
    start = time.process_time()
    log = reading.read(options.log)
    print(
        f"{platform.machine()}, Python {platform.python_version()}, CPU time of one core; {len(log.jobs):,} jobs of"
        f" {len({job.queue for job in log.jobs})} queues, read in {time.process_time() - start:.1f} s",
        flush=True,
    )
    for text in options.policy or POLICIES:
        measure(log, text)
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
