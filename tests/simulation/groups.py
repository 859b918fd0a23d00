"""Plain pods in PodGroups, and somebody who keeps them: what is missing and has not succeeded is created again."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import orjson

from tests.simulation.load import QUEUES, USER
from webhook.errors import ApiError, NotFound
from webhook.kube.api import MERGE_PATCH
from webhook.simulated.cluster import SimulatedCluster
from webhook.simulated.refusals import Refused

LABEL: Final = "scheduling.x-k8s.io/pod-group"
PODS: Final = "/api/v1/namespaces/{}/pods"
POD_GROUPS: Final = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"
KEEP_SECONDS: Final = 3.0


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
    succeeded: set[str] = field(default_factory=set)

    @property
    def missing(self) -> list[str]:
        """Names of the pods that have not succeeded."""
        names = (f"{self.name}-{number}" for number in range(self.size))
        return [name for name in names if name not in self.succeeded]

    def pod(self, name: str) -> dict[str, Any]:
        """Return one of its pods."""
        labels = {LABEL: self.name}
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
                "annotations": {"tutti.dev/simulated-runtime": f"{self.seconds}s"},
            },
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": resources}]},
        }


class GroupLoad:
    """Users of plain pods, by one seed."""

    def __init__(self, cluster: SimulatedCluster, rng: Random) -> None:
        self._rng = rng
        self._api = cluster.api(USER)
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
        names = [f"{group.name}-{number}" for number in range(group.size)]
        if self._rng.random() < 0.3:
            group.size += 1
            return
        for name in names if self._rng.random() < 0.3 else self._rng.sample(names, 1):
            with suppress(ApiError, Refused):
                await self._api.request("DELETE", f"{PODS.format(group.namespace)}/{name}")

    async def _keep(self) -> None:
        while True:
            for group in self._groups:
                with suppress(ApiError, Refused):
                    await self._ask_less(group)
                for name in group.missing:
                    with suppress(ApiError, Refused):
                        await self._keep_one(group, name)
            await asyncio.sleep(KEEP_SECONDS)

    async def _ask_less(self, group: Group) -> None:
        # A pod that is created again when others of its group have succeeded would wait for as many as at first.
        least = min(group.least, len(group.missing))
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
        if pod["status"].get("phase") == "Succeeded":
            group.succeeded.add(name)
