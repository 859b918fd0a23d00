"""A JSON client over the production seam, and builders of the objects that the tests use."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from webhook.kube.api import JSON_PATCH, MERGE_PATCH, Api

JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
PODS = "/api/v1/namespaces/team-a/pods"
CONFIGMAPS = "/api/v1/namespaces/team-a/configmaps"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets"
PYTORCHJOBS = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs"


class Client:
    """JSON in, JSON out."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        raw = await self.api.request(method, path, body=None if body is None else orjson.dumps(body), **more)
        return orjson.loads(raw)

    async def get(self, path: str, **query: str) -> Any:
        return await self.call("GET", path, query=query)

    async def items(self, path: str, **query: str) -> list[Any]:
        return (await self.get(path, **query))["items"]

    async def names(self, path: str, **query: str) -> list[str]:
        return [item["metadata"]["name"] for item in await self.items(path, **query)]

    async def post(self, path: str, body: Any, **query: str) -> Any:
        return await self.call("POST", path, body, query=query)

    async def put(self, path: str, body: Any) -> Any:
        return await self.call("PUT", path, body)

    async def merge(self, path: str, body: Any) -> Any:
        return await self.call("PATCH", path, body, content_type=MERGE_PATCH)

    async def json_patch(self, path: str, body: Any) -> Any:
        return await self.call("PATCH", path, body, content_type=JSON_PATCH)

    async def delete(self, path: str, body: Any = None) -> Any:
        return await self.call("DELETE", path, body)


async def eventually(holds: Callable[[], Awaitable[bool]], within_seconds: float = 60.0) -> None:
    """Wait in virtual time until ``holds``; fails when it never does."""
    deadline = asyncio.get_running_loop().time() + within_seconds
    while not await holds():
        assert asyncio.get_running_loop().time() < deadline, "it never came true"
        await asyncio.sleep(0.05)


def condition(item: Any, kind: str) -> str | None:
    """Return the status of one condition."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((c["status"] for c in conditions if c["type"] == kind), None)


def config_map(name: str, **data: str) -> Any:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def template(gpus: int = 1, **annotations: str) -> Any:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "main", "image": "example.com/train", "resources": resources}
    return {"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def pod(name: str, gpus: int = 1, **spec: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**template(gpus)["spec"], **spec},
    }


def job(name: str, pods: int = 2, *, runtime: str = "", fate: str = "", **spec: Any) -> Any:
    annotations = {"tutti.dev/simulated-runtime": runtime, "tutti.dev/simulated-fate": fate}
    shown = {key: value for key, value in annotations.items() if value}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": template(**shown), **spec},
    }


def quota(name: str, **hard: str) -> Any:
    named = {key.replace("__", ".").replace("requests.gpu", "requests.nvidia.com/gpu"): v for key, v in hard.items()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": named}}


def jobset(name: str, **spec: Any) -> Any:
    workers = {
        "name": "workers",
        "replicas": 2,
        "template": {"spec": {"parallelism": 2, "completions": 2, "template": template()}},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [workers], **spec},
    }


def pytorchjob(name: str, workers: int = 2, *, master_runtime: str = "", **run_policy: Any) -> Any:
    shown = {"tutti.dev/simulated-runtime": master_runtime} if master_runtime else {}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": run_policy,
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "restartPolicy": "Never", "template": template(**shown)},
                "Worker": {"replicas": workers, "restartPolicy": "OnFailure", "template": template()},
            },
        },
    }
