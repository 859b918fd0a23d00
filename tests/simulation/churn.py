"""Administrators at random: queues, flavors and quotas change, go and come back under what runs and waits."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any, Final

import orjson

from tests.simulation.queues import COHORT, NAMESPACES, NOMINAL_GPUS, QUEUES, USUAL
from tests.simulation.trees import Trees
from webhook.errors import ApiError
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster

GROUP: Final = "/apis/kueue.x-k8s.io/v1beta2"
ABOVE: Final = "above"
"""A cohort that others are below for a while."""


class PolicyChurn:
    """What administrators do to policy, by one seed; in the end all is as it was."""

    def __init__(
        self, cluster: SimulatedCluster, rng: Random, known_after_seconds: float, *, nested: bool = False
    ) -> None:
        """Every process has read a change after ``known_after_seconds``; ``nested`` Cohorts come and go, too."""
        self._acts = range(9) if not nested else (0, 1, 4, 9, 9, 9, 10, 10, 10)
        self._known_after_seconds = known_after_seconds
        self._cluster = cluster
        self._rng = rng
        self._api = cluster.api()
        self._now: Trees = USUAL
        self._past: list[tuple[float, Trees]] = []

    def recent(self) -> list[Trees]:
        """Return the trees that a process may decide by now: queues and Cohorts are read each by a watch of its own."""
        since = asyncio.get_running_loop().time() - self._known_after_seconds
        known = [trees for until, trees in self._past if until >= since] + [self._now]
        parents = {tuple(sorted(trees.parents.items())): trees.parents for trees in known}
        return [replace(trees, parents=each) for trees in known for each in parents.values()]

    async def run(self, changes: int, seconds: float) -> None:
        """Make so many changes over ``seconds``, each of which lasts for a while."""
        tasks = []
        for _ in range(changes):
            await asyncio.sleep(self._rng.uniform(0, 2 * seconds / changes))
            tasks.append(asyncio.create_task(self._change()))
        await asyncio.gather(*tasks)
        # One that was taken away while it was changed came back as it was then.
        for queue in QUEUES if changes else ():
            await self._patch(queue, _usual(queue))
            for namespace in NAMESPACES:
                path = f"{GROUP}/namespaces/{namespace}/localqueues"
                found = orjson.loads(await self._api.request("GET", f"{path}/{queue}"))
                if found["spec"]["clusterQueue"] != queue:
                    await self._replaced(path, queue, 0, {"clusterQueue": queue}, for_good=True)

    async def take_local_queue(self, namespace: str, name: str, lasts: float) -> None:
        """Delete a LocalQueue, whatever it holds, and make it again after a while."""
        await self._replaced(f"{GROUP}/namespaces/{namespace}/localqueues", name, lasts)

    async def _change(self) -> None:
        queue, namespace = self._rng.choice(QUEUES), self._rng.choice(NAMESPACES)
        lasts = self._rng.uniform(0.2, 12)
        local = f"{GROUP}/namespaces/{namespace}/localqueues"
        match self._rng.choice(self._acts):
            case 0:
                await self._patched(queue, _quota(self._rng.randrange(NOMINAL_GPUS[queue])), lasts)
            case 1:
                await self._patched(queue, {"cohortName": self._rng.choice((None, "shared", "other"))}, lasts)
            case 2:
                await self._patched(queue, {"stopPolicy": self._rng.choice(("Hold", "HoldAndDrain"))}, lasts)
            case 3:
                await self._patched(queue, {"namespaceSelector": {"matchLabels": {"nobody": "has"}}}, lasts)
            case 4:
                await self._replaced(f"{GROUP}/clusterqueues", queue, lasts)
            case 5:
                await self._replaced(f"{GROUP}/resourceflavors", "gpus", lasts)
            case 6:
                await self._replaced(local, queue, lasts)
            case 7:
                await self._replaced(local, queue, lasts, {"clusterQueue": self._rng.choice(QUEUES)})
            case 8:
                await self._replaced("/api/v1/namespaces/team-a/resourcequotas", "hard", lasts)
            case 9:
                await self._nested(self._rng.choice(("shared", "other")), lasts)
            case 10:
                await self._patched(queue, {"cohortName": ABOVE}, lasts)

    async def _nested(self, cohort: str, lasts: float) -> None:
        """Put a cohort below another one, so that its queues borrow there, until its object is deleted."""
        item = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": cohort}}
        with suppress(ApiError):
            await self._create(f"{GROUP}/cohorts", {**item, "spec": {"parentName": ABOVE}})
            await asyncio.sleep(lasts)
            await self._delete(f"{GROUP}/cohorts", cohort)

    async def _patched(self, queue: str, spec: Mapping[str, Any], lasts: float) -> None:
        """Change a ClusterQueue for a while."""
        usual = _usual(queue)
        await self._patch(queue, spec)
        await asyncio.sleep(lasts)
        await self._patch(queue, {key: usual[key] for key in spec})

    async def _patch(self, queue: str, spec: Mapping[str, Any]) -> None:
        path, body = f"{GROUP}/clusterqueues/{queue}", orjson.dumps({"spec": spec})
        with suppress(ApiError):
            await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            self._note()

    async def _replaced(
        self,
        path: str,
        name: str,
        lasts: float,
        meanwhile: Mapping[str, Any] | None = None,
        *,
        for_good: bool = False,
    ) -> None:
        """Delete an object and create it again after a while; ``meanwhile`` there is another of its name."""
        with suppress(ApiError):
            found = orjson.loads(await self._api.request("GET", f"{path}/{name}"))
            found["metadata"] = {key: found["metadata"].get(key) for key in ("name", "namespace", "labels")}
            found.pop("status", None)
            if meanwhile is not None:
                await self._delete(path, name)
                await self._create(path, {**found, "spec": {**found["spec"], **meanwhile}})
                await asyncio.sleep(lasts)
            if not for_good:
                await self._delete(path, name)
                await asyncio.sleep(0 if meanwhile is not None else lasts)
                await self._create(path, found)

    async def _delete(self, path: str, name: str) -> None:
        await self._api.request("DELETE", f"{path}/{name}")
        self._note()

    async def _create(self, path: str, item: Mapping[str, Any]) -> None:
        await self._api.request("POST", path, body=orjson.dumps(item))
        self._note()

    def _note(self) -> None:
        """Remember from when on which quotas hold."""
        self._past.append((asyncio.get_running_loop().time(), self._now))
        queues, cohorts = self._specs("ClusterQueue"), self._specs("Cohort")
        parents = {name: spec.get("parentName") for name, spec in cohorts.items()}
        self._now = Trees(
            {name: (_nominal(spec), spec.get("cohortName")) for name, spec in queues.items()},
            parents,
        )

    def _specs(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """Return the spec of each stored object of a kind, by its name."""
        resource = self._cluster.server.registry.of_kind("kueue.x-k8s.io/v1beta2", kind)
        assert resource is not None
        return {each.key[1]: each.object["spec"] for each in self._cluster.server.store.items(resource.storage)}


def _usual(queue: str) -> dict[str, Any]:
    """Return what of a ClusterQueue changes, as it is otherwise."""
    others = {"cohortName": COHORT[queue], "stopPolicy": "None", "namespaceSelector": {"matchLabels": None}}
    return _quota(NOMINAL_GPUS[queue]) | others


def _quota(gpus: int) -> dict[str, Any]:
    resource = {"name": "nvidia.com/gpu", "nominalQuota": gpus}
    flavors = [{"name": "gpus", "resources": [resource]}]
    return {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]}


def _nominal(spec: Mapping[str, Any]) -> int:
    return int(spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"])
