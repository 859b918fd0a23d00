"""How fast the engine of this tree decides beside that of another one, such as a worktree of an earlier commit.

Both work in turn, a slice of some milliseconds each, in processes of their own: whatever else the machine does meets
both alike, so that a few per cent show even on a busy one. Printed for each kind of work: the rate of this tree as a
share of the other's, by sums and by the median of all pairs of slices.

- ``decide``: 2,000 gangs are submitted and decided about.
- ``step``: of 10,000 gangs one ends, one is submitted, one cycle; 25 times.
- ``drain``: two gangs end, one cycle; 25 times, until all 10,000 have run.

Run: ``git worktree add --detach ../before COMMIT && python -m benchmarks.bench_beside ../before``
"""

import argparse
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

from benchmarks import bench_engine as of_tree

engine_bench: Any = of_tree
"""That of the tree whose code this process runs: an earlier one keeps its engine elsewhere."""
HERE: Final = Path(__file__).resolve().parent.parent
PENDING: Final = 10_000
FEW: Final = 2_000
CHANGES: Final = 25
ENDING: Final = 2
SLICES_MAX: Final = {"decide": 40, "step": 120, "drain": 200}

_numbers: Final = count()

World = tuple[Any, Any, list[Any]]
"""Fences, engine and gangs: of whichever tree this runs in."""


def world(pending: int) -> World:
    """Return gangs, and an engine that knows their queues."""
    queues = pending // engine_bench.PER_QUEUE
    fences, engine = engine_bench.Fences(), engine_bench.Engine()
    engine.set_policy(engine_bench.policy_of(queues, False), {f"ns{i}": {} for i in range(queues)}, 0.0)
    return fences, engine, engine_bench.gangs_of(queues, False)


def decide() -> Iterator[float]:
    """Yield what each slice took, in seconds of processor."""
    while True:
        fences, engine, gangs = world(FEW)
        began = time.process_time()
        for gang in gangs:
            engine.submit(gang, 0.0)
        engine.cycle(0.0, fences, 1)
        yield time.process_time() - began


def filled() -> tuple[World, list[tuple[str, str]]]:
    """Return an engine that has decided about all, and who runs: uid and namespace."""
    fences, engine, gangs = world(PENDING)
    gc.collect()
    gc.freeze()
    for gang in gangs:
        engine.submit(gang, 0.0)
    return (fences, engine, gangs), [(r.uid, r.namespace) for r in engine.cycle(0.0, fences, 1).admitted]


def changing(ending: int, arriving: Callable[[Any, list[Any]], None]) -> Iterator[float]:
    """Yield what slices took in which ``ending`` gangs end before each cycle and others come."""
    (fences, engine, gangs), running = filled()
    while running:
        began = time.process_time()
        for _ in range(CHANGES):
            ended, running = running[:ending], running[ending:]
            for uid, namespace in ended:
                engine.release(uid)
                fences.drop_reservation(namespace, uid)
            arriving(engine, gangs)
            running += [(r.uid, r.namespace) for r in engine.cycle(1.0, fences, 1).admitted]
        yield time.process_time() - began


def one_more(engine: Any, gangs: list[Any]) -> None:
    """Submit a gang like one of the first."""
    number = next(_numbers)
    like, name = gangs[number % (PENDING // engine_bench.PER_QUEUE)], f"more-{number}"
    made = engine_bench.Gang(name, like.kind, like.namespace, name, "lq", like.pod_sets, 50, created_seconds=99.0)
    engine.submit(made, 0.0)


WORK: Final[dict[str, Callable[[], Iterator[float]]]] = {
    "decide": decide,
    "step": lambda: changing(1, one_more),
    "drain": lambda: changing(ENDING, lambda engine, gangs: None),
}


def answer(kind: str) -> None:
    """Do one slice for each line of standard input, and print what it took; ends when there is no more work."""
    slices = WORK[kind]()
    for _ in sys.stdin:
        took = next(slices, None)
        if took is None:
            return
        print(took, flush=True)


def start(tree: Path, kind: str, seed: int) -> subprocess.Popen[str]:
    """Start the process that does the work with the code of a tree."""
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).resolve()), "--answer", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree), "PYTHONHASHSEED": str(seed)},
    )


def ask(process: subprocess.Popen[str]) -> float | None:
    """Return what the next slice took; None when there is none."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    return float(line) if line else None


def compare(other: Path, kind: str, rounds: int) -> list[tuple[float, float]]:
    """Return what slices took there and here, in pairs."""
    pairs = []
    for seed in range(rounds):
        there, here = start(other, kind, seed), start(HERE, kind, seed)
        for number in range(SLICES_MAX[kind]):
            first, second = (there, here) if number % 2 else (here, there)
            took = {id(first): ask(first), id(second): ask(second)}
            before, now = took[id(there)], took[id(here)]
            if before is None or now is None:
                break
            pairs.append((before, now))
        for process in (there, here):
            process.communicate()
    return pairs


def main() -> None:
    """Compare, or be one of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="the root of another tree")
    parser.add_argument("--rounds", type=int, default=2, help="new processes for each kind of work")
    parser.add_argument("--answer", choices=list(WORK), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer(options.answer)
        return
    if options.other is None:
        parser.error("name the root of another tree")
    for kind in WORK:
        pairs = compare(options.other.resolve(), kind, options.rounds)
        before, now = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        middle = statistics.median(pair[0] / pair[1] for pair in pairs)
        print(
            f"{kind:8} {before / now:.3f} of the other's rate by sums, {middle:.3f} by the median of {len(pairs)} pairs"
        )


if __name__ == "__main__":
    main()
