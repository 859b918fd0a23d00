"""A hub and two members as real control planes, with faults: what becomes of gangs, and in which time.

Prints how long after the start of another ``tutti hub`` a gang has run to its end and left nothing, where the one
before was killed just before or after each of its eight writes; how long after its failure in one member a job runs in
the other; and how long gangs take into a member while the first, or the second, is a black hole, beside as long while
it answers. Fails where a gang of the first part is lost, or has copies that are not suspended in two members.
"""

import argparse
import asyncio
import itertools
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson
import uvloop

from benchmarks.bench_fleet import JOBS, PODS, create, delete, emptied, in_members, in_one_member_each, listed
from tests.e2e import queues
from tests.e2e.controlplane.dying_hub import STEPS, WHEN
from tests.e2e.controlplane.fleet import HUB, MEMBER_GPUS, MEMBERS, NAMESPACE, FleetClusters
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.members.copies import dispatch_of
from webhook.kube.api import Api
from webhook.kube.connecting import connect

LOOK_SECONDS: Final = 0.05
CLOSE_LOOK_SECONDS: Final = 0.01
"""Where less than a second is measured."""
GIVE_UP_SECONDS: Final = 60.0
RUNTIME_SECONDS: Final = 2
FLOORS: Final = 5
"""Gangs that come when nothing is under way: what a start of the hub takes by itself."""
GANG_PODS: Final = 2
TOLERATION_SECONDS: Final = 1
POLICIES: Final = f"/apis/policy.one.alibabacloud.com/v1alpha1/namespaces/{NAMESPACE}/propagationpolicies"


async def until(what: Callable[[], Any], told: str, look_seconds: float = LOOK_SECONDS) -> Any:
    """Ask for ``what`` until it is true, and return it."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while not (found := await what()):
        assert time.monotonic() < deadline, f"not within {GIVE_UP_SECONDS:.0f} s: {told}"
        await asyncio.sleep(look_seconds)
    return found


async def job_of(hub: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(await hub.request("GET", f"{JOBS}/{name}"))
    return found


async def over(apis: dict[str, Api], name: str) -> bool:
    """Whether a gang has ended and left nothing."""
    left = [each for member in MEMBERS for each in await listed(apis[member], JOBS)]
    job = await job_of(apis[HUB], name)
    conditions = job.get("status", {}).get("conditions") or ()
    ended = any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)
    return ended and not left and dispatch_of(job).phase is DispatchPhase.NOWHERE


async def deaths(fleet: FleetClusters, apis: dict[str, Api]) -> None:
    """Kill the hub at each of its writes, and print how long the gang then took to its end, in one member alone."""
    hub, whole = fleet.clusters[HUB].components["hub"], []
    usual, least = hub.command, []
    for number in range(FLOORS):
        hub.kill()
        hub.start()
        began = time.monotonic()
        await create(apis[HUB], f"calm-{number}", GANG_PODS, 0, f"{RUNTIME_SECONDS}s")
        await until(partial(over, apis, f"calm-{number}"), "a gang ends that comes when its hub starts")
        least.append(time.monotonic() - began)
        await delete(apis[HUB], f"calm-{number}")
    floor = statistics.median(least)
    print(f"  a gang that comes when its hub starts has ended and is gone after {floor:.1f} s", flush=True)
    for number, (step, when) in enumerate(itertools.product(STEPS, WHEN)):
        hub.kill()
        hub.command = [usual[0], "-m", "tests.e2e.controlplane.dying_hub", step, when, usual[-1]]
        hub.start()
        name = f"dies-{number}"
        async with in_one_member_each(apis) as seen:
            await create(apis[HUB], name, GANG_PODS, 0, f"{RUNTIME_SECONDS}s")
            deadline = time.monotonic() + GIVE_UP_SECONDS
            while hub.running:
                assert time.monotonic() < deadline, f"never came to {step}"
                await asyncio.sleep(LOOK_SECONDS)
            hub.command = usual
            hub.start()
            began = time.monotonic()
            await until(partial(over, apis, name), f"{name} ends after a death {when} {step}, or it is lost")
        took = time.monotonic() - began
        assert name in seen, f"{name} was lost by a death {when} {step}: it is over and never ran"
        whole.append(took)
        print(f"  killed {when} {step}: ended and gone after {took:.1f} s, ran in {min(seen[name])} alone", flush=True)
        await delete(apis[HUB], name)
    print(
        f"killed at {len(whole)} moments: worst {max(whole):.1f} s, {max(whole) / floor:.2f} times that, "
        f"median {statistics.median(whole):.1f} s, "
        f"of which the gang runs {RUNTIME_SECONDS} s and tutti hub starts"
    )


async def running_in(apis: dict[str, Api], name: str, not_in: str = "") -> str:
    """Return the member, other than ``not_in``, in which all pods of a gang run; nothing while there is none."""
    for member in MEMBERS:
        pods = [each for each in await listed(apis[member], PODS) if each["metadata"]["labels"]["job-name"] == name]
        if (
            member != not_in
            and len(pods) == GANG_PODS
            and all(each["status"].get("phase") == "Running" for each in pods)
        ):
            return member
    return ""


async def failures(apis: dict[str, Api], rounds: int) -> None:
    """Print how soon a job that failed in one member runs in the other."""
    selector = {"apiVersion": "batch/v1", "kind": "Job"}
    again = {"application": {"decisionConditions": {"tolerationSeconds": TOLERATION_SECONDS}}}
    policy = {
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "again"},
        "spec": {"resourceSelectors": [selector], "failover": again},
    }
    await apis[HUB].request("POST", POLICIES, body=orjson.dumps(policy))
    await asyncio.sleep(2)
    seconds = []
    for number in range(rounds):
        name = f"fails-{number}"
        await create(apis[HUB], name, GANG_PODS, 0, "600s")
        where = await until(partial(running_in, apis, name), f"{name} runs")
        pods = await listed(apis[where], PODS)
        pod = next(each for each in pods if each["metadata"]["labels"]["job-name"] == name)
        body = orjson.dumps({"status": {"phase": "Failed"}})
        path = f"{PODS}/{pod['metadata']['name']}/status"
        await apis[where].request("PATCH", path, body=body, content_type="application/merge-patch+json")
        began = time.monotonic()
        await until(partial(running_in, apis, name, where), f"{name} runs elsewhere")
        seconds.append(time.monotonic() - began)
    await apis[HUB].request("DELETE", f"{POLICIES}/again")
    told = ", ".join(f"{each:.1f}" for each in seconds)
    print(
        f"failed in one member, runs in the other after {told} s (tolerationSeconds {TOLERATION_SECONDS})", flush=True
    )


async def hole(fleet: FleetClusters, apis: dict[str, Api], member: str, runs: int, gangs: int) -> None:
    """Print how long gangs take while a member swallows what is sent to it, and otherwise.

    Either member may have them, and has room; the first is asked first. The hole has gangs that nothing is heard of.
    """
    policy = {
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "held"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "placement": {"clusterAffinity": {"clusterNames": [member]}},
        },
    }
    link = fleet.link(member)
    await asyncio.sleep(5)
    await apis[HUB].request("POST", POLICIES, body=orjson.dumps(policy))
    await asyncio.sleep(2)
    held = {f"held-{member}-{number}" for number in range(4)}
    await asyncio.gather(*(create(apis[HUB], name, GANG_PODS, 0, "6000s") for name in sorted(held)))
    await in_members(apis[HUB], held)
    await apis[HUB].request("DELETE", f"{POLICIES}/held")
    await asyncio.sleep(2)
    worst: dict[bool, list[float]] = {False: [], True: []}
    for run, swallows in itertools.product(range(runs), (False, True)):
        link.hold() if swallows else link.mend()
        await asyncio.sleep(8)
        names = [f"hole-{member}-{run}-{swallows}-{number}".lower() for number in range(gangs)]
        seconds = await asyncio.gather(*(placed(apis, name, 0.25 * number) for number, name in enumerate(names)))
        worst[swallows].append(sorted(seconds)[min(gangs - 1, math.ceil(gangs * 0.99) - 1)])
        await asyncio.gather(*(delete(apis[HUB], name) for name in names))
    link.mend()
    calm, swallowed = (statistics.median(worst[each]) for each in (False, True))
    print(
        f"p99 into a member, medians of {runs} runs of {gangs} gangs: {calm:.2f} s while {member} answers, "
        f"{swallowed:.2f} s while it is a black hole: {100 * (swallowed / calm - 1):+.0f} %",
        flush=True,
    )


async def placed(apis: dict[str, Api], name: str, after_seconds: float) -> float:
    """Return how long a gang takes to be granted."""
    await asyncio.sleep(after_seconds)
    began = time.monotonic()
    await create(apis[HUB], name, GANG_PODS, 0, "6000s")

    async def granted() -> bool:
        return dispatch_of(await job_of(apis[HUB], name)).holds

    await until(granted, f"{name} is granted", CLOSE_LOOK_SECONDS)
    return time.monotonic() - began


async def run(arguments: argparse.Namespace) -> None:
    with FleetClusters() as fleet:
        for name in (HUB, *MEMBERS):
            queues.set_gpus(fleet.kubectl[name], 4 * MEMBER_GPUS if name == HUB else MEMBER_GPUS)
        apis: dict[str, Api] = {name: await connect(cluster.kubeconfig) for name, cluster in fleet.clusters.items()}
        try:
            if arguments.failures:
                await failures(apis, arguments.failures)
                await emptied(apis)
            if arguments.deaths:
                await deaths(fleet, apis)
                await emptied(apis)
            if arguments.holes:
                for member in MEMBERS:
                    await hole(fleet, apis, member, arguments.holes, arguments.gangs)
                    await emptied(apis)
        finally:
            for api in apis.values():
                await api.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_fleet_faults", description=__doc__)
    parser.add_argument("--no-deaths", dest="deaths", action="store_false")
    parser.add_argument("--failures", type=int, default=5, help="how often a job fails")
    parser.add_argument("--holes", type=int, default=5, help="runs with and without a black hole")
    parser.add_argument("--gangs", type=int, default=20, help="of each such run")
    arguments = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {platform.machine()}; a hub, {len(MEMBERS)} members", flush=True)
    uvloop.run(run(arguments))


if __name__ == "__main__":
    main()
