"""A cluster with a queue for unit tests of the controllers, and a leader whose connection does what a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import jsonpatch
import orjson

from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.stored import project
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Ledger
from webhook.core.notation import names
from webhook.errors import Unavailable
from webhook.jobs.patches.marking import gate_pod
from webhook.jobs.plain_pods.groups import gang_uid
from webhook.kube.api import MERGE_PATCH
from webhook.kube.election import Elector
from webhook.laboratory.simulated.cluster import SimulatedCluster

LEDGER = "/api/v1/namespaces/tutti-system/configmaps/tutti-ledger"
JOB = "/apis/batch/v1/namespaces/team-a/jobs/train"
PODS = "/api/v1/namespaces/team-a/pods"
KUEUE = "kueue.x-k8s.io/v1beta2"
POLICY = (
    {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
    {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": "research"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": 4}]}],
                }
            ],
        },
    },
    {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": "research", "namespace": "team-a"},
        "spec": {"clusterQueue": "research"},
    },
)
Hook = Callable[[], Awaitable[None]]


def owning_queue(name: str) -> dict[str, Any]:
    """Return a ClusterQueue that owns 2 cpu of a cohort, and takes back what others use of it."""
    quotas = [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": 2}]}]
    spec = {
        "namespaceSelector": {},
        "cohortName": "all",
        "preemption": {"reclaimWithinCohort": "Any"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
    }
    return {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def waiting_job(name: str = "train", queue: str = "research", pods: int = 2) -> dict[str, Any]:
    """Return a marked and suspended Job, as the webhook would have stored it."""
    container = {"name": "main", "image": "train:1", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"labels": {names.GANG_LABEL: "pending"}},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    metadata = {"name": name, "namespace": "team-a", "labels": {"tutti.dev/queue-name": queue}}
    spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def pod_group() -> dict[str, Any]:
    """Return the PodGroup ``train``, for which one pod is enough."""
    metadata = {"name": "train", "namespace": "team-a"}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"minMember": 1},
    }


def waiting_pod() -> dict[str, Any]:
    """Return a plain pod of the PodGroup ``train``, as the webhook would have stored it."""
    container = {"name": "main", "image": "train:1", "resources": {"requests": {"cpu": "1"}}}
    labels = {"scheduling.x-k8s.io/pod-group": "train", "tutti.dev/queue-name": "research"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train-0", "namespace": "team-a", "labels": labels},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    held: dict[str, Any] = jsonpatch.apply_patch(pod, gate_pod(pod, gang_uid("team-a", "train")))
    return held


class Line:
    """A leader's connection, and what happens to it."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.after_reservation: Hook | None = None
        """Runs once, between the write of a reservation and its answer."""
        self.instead_of_start: Hook | None = None
        """Runs once, and the start of a job is lost."""
        self.ledger_writes_lost = False
        self.withheld = ""
        """News of paths that end so do not arrive."""
        self.unanswered: tuple[str, ...] = ()
        """Lists of these resources are not answered."""
        self.started: list[str] = []
        """Paths of the jobs to which a start was sent."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if method == "GET" and path.endswith(self.unanswered or ("nothing",)):
            await asyncio.Future()
        if "dryRun" in (more.get("query") or ()):
            return await self._api.request(method, path, **more)  # type: ignore[no-any-return]
        if method == "PATCH" and b'"path":"/spec/suspend","value":false' in more["body"]:
            self.started.append(path)
        reserves = method == "PATCH" and path == LEDGER and b"train" in more["body"]
        if reserves and self.ledger_writes_lost:
            raise Unavailable(0, "Timeout", "lost", outcome_unknown=True)
        if method == "PATCH" and path == JOB and self.instead_of_start is not None:
            hook, self.instead_of_start = self.instead_of_start, None
            await hook()
            raise Unavailable(503, "ServiceUnavailable", "lost")
        answer: bytes = await self._api.request(method, path, **more)
        if reserves and self.after_reservation is not None:
            hook, self.after_reservation = self.after_reservation, None
            await hook()
        return answer

    async def watch(self, path: str, **more: Any) -> AsyncIterator[bytes]:
        async for line in self._api.watch(path, **more):
            while self.withheld and path.endswith(self.withheld):
                await asyncio.sleep(1)
            yield line


class Stage:
    """A cluster with a queue, and a leader on a line of its own."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.admin = cluster.api()
        self.line = Line(cluster.api())
        self.leader: asyncio.Task[None] | None = None

    def lead(self) -> None:
        """Start the leader."""
        self.parts = reconciler(self.line, Config(), identity="first", clock=LoopClock(), rng=Random(1))
        self.leader = asyncio.create_task(self.parts.run())

    async def take_over(self) -> None:
        """Start the leader, and let it come to lead."""
        self.lead()
        await asyncio.sleep(2)

    async def share(self, *queues: str) -> None:
        """Create queues that own 2 cpu each of one cohort."""
        for name in queues:
            await self.cluster.create(owning_queue(name))
            metadata = {"name": name, "namespace": "team-a"}
            local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": name}}
            await self.cluster.create(local)

    async def stop_leading(self) -> None:
        """End the leader."""
        assert self.leader is not None
        self.leader.cancel()
        await asyncio.gather(self.leader, return_exceptions=True)

    async def hand_over(self) -> None:
        """End the leader and let another take over."""
        await self.stop_leading()
        self.line = Line(self.cluster.api())
        self.lead()

    async def depose(self, waiting: str = JOB) -> None:
        """Take over at once, as a successor whose clock runs too fast would, and void what ``waiting`` was granted."""
        released = orjson.loads(project(await self.admin.request("GET", LEDGER)).lease or "{}") | {"holderIdentity": ""}
        note = {"metadata": {"annotations": {names.LEASE_ANNOTATION: orjson.dumps(released).decode()}}}
        await self.admin.request("PATCH", LEDGER, body=orjson.dumps(note), content_type=MERGE_PATCH)
        now = LoopClock().now
        successor = LedgerKeeper(self.cluster.api(), Elector("second"), now=now)
        assert await successor.campaign()
        assert successor.ledger is not None
        void = {"metadata": {"annotations": {names.VOIDED: "2/1"}}}
        await self.admin.request("PATCH", waiting, body=orjson.dumps(void), content_type=MERGE_PATCH)
        await successor.commit(drop=list(successor.ledger.entries))
        # Long enough for the old leader to read the object that was just written.
        await asyncio.sleep(0.3)

    async def ledger(self) -> Ledger:
        return ledger_text.decode(project(await self.admin.request("GET", LEDGER)).data)

    async def suspended(self) -> bool:
        return bool(orjson.loads(await self.admin.request("GET", JOB))["spec"]["suspend"])

    async def gated(self) -> bool:
        return bool(orjson.loads(await self.admin.request("GET", f"{PODS}/train-0"))["spec"].get("schedulingGates"))

    async def running_pods(self) -> int:
        found = orjson.loads(await self.admin.request("GET", PODS))["items"]
        return sum(pod["status"].get("phase") == "Running" for pod in found)

    async def leader_steps_down(self) -> None:
        """Return at the moment at which the leader's term is over; its process goes on."""
        assert self.leader is not None
        async with asyncio.timeout(30):
            while not self.parts.reconciler.leading:
                await asyncio.sleep(0.05)
            keeper = self.parts.terms.keeper
            while self.parts.terms.keeper is keeper:
                await asyncio.sleep(0.05)
        assert not self.leader.done()


@asynccontextmanager
async def queued_cluster() -> AsyncIterator[SimulatedCluster]:
    """Yield a cluster with one node and a queue for ``team-a``."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        for item in POLICY:
            await cluster.create(item)
        yield cluster


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Yield a stage with the policy applied and nobody leading."""
    async with queued_cluster() as cluster:
        play = Stage(cluster)
        yield play
        if play.leader is not None:
            play.leader.cancel()
            await asyncio.gather(play.leader, return_exceptions=True)
