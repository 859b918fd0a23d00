"""Plain pods in PodGroups or in groups of Kueue's, and somebody who keeps them.

What is missing and has not succeeded is created again. A group of Kueue's has no object: each of its pods says how many
they are, and what has succeeded is not missed.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import orjson

from tests.simulation.load import USER
from tests.simulation.queues import QUEUES
from webhook.core.notation import names
from webhook.errors import ApiError, NotFound
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.requests.refusals import Refused

LABEL: Final = "scheduling.x-k8s.io/pod-group"
PODS: Final = "/api/v1/namespaces/{}/pods"
POD_GROUPS: Final = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"
KEEP_SECONDS: Final = 3.0
MOST_GPUS: Final = {"red": 8, "blue": 8, "alone": 3, "": 1000}
"""What a queue can hold when it has all of its cohort to itself."""


@dataclass(slots=True)
class Group:
    """One PodGroup and the pods that it should have."""

    namespace: str
    name: str
    size: int
    queue: str
    seconds: int
    least: int
    first: int = 0
    """Pods from this number on are latecomers of another shape: two GPUs each."""
    kueues: bool = False
    """It is one of Kueue's, of ``size`` pods."""
    succeeded: set[str] = field(default_factory=set)

    @property
    def missing(self) -> list[str]:
        """Names of the pods that have not succeeded."""
        pods = (f"{self.name}-{number}" for number in range(self.size))
        return [name for name in pods if name not in self.succeeded]

    def gpus(self, size: int) -> int:
        """Return what so many pods ask in all."""
        return size + max(0, size - self.first)

    def pod(self, name: str) -> dict[str, Any]:
        """Return one of its pods."""
        labels = {names.KUEUE_POD_GROUP if self.kueues else LABEL: self.name}
        counted = {names.KUEUE_POD_COUNT: str(self.size)} if self.kueues else {}
        if self.queue:
            labels["kueue.x-k8s.io/queue-name"] = self.queue
        gpus = "1" if int(name.rpartition("-")[2]) < self.first else "2"
        resources = {"requests": {"nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {"tutti.dev/simulated-runtime": f"{self.seconds}s", **counted},
            },
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": resources}]},
        }


class GroupLoad:
    """Users of plain pods, by one seed; who came from Kueue writes its groups."""

    def __init__(self, cluster: SimulatedCluster, rng: Random, *, kueues: bool = False) -> None:
        self._rng = rng
        self._kueues = kueues
        self._api = cluster.api(USER)
        self._store = cluster.server.store
        self._groups: list[Group] = []
        self._keeping: asyncio.Task[None] | None = None

    def unfinished(self) -> dict[tuple[str, str], str]:
        """Return the groups of which a pod has not succeeded, as (namespace, name) to kind."""
        return {(group.namespace, group.name): "PodGroup" for group in self._groups if group.missing}

    async def run(self, groups: int, seconds: float) -> None:
        """Create ``groups`` and disturb them over ``seconds``; they are kept from now on."""
        self._keeping = asyncio.create_task(self._keep())
        for number in range(groups):
            await asyncio.sleep(self._rng.uniform(0, 2 * seconds / groups))
            await self._create(number)
            if self._rng.random() < 0.6:
                await self._disturb()

    def stop(self) -> None:
        """Keep nothing any more."""
        if self._keeping is not None:
            self._keeping.cancel()

    async def _create(self, number: int) -> None:
        # Pods that wait count in a ResourceQuota: a single small group leaves the jobs beside it room to start.
        namespace = "team-a" if number == 0 else "team-b"
        if self._kueues:
            size, runtime = self._rng.randint(1, 3), self._rng.choice((3, 8, 20))
            queue = self._rng.choice(QUEUES)
            self._groups.append(Group(namespace, f"group-{number}", size, queue, runtime, size, size, kueues=True))
            return
        size, queue = self._rng.randint(1, 3), self._rng.choice((*QUEUES, ""))
        least = self._rng.randint(max(1, size - 1), size)
        group = Group(namespace, f"group-{number}", size, queue, self._rng.choice((3, 8, 20)), least, size)
        for _ in range(60):
            document = {"metadata": {"name": group.name}, "spec": {"minMember": least}}
            document |= {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
            try:
                await self._api.request("POST", POD_GROUPS.format(namespace), body=orjson.dumps(document))
            except ApiError:
                await asyncio.sleep(1)
                continue
            break
        self._groups.append(group)

    async def _disturb(self) -> None:
        group = self._rng.choice(self._groups)
        if group.kueues:
            await self._disturb_counted(group)
            return
        pods = [f"{group.name}-{number}" for number in range(group.size)]
        if self._rng.random() < 0.3:
            # Who asks for more than the queue can ever hold waits for ever once all of the group has to start again.
            if group.gpus(group.size + 1) <= MOST_GPUS[group.queue]:
                group.size += 1
            return
        for name in pods if self._rng.random() < 0.3 else self._rng.sample(pods, 1):
            with suppress(ApiError, Refused):
                await self._api.request("DELETE", f"{PODS.format(group.namespace)}/{name}")

    async def _disturb_counted(self, group: Group) -> None:
        if self._rng.random() < 0.4:
            await self._one_too_many(group)
        # What has succeeded counts as long as it is there: nobody clears it away before its group has ended.
        pods = group.missing
        if not pods:
            return
        pods = pods if self._rng.random() < 0.3 else self._rng.sample(pods, 1)
        for name in pods:
            with suppress(ApiError, Refused):
                await self._api.request("DELETE", f"{PODS.format(group.namespace)}/{name}")

    async def _one_too_many(self, group: Group) -> None:
        # Refused if the webhook has seen the others; what slips past must not run beside them.
        pods, name = PODS.format(group.namespace), f"{group.name}-{group.size}"
        with suppress(ApiError, Refused):
            await self._api.request("POST", pods, body=orjson.dumps(group.pod(name)))
        await asyncio.sleep(self._rng.uniform(1, 6))
        for _ in range(60):
            try:
                await self._api.request("DELETE", f"{pods}/{name}")
            except NotFound:
                return
            except (ApiError, Refused):
                pass
            await asyncio.sleep(1)

    async def _keep(self) -> None:
        while True:
            for group in self._groups:
                with suppress(ApiError, Refused):
                    await self._ask_less(group)
                if group.kueues and group.missing:
                    # What is gone counts for nothing, such as on a node that was taken away, and is created again.
                    group.succeeded &= {stored.key[1] for stored in self._store.items(("", "pods"))}
                for name in group.missing:
                    with suppress(ApiError, Refused):
                        await self._keep_one(group, name)
            await asyncio.sleep(KEEP_SECONDS)

    async def _ask_less(self, group: Group) -> None:
        # A pod that is created again when others of its group have succeeded would wait for as many as at first.
        least = group.least if group.kueues else min(group.least, len(group.missing))
        if 0 < least < group.least:
            path = f"{POD_GROUPS.format(group.namespace)}/{group.name}"
            body = orjson.dumps({"spec": {"minMember": least}})
            await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            group.least = least

    async def _keep_one(self, group: Group, name: str) -> None:
        pods = PODS.format(group.namespace)
        try:
            pod = orjson.loads(await self._api.request("GET", f"{pods}/{name}"))
        except NotFound:
            await self._api.request("POST", pods, body=orjson.dumps(group.pod(name)))
            return
        if group.kueues and "deletionTimestamp" in pod["metadata"]:
            # It succeeded as it was being deleted: what is gone counts for nothing, and is created again.
            return
        if pod["status"].get("phase") == "Succeeded":
            group.succeeded.add(name)
