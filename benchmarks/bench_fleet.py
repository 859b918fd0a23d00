"""A hub and two members as real control planes: how fast gangs come into members, how soon freed room is taken.

Prints gangs a second from the first creation to the last gang that a member may run, processor time a gang by process,
API requests a gang in the hub and in the members by verb and resource, and the time from the last pod of a gang that is
gone to the first moment at which all pods of the next one run, in whichever member; and from a change of a status in a
member to the moment at which the hub's job shows it. A last part kills ``tutti hub`` while gangs are on their way, and
prints how long after its start the last of them is in a member; it fails where one is lost or runs in two members.
"""

import argparse
import asyncio
import contextlib
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import orjson
import uvloop

from benchmarks.bench_admission import WRITE_VERBS, processor_millis, writes
from tests.e2e import objects, queues
from tests.e2e.controlplane.fleet import HUB, MEMBER_GPUS, MEMBERS, NAMESPACE, FleetClusters
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.members.copies import dispatch_of
from webhook.kube.api import Api
from webhook.kube.connecting import connect

PEER: Final = {"MultiKueue with 3 workers, by its own users (kueue 8564)": 1.31}
JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
LOOK_SECONDS: Final = 0.05
CHANGE_SECONDS: Final = 0.1
CHANGED: Final = "Changed-"
"""What the conditions begin with that are written to see how soon they are shown."""
AT_ONCE: Final = 32
"""Requests of this program: each connection that it opens costs an API server as much as some of them."""
GIVE_UP_SECONDS: Final = 120.0
FLOOR: Final = "floor"
"""A namespace in which nothing waits."""
ASKED: Final = (*WRITE_VERBS, "GET", "LIST")
LOAD: Final = "the load"
"""This process, which loads all three clusters."""
FLOOR_PATCHES_HUB: Final = 3
"""Of a job in the hub at least: offered, granted, started."""
FLOOR_PATCHES_MEMBER: Final = 2
"""Of a copy: permitted, started."""


async def create(hub: Api, name: str, pods: int, gpus: int, runtime: str) -> None:
    """Submit a gang."""
    job = objects.job(name, pods, objects.pod_template(gpus=gpus, runtime=runtime, cpu="10m"), queues.QUEUE)
    await hub.request("POST", JOBS, body=orjson.dumps(job))


async def delete(hub: Api, name: str) -> None:
    await hub.request("DELETE", f"{JOBS}/{name}", body=b'{"propagationPolicy": "Background"}')


async def listed(api: Api, path: str, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads(await api.request("GET", path, query=query or None))["items"]
    return found


async def in_members(hub: Api, names: set[str]) -> None:
    """Wait until every one of these gangs has been granted to a member."""
    left = set(names)

    def see(job: dict[str, Any]) -> None:
        dispatch = dispatch_of(job)
        # One that ended meanwhile is nowhere again, and was offered.
        if dispatch.holds or (dispatch.phase is DispatchPhase.NOWHERE and job.get("status", {}).get("completionTime")):
            left.discard(job["metadata"]["name"])

    async def look() -> None:
        found = orjson.loads(await hub.request("GET", JOBS))
        for job in found["items"]:
            see(job)
        query = {"watch": "1", "resourceVersion": found["metadata"]["resourceVersion"]}
        if left:
            async for line in hub.watch(JOBS, query=query, idle_seconds=GIVE_UP_SECONDS):
                see(orjson.loads(line)["object"])
                if not left:
                    return

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GIVE_UP_SECONDS):
            # An API server ends the watch of somebody who falls behind.
            while left:
                await look()
    assert not left, f"{len(left)} gangs are in no member: {sorted(left)[:5]}"


@contextlib.asynccontextmanager
async def in_one_member_each(apis: dict[str, Api]) -> AsyncIterator[dict[str, set[str]]]:
    """Fail at the end of the block if a gang ever had copies that were not suspended in two members.

    Yields in which members each gang had one.
    """
    seen: dict[str, set[str]] = {}

    def see(member: str, job: dict[str, Any]) -> None:
        if "spec" in job and not job["spec"].get("suspend"):
            seen.setdefault(job["metadata"]["name"], set()).add(member)

    async def follow(member: str) -> None:
        while True:
            found = orjson.loads(await apis[member].request("GET", JOBS))
            for job in found["items"]:
                see(member, job)
            query = {"watch": "1", "resourceVersion": found["metadata"]["resourceVersion"]}
            async for line in apis[member].watch(JOBS, query=query, idle_seconds=GIVE_UP_SECONDS):
                see(member, orjson.loads(line)["object"])

    following = [asyncio.create_task(follow(member)) for member in MEMBERS]
    try:
        yield seen
        ended = [task for task in following if task.done()]
        assert not ended, f"a member could not be followed: {ended}"
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    twice = {name: sorted(members) for name, members in seen.items() if len(members) > 1}
    assert not twice, f"gangs had copies that were not suspended in two members: {twice}"


async def emptied(apis: dict[str, Api]) -> None:
    """Delete all gangs and wait until nothing is left of them."""
    for job in await listed(apis[HUB], JOBS):
        await delete(apis[HUB], job["metadata"]["name"])
    while any([await listed(apis[name], path) for name in apis for path in (JOBS, PODS)]):
        await asyncio.sleep(0.2)


async def at_once(requests: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Send many, not all at the same time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def send(request: Callable[[], Awaitable[object]]) -> None:
        async with slots:
            await request()

    await asyncio.gather(*map(send, requests))


async def floor(apis: dict[str, Api], gangs: int) -> None:
    """Print gangs a second of one who decides nothing: the writes that place a gang, one after another."""
    namespace = {"metadata": {"name": FLOOR}}
    for api in apis.values():
        await api.request("POST", "/api/v1/namespaces", body=orjson.dumps(namespace))
    jobs = f"/apis/batch/v1/namespaces/{FLOOR}/jobs"

    async def place(number: int) -> None:
        job = objects.job(f"floor-{number}", 2, objects.pod_template(cpu="10m"))
        # Nobody else writes on it.
        job["spec"] |= {"suspend": True, "managedBy": "example.org/floor"}
        at = HUB, MEMBERS[number % len(MEMBERS)]
        for name, patches in zip(at, (FLOOR_PATCHES_HUB, FLOOR_PATCHES_MEMBER), strict=True):
            await apis[name].request("POST", jobs, body=orjson.dumps(job))
            for each in range(patches):
                body = orjson.dumps({"metadata": {"annotations": {f"example.org/{each}": "x" * 200}}})
                path = f"{jobs}/floor-{number}"
                await apis[name].request("PATCH", path, body=body, content_type="application/merge-patch+json")

    began = time.monotonic()
    await at_once(partial(place, number) for number in range(gangs))
    took = time.monotonic() - began
    print(f"  the same writes with nobody who decides: {gangs / took:.1f} gangs/s", flush=True)


def processor(fleet: FleetClusters) -> Counter[str]:
    """Return the processor time that each process of the three clusters has used; ``the load`` is this one."""
    used: Counter[str] = Counter()
    for name, cluster in fleet.clusters.items():
        for process, millis in processor_millis(cluster).items():
            if process == LOAD:
                used[process] = millis
            else:
                used[f"{'hub' if name == HUB else 'members'}: {process}"] += millis
    return used


async def rate(fleet: FleetClusters, apis: dict[str, Api], gangs: int) -> None:
    """Print gangs a second, and what they cost until the last of them is in a member."""
    before, used = {name: await writes(api, ASKED) for name, api in apis.items()}, processor(fleet)
    names, began = {f"rate-{number}" for number in range(gangs)}, time.monotonic()
    await at_once(partial(create, apis[HUB], name, 2, 0, "600s") for name in sorted(names))
    await in_members(apis[HUB], names)
    took = time.monotonic() - began
    print(f"{gangs} gangs of 2 pods in members after {took:.2f} s: {gangs / took:.1f} gangs/s", flush=True)
    for peer, per_second in PEER.items():
        print(f"  {gangs / took / per_second:.1f} times {peer}: {per_second}/s")
    used = processor(fleet) - used
    print(f"  processor a gang: {used.total() / gangs:.1f} ms")
    for what, millis in used.most_common():
        if millis >= gangs / 2:
            print(f"    {millis / gangs:5.1f} {what}")
    spent: Counter[str] = Counter()
    for name, api in apis.items():
        for what, number in (await writes(api, ASKED) - before[name]).items():
            spent[f"{'hub' if name == HUB else 'member'} {what}"] += number
    for what, number in spent.most_common():
        if number >= gangs / 10:
            print(f"  {number / gangs:6.2f} a gang: {what}")


async def statuses(apis: dict[str, Api], changes: int) -> None:
    """Print how soon the hub shows what has changed in the status of gangs that run in members."""
    jobs = await listed(apis[HUB], JOBS)
    version = orjson.loads(await apis[HUB].request("GET", JOBS, query={"limit": "1"}))["metadata"]["resourceVersion"]
    changed: dict[str, float] = {}
    shown: dict[str, float] = {}
    """The hub may show a change before its member has answered that it is stored."""

    async def look() -> None:
        query = {"watch": "1", "resourceVersion": version}
        async for line in apis[HUB].watch(JOBS, query=query, idle_seconds=GIVE_UP_SECONDS):
            now = time.monotonic()
            for each in orjson.loads(line)["object"].get("status", {}).get("conditions") or ():
                if each["type"].startswith(CHANGED):
                    shown.setdefault(each["type"], now)
            if len(shown) == changes:
                return

    async def change(number: int) -> None:
        await asyncio.sleep(number * CHANGE_SECONDS)
        job = jobs[number % len(jobs)]
        path = f"{JOBS}/{job['metadata']['name']}/status"
        change = {"type": f"{CHANGED}{number}", "status": "True", "reason": "Tried", "message": ""}
        patch = [{"op": "add", "path": "/status/conditions", "value": [change]}]
        member = apis[dispatch_of(job).member]
        await member.request("PATCH", path, body=orjson.dumps(patch), content_type="application/json-patch+json")
        changed[change["type"]] = time.monotonic()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GIVE_UP_SECONDS):
            await asyncio.gather(look(), *map(change, range(changes)))
    assert len(shown) == changes, f"not shown within {GIVE_UP_SECONDS:.0f} s: {sorted(changed.keys() - shown.keys())}"
    told = sorted(max(0.0, shown[each] - changed[each]) for each in shown)
    print(
        f"{changes} changes of a status, one each {CHANGE_SECONDS} s: the hub shows them "
        f"after p50 {statistics.median(told):.2f} s, p99 {told[min(changes - 1, int(changes * 0.99))]:.2f} s",
        flush=True,
    )


async def hand_over(apis: dict[str, Api], rounds: int) -> None:
    """Print how soon a gang that waits runs when another one is gone."""
    members = [apis[name] for name in MEMBERS]
    for number in range(len(MEMBERS)):
        await create(apis[HUB], f"turn-{number}", 2, MEMBER_GPUS // 2, "600s")
    await in_members(apis[HUB], {f"turn-{number}" for number in range(len(MEMBERS))})
    seconds = []
    for number in range(rounds):
        old, new = f"turn-{number}", f"turn-{number + len(MEMBERS)}"
        await create(apis[HUB], new, 2, MEMBER_GPUS // 2, "600s")
        await asyncio.sleep(3)
        await delete(apis[HUB], old)
        gone = None
        while True:
            found = [pod for api in members for pod in await listed(api, PODS)]
            now, of = time.monotonic(), Counter(pod["metadata"]["labels"]["job-name"] for pod in found)
            if gone is None and not of[old]:
                gone = now
            running = [pod for pod in found if pod["metadata"]["labels"]["job-name"] == new]
            if len(running) == 2 and all(pod["status"].get("phase") == "Running" for pod in running):
                seconds.append(now - (gone or now))
                break
            await asyncio.sleep(LOOK_SECONDS / 2)
    seconds.sort()
    worst = seconds[min(len(seconds) - 1, int(len(seconds) * 0.99))]
    print(
        f"{rounds} times room freed: the next gang runs after p50 {statistics.median(seconds):.2f} s, p99 {worst:.2f} s"
    )


async def kills(fleet: FleetClusters, apis: dict[str, Api], rounds: int) -> None:
    """Print how long the gangs on their way take after ``tutti hub`` was killed and has started again."""
    hub, seconds = fleet.clusters[HUB].components["hub"], []
    for number in range(rounds):
        names = {f"kill-{number}-{each}" for each in range(8)}
        await asyncio.gather(*(create(apis[HUB], name, 2, 0, "600s") for name in sorted(names)))
        await asyncio.sleep(0.1 * number)
        hub.kill()
        hub.start()
        began = time.monotonic()
        await in_members(apis[HUB], names)
        seconds.append(time.monotonic() - began)
    told = ", ".join(f"{each:.1f}" for each in seconds)
    print(f"tutti hub killed 0, 0.1, … s after 8 gangs came: all in members after {told} s")


async def run(arguments: argparse.Namespace) -> None:
    with FleetClusters() as fleet:
        for name in (HUB, *MEMBERS):
            queues.set_gpus(fleet.kubectl[name], 4 * MEMBER_GPUS if name == HUB else MEMBER_GPUS)
        apis: dict[str, Api] = {name: await connect(cluster.kubeconfig) for name, cluster in fleet.clusters.items()}
        try:
            await floor(apis, arguments.gangs)
            await rate(fleet, apis, arguments.gangs)
            await statuses(apis, arguments.changes)
            await emptied(apis)
            await hand_over(apis, arguments.rounds)
            await emptied(apis)
            async with in_one_member_each(apis):
                await kills(fleet, apis, arguments.kills)
        finally:
            for api in apis.values():
                await api.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_fleet", description=__doc__)
    parser.add_argument("--gangs", type=int, default=120)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kills", type=int, default=8)
    arguments = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {platform.machine()}; a hub, {len(MEMBERS)} members")
    uvloop.run(run(arguments))


if __name__ == "__main__":
    main()
