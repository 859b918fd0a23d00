"""A hub and its members in memory, each member with a Tutti of its own: the production objects, virtual time."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import orjson

from tests.unit.controllers.stage import POLICY
from webhook.assembly import reconciler as reconciler_parts
from webhook.assembly import webhook as webhook_parts
from webhook.clock import ApiServersClock, LoopClock, telling
from webhook.config import Config
from webhook.controllers.ledger.errors import SetBack
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.fleet.hub import Hub
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.admission.webhooks import Registration, Rule
from webhook.laboratory.simulated.api import SimulatedApi, WritePoint
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.base import Pace
from webhook.laboratory.simulated.controllers.training import FRAMEWORKS
from webhook.laboratory.simulated.faults import FaultPlan
from webhook.laboratory.simulated.requests.identity import User

ACCOUNT = User.service_account("tutti-system", "tutti-reconciler")
HUB_ACCOUNT = User.service_account("tutti-fleet", "hub")
NAMESPACE = "team-a"
PLURALS = {"Job": "jobs"} | {each.kind: each.plural for each in FRAMEWORKS} | {"SparkApplication": "sparkapplications"}
PATHS = dict.fromkeys(PLURALS, "/apis/kubeflow.org/v1") | {
    "Job": "/apis/batch/v1",
    "SparkApplication": "/apis/sparkoperator.k8s.io/v1beta2",
}
ANY = frozenset({"*"})
Make = Callable[..., dict[str, Any]]
QUEUEING_HUB = Config(hub=True)


def template(runtime: str) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "train:1", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"annotations": {"tutti.dev/simulated-runtime": runtime}}
    return {"metadata": metadata, "spec": {"containers": [container], "restartPolicy": "Never"}}


def pytorch_job(name: str = "pytorch-test", workers: int = 2, runtime: str = "30s") -> dict[str, Any]:
    """The seed's job: one master and its workers, a cpu each."""
    replicas = {
        "Master": {"replicas": 1, "template": template(runtime)},
        "Worker": {"replicas": workers, "template": template(runtime)},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.QUEUE_LABELS[0]: "research"}},
        "spec": {"runPolicy": {"managedBy": names.HUB_MANAGER}, "pytorchReplicaSpecs": replicas},
    }


def plain_job(name: str = "train", pods: int = 2, runtime: str = "30s") -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.QUEUE_LABELS[0]: "research"}},
        "spec": {
            "managedBy": names.HUB_MANAGER,
            "parallelism": pods,
            "completions": pods,
            "template": template(runtime),
        },
    }


def suspend(make: Make, held: bool) -> dict[str, Any]:
    return {"spec": {"suspend": held} if make is plain_job else {"runPolicy": {"suspend": held}}}


class Side:
    """One cluster, and what is asked of it."""

    def __init__(self, name: str, cluster: SimulatedCluster) -> None:
        self.name = name
        self.cluster = cluster
        self.admin = cluster.api()

    async def get(self, kind: str, name: str) -> dict[str, Any] | None:
        found = [item for item in await self.all(kind) if item["metadata"]["name"] == name]
        return found[0] if found else None

    async def all(self, kind: str) -> list[dict[str, Any]]:
        listed = await self.admin.request("GET", f"{PATHS[kind]}/namespaces/{NAMESPACE}/{PLURALS[kind]}")
        items: list[dict[str, Any]] = orjson.loads(listed)["items"]
        return items

    async def patch(self, kind: str, name: str, change: dict[str, Any]) -> None:
        path = f"{PATHS[kind]}/namespaces/{NAMESPACE}/{PLURALS[kind]}/{name}"
        await self.admin.request("PATCH", path, body=orjson.dumps(change), content_type=MERGE_PATCH)

    async def delete(self, kind: str, name: str) -> None:
        path = f"{PATHS[kind]}/namespaces/{NAMESPACE}/{PLURALS[kind]}/{name}"
        await self.admin.request("DELETE", path, body=b'{"propagationPolicy": "Background"}')

    async def keep_pod(self, name: str, finalizers: list[str]) -> None:
        """Let a pod go only when nothing keeps it."""
        change = orjson.dumps({"metadata": {"finalizers": finalizers}})
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
        await self.admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)

    async def pods(self) -> list[str]:
        listed = orjson.loads(await self.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"]
        return sorted(pod["metadata"]["name"] for pod in listed)

    async def running(self) -> int:
        listed = orjson.loads(await self.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"]
        return sum(pod["status"].get("phase") == "Running" for pod in listed)

    async def reserved(self) -> int:
        path = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps"
        listed = orjson.loads(await self.admin.request("GET", path))["items"]
        ledger = [item["data"] for item in listed if item["metadata"]["name"].startswith(names.LEDGER_NAME)]
        return sum(text.startswith('{"kind"') for data in ledger for text in data.values())


class Watchers:
    """Looks at all members after every write that is stored: no gang runs, or may, in two of them."""

    def __init__(self, members: dict[str, Side]) -> None:
        self._members = members
        self.forgiven = ""
        """A member that was declared lost: what runs there runs against somebody's word."""
        self.writes = 0
        self.twice: dict[str, set[str]] = {}
        for side in members.values():
            for storage in (("", "pods"), ("batch", "jobs"), ("kubeflow.org", "pytorchjobs")):
                side.cluster.server.store.subscribe(lambda event: self.look(), storage)

    def look(self) -> None:
        self.writes += 1
        places: dict[str, set[str]] = {}
        for side in self._members.values():
            for gang in running_in(side) if side.name != self.forgiven else ():
                places.setdefault(gang, set()).add(side.name)
        # Kept for the end: what is raised here would reach whoever wrote, not the test.
        self.twice |= {gang: found for gang, found in places.items() if len(found) > 1}


def running_in(side: Side) -> set[str]:
    """Uids of the hub's jobs that have pods, or an un-suspended copy that has not ended, in a member."""
    store, found, jobs = side.cluster.server.store, set(), {}
    for storage in (("batch", "jobs"), ("kubeflow.org", "pytorchjobs")):
        for stored in store.items(storage, NAMESPACE):
            offer = (stored.object["metadata"].get("annotations") or {}).get(names.OFFER, "")
            policy = stored.object["spec"].get("runPolicy", stored.object["spec"])
            jobs[stored.uid] = offer.partition(" ")[0]
            if offer and not policy.get("suspend"):
                found.add(jobs[stored.uid])
    for pod in store.items(("", "pods"), NAMESPACE):
        gang = (pod.object["metadata"].get("labels") or {}).get(names.GANG_LABEL, "")
        if jobs.get(gang):
            found.add(jobs[gang])
    return found


class Fleet:
    """The hub's cluster, the members, and the hub's process."""

    def __init__(self) -> None:
        self.members: dict[str, Side] = {}
        self.links: dict[str, SimulatedApi] = {}
        self.hub: Side
        self.watchers: Watchers
        self.process: asyncio.Task[None] | None = None
        self.running_hub: Hub
        """What the process runs."""
        self.dead_man = False
        """Its hubs renew a Lease in each member."""
        self.off_seconds = 0.0
        """How far the clock is ahead of a machine on which a process starts."""
        self.away: set[str] = set()
        """Clusters that are no members when a process starts."""

    def start(self, on_write: Callable[[WritePoint], None] | None = None, faults: FaultPlan | None = None) -> None:
        """Start a hub process."""
        self.dead = False
        self.links = {name: side.cluster.api(HUB_ACCOUNT, faults, on_write) for name, side in self.members.items()}
        off_seconds, elapsed = self.off_seconds, asyncio.get_running_loop().time
        clock = ApiServersClock(wall=lambda: LoopClock().now() + off_seconds, elapsed=elapsed)
        self.own = self.hub.cluster.api(HUB_ACCOUNT, faults, on_write, telling(clock))
        links = {name: link for name, link in self.links.items() if name not in self.away}
        self.running_hub = Hub(self.own, links, KINDS, clock=clock, rng=Random(4), dead_man=self.dead_man)
        self.process = asyncio.create_task(self.running_hub.run())

    def kill(self) -> None:
        """Nothing that the process was doing reaches anybody any more."""
        self.dead = True
        for link in (self.own, *self.links.values()):
            link.sever()
        if self.process is not None:
            self.process.cancel()

    async def stop(self) -> None:
        if self.process is not None:
            self.process.cancel()
            await asyncio.gather(self.process, return_exceptions=True)
            self.process = None

    def silence(self, member: str) -> None:
        """Let the watches of a member say nothing from now on."""

        async def silent(path: str, *, query: Any, idle_seconds: float) -> AsyncIterator[bytes]:
            await asyncio.sleep(idle_seconds)
            for line in ():
                yield line

        self.links[member].watch = silent  # type: ignore[method-assign]

    async def places(self, kind: str, name: str) -> list[str]:
        """Members with an un-suspended copy."""
        found = []
        for side in self.members.values():
            item = await side.get(kind, name)
            policy = {} if item is None else item["spec"] if kind == "Job" else item["spec"]["runPolicy"]
            if item is not None and not policy.get("suspend"):
                found.append(side.name)
        return found

    async def over(self, kind: str, name: str) -> bool:
        """The hub's job shows its end, and nothing of it is placed."""
        stored = await self.hub.get(kind, name)
        assert stored is not None
        conditions = stored.get("status", {}).get("conditions", ())
        ended = {each["type"] for each in conditions if each["status"] == "True"}
        return bool(ended & {"Succeeded", "Complete"}) and dispatch_of(stored).phase is DispatchPhase.NOWHERE

    async def empty(self, kind: str) -> bool:
        """No member has a copy, a pod or a reservation."""
        found = [(await it.all(kind), await it.pods(), await it.reserved()) for it in self.members.values()]
        return found == [([], [], 0)] * len(found)

    async def until(self, what: Any, seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not await what():
                await asyncio.sleep(0.2)


@asynccontextmanager
async def fleet(
    *members: str,
    starts: bool = True,
    without_tutti: tuple[str, ...] = (),
    hub_policy: Sequence[Mapping[str, Any]] = (),
    watched: bool = True,
    silent_hub_seconds: float | None = None,
    pace: Pace | None = None,
    prepare: Callable[[str, SimulatedCluster], None] = lambda name, cluster: None,
) -> AsyncIterator[Fleet]:
    """Yield a hub with these members, one node each, a queue of 4 cpu each.

    A hub with a policy has a Tutti of its own, by which its jobs wait for its quota first. ``watched``: it is seen to
    that no gang runs in two members. ``silent_hub_seconds``: members stop what a hub has that is silent for so long.
    ``prepare`` is told each cluster, and what it is called, before anything runs there.
    """
    whole, member = Fleet(), Config(silent_hub_seconds=silent_hub_seconds)
    whole.dead_man = silent_hub_seconds is not None
    async with AsyncExitStack() as stack:
        for number, name in enumerate(("hub", *members)):
            cluster = SimulatedCluster(Random(number), pace=pace, namespaces=("tutti-system", NAMESPACE))
            prepare(name, cluster)
            await stack.enter_async_context(cluster)
            if name == "hub":
                whole.hub = Side(name, cluster)
                for item in hub_policy:
                    await cluster.create(copy.deepcopy(item))
                if hub_policy:
                    await stack.enter_async_context(tutti(cluster, name, QUEUEING_HUB))
                continue
            await cluster.add_node(f"node-{name}", cpu="8")
            for item in POLICY:
                await cluster.create(copy.deepcopy(item))
            whole.members[name] = Side(name, cluster)
            if name not in without_tutti:
                await stack.enter_async_context(tutti(cluster, name, member))
        whole.watchers = Watchers(whole.members if watched else {})
        if starts:
            whole.start()
        try:
            yield whole
        finally:
            await whole.stop()
        assert not whole.watchers.twice, "a gang in two members at once"


@asynccontextmanager
async def tutti(cluster: SimulatedCluster, name: str, config: Config) -> AsyncIterator[None]:
    """Run a webhook and a reconciler for a cluster."""
    async with webhook(cluster, name, config), reconciler(cluster, name, config):
        yield


@asynccontextmanager
async def reconciler(cluster: SimulatedCluster, name: str, config: Config) -> AsyncIterator[None]:
    """Run a reconciler for a cluster, and another one when it ends because its cluster was set back."""

    async def reconcile(number: int = 0) -> None:
        api, identity = cluster.api(ACCOUNT), f"reconciler-{name}-{number}"
        try:
            await reconciler_parts.reconciler(api, config, identity=identity, clock=LoopClock(), rng=Random(3)).run()
        except* SetBack:
            running.append(asyncio.create_task(reconcile(number + 1)))

    running = [asyncio.create_task(reconcile())]
    async with ended(running):
        await asyncio.sleep(3)
        yield


@asynccontextmanager
async def webhook(cluster: SimulatedCluster, name: str, config: Config) -> AsyncIterator[None]:
    """Run a webhook for a cluster, and have it asked."""
    served = webhook_parts.webhook(cluster.api(), config, identity=f"webhook-{name}", clock=LoopClock(), rng=Random(2))

    async def review(path: str, body: bytes) -> bytes:
        _, answer = await served.handler.review(path, body, 2.5)
        return answer

    jobs = Rule(frozenset({"CREATE", "UPDATE"}), ANY, ANY, frozenset(PLURALS.values()))
    pods = Rule(frozenset({"CREATE", "UPDATE"}), frozenset({""}), ANY, frozenset({"pods"}))
    cluster.server.admission.register(
        Registration("mutate", True, "/mutate/jobs", review, (jobs,), configuration="tutti"),
        Registration("validate", False, "/validate/jobs", review, (jobs,), configuration="tutti"),
        Registration(
            "pods",
            False,
            "/validate/pods",
            review,
            (pods,),
            configuration="tutti",
            conditions=(
                lambda request: names.GANG_LABEL in ((request["object"] or {})["metadata"].get("labels") or {}),
            ),
        ),
    )
    async with ended([asyncio.create_task(served.run())]):
        yield


@asynccontextmanager
async def ended(running: list[asyncio.Task[None]]) -> AsyncIterator[None]:
    """End these tasks after the ``async with`` block."""
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
