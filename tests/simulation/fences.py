"""ResourceQuotas that administrators make narrower and wider while gangs wait and run."""

import asyncio
from contextlib import suppress
from random import Random
from typing import Final

import orjson

from tests.simulation.queues import HARD_PODS, NAMESPACES
from webhook.errors import ApiError
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.api import SimulatedApi
from webhook.laboratory.simulated.cluster import SimulatedCluster

GPUS: Final = "requests.nvidia.com/gpu"
LEAST: Final = 3
"""As much as the largest job asks."""
WIDEST: Final = 9
IN_THE_END: Final = 24
"""Room for an ensemble beside plain pods that wait behind it: until they are admitted they hold theirs (decision 7)."""


async def change(cluster: SimulatedCluster, rng: Random, changes: int, seconds: float) -> None:
    """Change them so many times over ``seconds``; in the end nobody has to wait for them."""
    if not changes:
        return
    api = cluster.api()
    for namespace in NAMESPACES:
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus", "namespace": namespace}}
        await cluster.create({**quota, "spec": {"hard": {GPUS: str(WIDEST)}}})
    for _ in range(changes):
        await asyncio.sleep(rng.uniform(0, 2 * seconds / changes))
        namespace, amount = rng.choice(NAMESPACES), str(rng.randint(LEAST, WIDEST))
        name, resource = rng.choice([("gpus", GPUS), *([("hard", "pods")] if namespace in HARD_PODS else [])])
        await _write(api, namespace, name, resource, amount)
    for namespace in NAMESPACES:
        await _write(api, namespace, "gpus", GPUS, str(IN_THE_END))
    for namespace, pods in HARD_PODS.items():
        await _write(api, namespace, "hard", "pods", str(pods))


async def _write(api: SimulatedApi, namespace: str, name: str, resource: str, amount: str) -> None:
    body = orjson.dumps({"spec": {"hard": {resource: amount}}})
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/{name}"
    with suppress(ApiError):
        await api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
