"""``make sim-long``: new seeds in every weather and in any two at once, on all cores, until enough writes were checked.

What fails is run again with less and less in it, and the shortest story that still fails is printed with the command
that replays it. Ends with 1 if anything failed.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from random import Random

from tests.simulation.mixtures import AND, pairs
from tests.simulation.shrink import JOBS, Outcome, Story, shrunk, tell
from tests.simulation.weathers import WEATHERS

REPORT_SECONDS = 30


def main() -> int:
    """Run, print, and return the exit status."""
    args = _arguments()
    if args.seed is not None:
        return _replay(args)
    base = args.base if args.base is not None else int.from_bytes(os.urandom(4), "big")
    stories = _stories(base) if args.weather is None else (Story(args.weather, seed) for seed in count(base))
    print(f"seed base {base}, {args.processes} processes, until {args.steps} steps", flush=True)
    return _run(stories, args)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="stop after so many stored writes")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long at the latest")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--base", type=int, help="first seed; otherwise any that was never run")
    parser.add_argument("--weather", type=_weather, help=f"this one alone, or two joined by '{AND}'")
    parser.add_argument("--seed", type=int, help="replay one story")
    parser.add_argument("--jobs", type=int, default=JOBS, help="end the story after so many jobs")
    parser.add_argument("--without", default="", help="leave this out of the weather, as fields separated by commas")
    return parser.parse_args()


def _stories(base: int) -> Iterator[Story]:
    """Yield one of each weather, each followed by one of any two at once, and so on with the next seed."""
    mixtures = pairs(Random(base))
    for seed in count(base):
        for name in WEATHERS:
            yield Story(name, seed)
            yield Story(next(mixtures), seed)


def _weather(name: str) -> str:
    """Return a name if there is such a weather. Raises ValueError."""
    if not WEATHERS.keys() >= {*name.split(AND)}:
        raise ValueError(f"there is no {name}")
    return name


def _replay(args: argparse.Namespace) -> int:
    without = tuple(part for part in args.without.split(",") if part)
    outcome = tell(Story(args.weather or "rough", args.seed, args.jobs, without))
    print(f"{outcome.steps} steps, story {outcome.story:08x}: {outcome.failure or 'nothing is violated'}")
    return 1 if outcome.failure else 0


def _run(stories: Iterator[Story], args: argparse.Namespace) -> int:
    began = told = time.monotonic()
    steps, seeds, cpu_seconds = Counter[str](), Counter[str](), 0.0
    failed: list[Story] = []
    with ProcessPoolExecutor(args.processes) as pool:
        under_way: dict[Future[Outcome], Story] = {}
        while True:
            now = time.monotonic()
            enough = sum(steps.values()) >= args.steps or now - began >= args.minutes * 60
            while not enough and len(under_way) < 2 * args.processes:
                story = next(stories)
                under_way[pool.submit(tell, story)] = story
            if not under_way:
                break
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                story, outcome = under_way.pop(done), done.result()
                steps[_shown(story)] += outcome.steps
                seeds[_shown(story)] += 1
                cpu_seconds += outcome.cpu_seconds
                if outcome.failure:
                    failed.append(story)
                    print(f"VIOLATION in {story}: {outcome.failure[:600]}", flush=True)
            if now - told >= REPORT_SECONDS:
                told = now
                _progress(steps, seeds, cpu_seconds, now - began, len(failed))
        _progress(steps, seeds, cpu_seconds, time.monotonic() - began, len(failed))
        _by_weather(steps, seeds, failed)
        for short, outcome in pool.map(shrunk, failed):
            print(f"\nshortest story, {outcome.steps} steps: {outcome.failure[:1500]}\n  replay: {short.command}")
    return 1 if failed else 0


def _progress(steps: Counter[str], seeds: Counter[str], cpu_seconds: float, seconds: float, failed: int) -> None:
    total, ran = sum(steps.values()), sum(seeds.values())
    each = cpu_seconds * 1000 / max(1, total)
    rate = ran * 60 / max(0.001, seconds)
    print(f"{seconds:6.0f} s  {ran} seeds ({rate:.0f} a minute)  {total} steps of {each:.2f} ms  {failed} violations")
    sys.stdout.flush()


def _by_weather(steps: Counter[str], seeds: Counter[str], failed: list[Story]) -> None:
    violations = Counter(_shown(story) for story in failed)
    for name in steps:
        print(f"  {name:42} {seeds[name]:6} seeds {steps[name]:9} steps {violations[name]:4} violations")


def _shown(story: Story) -> str:
    return "two at once" if AND in story.weather else story.weather


if __name__ == "__main__":
    sys.exit(main())
