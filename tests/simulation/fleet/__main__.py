"""``python -m tests.simulation.fleet --seeds 200``: new seeds of the fleet's story, and what they hit.

Prints how often a hub died just before or after a write of a gang, by the phase of that gang and the state of the link
to its member; see ``crashes``. Ends with 1 if anything failed.

With ``--writes`` (``make sim-fleet-long``) there are stories until so many stored writes were looked at, and so many
partitions and crashes of each sort were among them as ``Least`` says. Ends with 1 too if the time is over before.
"""

import argparse
import gc
import itertools
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from random import Random
from typing import NamedTuple

import structlog

from tests import virtual_loop
from tests.simulation.fleet.crashes import BOUNDED, WHAT, Counts
from tests.simulation.fleet.dying import Dying
from tests.simulation.fleet.links import CUTS, Fault
from tests.simulation.fleet.story import Story
from tests.simulation.fleet.weathers import WEATHERS, Swapped
from webhook.core.fleet.dispatch import DispatchPhase

ROUGH = "all at once"
DYING = "hubs die at writes"
DYING_STORIES = 0.33
ROUGH_STORIES = 0.6
"""Of all others."""
PARTITIONS_PER_WRITE = 10_000 / 1_000_000
HITS_PER_WRITE = 100 / 1_000_000
"""Of each sort of crash."""
REPORT_STORIES = 50


class Told(NamedTuple):
    """How one story went."""

    seed: int
    weather: str
    writes: int
    faults: Counter[Fault]
    """How often a link began to fail so."""
    crashes: int
    counts: Counts
    brought: int
    """Writes of what jobs refer to, beside the others."""
    brought_crashes: Counter[str]
    most_looks: int
    """At one gang by one hub within a second."""
    failure: str


def drawn(seed: int) -> tuple[str, Story]:
    """Return the story of a seed: mostly of everything at once, else of one fault with its bound, or of deaths."""
    chance = Random(f"story {seed}")
    processes, bare = chance.choice((1, 2)), chance.random() < 0.2
    # By a draw of its own: the seeds of all other stories tell what they told before there were these.
    if Random(f"deaths {seed}").random() < DYING_STORIES:
        return DYING, Dying(seed, processes)
    if chance.random() >= ROUGH_STORIES:
        weather = chance.choice(sorted(WEATHERS))
        # Who has failed in a cluster is to know it by whatever name.
        fails = Random(f"failing {seed}").choice((0, 1, 2, 3)) if WEATHERS[weather] is Swapped else 0
        return weather, WEATHERS[weather](seed, processes, bare=bare, broken=fails)
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
    crashes = story.crashes
    return Told(
        seed,
        weather,
        story.rules.writes,
        story.faults,
        crashes.total,
        crashes.counts,
        story.brought.writes,
        crashes.brought,
        story.most_looks,
        failure,
    )


class Sum:
    """How all stories went."""

    def __init__(self) -> None:
        self.counts: Counts = Counter()
        self.faults: Counter[Fault] = Counter()
        self.weathers: Counter[str] = Counter()
        self.brought_crashes: Counter[str] = Counter()
        self.writes = self.crashes = self.failed = self.brought = self.most_looks = 0

    def add(self, told: Told) -> None:
        self.counts += told.counts
        self.faults += told.faults
        self.brought, self.brought_crashes = self.brought + told.brought, self.brought_crashes + told.brought_crashes
        self.weathers[told.weather] += 1
        self.writes, self.crashes = self.writes + told.writes, self.crashes + told.crashes
        self.most_looks = max(self.most_looks, told.most_looks)
        self.failed += bool(told.failure)

    @property
    def stories(self) -> int:
        return self.weathers.total()

    @property
    def partitions(self) -> int:
        return sum(self.faults[fault] for fault in CUTS)

    @property
    def smallest(self) -> tuple[int, str]:
        """How often the rarest crash was hit, and which it is."""
        cells = itertools.product(DispatchPhase, Fault, BOUNDED)
        return min((self.counts[cell], ", ".join(cell)) for cell in cells)

    def missed(self, writes: int) -> list[str]:
        """Return which bounds of a run of so many writes do not hold yet."""
        hits, rarest = self.smallest
        bounds = (
            ("writes", self.writes, writes),
            ("partitions", self.partitions, writes * PARTITIONS_PER_WRITE),
            (rarest, hits, writes * HITS_PER_WRITE),
        )
        return [f"{what}: {number}, not {least:.0f}" for what, number, least in bounds if number < least]

    def show(self, base: int) -> None:
        """Print it all."""
        placed, (hits, rarest) = self.counts.total(), self.smallest
        print(
            f"{self.stories} seeds from {base}: {self.writes} writes looked at, {self.partitions} partitions, "
            f"{self.crashes} crashes, at most {self.most_looks} looks at one gang within a second"
        )
        print(", ".join(f"{weather}: {number}" for weather, number in sorted(self.weathers.items())))
        print("links: " + ", ".join(f"{fault}: {self.faults[fault]}" for fault in Fault if fault is not Fault.PASS))
        print(f"{placed} of the crashes by phase of the gang and state of the link to its member:")
        print(f"{'phase':10} {'link':14}" + "".join(f"{what:>14}" for what in WHAT))
        for phase, fault in itertools.product(DispatchPhase, Fault):
            print(f"{phase:10} {fault:14}" + "".join(f"{self.counts[phase, fault, what]:14}" for what in WHAT))
        at = ", ".join(f"{what}: {self.brought_crashes[what]}" for what in WHAT[:3])
        print(f"of these at the {self.brought} writes of what jobs refer to: {at}")
        per_million = hits * 1_000_000 / max(1, self.writes)
        print(f"rarest before or after a write: {rarest}: {hits}, that is {per_million:.0f} in a million writes")
        print(f"{self.failed} violations")


def _told(seeds: Iterable[int], processes: int, enough: Callable[[], bool]) -> Iterator[Told]:
    """Yield how the stories of these seeds went, until it is enough."""
    told: deque[Future[Told]] = deque()
    with ProcessPoolExecutor(processes) as pool:
        for seed in seeds:
            if enough():
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
    parser.add_argument("--writes", type=int, default=0, help="in place of --seeds: until the bounds of so many hold")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no more stories after so long")
    parser.add_argument("--base", type=int, help="first seed; otherwise any that was never run")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    base = args.base if args.base is not None else int.from_bytes(os.urandom(4), "big")
    seeds = itertools.count(base) if args.writes else range(base, base + args.seeds)
    whole, began = Sum(), time.monotonic()

    def enough() -> bool:
        complete = args.writes > 0 and not whole.missed(args.writes)
        return complete or time.monotonic() - began >= args.minutes * 60

    for told in _told(seeds, args.processes, enough):
        whole.add(told)
        if told.failure:
            print(f"VIOLATION with seed {told.seed}, {told.weather}: {told.failure[:1000]}", flush=True)
        if args.writes and whole.stories % REPORT_STORIES == 0:
            print(f"{whole.stories} seeds, {whole.writes} writes; not yet {whole.missed(args.writes)}", flush=True)
    whole.show(base)
    missed = whole.missed(args.writes) if args.writes else []
    for each in missed:
        print(f"MISSED {each}")
    return 1 if whole.failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
