"""What a new leader's look for an old ledger takes: every job and pod is asked whether the ledger says of it.

Gangs of 4 pods that run, in 100 namespaces. Printed for each number of gangs, the best of five, with a ledger that
holds all of them, with one that lacks the last ten, and with one that lacks them all, as if the first of all backups
had been put back. The loop does nothing else meanwhile. Where something lacks, jobs and pods are listed again before
that is believed, which costs what reading them at the start does and leaves others their turns.

Run: ``python -m benchmarks.bench_doubt [--sizes 20000,50000]``
"""

import argparse
import time
from dataclasses import replace

from tests.unit.jobs.records import waiting_job
from webhook.cluster import rebuild
from webhook.cluster.view import View
from webhook.core.ledger.record import Ledger, Reservation, reserve
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.pods import PodRecord
from webhook.jobs.reading import annotations

PODS = 4
NAMESPACES = 100
ROUNDS = 5
LACKING = 10


def gang(number: int) -> Gang:
    pod_set = PodSet("main", PODS, PodPrice({"nvidia.com/gpu": 1000}))
    return Gang(f"uid-{number}", "Job.batch", f"team-{number % NAMESPACES}", f"job-{number}", "q", (pod_set,))


def running(gangs: list[Gang]) -> tuple[View, dict[str, Reservation]]:
    """Return what is read of gangs that run, and what a ledger says of them."""
    view, entries = View(), {}
    view.namespaces.update({each.namespace: {} for each in gangs})
    for each in gangs:
        entry = reserve(each, "q", {"main": PODS}, {"main": {"nvidia.com/gpu": "any"}}, 1, 100.0)
        job = waiting_job(each, suspended=False, active=True)
        view.put_job(replace(job, admission=annotations.admission_of(entry, job, (1, 1))))
        view.put_controller(each.uid, each.namespace, "")
        entries[each.uid] = entry
        for pod in range(PODS):
            uid, price = f"{each.uid}-{pod}", each.pod_sets[0].price
            name, of = f"{each.name}-{pod}", {"gang": each.uid, "pod_set": "main", "owner_uid": each.uid}
            view.put_pod(PodRecord(uid, each.namespace, name, 1, price, phase="Running", node="node", **of))
    return view, entries


def best(view: View, entries: dict[str, Reservation], lack: int) -> float:
    """Return the milliseconds of a look, with a ledger that says nothing of the last ``lack`` gangs."""
    ledger, times = Ledger(1, 1, dict(list(entries.items())[: len(entries) - lack])), []
    for _ in range(ROUNDS):
        began = time.process_time()
        found = rebuild.unheld(view, ledger)
        times.append((time.process_time() - began) * 1000)
        assert len(found) == min(lack, rebuild.NAMED_MAX)
    return min(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="20000,50000")
    for size in map(int, parser.parse_args().sizes.split(",")):
        view, entries = running([gang(number) for number in range(size)])
        whole, few, none = (best(view, entries, lack) for lack in (0, LACKING, size))
        print(f"{size:6} gangs, {size * PODS:6} pods: {whole:.0f} ms; {few:.0f} lacking ten; {none:.0f} lacking all")


if __name__ == "__main__":
    main()
