"""Jobs that share a PodGroup, and users who keep them: what was deleted or failed is created again."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import orjson

from tests.simulation.groups import LABEL, POD_GROUPS
from tests.simulation.load import USER, how_it_ended, stored_job, template_of
from tests.simulation.queues import NAMESPACES, QUEUES
from tests.simulation.shapes import PATHS, SUSPEND, document_of
from webhook.errors import ApiError
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.requests.refusals import Refused

KEEP_SECONDS: Final = 3.0
PATIENCE_SECONDS: Final = 60.0
"""After so long with too few jobs left to make the quorum its users ask for less."""


@dataclass(slots=True)
class Ensemble:
    """One PodGroup and the jobs that should share it."""

    namespace: str
    name: str
    queue: str
    least: int
    seconds: int
    jobs: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Name to kind and pods."""
    succeeded: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    short_since: float | None = None

    @property
    def left(self) -> dict[str, tuple[str, int]]:
        """The jobs that have not succeeded."""
        return {name: job for name, job in self.jobs.items() if name not in self.succeeded}

    def document(self, name: str) -> dict[str, Any]:
        """Return one of its jobs."""
        kind, pods = self.jobs[name]
        document = document_of(kind, name, pods, template_of(self.seconds, {LABEL: self.name}))
        if self.queue:
            document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": self.queue}
        return document


class EnsembleLoad:
    """Users of ensembles, by one seed."""

    def __init__(self, cluster: SimulatedCluster, rng: Random, *, orphans: bool = True) -> None:
        """Every choice is made by ``rng``; with ``orphans`` a deleted Job leaves its pods, as it does by default."""
        self._deletion = None if orphans else b'{"propagationPolicy": "Background"}'
        self._cluster = cluster
        self._rng = rng
        self._api = cluster.api(USER)
        self.ensembles: list[Ensemble] = []
        self._keeping: asyncio.Task[None] | None = None
        self.disturbing = True
        """Users still do as they like; after that they only keep what there is."""

    def unfinished(self) -> dict[tuple[str, str], str]:
        """Return the jobs that have not succeeded, as (namespace, name) to kind."""
        return {(each.namespace, name): kind for each in self.ensembles for name, (kind, _) in each.left.items()}

    async def run(self, ensembles: int, seconds: float) -> None:
        """Create ``ensembles`` and disturb them over ``seconds``; they are kept from now on."""
        self._keeping = asyncio.create_task(self._keep())
        for number in range(ensembles):
            await asyncio.sleep(self._rng.uniform(0, 2 * seconds / ensembles))
            await self._create(number)
            if self._rng.random() < 0.7:
                with suppress(ApiError, Refused):
                    await self._disturb()

    def stop(self) -> None:
        """Keep nothing any more."""
        if self._keeping is not None:
            self._keeping.cancel()

    async def _create(self, number: int) -> None:
        kinds = [self._rng.choice(("Job", "Job", "JobSet", "PyTorchJob")) for _ in range(self._rng.randint(2, 3))]
        jobs = {f"ensemble-{number}-{place}": (kind, self._rng.randint(1, 2)) for place, kind in enumerate(kinds)}
        pods = sum(size for _, size in jobs.values())
        queue = self._rng.choice((*QUEUES, "")) if pods <= 3 else self._rng.choice(QUEUES[:2])
        least = self._rng.choice((pods, pods, max(1, pods - 1)))
        seconds = self._rng.choice((3, 8, 20))
        new = Ensemble(self._rng.choice(NAMESPACES), f"ensemble-{number}", queue, least, seconds, jobs)
        self.ensembles.append(new)

    async def _disturb(self) -> None:
        each = self._rng.choice(self.ensembles)
        if not each.left:
            return
        name = self._rng.choice(sorted(each.left))
        match self._rng.randrange(4):
            case 0:
                await self._api.request("DELETE", f"{self._path(each, name)}/{name}", body=self._deletion)
            case 1:
                await self._suspend(each, name, True)
                each.held.add(name)
            case 2:
                await self._suspend(each, name, False)
                each.held.discard(name)
            case 3:
                # One more job than its PodGroup needs.
                each.jobs[f"{each.name}-{len(each.jobs)}"] = (self._rng.choice(("Job", "JobSet")), 1)

    async def _suspend(self, each: Ensemble, name: str, value: bool) -> None:
        kind, _ = each.jobs[name]
        body = orjson.dumps(SUSPEND[kind](value))
        await self._api.request("PATCH", f"{self._path(each, name)}/{name}", body=body, content_type=MERGE_PATCH)

    def _path(self, each: Ensemble, name: str) -> str:
        return PATHS[each.jobs[name][0]].format(each.namespace)

    # -- keeping -----------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            for each in self.ensembles:
                with suppress(ApiError, Refused):
                    await self._keep_pod_group(each)
                for name in list(each.left):
                    with suppress(ApiError, Refused):
                        await self._keep_job(each, name)
            await asyncio.sleep(KEEP_SECONDS)

    async def _keep_pod_group(self, each: Ensemble) -> None:
        path = POD_GROUPS.format(each.namespace)
        resource = self._cluster.server.registry.of_kind("scheduling.x-k8s.io/v1alpha1", "PodGroup")
        assert resource is not None
        if self._cluster.server.store.get(resource.storage, each.namespace, each.name) is None:
            document = {"metadata": {"name": each.name}, "spec": {"minMember": each.least}}
            document |= {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
            await self._api.request("POST", path, body=orjson.dumps(document))
        now = asyncio.get_running_loop().time()
        least = min(each.least, sum(pods for _, pods in each.left.values()))
        if not 0 < least < each.least:
            each.short_since = None
        elif each.short_since is None:
            each.short_since = now
        elif now - each.short_since >= PATIENCE_SECONDS:
            # A job that is created again when others have succeeded would wait for as many as at first.
            each.least = least
            body = orjson.dumps({"spec": {"minMember": least}})
            await self._api.request("PATCH", f"{path}/{each.name}", body=body, content_type=MERGE_PATCH)

    async def _keep_job(self, each: Ensemble, name: str) -> None:
        stored = stored_job(self._cluster, each.jobs[name][0], each.namespace, name)
        if stored is None:
            each.held.discard(name)
            await self._api.request("POST", self._path(each, name), body=orjson.dumps(each.document(name)))
            return
        ended = how_it_ended(stored)
        if ended == "Failed":
            await self._api.request("DELETE", f"{self._path(each, name)}/{name}", body=self._deletion)
        elif ended is not None:
            each.succeeded.add(name)
        elif name in each.held and not self.disturbing:
            await self._suspend(each, name, False)
            each.held.discard(name)
