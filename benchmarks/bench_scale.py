"""What admission costs as ever more gangs run, beside the least any controller must do at the same depth in one run.

Jobs of four pods, which are never created (the Job controller is off), all of which fit. At each depth a burst of jobs
is created as fast as the API server takes them; printed is how many a second were admitted. Then a steady state: so
many jobs a second end, in random order, and as many arrive. When nothing is admitted for a while the run ends there and
says how many gangs ran. With ``--kills`` the leader is killed so often under that load, and printed is how long until
another one has started a job. Jobs that have ended are deleted then, as by ``ttlSecondsAfterFinished``; the run fails
where a job was admitted twice, was stopped or is lost.
"""

import argparse
import asyncio
import platform
import re
import statistics
import sys
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson
import uvloop

from benchmarks.bench_admission import prepare, processor_millis, rss_mib
from benchmarks.load import delete_jobs, policy
from benchmarks.running import PODS, STALLED_SECONDS, Running, Stalled, followed
from benchmarks.take_over import take_overs
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import ROOT, Installation
from webhook.kube.api import Api
from webhook.kube.connecting import connect

BURST: Final = 300
"""Jobs whose admission is measured at each depth."""
LOAD_SECONDS_MAX: Final = 1800.0
SETTLED_SECONDS: Final = 60.0
"""How long after the load the ledger may still mention jobs that have ended."""
NAMED_MAX: Final = 10
LEDGERS: Final = "/api/v1/namespaces/tutti-system/configmaps"


class Late(Exception):
    """Its time is over."""


@dataclass(slots=True)
class Sample:
    """What one side reached."""

    rates: dict[int, float] = field(default_factory=dict)
    """Depth to admissions a second."""
    steady_rate: float = 0.0
    steady_waits: list[float] = field(default_factory=list)
    started: int = 0
    running: int = 0


async def sample(jobs: Running, arguments: argparse.Namespace) -> Sample:
    """Fill up depth by depth and measure at each, for as long as ``arguments`` allow; prints each rate as it comes."""
    found = Sample()
    ends = asyncio.get_running_loop().time() + 60 * arguments.minutes
    try:
        for depth in sorted({0, *arguments.depths}):
            while len(jobs.running) < depth:
                await jobs.burst(min(500, depth - len(jobs.running)))
                if asyncio.get_running_loop().time() > ends:
                    raise Late
            found.rates[depth] = await jobs.burst(BURST)
            print(f"  {found.rates[depth]:7.1f} jobs/s admitted with {depth} running", flush=True)
        found.steady_rate, found.steady_waits = await jobs.steady(arguments.per_second, arguments.seconds)
    except Stalled:
        print(f"  nothing was admitted for {STALLED_SECONDS:.0f} s any more: {len(jobs.running)} run")
    except Late:
        print(f"  {arguments.minutes:g} minutes are over: {len(jobs.running)} run")
    found.started, found.running = len(jobs.started), len(jobs.running)
    return found


def etcd_bytes(cluster: Cluster) -> float:
    """Return what etcd has written to its log so far."""
    command = " ".join(map(str, cluster.components["etcd"].command))
    address = re.search(r"--listen-client-urls=(\S+)", command)
    assert address is not None
    return counter(f"{address[1]}/metrics", "etcd_disk_wal_write_bytes_total")


def counter(address: str, name: str) -> float:
    """Return one number of a metrics page; 0 where it is not there."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def bytes_read(installation: Installation) -> Counter[str]:
    """Return what each replica has read, nearly all of it from its connections: watches, lists, answers."""
    read: Counter[str] = Counter()
    for replica in installation.replicas:
        text = Path(f"/proc/{replica.component.pid}/io").read_text()
        read[replica.name] = int(text.split()[1])
    return read


async def ledger_objects(api: Api) -> list[dict[str, str]]:
    """Return the data of each object of the ledger."""
    items = orjson.loads(await api.request("GET", LEDGERS))["items"]
    ours = [item for item in items if re.fullmatch(r"tutti-ledger(-page.*)?", item["metadata"]["name"])]
    return [item.get("data") or {} for item in ours]


async def ledger_bytes(api: Api) -> int:
    """Return how long what is stored of the ledger is."""
    return sum(len(key) + len(text) for data in await ledger_objects(api) for key, text in data.items())


def show(found: Sample) -> None:
    """Print what one side reached in the steady state."""
    if found.steady_waits:
        waits = sorted(found.steady_waits)
        print(
            f"  steady: {found.steady_rate:.1f} jobs/s, wait mean {statistics.mean(waits):.2f} s, "
            f"p99 {waits[int(0.99 * len(waits))]:.2f} s"
        )
    sys.stdout.flush()


async def measure_ours(
    cluster: Cluster, api: Api, queues: list[tuple[str, str]], arguments: argparse.Namespace
) -> Sample:
    """Install Tutti, fill it, and print what that cost."""
    # No pod is ever made: no gang becomes whole, and a handful of nodes has no room for thousands.
    overrides = {"nodeFit": "off", "start": {"timeout_seconds": LOAD_SECONDS_MAX * 2}}
    installation = Installation(cluster, overrides=overrides).install()
    await prepare(api, policy(queues, arguments.cpu), kueue_kinds=True)
    await asyncio.sleep(5)
    before = processor_millis(cluster), bytes_read(installation), etcd_bytes(cluster)
    print("\nTutti (2 webhook replicas, 2 reconcilers)", flush=True)
    async with followed(Running(api, "ours", queues)) as jobs:
        ours = await sample(jobs, arguments)
        await show_costs(cluster, api, installation, ours, before)
        if arguments.kills:
            await show_take_overs(api, installation, jobs, arguments)
    return ours


async def show_take_overs(api: Api, installation: Installation, jobs: Running, arguments: argparse.Namespace) -> None:
    """Kill the leader again and again under the steady load; print how long nothing started.

    Ended jobs are let go meanwhile. Exits where a job was admitted twice, was stopped or is lost.
    """
    await jobs.delete_ended()
    deleted, enough = jobs.deleted, asyncio.Event()
    print(f"  leader killed with {len(jobs.running)} running, seconds to the next start:", flush=True)
    async with asyncio.TaskGroup() as tasks:
        letting_go = tasks.create_task(jobs.let_go())
        # Should the load end early, that is what is told, and not that nothing started.
        loading = tasks.create_task(jobs.steady(arguments.per_second, LOAD_SECONDS_MAX, enough))
        took = []
        async for each in take_overs(installation, api, jobs.first_starts, arguments.kills):
            took.append(each.seconds)
            print(
                f"    {each.seconds:5.1f} with {each.stored} jobs stored; the killed process was ready again "
                f"{each.ready_seconds:.1f} s after its start, beside {jobs.ended - jobs.deleted} ended jobs",
                flush=True,
            )
            if jobs.faults:
                sys.exit("\n".join(jobs.faults[:NAMED_MAX]))
        enough.set()
        rate, waits = await loading
        letting_go.cancel()
    print(f"  {len(took)} times: median {statistics.median(took):.1f} s, longest {max(took):.1f} s")
    print(
        f"  meanwhile {len(waits)} arrived ({rate:.1f} a second), {jobs.deleted - deleted} that had ended were deleted"
    )
    for what, count in jobs.refused.most_common(NAMED_MAX):
        print(f"  sent again {count} times: {what}")
    await check(api, jobs)


async def check(api: Api, jobs: Running) -> None:
    """Exit unless exactly the jobs run, and have one entry each in the ledger, that were started and have not ended."""
    ends = asyncio.get_running_loop().time() + SETTLED_SECONDS
    while found := jobs.faults + await jobs.differences(await ledger_objects(api)):
        if jobs.faults or asyncio.get_running_loop().time() > ends:
            sys.exit("\n".join(found[:NAMED_MAX]))
        await asyncio.sleep(1)
    print(f"  all {len(jobs.started)} were started once; the {len(jobs.running)} that run are in the ledger, once each")


Costs = tuple[Counter[str], Counter[str], float]
"""Processor milliseconds by process, bytes read by replica, bytes written by etcd."""


async def show_costs(cluster: Cluster, api: Api, installation: Installation, ours: Sample, before: Costs) -> None:
    """Print what Tutti reached in the steady state, and what all since ``before`` cost."""
    show(ours)
    count, running = max(1, ours.started), max(1, ours.running)
    used, read = processor_millis(cluster) - before[0], bytes_read(installation) - before[1]
    sent = sum(counter(f"{each.health}/metrics", "tutti_ledger_sent_bytes_total") for each in installation.reconcilers)
    print(f"  etcd wrote {(etcd_bytes(cluster) - before[2]) / count:.0f} bytes a job, the load's own included")
    print(f"  ledger: {sent / count:.0f} bytes sent a job, {await ledger_bytes(api) / running:.0f} bytes stored a gang")
    print("  peak memory: " + ", ".join(f"{name} {mib:.0f} MiB" for name, mib in rss_mib(installation).items()))
    print("  read a job: " + ", ".join(f"{name} {value / count / 1000:.1f} kB" for name, value in read.items()))
    print(f"  processor a job: {used.total() / count:.1f} ms")
    for what, millis in used.most_common(8):
        print(f"    {millis / count:6.2f}  {what}")


async def _main(arguments: argparse.Namespace) -> None:
    queues = [
        (f"cohort-{number % arguments.cohorts}", f"queue-{number % arguments.cohorts}-{number}")
        for number in range(arguments.queues)
    ]
    arguments.cpu = 100 + PODS * 2 * (max(arguments.depths, default=0) + 4000) // arguments.queues
    print(
        f"machine: {platform.processor() or platform.machine()}, {platform.python_version()}; jobs of {PODS} pods in "
        f"{arguments.queues} queues of {arguments.cohorts} cohorts, depths {sorted({0, *arguments.depths})}"
    )
    shape = Shape(operators=False, without_controllers=("job-controller",))
    with Cluster(shape) as cluster:
        api = await connect(cluster.kubeconfig)
        await prepare(api, policy(queues, arguments.cpu), kueue_kinds=False)
        floor = Sample() if arguments.without_floor else await measure_floor(cluster, api, queues, arguments)
        ours = await measure_ours(cluster, api, queues, arguments)
        await api.close()
    print()
    for depth, rate in ours.rates.items():
        share = "" if depth not in floor.rates else f", {rate / floor.rates[depth]:.2f} of the least possible there"
        print(f"with {depth} running: {rate / ours.rates[0]:.2f} of the rate at 0{share}")


async def measure_floor(
    cluster: Cluster, api: Api, queues: list[tuple[str, str]], arguments: argparse.Namespace
) -> Sample:
    """Measure the least controller, and leave none of its jobs."""
    command = [sys.executable, "-m", "benchmarks.floor", str(cluster.kubeconfig), str(1_000_000)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    print("\nthe least any controller must do (no webhook, no engine)", flush=True)
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        async with followed(Running(api, "floor", queues)) as jobs:
            found = await sample(jobs, arguments)
    finally:
        process.terminate()
        await process.wait()
    show(found)
    await delete_jobs(api)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depths", type=int, nargs="*", default=[2000, 5000], help="gangs running when it is measured")
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--cohorts", type=int, default=50)
    parser.add_argument("--per-second", type=float, default=50.0, help="jobs that end, and arrive, in the steady state")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the steady state lasts")
    parser.add_argument("--minutes", type=float, default=10.0, help="go no deeper after so long, on either side")
    parser.add_argument("--kills", type=int, default=0, help="how often the leader is killed under the steady load")
    parser.add_argument("--without-floor", action="store_true", help="measure Tutti alone")
    uvloop.run(_main(parser.parse_args()))
