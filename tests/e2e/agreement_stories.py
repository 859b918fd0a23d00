"""What becomes of jobs, told the same way about any cluster: suspended, resumed, stopped again, finished."""

import asyncio
import re
from typing import Any, Final

import orjson

from tests.e2e.agreement import container
from webhook import errors
from webhook.kube.api import MERGE_PATCH, Api

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_REST_SECONDS: Final = 4.0
_PATIENCE_SECONDS: Final = 60.0

Told = dict[str, Any]


def _template(runtime: str = "", name: str = "main") -> dict[str, Any]:
    one = {**container(), "name": name, "resources": {"requests": {"cpu": "10m"}}}
    metadata = {"annotations": {"tutti.dev/simulated-runtime": runtime}} if runtime else {}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [one]}}


class Story:
    """One object of one kind in one namespace."""

    def __init__(self, api: Api, path: str, pods: str, body: dict[str, Any]) -> None:
        self._api = api
        self._path = path
        self._pods = pods
        self._body = body
        self._name = body["metadata"]["name"]
        self.told: Told = {}

    async def create(self) -> None:
        """Create it."""
        await self._api.request("POST", self._path, body=orjson.dumps(self._body))

    async def patch(self, spec: dict[str, Any]) -> None:
        """Change its spec."""
        body = orjson.dumps({"spec": spec})
        await self._api.request("PATCH", f"{self._path}/{self._name}", body=body, content_type=MERGE_PATCH)

    async def rest(self, chapter: str) -> None:
        """Wait until object and pods stand still, then remember them under ``chapter``."""
        loop = asyncio.get_running_loop()
        deadline, last, since = loop.time() + _PATIENCE_SECONDS, None, loop.time()
        while loop.time() < deadline and loop.time() - since < _REST_SECONDS:
            seen = await self._seen()
            if seen != last:
                last, since = seen, loop.time()
            await asyncio.sleep(0.2)
        self.told[f"{self._name} {chapter}"] = last

    async def _seen(self) -> Any:
        try:
            item = orjson.loads(await self._api.request("GET", f"{self._path}/{self._name}"))
        except errors.NotFound:
            item = {"metadata": {}}
        pods = orjson.loads(await self._api.request("GET", self._pods))["items"]
        mine = sorted(_pod(pod) for pod in pods if pod["metadata"]["name"].startswith(f"{self._name}-"))
        shown = {"status": item.get("status"), "labels": item["metadata"].get("labels"), "pods": mine}
        return _plain(shown)


def _pod(pod: Any) -> str:
    """Return one line about a pod, without what is drawn by chance or told differently by each kubelet."""
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
    ready = conditions.get("Ready") if pod["status"]["phase"] == "Running" else None
    metadata = pod["metadata"]
    labels = sorted(f"{key}={value}" for key, value in metadata["labels"].items())
    owner = metadata["ownerReferences"][0]["kind"]
    facts = (pod["status"]["phase"], ready, labels, metadata.get("finalizers"), owner)
    return _plain(facts)


def _plain(value: Any) -> Any:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return _UID.sub("UID", _TIME.sub("TIME", text))


async def stories(api: Api, namespace: str) -> Told:
    """Return what was seen of a Job, a JobSet and a PyTorchJob at each rest."""
    told = await asyncio.gather(_job(api, namespace), _jobset(api, namespace), _training(api, namespace))
    return {chapter: seen for story in told for chapter, seen in story.items()}


def _story(  # noqa: PLR0917
    api: Api, namespace: str, plural: str, kind: str, api_version: str, name: str, spec: Any
) -> Story:
    path = f"/apis/{api_version}/namespaces/{namespace}/{plural}"
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return Story(api, path, f"/api/v1/namespaces/{namespace}/pods", body)


async def _job(api: Api, namespace: str) -> Told:
    spec = {"parallelism": 2, "completions": 2, "suspend": True, "template": _template("15s")}
    story = _story(api, namespace, "jobs", "Job", "batch/v1", "job", spec)
    await story.create()
    await story.rest("suspended")
    for chapter, suspend in (("resumed", False), ("stopped", True), ("resumed again", False)):
        await story.patch({"suspend": suspend})
        await story.rest(chapter)
    await asyncio.sleep(15)
    await story.rest("complete")
    return story.told


async def _jobset(api: Api, namespace: str) -> Told:
    workers = {"parallelism": 2, "completions": 2, "template": _template()}
    replicated = [{"name": "workers", "replicas": 2, "template": {"spec": workers}}]
    spec = {"suspend": True, "replicatedJobs": replicated}
    story = _story(api, namespace, "jobsets", "JobSet", "jobset.x-k8s.io/v1alpha2", "set", spec)
    await story.create()
    await story.rest("suspended")
    for chapter, suspend in (("resumed", False), ("stopped", True)):
        await story.patch({"suspend": suspend})
        await story.rest(chapter)
    return story.told


async def _training(api: Api, namespace: str) -> Told:
    master = {"replicas": 1, "restartPolicy": "Never", "template": _template(name="pytorch")}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": master}}
    story = _story(api, namespace, "pytorchjobs", "PyTorchJob", "kubeflow.org/v1", "torch", spec)
    await story.create()
    await story.rest("suspended")
    for chapter, suspend in (("resumed", False), ("stopped", True)):
        await story.patch({"runPolicy": {"suspend": suspend}})
        await story.rest(chapter)
    return story.told
