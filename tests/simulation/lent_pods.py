"""Pods that somebody makes with the labels of a Job's own: its controller takes them for its own, and counts them."""

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any, Final

import orjson

from tests.simulation.load import how_it_ended
from webhook.core.notation import names
from webhook.errors import ApiError
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.indexes import INDEX
from webhook.laboratory.simulated.controllers.jobs import JOBS
from webhook.laboratory.simulated.controllers.nodes import FATE, RUNTIME
from webhook.laboratory.simulated.objects.store import Stored
from webhook.laboratory.simulated.requests.identity import User

ENDED_SECONDS: Final = 4.0
"""After which the shortest have ended."""
PREFIX: Final = "lent-"
LENDER: Final = User.named("lender")


class LentPods:
    """Somebody who makes them, for Jobs that run, wait or are being deleted: with these labels, or first without."""

    def __init__(self, cluster: SimulatedCluster, rng: Random) -> None:
        self.did = Counter[str]()
        """What was stored: a pod that had ended, or a new one."""
        self._cluster = cluster
        self._rng = rng
        self._api = cluster.api(LENDER)

    async def lend(self, pods: int, seconds: float) -> None:
        """Lend so many pods over ``seconds``."""
        async with asyncio.TaskGroup() as lending:
            for number in range(pods):
                await asyncio.sleep(self._rng.uniform(0, 2 * seconds / pods))
                jobs = [job for job in self._cluster.server.store.items(JOBS) if how_it_ended(job.object) is None]
                if jobs:
                    job = self._rng.choice(jobs)
                    lending.create_task(self._lend(job, self._pod(job, f"{PREFIX}{number}"), self._rng.random() < 0.5))

    async def _lend(self, job: Stored, pod: dict[str, Any], ended: bool) -> None:
        """Create a pod; where it is to have ``ended`` by then, label it only after a while."""
        metadata, path = pod["metadata"], f"/api/v1/namespaces/{job.key[0]}/pods"
        bare = {key: value for key, value in metadata.items() if key != "labels"}
        with suppress(ApiError):
            created = {**pod, "metadata": bare} if ended else pod
            await self._api.request("POST", path, body=orjson.dumps(created))
            if ended:
                await asyncio.sleep(ENDED_SECONDS)
                body = orjson.dumps({"metadata": {"labels": metadata["labels"]}})
                await self._api.request("PATCH", f"{path}/{metadata['name']}", body=body, content_type=MERGE_PATCH)
            self.did[f"lent {'ended' if ended else 'new'}"] += 1

    def _pod(self, job: Stored, name: str) -> dict[str, Any]:
        """Return a pod that asks for nothing and is soon over, with all labels of the Job's pods or none of ours."""
        labels = dict(job.object["spec"]["template"]["metadata"]["labels"])
        if self._rng.random() < 0.7:
            labels = {key: value for key, value in labels.items() if not key.startswith(names.DOMAIN)}
        annotations = {RUNTIME: f"{self._rng.choice((1, 5, 30))}s", INDEX: str(self._rng.randint(0, 3))}
        if self._rng.random() < 0.3:
            annotations[FATE] = "fails"
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
