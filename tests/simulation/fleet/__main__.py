"""``python -m tests.simulation.fleet --seeds 200``: new seeds of the fleet's story, and what they hit.

Prints how often a link was cut and a hub died just before or after a write, by the phase of each gang at that moment
and the state of the link to its member. Ends with 1 if anything failed.
"""

import argparse
import gc
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from random import Random
from typing import NamedTuple

import structlog

from tests import virtual_loop
from tests.simulation.fleet.links import Fault
from tests.simulation.fleet.story import Counts, Story
from tests.simulation.fleet.weathers import WEATHERS
from webhook.core.fleet.dispatch import DispatchPhase

ROUGH = "all at once"
WHAT = ("cut", "crash before", "crash after")


ROUGH_STORIES = 0.6


class Told(NamedTuple):
    """How one story went."""

    seed: int
    weather: str
    writes: int
    partitions: int
    crashes: int
    counts: Counts
    most_looks: int
    """At one gang by one hub within a second."""
    failure: str


def drawn(seed: int) -> tuple[str, Story]:
    """Return the story of a seed: mostly of everything at once, else of one fault with its bound."""
    chance = Random(f"story {seed}")
    processes, bare = chance.choice((1, 2)), chance.random() < 0.2
    if chance.random() >= ROUGH_STORIES:
        weather = chance.choice(sorted(WEATHERS))
        return weather, WEATHERS[weather](seed, processes, bare=bare)
    broken, hub_queues = chance.choice((0, 0, 0, 0, 1, 2, 3)), chance.random() < 0.3
    return ROUGH, Story(seed, processes, hub_queues=hub_queues, broken=broken, bare=bare)


def tell(seed: int) -> Told:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    (weather, story), failure = drawn(seed), ""
    # A story is short: what it leaves behind is collected at its end, not looked through again and again.
    gc.disable()
    try:
        virtual_loop.run(story.tell())
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        gc.enable()
    return Told(
        seed, weather, story.rules.writes, story.partitions, story.crashes, story.counts, story.most_looks, failure
    )


def _told(seeds: Sequence[int], processes: int, minutes: float) -> Iterator[Told]:
    """Yield how the stories of these seeds went, until the time is over."""
    began = time.monotonic()
    told: deque[Future[Told]] = deque()
    with ProcessPoolExecutor(processes) as pool:
        for seed in seeds:
            if time.monotonic() - began >= minutes * 60:
                break
            told.append(pool.submit(tell, seed))
            if len(told) > 2 * processes:
                yield told.popleft().result()
        for each in told:
            yield each.result()


def main() -> int:
    """Run, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.fleet", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no more stories after so long")
    parser.add_argument("--base", type=int, help="first seed; otherwise any that was never run")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    base = args.base if args.base is not None else int.from_bytes(os.urandom(4), "big")
    counts: Counts = Counter()
    weathers: Counter[str] = Counter()
    writes = partitions = crashes = failed = most_looks = 0
    for told in _told(range(base, base + args.seeds), args.processes, args.minutes):
        counts += told.counts
        weathers[told.weather] += 1
        writes, partitions, crashes = writes + told.writes, partitions + told.partitions, crashes + told.crashes
        most_looks = max(most_looks, told.most_looks)
        if told.failure:
            failed += 1
            print(f"VIOLATION with seed {told.seed}, {told.weather}: {told.failure[:1000]}", flush=True)
    print(
        f"{weathers.total()} seeds from {base}: {writes} writes looked at, {partitions} partitions, {crashes} crashes, "
        f"at most {most_looks} looks at one gang within a second"
    )
    print(", ".join(f"{weather}: {number}" for weather, number in sorted(weathers.items())))
    print(f"{'phase':10} {'link':14}" + "".join(f"{what:>14}" for what in WHAT))
    for phase in DispatchPhase:
        for fault in Fault:
            print(f"{phase:10} {fault:14}" + "".join(f"{counts[phase, fault, what]:14}" for what in WHAT))
    print(f"{failed} violations")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
