"""Jobs admitted per second end to end, beside the least any controller must do, on one machine in one run.

Prints for each: jobs a second, mean time to admission by class, API writes a job by verb and resource (from the API
server's own metrics, less what the load itself wrote), and processor time a job by process. That one hardly depends on
what else the machine does, so it is what a change is judged by.
"""

import argparse
import asyncio
import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Collection
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop

from benchmarks.load import BORROWING_CPU, NAMESPACE, TOTAL, Load, Outcome, delete_jobs, policy, quota_limit_per_second
from benchmarks.profiling import durations, profiled, show
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import ROOT, Installation
from webhook.errors import Conflict
from webhook.kube.api import Api
from webhook.kube.connecting import connect

PEER: Final = {"Kueue (main, Aug 2026), measured on a machine of this size": 14.1}
TIMEOUT_SECONDS: Final = 300
PREPARING: Final = 24
"""Objects of the policy created at once. One by one, each would have every process compile a thousand queues."""
WRITE_VERBS: Final = ("POST", "PUT", "PATCH", "DELETE", "APPLY")
_SAMPLE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>[0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
BACKGROUND: Final = ("leases", "nodes", "events.k8s.io/nodes")


async def writes(api: Api, verbs: Collection[str] = WRITE_VERBS) -> Counter[str]:
    """Return the API server's count of writes, or of other ``verbs``, by resource, leases and nodes left out."""
    text = (await api.request("GET", "/metrics")).decode()
    counts: Counter[str] = Counter()
    for match in _SAMPLE.finditer(text):
        labels = dict(_LABEL.findall(match["labels"]))
        if labels.get("verb") in verbs and labels.get("resource") not in BACKGROUND:
            sub = f"/{labels['subresource']}" if labels.get("subresource") else ""
            counts[f"{labels['verb']} {labels['resource']}{sub}"] += int(float(match["value"]))
    return counts


def processor_millis(cluster: Cluster) -> Counter[str]:
    """Return the processor time that each process has used; this one is the load."""
    pids = {"the load": os.getpid()} | {name: component.pid for name, component in cluster.components.items()}
    used: Counter[str] = Counter()
    for name, pid in pids.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used[name] = (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")
    return used


async def prepare(api: Api, objects: list[dict[str, Any]], *, kueue_kinds: bool) -> None:
    """Create the policy ``objects`` of a load."""
    plurals = {
        "Namespace": "/api/v1/namespaces",
        "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
        "ResourceFlavor": "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
        "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
        "LocalQueue": f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/localqueues",
    }
    wanted = [item for item in objects if kueue_kinds or "kueue" not in item["apiVersion"]]
    slots = asyncio.Semaphore(PREPARING)

    async def create(item: dict[str, Any]) -> None:
        async with slots:
            with suppress(Conflict):
                await api.request("POST", plurals[item["kind"]], body=orjson.dumps(item), timeout_seconds=60)

    # The namespace comes first; the others wait for nothing.
    for item in wanted[:1]:
        await create(item)
    async with asyncio.TaskGroup() as tasks:
        for item in wanted[1:]:
            tasks.create_task(create(item))


async def measure(
    cluster: Cluster, api: Api, name: str, folder: Path | None = None, installation: Installation | None = None
) -> Outcome:
    """Run the load once and print what came of it; with ``folder``, where its time went as well."""
    before, used_before, took = await writes(api), processor_millis(cluster), await durations(api)
    async with profiled(api, installation, folder) if folder is not None else nullcontext():
        outcome = await Load(api).run(TIMEOUT_SECONDS)
    await asyncio.sleep(2)
    for replica in () if installation is None else installation.replicas:
        # Without it everything costs less, and nothing else would say so.
        if not replica.component.running:
            raise replica.component.failure("ended under the load")
    after, used = await writes(api), processor_millis(cluster) - used_before
    own = Counter(outcome.own_writes)
    spent = Counter({key: after[key] - before[key] - own[key] for key in after if after[key] - before[key] - own[key]})
    waits = outcome.mean_wait_seconds()
    print(f"\n{name}")
    print(f"  {outcome.per_second:7.1f} jobs/s   (all finished after {outcome.seconds:.1f} s)")
    print("  mean time to admission: " + ", ".join(f"{c} {waits[c]:.2f} s" for c in ("large", "medium", "small")))
    print(f"  API writes per job: {sum(spent.values()) / TOTAL:.2f}")
    for what, count in spent.most_common():
        print(f"    {count / TOTAL:6.3f}  {what}")
    print(f"  processor per job: {used.total() / TOTAL:.1f} ms")
    for what, millis in used.most_common():
        print(f"    {millis / TOTAL:6.2f}  {what}")
    if folder is not None:
        show(await durations(api) - took, TOTAL)
    sys.stdout.flush()
    await delete_jobs(api)
    return outcome


async def run_floor(cluster: Cluster, api: Api, folder: Path | None) -> Outcome:
    """Measure the least controller."""
    command = [sys.executable, "-m", "benchmarks.floor", str(cluster.kubeconfig)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        return await measure(cluster, api, "the least any controller must do (no webhook, no engine)", folder)
    finally:
        process.terminate()
        await process.wait()


def rss_mib(installation: Installation) -> dict[str, float]:
    """Return the peak resident memory of each of Tutti's processes."""
    peaks = {}
    for replica in installation.replicas:
        pid = replica.component.pid
        text = Path(f"/proc/{pid}/status").read_text()
        match = re.search(r"VmHWM:\s+(\d+) kB", text)
        peaks[replica.name] = int(match[1]) / 1024 if match else 0.0
    return peaks


async def _main(arguments: argparse.Namespace) -> None:
    print(
        f"machine: {platform.processor() or platform.machine()}, {platform.python_version()}, {TOTAL} jobs, "
        f"borrowing limit {BORROWING_CPU}; the quota alone would allow {quota_limit_per_second():.0f} jobs/s"
    )
    folder = arguments.profile
    flags = ("--profiling=true",) if folder else ()
    shape = Shape(operators=False, without_controllers=("job-controller",), api_server_flags=flags)
    with Cluster(shape) as cluster:
        api = await connect(cluster.kubeconfig)
        await prepare(api, policy(), kueue_kinds=False)
        floor = None
        if not arguments.without_floor:
            floor = await run_floor(cluster, api, folder and folder / "floor")
        # No pod is created, so nothing would ever leave the nodes.
        installation = Installation(cluster, overrides={"nodeFit": "off"}).install()
        await prepare(api, policy(), kueue_kinds=True)
        await asyncio.sleep(3)
        ours = await measure(cluster, api, "Tutti (2 webhook replicas, 2 reconcilers)", folder, installation)
        print("  peak memory: " + ", ".join(f"{name} {mib:.0f} MiB" for name, mib in rss_mib(installation).items()))
        await api.close()
    if floor is not None:
        print(f"\nratio to the least possible: {ours.per_second / floor.per_second:.2f}")
    for peer, rate in PEER.items():
        print(f"ratio to {peer} ({rate} jobs/s, not in this run): {ours.per_second / rate:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-floor", action="store_true", help="measure Tutti alone")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="say where the time goes; see profiling.py")
    uvloop.run(_main(parser.parse_args()))
