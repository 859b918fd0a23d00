"""Nodes at random: they are cordoned, tainted and not ready for a while, they go with their pods and come back, and
pods of others take their GPUs first.
"""

import asyncio
from contextlib import suppress
from random import Random
from typing import Any, Final

import orjson

from tests.simulation.flavors import POOL
from tests.simulation.load import template_of
from webhook.errors import ApiError
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.nodes import NODES
from webhook.laboratory.simulated.requests.refusals import Refused

PATH: Final = "/api/v1/nodes"
EXEMPT: Final = "kube-system"
"""What runs there asks nobody."""
AWAY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
REPAIR: Final = {"key": "example.com/repair", "effect": "NoSchedule"}


class NodeChurn:
    """What happens to nodes, by one seed; in the end all are as they were."""

    def __init__(self, cluster: SimulatedCluster, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._api = cluster.api()
        self._number = 0

    async def run(self, changes: int, seconds: float) -> None:
        """Let so many things happen over ``seconds``, each of which lasts for a while; one at a time to each node."""
        busy, tasks = set[str](), []
        for _ in range(changes):
            await asyncio.sleep(self._rng.uniform(0, 2 * seconds / changes))
            names = [node.key[1] for node in self._cluster.server.store.items(NODES, "") if node.key[1] not in busy]
            if names:
                name = self._rng.choice(names)
                busy.add(name)
                tasks.append(asyncio.create_task(self._happens(name)))
                tasks[-1].add_done_callback(lambda _, name=name: busy.discard(name))
        await asyncio.gather(*tasks)

    async def _happens(self, name: str) -> None:
        lasts = self._rng.choice((0.2, 2.0, 8.0, 25.0))
        match self._rng.randrange(5):
            case 0:
                await self._for_a_while(
                    name, lasts, {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}
                )
            case 1:
                await self._for_a_while(name, lasts, ready(False), ready(True))
            case 2:
                await self._for_a_while(name, lasts, {"spec": {"taints": [REPAIR]}}, {"spec": {"taints": None}})
            case 3:
                await self._gone_for_a_while(name, lasts)
            case 4:
                await self._taken_for_a_while(name, int(lasts))

    async def _for_a_while(self, name: str, lasts: float, now: Any, then: Any) -> None:
        for change in (now, then):
            for part, subresource in (("spec", ""), ("status", "/status")):
                if part in change:
                    body = orjson.dumps({part: change[part]})
                    path = f"{PATH}/{name}{subresource}"
                    await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            if change is now:
                await asyncio.sleep(lasts)

    async def _gone_for_a_while(self, name: str, lasts: float) -> None:
        found = orjson.loads(await self._api.request("GET", f"{PATH}/{name}"))
        found["metadata"] = {key: found["metadata"].get(key) for key in ("name", "labels")}
        others = [each for each in self._cluster.server.store.items(NODES, "") if each.key[1] != name]
        if not any(_pool(each.object) == _pool(found) for each in others):
            return  # Where a flavor has none, nobody waits for its nodes.
        await self._api.request("DELETE", f"{PATH}/{name}")
        await asyncio.sleep(min(lasts, 1.0))
        for pod in list(self._cluster.server.store.items(("", "pods"))):
            if pod.object["spec"].get("nodeName") == name:
                # Nobody stops its containers any more: whoever collects garbage deletes it at once.
                path = f"/api/v1/namespaces/{pod.key[0]}/pods/{pod.key[1]}"
                with suppress(ApiError):
                    await self._api.request("DELETE", path, body=b'{"gracePeriodSeconds": 0}')
        await asyncio.sleep(lasts)
        await self._api.request("POST", PATH, body=orjson.dumps(found))

    async def _taken_for_a_while(self, name: str, seconds: int) -> None:
        """Have a pod of somebody else come by the scheduler, as a DaemonSet's or a system's does."""
        self._number += 1
        template = template_of(max(1, seconds))
        template["metadata"] |= {"name": f"other-{self._number}", "namespace": EXEMPT}
        template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
        with suppress(ApiError, Refused):
            await self._cluster.create({"apiVersion": "v1", "kind": "Pod", **template})
        await asyncio.sleep(seconds)


def _pool(node: Any) -> str | None:
    label: str | None = (node["metadata"].get("labels") or {}).get(POOL)
    return label


def ready(is_ready: bool) -> Any:
    """Return what a node says when its kubelet reports, or does not."""
    condition = {"type": "Ready", "status": str(is_ready), "reason": "Kubelet"}
    return {"spec": {"taints": None if is_ready else [AWAY]}, "status": {"conditions": [condition]}}
