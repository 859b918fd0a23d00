"""Where the time of a load goes, by the API server's own measurements, its profile and those of our processes.

``python -m benchmarks.bench_admission --profile FOLDER`` prints the first and writes the others there: ``go tool pprof
-top FOLDER/kube-apiserver.pb``, and one text a process, each line a stack and how often it was seen, where ``py-spy``
is on the path. Looking costs processor time too: take rates from runs without it.
"""

import asyncio
import os
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from tests.e2e.controlplane.install import Installation
from webhook.kube.api import Api

SECONDS: Final = 15
"""How long processes are watched: the middle of a run."""
HISTOGRAMS: Final = {
    "apiserver_request_duration_seconds": "request",
    "apiserver_admission_controller_admission_duration_seconds": "plugin",
    "apiserver_admission_webhook_admission_duration_seconds": "webhook",
    "apiserver_admission_match_condition_evaluation_seconds": "match conditions",
    "apiserver_validating_admission_policy_check_duration_seconds": "validating policy",
    "apiserver_mutating_admission_policy_check_duration_seconds": "mutating policy",
}
"""Durations that the API server measures, to what they are of."""
_SAMPLE: Final = re.compile(r"^(\w+?)_(sum|count)\{([^}]*)\} ([0-9.e+-]+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_LABELS: Final = ("name", "policy", "verb", "type", "operation", "resource", "subresource")
LEAST_MILLIS: Final = 0.02


async def durations(api: Api) -> Counter[tuple[str, str]]:
    """Return how long the API server took over what so far, and how often: keys (what, ``sum`` or ``count``)."""
    found: Counter[tuple[str, str]] = Counter()
    text = (await api.request("GET", "/metrics")).decode()
    for name, part, labels, value in _SAMPLE.findall(text):
        of = dict(_LABEL.findall(labels))
        if name in HISTOGRAMS and of.get("verb") not in ("WATCH", "GET", "LIST"):
            what = " ".join([HISTOGRAMS[name], *(of[label] for label in _LABELS if of.get(label))])
            found[what, part] += float(value)  # type: ignore[assignment]
    return found


def show(spent: Counter[tuple[str, str]], jobs: int) -> None:
    """Print what took long, longest first. A webhook's time is mostly waiting; a policy's is the processor's."""
    print("  the API server's durations, a job (webhooks overlap, plugins contain what they call):")
    for (what, part), seconds in spent.most_common():
        if part == "sum" and seconds * 1000 / jobs >= LEAST_MILLIS:
            print(f"    {seconds * 1000 / jobs:6.2f} ms  {spent[what, 'count'] / jobs:5.2f} times  {what}")


@asynccontextmanager
async def profiled(api: Api, installation: Installation | None, folder: Path) -> AsyncIterator[None]:
    """Watch the API server, and our processes, for some seconds of what is done inside."""
    await asyncio.to_thread(os.makedirs, folder, exist_ok=True)
    watching = [asyncio.create_task(_api_server(api, folder / "kube-apiserver.pb"))]
    for replica in installation.replicas if installation is not None else ():
        watching.append(asyncio.create_task(_process(replica.component.pid, folder / f"{replica.name}.txt")))
    yield
    with suppress(Exception):
        await asyncio.gather(*watching)


async def _api_server(api: Api, target: Path) -> None:
    await asyncio.sleep(4)
    query = {"seconds": str(SECONDS)}
    profile = await api.request("GET", "/debug/pprof/profile", query=query, timeout_seconds=SECONDS + 30)
    await asyncio.to_thread(target.write_bytes, profile)


async def _process(pid: int, target: Path) -> None:
    program = shutil.which("py-spy")
    if program is None:
        return
    await asyncio.sleep(4)
    options = ["--duration", str(SECONDS), "--rate", "100", "--format", "raw", "--output", str(target)]
    process = await asyncio.create_subprocess_exec(
        program, "record", "--pid", str(pid), *options, stdout=asyncio.subprocess.DEVNULL
    )
    await process.wait()
