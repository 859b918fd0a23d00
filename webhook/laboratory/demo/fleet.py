"""``tutti demo --cluster fleet``: a hub places gangs whole in one of three clusters before your eyes.

All four clusters are simulated in this process; the hub, and webhook and reconciler of each member, are the production
objects. ``_story`` is what happens, ``_Watcher`` what is seen of it through the API alone.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from textwrap import shorten
from typing import Any, Final

import orjson

from webhook.assembly import reconciler as reconciler_parts
from webhook.assembly import webhook as webhook_parts
from webhook.clock import Clock, SystemClock
from webhook.config import Config
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.notation import names
from webhook.fleet.hub import Hub
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.laboratory.demo.play import submit
from webhook.laboratory.demo.screen import say
from webhook.laboratory.simulated.admission.webhooks import Registration, Rule
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.base import Pace
from webhook.laboratory.simulated.requests.identity import User

MEMBERS: Final = ("north", "south", "west")
GPUS: Final = 4
"""Of each member."""
PLAY_SECONDS: Final = 90.0
LOOK_SECONDS: Final = 0.1
REASON_CHARACTERS: Final = 120
"""Of why it is not in another member."""
NAMESPACE: Final = "team"
QUEUE: Final = "gpus"
_JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_KUEUE: Final = "kueue.x-k8s.io/v1beta2"
_ANY: Final = frozenset({"*"})
_HUB: Final = User.service_account(names.SYSTEM_NAMESPACE, "tutti-hub")


@dataclass
class _Seen:
    """One gang of the hub, as it was seen so far."""

    told: str = ""
    places: list[str] = field(default_factory=list)
    """Members that ran all its pods, in order."""
    parted: bool = False
    """It had pods in two members at once."""
    ended: bool = False


async def play(clock: Clock | None = None) -> int:
    """Tell the story; return the exit status: 0 when every gang ran whole, in one member at a time, to its end."""
    clock = clock or SystemClock()
    say(f"a hub and three members, {', '.join(MEMBERS)}, with {GPUS} GPUs each; jobs are submitted in the hub alone")
    async with AsyncExitStack() as stack:
        members = {name: await stack.enter_async_context(_member(name, clock)) for name in MEMBERS}
        hub = SimulatedCluster(Random(0), clock=clock, namespaces=(names.SYSTEM_NAMESPACE, NAMESPACE))  # noqa: S311
        await stack.enter_async_context(hub)
        links = {name: cluster.api(_HUB) for name, cluster in members.items()}
        process = Hub(hub.api(_HUB), links, KINDS, clock=clock, rng=Random(1))  # noqa: S311
        await stack.enter_async_context(_running(process.run()))
        watcher = _Watcher(hub, members)
        await stack.enter_async_context(_running(_story(hub, members["north"])))
        return await watcher.follow()


async def _story(hub: SimulatedCluster, north: SimulatedCluster) -> None:
    """North is full of its own users' job; two gangs fill the others; a third finds no room until one of them ends."""
    say("north is full: a job of its own users runs there")
    await submit(north.api(), _job("own-users", 4, 60))
    await asyncio.sleep(2)
    for name, seconds in (("train", 12), ("tune", 20), ("evaluate", 5)):
        await submit(hub.api(), _managed(_job(name, 4, seconds)))
        await asyncio.sleep(4)


class _Watcher:
    """Tells what changes."""

    def __init__(self, hub: SimulatedCluster, members: dict[str, SimulatedCluster]) -> None:
        self._hub = hub.api()
        self._members = {name: cluster.api() for name, cluster in members.items()}
        self._gangs: dict[str, _Seen] = {}
        self._hub_runs_pods = False

    async def follow(self) -> int:
        """Tell until all gangs of the story have ended; return the exit status."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while len(self._gangs) < 3 or not all(gang.ended for gang in self._gangs.values()):
            await asyncio.sleep(LOOK_SECONDS)
            now = loop.time() - began
            if now > PLAY_SECONDS:
                say(f"The play was cut short after {PLAY_SECONDS:.0f} s: not every gang had ended.")
                return 1
            await self._look(now)
        say("")
        for name, gang in self._gangs.items():
            say(f"{name} ran whole in {' and then '.join(gang.places) or 'no member'}, and nowhere else.")
        if not self._hub_runs_pods:
            say("No pod was ever in the hub.")
        say("tutti hub is what did this: docs/fleet.md sets one up in five commands.")
        whole = all(len(gang.places) == 1 and not gang.parted for gang in self._gangs.values())
        return 0 if whole and not self._hub_runs_pods else 1

    async def _look(self, now: float) -> None:
        self._hub_runs_pods |= bool(await _listed(self._hub, _PODS))
        pods = {name: await _listed(api, _PODS) for name, api in self._members.items()}
        for job in await _listed(self._hub, _JOBS):
            name, dispatch = job["metadata"]["name"], dispatch_of(job)
            gang = self._gangs.setdefault(name, _Seen())
            running = {member: _running_pods(found, name) for member, found in pods.items()}
            running = {member: number for member, number in running.items() if number}
            gang.parted |= len(running) > 1
            size = job["spec"]["parallelism"]
            for member, number in running.items():
                if number == size and gang.places[-1:] != [member]:
                    gang.places.append(member)
            gang.ended = dispatch.phase is DispatchPhase.NOWHERE and _complete(job)
            if (told := _told(dispatch, running, size, gang)) != gang.told:
                gang.told = told
                say(f"{now:5.1f} s  {name:<10} {told}")


def _told(dispatch: Dispatch, running: dict[str, int], size: int, gang: _Seen) -> str:
    """Return what is to be told of a gang."""
    if gang.ended:
        return "has ended: the hub shows it, and its member has nothing of it any more"
    if running.get(dispatch.member) == size:
        return f"runs with all {size} pods in {dispatch.member}"
    if dispatch.holds and dispatch.member in gang.places:
        return f"ends in {dispatch.member}"
    told = "; ".join(filter(None, (dispatch.why, *dispatch.elsewhere)))
    why = f" ({shorten(told, REASON_CHARACTERS, placeholder=' …')})" if told else ""
    match dispatch.phase:
        case DispatchPhase.OFFERED:
            return f"is offered to {dispatch.member}{why}"
        case DispatchPhase.GRANTED:
            return f"has its room in {dispatch.member}: its pods may start"
        case DispatchPhase.RECALLED:
            return f"leaves {dispatch.member}, where it has not run"
        case DispatchPhase.NOWHERE:
            return f"waits{why}" if why else f"is submitted: {size} pods, {size} GPUs"


def _running_pods(pods: list[dict[str, Any]], job: str) -> int:
    of_job = (pod for pod in pods if pod["metadata"].get("labels", {}).get("job-name") == job)
    return sum(pod["status"].get("phase") == "Running" for pod in of_job)


def _complete(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Complete", "True") for each in conditions)


async def _listed(api: Any, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads(await api.request("GET", path))["items"]
    return found


@asynccontextmanager
async def _running(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def _member(name: str, clock: Clock) -> AsyncIterator[SimulatedCluster]:
    """Yield a cluster of one node with a queue for its GPUs, and a Tutti of its own."""
    rng, config = Random(name), Config()  # noqa: S311 - a simulation's chance
    pace = Pace(pod_start_seconds=0.4, pod_stop_seconds=0.4)
    cluster = SimulatedCluster(rng, clock=clock, pace=pace, namespaces=(names.SYSTEM_NAMESPACE, NAMESPACE))
    account = User.service_account(names.SYSTEM_NAMESPACE, "tutti-reconciler")
    async with cluster:
        await cluster.add_node(f"{name}-0", gpu=str(GPUS))
        for document in _quota():
            await cluster.create(document)
        served = webhook_parts.webhook(cluster.api(), config, identity=f"{name}-webhook", clock=clock, rng=rng)

        async def review(path: str, body: bytes) -> bytes:
            return (await served.handler.review(path, body, 2.5))[1]

        written = frozenset({"CREATE", "UPDATE"})
        jobs = Rule(written, frozenset({"batch"}), _ANY, frozenset({"jobs"}))
        pods = Rule(written, frozenset({""}), _ANY, frozenset({"pods"}))
        cluster.server.admission.register(
            Registration("mutate", True, "/mutate/jobs", review, (jobs,), configuration="tutti"),
            Registration("validate", False, "/validate/jobs", review, (jobs,), configuration="tutti"),
            Registration("pods", False, "/validate/pods", review, (pods,), configuration="tutti"),
        )
        reconciler = reconciler_parts.reconciler(
            cluster.api(account), config, identity=f"{name}-reconciler", clock=clock, rng=rng
        )
        async with _running(served.run()), _running(reconciler.run()):
            yield cluster


def _quota() -> list[dict[str, Any]]:
    """Return the queue of a member for the namespace in which the hub's jobs are."""
    flavor = {"name": "any", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": GPUS}]}
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}]
    return [
        {"apiVersion": _KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {
            "apiVersion": _KUEUE,
            "kind": "ClusterQueue",
            "metadata": {"name": QUEUE},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        },
        {
            "apiVersion": _KUEUE,
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE, "namespace": NAMESPACE},
            "spec": {"clusterQueue": QUEUE},
        },
    ]


def _job(name: str, pods: int, seconds: int) -> dict[str, Any]:
    """Return a Job whose pods ask a GPU each."""
    amounts = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "train:1", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.QUEUE_LABELS[0]: QUEUE}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {"tutti.dev/simulated-runtime": f"{seconds}s"}},
                "spec": {"containers": [container], "restartPolicy": "Never"},
            },
        },
    }


def _managed(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job as it is submitted in a hub."""
    return {**job, "spec": {**job["spec"], "managedBy": names.HUB_MANAGER}}
