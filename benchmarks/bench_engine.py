"""How fast the engine decides: gangs waiting in queues of cohorts, from first submit until all are decided.

Shape: per queue 20 cpu nominal and a borrowing limit of 100; 35 small, 11 medium and 4 large gangs of 1, 5 and 20 cpu
with priorities 50, 100 and 200. Printed for each number of pending gangs:

- ``decide``: submit all, one cycle; every gang is then admitted or waits with a reason. Decisions per CPU second.
- ``drain``: gangs end in batches and cycles follow until all have run. Each gang is decided about at least once more.
- ``step``: one gang ends, one is submitted, one cycle, with the rest still waiting: the cost of a change, p50 and p99.

Run: ``python -m benchmarks.bench_engine [--distinct] [--preempting] [--sizes 1000,10000,50000]``
"""

import argparse
import gc
import platform
import resource
import time

from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import (
    Cohort,
    Flavor,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    Policy,
    Preemption,
    PreemptionPolicy,
    Queue,
    Quota,
    ResourceGroup,
)
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan

CPU = 1000
KINDS = (("small", 35, 1, 50), ("medium", 11, 5, 100), ("large", 4, 20, 200))
PER_QUEUE = 50
COHORTS = 10


def policy_of(queues: int, preempting: bool) -> Policy:
    rules = Preemption()
    if preempting:
        rules = Preemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY)
    group = ResourceGroup(("cpu",), (FlavorQuotas("default", {"cpu": Quota(20 * CPU, 100 * CPU)}),))
    made = {
        f"q{i}": Queue(
            f"q{i}", "kueue", f"c{i % COHORTS}", (group,), namespace_selector=LabelSelector(), preemption=rules
        )
        for i in range(queues)
    }
    return Policy(
        queues=made,
        cohorts={f"c{i}": Cohort(f"c{i}") for i in range(COHORTS)},
        flavors={"default": Flavor("default")},
        local_queues={(f"ns{i}", "lq"): LocalQueue(f"ns{i}", "lq", f"q{i}") for i in range(queues)},
    )


def gangs_of(queues: int, distinct: bool) -> list[Gang]:
    made = []
    for number in range(PER_QUEUE):
        kind, cpu, priority = _kind(number)
        for i in range(queues):
            memory = {"memory.example/odd": number * queues + i} if distinct else {}
            price = PodPrice({"cpu": cpu * CPU}, memory)
            pods = (PodSet("main", 1, price),)
            uid = f"{kind}-{number}-{i}"
            made.append(Gang(uid, "Job.batch", f"ns{i}", uid, "lq", pods, priority, created_seconds=float(number)))
    return made


def _kind(number: int) -> tuple[str, int, int]:
    for kind, count, cpu, priority in KINDS:
        if number < count:
            return kind, cpu, priority
        number -= count
    raise ValueError(number)


def measure(pending: int, distinct: bool, preempting: bool) -> None:
    queues = pending // PER_QUEUE
    policy, gangs = policy_of(queues, preempting), gangs_of(queues, distinct)
    namespaces: dict[str, dict[str, str]] = {f"ns{i}": {} for i in range(queues)}
    fences, engine = Fences(), Engine()
    engine.set_policy(policy, namespaces, 0.0)
    gc.collect()
    gc.freeze()
    start = time.process_time()
    for gang in gangs:
        engine.submit(gang, 0.0)
    submitted = time.process_time()
    first = engine.cycle(0.0, fences, 1)
    decided = time.process_time()
    waiting = sum(1 for gang in gangs if engine.reason(gang.uid) is not None) if pending <= 1000 else None
    print(
        f"{pending:>6} pending  decide {pending / (decided - start):>9,.0f}/s"
        f"  (submit {1e6 * (submitted - start) / pending:.1f} us each, cycle {1e3 * (decided - submitted):.0f} ms,"
        f" {len(first.admitted):,} admitted{'' if waiting is None else f', {waiting:,} with a reason'})",
        flush=True,
    )
    running = [r.uid for r in first.admitted]
    gone, cycles = 0, []
    names = {gang.uid: gang for gang in gangs}
    by_namespace = {r.uid: r.namespace for r in first.admitted}
    batch, steps = max(1, len(running) // 100), min(500, len(running) // 2)

    def end(uid: str) -> None:
        engine.release(uid)
        fences.drop_reservation(by_namespace[uid], uid)

    for number in range(steps):
        end(running.pop(0))
        extra = names[f"small-0-{number % queues}"]
        renamed = f"more-{number}"
        gang = Gang(renamed, extra.kind, extra.namespace, renamed, "lq", extra.pod_sets, 50, created_seconds=99.0)
        names[renamed] = gang
        begin = time.process_time()
        engine.submit(gang, 0.0)
        plan = engine.cycle(1.0, fences, 1)
        cycles.append(time.process_time() - begin)
        gone += 1
        stop_all(engine, fences, plan, names=names, running=running, where=by_namespace)
    cycles.sort()
    p50, p99 = cycles[len(cycles) // 2], cycles[len(cycles) * 99 // 100]
    print(f"                step p50 {1e3 * p50:.2f} ms, p99 {1e3 * p99:.2f} ms over {steps} changes", flush=True)
    total, drained, times = len(names) - gone, 0, []
    begin = time.process_time()
    while running:
        ended, running = running[:batch], running[batch:]
        for uid in ended:
            end(uid)
        drained += len(ended)
        at = time.process_time()
        plan = engine.cycle(2.0, fences, 1)
        times.append(time.process_time() - at)
        stop_all(engine, fences, plan, names=names, running=running, where=by_namespace)
    took = time.process_time() - begin
    times.sort()
    print(
        f"                drain {drained / took:>9,.0f}/s  ({drained:,} of {total:,} gangs ran in {took:.2f} s,"
        f" {len(times):,} cycles, p50 {1e3 * times[len(times) // 2]:.2f} ms,"
        f" p99 {1e3 * times[len(times) * 99 // 100]:.2f} ms)",
        flush=True,
    )


def stop_all(
    engine: Engine, fences: Fences, plan: Plan, *, names: dict[str, Gang], running: list[str], where: dict[str, str]
) -> None:
    """Carry a plan out: victims end and wait again, admitted gangs run."""
    for preempted in plan.preempted:
        running.remove(preempted.uid)
        engine.release(preempted.uid)
        fences.drop_reservation(where[preempted.uid], preempted.uid)
        engine.submit(names[preempted.uid], 1.0)
    for reservation in plan.admitted:
        running.append(reservation.uid)
        where[reservation.uid] = reservation.namespace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--distinct", action="store_true", help="no two gangs ask the same")
    parser.add_argument(
        "--preempting", action="store_true", help="reclaimWithinCohort Any, withinClusterQueue LowerPriority"
    )
    parser.add_argument("--sizes", default="1000,10000,50000")
    options = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, CPU time of one core; {COHORTS} cohorts")
    for size in options.sizes.split(","):
        measure(int(size), options.distinct, options.preempting)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak RSS {peak:.0f} MiB, the gangs and the script among it")


if __name__ == "__main__":
    main()
