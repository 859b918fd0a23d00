"""How much of its GPUs a real cluster can give away when pods share them, by the rule that chooses their nodes.

The pods of Alibaba's cluster of 2023 come in random order, drawn again until they have asked for as many GPUs as the
1,213 nodes have. Each takes a part of one device, whole ones or none, and nobody leaves. Printed is which share of all
GPUs is allocated then: the mean of ten orders for each rule, beside the means that the paper of FGD gives for the same
experiment (Weng et al., *Beware of Fragmentation*, USENIX ATC 2023).

The devices are a model of this module alone: Tutti counts whole GPUs. Like the authors', its scores are whole numbers
from 0 to 100, and of nodes with the same score the first by name is taken.

Run: ``python -m benchmarks.bench_openb [--seeds 10] [--rules Random,BestFit,FGD]``
"""

import argparse
import csv
import gzip
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

TRACES: Final = Path(__file__).parent / "traces"
PODS: Final = TRACES / "openb-pods.csv.gz"
NODES: Final = TRACES / "openb-nodes.csv.gz"
PAPER: Final = {"Random": 86.30, "BestFit": 92.86, "FGD": 95.23}
FIRST_SEED: Final = 42
DEVICE: Final = 1000
"""A whole GPU, in thousandths."""
MOST_CPU, MOST_GPU = 128_000, 8 * DEVICE
"""What the largest node has; scores of best fit are shares of it."""
TYPICAL_SHARE: Final = 0.95
"""FGD looks at the most frequent kinds of pods, so many that they are this share of all."""


@dataclass(frozen=True, slots=True)
class Pod:
    """What a pod asks, in thousandths of a core and of each device."""

    cpu: int
    memory: int
    devices: int
    of_each: int

    @property
    def gpu(self) -> int:
        """All of its parts together."""
        return self.devices * self.of_each

    @property
    def shares(self) -> bool:
        """It takes a part of one device."""
        return 0 < self.gpu < DEVICE


@dataclass(slots=True)
class Node:
    """What is left of a node."""

    cpu: int
    memory: int
    devices: list[int]

    def fits(self, pod: Pod) -> bool:
        """Return whether a pod may come."""
        if self.cpu < pod.cpu or self.memory < pod.memory:
            return False
        return not pod.devices or sum(left >= pod.of_each for left in self.devices) >= pod.devices

    def take(self, pod: Pod, device: int) -> None:
        """Let a pod run, on ``device`` if it shares one, else on the first whole ones."""
        self.cpu -= pod.cpu
        self.memory -= pod.memory
        whole = [number for number, left in enumerate(self.devices) if left == DEVICE]
        for number in [device] if pod.shares else whole[: pod.devices]:
            self.devices[number] -= pod.of_each


Choice = tuple[int, int]
"""A score, and the device for a pod that shares one; a score below 0: the pod does not fit."""
NOWHERE: Final = (-1, 0)
Rule = Callable[[Node, Pod], Choice]


def tightest(node: Node, pod: Pod) -> int:
    """Return the device that holds a part and has least left."""
    return min((left, number) for number, left in enumerate(node.devices) if left >= pod.of_each)[1]


def best_fit(node: Node, pod: Pod) -> Choice:
    """Score what would be left of cores and GPUs, each half: the less, the better."""
    left = (node.cpu - pod.cpu) / MOST_CPU / 2 + (sum(node.devices) - pod.gpu) / MOST_GPU / 2
    return int((1 - left) * 100), tightest(node, pod) if pod.shares else 0


class Fragments:
    """Scores by which node least room becomes useless to the pods that are usual here."""

    def __init__(self, pods: list[Pod]) -> None:
        counted = Counter((pod.cpu, pod.devices, pod.of_each) for pod in pods)
        typical: list[tuple[tuple[int, int, int], int]] = []
        for each in sorted(counted.items(), key=lambda each: (-each[1], each[0])):
            if sum(count for _, count in typical) < TYPICAL_SHARE * len(pods):
                typical.append(each)
        seen = sum(count for _, count in typical)
        self._typical = [(*asks, count / seen) for asks, count in typical]
        self._known: dict[tuple[int, tuple[int, ...]], float] = {}

    def __call__(self, node: Node, pod: Pod) -> Choice:
        """Score a node by how much less, or more, of it is useless with the pod there."""
        cpu, before = node.cpu - pod.cpu, self.useless(node.cpu, node.devices)
        if not pod.shares:
            after = list(node.devices)
            for _ in range(pod.devices):
                after.remove(DEVICE)
            return self._score(before - self.useless(cpu, after)), 0
        best = NOWHERE
        for number, left in enumerate(node.devices):
            if left >= pod.of_each:
                after = list(node.devices)
                after[number] -= pod.of_each
                score = self._score(before - self.useless(cpu, after))
                if score > best[0]:
                    best = score, number
        return best

    @staticmethod
    def _score(gain: float) -> int:
        return int(100 / (1 + math.exp(-gain / DEVICE)))

    def useless(self, cpu: int, devices: list[int]) -> float:
        """Return the thousandths of GPUs that the next pod is not expected to be able to use."""
        key = cpu, tuple(sorted(devices))
        known = self._known.get(key)
        if known is None:
            idle, known = sum(devices), 0.0
            for asks, wanted, of_each, share in self._typical:
                usable = [left for left in devices if left >= of_each]
                if not wanted or asks > cpu or len(usable) < wanted:
                    known += share * idle
                else:
                    known += share * (idle - sum(usable))
            self._known[key] = known
        return known


class Cluster:
    """The nodes in order of their names, and for each kind of pod what a rule thinks of each of them."""

    def __init__(self, nodes: list[Node], rule: Rule) -> None:
        self._nodes, self._rule = nodes, rule
        self._changed: list[int] = []
        self._choices: dict[Pod, tuple[list[int], list[int]]] = {}
        self._seen: dict[Pod, int] = {}

    def put(self, pod: Pod) -> bool:
        """Let a pod run where the rule says; return whether it fits anywhere."""
        scores, devices = self._judged(pod)
        best = max(scores)
        if best < 0:
            return False
        place = scores.index(best)
        self._nodes[place].take(pod, devices[place])
        self._changed.append(place)
        return True

    def _judged(self, pod: Pod) -> tuple[list[int], list[int]]:
        if pod not in self._choices:
            self._choices[pod] = [0] * len(self._nodes), [0] * len(self._nodes)
            places: Iterator[int] | set[int] = iter(range(len(self._nodes)))
        else:
            places = set(self._changed[self._seen[pod] :])
        self._seen[pod] = len(self._changed)
        scores, devices = self._choices[pod]
        for place in places:
            node = self._nodes[place]
            scores[place], devices[place] = self._rule(node, pod) if node.fits(pod) else NOWHERE
        return scores, devices


class AtRandom:
    """Any node that holds the pod, and any device of it."""

    def __init__(self, nodes: list[Node], chance: Random) -> None:
        self._nodes, self._chance = nodes, chance

    def put(self, pod: Pod) -> bool:
        """Let a pod run somewhere; return whether it fits anywhere."""
        fitting = [node for node in self._nodes if node.fits(pod)]
        if not fitting:
            return False
        node = self._chance.choice(fitting)
        usable = [number for number, left in enumerate(node.devices) if left >= pod.of_each]
        node.take(pod, self._chance.choice(usable) if pod.shares else 0)
        return True


def allocated(rule: str, seed: int, pods: list[Pod], rows: list[tuple[int, int, int]]) -> float:
    """Return which share of all GPUs is allocated, in per cent, when as many were asked for as there are."""
    chance, nodes = Random(seed), [Node(cpu, memory, [DEVICE] * gpus) for cpu, memory, gpus in rows]
    total = sum(gpus for *_, gpus in rows) * DEVICE
    order = chance.sample(pods, len(pods))
    cluster: AtRandom | Cluster
    if rule == "Random":
        cluster = AtRandom(nodes, chance)
    else:
        cluster = Cluster(nodes, best_fit if rule == "BestFit" else Fragments(pods))
    arrived = running = 0
    while arrived < total:
        pod = order.pop() if order else chance.choice(pods)
        arrived += pod.gpu
        running += pod.gpu if cluster.put(pod) else 0
    return 100 * running / total


def read_pods(path: Path) -> list[Pod]:
    """Read the pods."""
    with gzip.open(path, "rt") as lines:
        return [
            Pod(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]), int(row["gpu_milli"] or 0))
            for row in csv.DictReader(lines)
        ]


def read_nodes(path: Path) -> list[tuple[int, int, int]]:
    """Read cores, memory and GPUs of the nodes, in order of their names."""
    with gzip.open(path, "rt") as lines:
        rows = sorted(csv.DictReader(lines), key=lambda row: row["sn"])
    return [(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"])) for row in rows]


def main() -> None:
    """Print one row for each rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rules", default=",".join(PAPER))
    options = parser.parse_args()
    pods, nodes = read_pods(PODS), read_nodes(NODES)
    print(
        f"{len(pods):,} pods, {len(nodes):,} nodes of {sum(gpus for *_, gpus in nodes):,} GPUs, {options.seeds} orders"
    )
    for rule in options.rules.split(","):
        began = time.process_time()
        shares = [allocated(rule, FIRST_SEED + seed, pods, nodes) for seed in range(options.seeds)]
        mean = sum(shares) / len(shares)
        print(
            f"{rule:8} {mean:6.2f} % allocated ({min(shares):.2f} to {max(shares):.2f}), the paper {PAPER[rule]:.2f},"
            f" {mean - PAPER[rule]:+.2f}; {time.process_time() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
