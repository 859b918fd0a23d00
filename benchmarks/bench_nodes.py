"""What 10,000 nodes of 8 GPUs cost the engine, beside one plain look at each of them.

Prints milliseconds of processor time, median, 99th percentile and worst, and what they are of the plain look: a shape
of pods that nobody asked about before, gangs placed where their shape is known (anywhere, and by the blocks and racks
of a topology), a gang that finds nodes only when some of 700 others are stopped, which lie across each other, and the
longest cycle in which 150 gangs have 1,200 others stopped, and look for other nodes where theirs are taken. Then what
the nodes take of memory, which share of a core their kubelets' reports take, each with 50 images and every five
minutes, as a kubelet sends them where nothing changes, and what 10,000 gangs cost an engine whose ``nodeFit`` is
off, and on, beside one that knows no nodes. Garbage is collected as in our processes.

Run: ``python -m benchmarks.bench_nodes``
"""

import platform
import random
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from benchmarks.bench_engine import PER_QUEUE, gangs_of, policy_of
from tests.unit.core.worlds import LABELS, gang, policy, queue
from webhook import gc_pauses
from webhook.cluster.nodes import node as nodes_feed
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.controllers.loop.reconciler import LOOKED_AT_MAX
from webhook.core.model.gang import Gang, Nearness, Requirement
from webhook.core.model.policy import NodeFit, Preemption, PreemptionPolicy
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import PODS, Bound, NodeRecord
from webhook.core.nodes.shape import Shape
from webhook.core.notation.names import HOSTNAME
from webhook.core.notation.quantity import MILLI
from webhook.core.placement.fit import place
from webhook.core.placement.overlay import Asked
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine
from webhook.kube.informer import Informer
from webhook.wire.nesting import LEVELS_MAX, shallow

NODES: Final = 10_000
VICTIMS: Final = 700
CLAIMS: Final = 150
GPU: Final = "nvidia.com/gpu"
GIB: Final = 1 << 30
BLOCK, RACK = "block", "rack"
LEVELS: Final = (BLOCK, RACK, HOSTNAME)
ROUNDS: Final = 200
COLD_ROUNDS: Final = 100
PENDING: Final = 10_000
DECIDE_ROUNDS: Final = 7
IMAGES: Final = 50
REPORT_SECONDS: Final = 300
"""How often a kubelet reports a node of which nothing changes."""


def main() -> None:
    """Print one row for each question."""
    print(
        f"machine: {platform.processor() or platform.machine()}, {platform.python_version()}; {NODES} nodes of 8 GPUs"
    )
    rng = random.Random(1)
    tracemalloc.start()
    there = filled(rng)
    mib = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    gc_pauses.tune()
    nodes = list(there.nodes.values())
    floor = measured("a plain look at each node's free GPUs", lambda: plain(nodes, there), None, COLD_ROUNDS)
    measured("what nodes look like, read for the first time", lambda: unread(there), floor, COLD_ROUNDS)
    wide = replace(shape_of(8, 32, 256), affinity=tuple((Requirement(HOSTNAME, "In", (f"n{n}",)),) for n in range(333)))
    measured("node affinity of 333 terms, asked for the first time", lambda: unread(there, wide), floor, COLD_ROUNDS)
    for gpus, cpus, gib, pods in ((8, 32, 256, 64), (4, 16, 128, 64), (1, 2, 8, 1000)):
        shape = shape_of(gpus, cpus, gib)
        said = f"{pods} pods of {gpus} GPUs"
        measured(f"{said}, asked for the first time", lambda: forgotten(there, shape), floor, COLD_ROUNDS)  # noqa: B023
        asked = [Asked("main", shape, pods)]
        measured(f"{said}, warm", lambda: place(there, asked), floor)  # noqa: B023
        levelled = replace(shape, levels=LEVELS)
        first = partial(forgotten, there, levelled)
        measured(f"{said} with a topology, asked for the first time", first, floor, COLD_ROUNDS)
        for near in (Nearness(BLOCK, True), Nearness(RACK, False), Nearness(BLOCK, False, RACK, 8)):
            asked = [Asked("main", levelled, pods, near)]
            measured(f"{said}, warm, {wish(near)}", lambda: place(there, asked), floor)  # noqa: B023
    measured(f"64 pods of 8 GPUs, some of {VICTIMS} gangs to be stopped", preempting(rng), floor, rounds=1)
    losing(floor)
    reports(nodes)
    print(f"{mib:8.1f} MiB  nodes and {sum(1 for _ in there.all_bound())} pods on them")
    beside_none(there)


def filled(rng: random.Random) -> Capacity:
    """Return nodes with up to seven pods each."""
    there = Capacity()
    has = {GPU: 8, "cpu": 64, "memory": 512 * GIB, "ephemeral-storage": 1024 * GIB, PODS: 110}
    for number in range(NODES):
        name = f"node-{number:05d}"
        labels = {"kind": "a", HOSTNAME: name, "topology.kubernetes.io/zone": "z"}
        labels |= {BLOCK: f"b{number // 512:03d}", RACK: f"r{number // 32:03d}"}
        there.put_node(NodeRecord(name, {key: amount * MILLI for key, amount in has.items()}, labels))
        for pod in range(rng.randint(0, 7)):
            asks = {GPU: 1, "cpu": rng.choice((2, 4)), "memory": 32 * GIB, PODS: 1}
            there.bind(f"{name}-{pod}", Bound(name, {key: amount * MILLI for key, amount in asks.items()}))
    return there


def wish(near: Nearness) -> str:
    """Return what a set asks of the topology, in words."""
    slices = f" in slices of {near.slice_size} to a {near.slice_level}" if near.slice_size else ""
    return f"{'in one' if near.required else 'best in one'} {near.level}{slices}"


def shape_of(gpus: int, cpus: int, gib: int) -> Shape:
    """Return the shape of pods that ask so much, of nodes of one kind."""
    asks = {GPU: gpus, "cpu": cpus, "memory": gib * GIB, PODS: 1}
    return Shape(tuple(sorted((key, amount * MILLI) for key, amount in asks.items())), (("kind", "a"),))


def plain(nodes: list[NodeRecord], there: Capacity) -> int:
    """Return how many GPUs are free, by a look at each node."""
    return sum(there.free[node.name].get(GPU, 0) for node in nodes)


def forgotten(there: Capacity, shape: Shape) -> None:
    """Ask about a shape as if for the first time."""
    there._decided.rankings.clear()
    there.ranking(shape)


def unread(there: Capacity, shape: Shape | None = None) -> None:
    """Ask which nodes a shape may use whose labels nobody asked about before."""
    there._columns._bearers._of.clear()
    there._columns._verdicts.clear()
    there.verdict(shape or shape_of(1, 1, 1))


def beside_none(there: Capacity) -> None:
    """Print what deciding about many gangs takes where nobody asks about nodes, and where each gang fits them."""
    gangs, took = gangs_of(PENDING // PER_QUEUE, distinct=False), dict[str, list[float]]()
    kinds = {"no nodes": (None, NodeFit.ENFORCE), "off": (there, NodeFit.OFF), "enforce": (there, NodeFit.ENFORCE)}
    for turn in range(DECIDE_ROUNDS):
        # In turn, so that other load on the machine meets all of them.
        for kind in list(kinds) if turn % 2 else reversed(kinds):
            nodes, node_fit = kinds[kind]
            took.setdefault(kind, []).append(deciding(gangs, None if nodes is None else nodes.copy(), node_fit))
    least = {kind: min(each) for kind, each in took.items()}
    for kind in ("off", "enforce"):
        share = least[kind] / least["no nodes"]
        print(f"{least[kind]:8.2f} ms  {PENDING} gangs with nodeFit {kind}, {share:.3f} of an engine without nodes")


def deciding(gangs: list[Gang], nodes: Capacity | None, node_fit: NodeFit) -> float:
    """Return the milliseconds in which an engine takes all gangs and decides about them."""
    queues = PENDING // PER_QUEUE
    engine, labels = (
        Engine(EngineSettings(node_fit=node_fit)),
        {f"ns{number}": dict[str, str]() for number in range(queues)},
    )
    engine.set_policy(policy_of(queues, preempting=False), labels, 0.0)
    engine.know_nodes(nodes)
    gc_pauses.settle()
    began = time.process_time()
    for each in gangs:
        engine.submit(each, 0.0)
    plan = engine.cycle(0.0, Fences(), 1)
    took = (time.process_time() - began) * 1000
    assert plan.admitted
    return took


def preempting(rng: random.Random) -> Callable[[], object]:
    """Return one cycle of an engine in which a gang needs the nodes of others, of which each lies on four nodes."""
    engine, there = Engine(), Capacity()
    rules = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
    engine.set_policy(policy(queue("q", 8 * VICTIMS, preemption=rules)), LABELS, 0.0)
    for number in range(NODES):
        there.put_node(NodeRecord(f"node-{number:05d}", {"cpu": 8 * MILLI}))
        if number >= VICTIMS:
            there.bind(f"foreign-{number}", Bound(f"node-{number:05d}", {"cpu": 8 * MILLI}))
    engine.know_nodes(there)
    order = list(range(VICTIMS))
    rng.shuffle(order)
    for seconds, number in enumerate(order):
        engine.submit(gang(f"low-{number}", "q", cpu=2, pods=4), float(seconds))
        (reservation,) = engine.cycle(float(seconds), Fences(), epoch=1).admitted
        shapes = there.allotments[reservation.uid].shapes
        across = {f"node-{(number + pod) % VICTIMS:05d}": 1 for pod in range(4)}
        there.allot(reservation.uid, Allotment(shapes, {"main": across}))
    engine.submit(gang("wide", "q", cpu=8, pods=64, priority=5), float(VICTIMS))

    def cycle() -> None:
        plan = engine.cycle(float(VICTIMS), Fences(), epoch=1)
        assert len(plan.preempted) >= 64
        print(f"          {len(plan.preempted)} gangs are stopped, of 64 at least")

    return cycle


def losing(floor: float) -> None:
    """Print the longest cycle of those in which gangs for which others are being stopped look for nodes, after
    half of theirs were taken, and the longest of those in which they had others stopped.
    """
    engine, there, pods = Engine(), Capacity(), 8
    rules, total = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY), pods * CLAIMS
    engine.set_policy(policy(queue("q", total, preemption=rules)), LABELS, 0.0)
    for number in range(total):
        there.put_node(NodeRecord(f"node-{number:05d}", {"cpu": MILLI}))
        engine.submit(gang(f"low-{number}", "q", created=float(number)), 0.0)
    engine.know_nodes(there)
    engine.cycle(0.0, Fences(), epoch=1)
    for number in range(CLAIMS):
        engine.submit(gang(f"high-{number}", "q", pods=pods, priority=5, created=float(total + number)), 1.0)

    def longest() -> float:
        took = []
        gc_pauses.settle()
        while not took or engine.next_wake(1.0) is not None:
            began = time.process_time()
            engine.cycle(1.0, Fences(), epoch=1, looks=LOOKED_AT_MAX)
            took.append((time.process_time() - began) * 1000)
        return max(took)

    stopping = longest()
    assert len(engine.claims()) == CLAIMS
    for number in range(0, total, 2):
        there.bind(f"other-{number}", Bound(f"node-{number:05d}", {"cpu": MILLI}))
    engine.wake_nodes()
    for took, what in ((stopping, f"have {total} others stopped"), (longest(), "look for nodes again that they lost")):
        print(f"{took:8.2f} ms  at most in a cycle, {CLAIMS} gangs {what}  {took / floor:6.1f} of the plain look")


def reports(nodes: list[NodeRecord]) -> None:
    """Print what a report of each kubelet costs the reconciler, from a line of its watch until nothing has changed."""
    occupancy, changed = Occupancy(), 0

    def take(old: Any, new: Any) -> None:
        nonlocal changed
        changed += occupancy.take_node(old, new)

    nowhere: Any = None
    informer = Informer(nowhere, "/api/v1/nodes", nodes_feed.decode, rng=random.Random(1), on_change=take)

    def read(version: int) -> float:
        lines = [report(node, version * NODES + number) for number, node in enumerate(nodes)]
        began = time.process_time()
        for line in lines:
            informer._tell(informer._event_changes(shallow(line, LEVELS_MAX + 1)))
        return time.process_time() - began

    tracemalloc.start()
    read(1)
    mib = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    took = read(2)
    assert changed == len(nodes), "each report but the first changes nothing"
    share = took / REPORT_SECONDS
    print(f"{took / len(nodes) * 1000:8.3f} ms  a kubelet's report: {share:.2%} of a core for {NODES} nodes")
    print(f"{mib:8.1f} MiB  nodes as their watch keeps them, without pods")


def report(node: NodeRecord, version: int) -> bytes:
    """Return the line of the watch by which a kubelet reports a node."""
    beat = f"2026-01-01T00:{version // 60 % 60:02d}:{version % 60:02d}Z"
    amounts = {name: f"{amount}m" for name, amount in node.allocatable.items()}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    condition = {"lastHeartbeatTime": beat, "lastTransitionTime": beat, "message": "as it says", "reason": "Known"}
    images = [f"registry.example/team/training-{number}@sha256:{number:064x}" for number in range(IMAGES)]
    status = {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": node.name}],
        "allocatable": amounts,
        "capacity": amounts,
        "conditions": [{"type": kind, "status": str(kind == "Ready"), **condition} for kind in kinds],
        "images": [{"names": [name, name.partition("@")[0]], "sizeBytes": 1 << 30} for name in images],
        "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Linux", "architecture": "amd64"},
    }
    metadata = {"name": node.name, "uid": node.name, "resourceVersion": str(version), "labels": node.labels}
    found = {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {"podCIDR": "10.1.0.0/24"}}
    return orjson.dumps({"type": "MODIFIED", "object": {**found, "status": status}})


def measured(what: str, work: Callable[[], object], floor: float | None, rounds: int = ROUNDS) -> float:
    """Print what ``work`` took in some rounds; return the median, in milliseconds."""
    took = []
    gc_pauses.settle()
    for _ in range(rounds):
        began = time.process_time()
        work()
        took.append((time.process_time() - began) * 1000)
    took.sort()
    middle, late = took[rounds // 2], took[-(-rounds * 99 // 100) - 1]
    beside = "" if floor is None else f"  {middle / floor:6.1f} of the plain look"
    print(f"{middle:8.2f} ms, p99 {late:.2f}, at most {took[-1]:.2f}  {what}{beside}", flush=True)
    return middle


if __name__ == "__main__":
    main()
