"""What the two teams do, in order: one fills its quota and borrows, the other comes back for its own."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import orjson

from webhook.core.notation import quantity
from webhook.errors import ApiError, Conflict, Invalid, NotFound, TuttiError, Unavailable
from webhook.kube.api import Api
from webhook.laboratory.demo import files
from webhook.laboratory.demo.screen import Screen, say
from webhook.laboratory.demo.summary import Summary
from webhook.laboratory.demo.watching import GPU, Watcher

GPUS: Final = 16
LOOK_SECONDS: Final = 0.1
SCENES: Final = ((0.0, "vision-jobs"), (4.0, "speech-jobs"))
"""When each file of jobs is applied."""
BETWEEN_SECONDS: Final = 1.0
"""From one job of a file to the next."""
PATIENCE_SECONDS: Final = 10.0
GONE_SECONDS: Final = 60.0
"""A namespace takes its jobs and pods with it."""
_PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "ResourceFlavor": "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
    "WorkloadPriorityClass": "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses",
    "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "LocalQueue": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}


class SetUpError(TuttiError):
    """Something of the demo's names is there already; the message says what."""


async def perform(api: Api, seconds: float, check: Callable[[], None], *, tidy: bool) -> int:
    """Apply the teams' manifests, show what happens until all gangs ended, tell it; return the exit status.

    ``check`` raises when Tutti itself has failed. ``tidy`` removes everything that was applied. Raises SetUpError when
    something of the same name is there already.
    """
    made: list[dict[str, Any]] = []
    try:
        await _set_up(api, made)
        return await _show(api, seconds, check, made)
    finally:
        if tidy:
            await _clear(api, made)


async def create(api: Api, document: dict[str, Any]) -> None:
    """Create one object. Raises ApiError."""
    await api.request("POST", collection(document), body=orjson.dumps(document))


def decoded(raw: bytes) -> Any:
    """Return JSON."""
    return orjson.loads(raw)


async def _set_up(api: Api, made: list[dict[str, Any]]) -> None:
    say("applying examples/teams/quota.yaml: two queues of 8 GPUs in one cohort")
    for document in files.teams("quota"):
        try:
            await create(api, document)
        except Conflict as error:
            kind, name = document["kind"], document["metadata"]["name"]
            raise SetUpError(f"{kind} {name} is there already: delete it, or play on another cluster") from error
        made.append(document)


async def _show(api: Api, seconds: float, check: Callable[[], None], made: list[dict[str, Any]]) -> int:
    summary, loop = Summary(), asyncio.get_running_loop()
    watcher = Watcher(api, queues_of(made))
    tasks = await watcher.follow()
    scenes = {name: files.teams(name) for _, name in SCENES}
    expected = sum(map(len, scenes.values()))
    began = loop.time()
    directing = asyncio.create_task(_direct(api, scenes))
    try:
        with Screen(GPUS) as screen:
            while not summary.over(expected) and loop.time() - began < seconds:
                await asyncio.sleep(LOOK_SECONDS)
                check()
                for task in (directing, *tasks):
                    if task.done():
                        task.result()
                picture = watcher.look()
                screen.show(picture, summary.see(picture, loop.time() - began), loop.time() - began)
    finally:
        for task in (directing, *tasks):
            task.cancel()
        await asyncio.gather(directing, *tasks, return_exceptions=True)
    took = loop.time() - began
    say("")
    for sentence in summary.sentences(GPUS, took):
        say(sentence)
    if not summary.over(expected):
        say(f"The play was cut short after {seconds:.0f} s: not every gang had ended.")
    return 0 if summary.over(expected) and summary.succeeded else 1


async def _direct(api: Api, scenes: dict[str, list[dict[str, Any]]]) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for at_seconds, name in SCENES:
        await asyncio.sleep(max(0.0, began + at_seconds - loop.time()))
        for document in scenes[name]:
            await submit(api, document)
            await asyncio.sleep(BETWEEN_SECONDS)


async def submit(api: Api, job: dict[str, Any]) -> None:
    """Create a job; for a moment the webhook may not have seen yet what the job refers to."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        try:
            return await create(api, job)
        except (Invalid, Unavailable):
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(LOOK_SECONDS)


async def _clear(api: Api, made: list[dict[str, Any]]) -> None:
    """Delete what was applied, jobs before the queues they wait in: a namespace takes its jobs and pods with it."""
    if made:
        say("removing what the demo applied")
    background = orjson.dumps({"propagationPolicy": "Background"})
    namespaces = [document for document in made if document["kind"] == "Namespace"]
    for document in namespaces:
        await _delete(api, document, background)
    for document in namespaces:
        await _gone(api, document)
    for document in reversed(made):
        if document["kind"] != "Namespace":
            await _delete(api, document, background)


async def _delete(api: Api, document: dict[str, Any], body: bytes) -> None:
    try:
        await api.request("DELETE", f"{collection(document)}/{document['metadata']['name']}", body=body)
    except NotFound:
        return
    except ApiError as error:
        say(f"{document['kind']} {document['metadata']['name']} could not be deleted: {error}")


async def _gone(api: Api, document: dict[str, Any]) -> None:
    try:
        async with asyncio.timeout(GONE_SECONDS):
            while True:
                await api.request("GET", f"{collection(document)}/{document['metadata']['name']}")
                await asyncio.sleep(0.5)
    except NotFound:
        return
    except TimeoutError:
        say(f"Namespace {document['metadata']['name']} is still being deleted")


def collection(document: dict[str, Any]) -> str:
    """Return the path of the collection that an object of the demo is created in. Raises KeyError for another kind."""
    return _PATHS[document["kind"]].format(namespace=document["metadata"].get("namespace", ""))


def queues_of(quota: list[dict[str, Any]]) -> dict[str, tuple[str, int]]:
    """Return of each team's namespace the name of its queue and its own GPUs."""
    nominal = {
        document["metadata"]["name"]: quantity.parse(resource["nominalQuota"]) // quantity.MILLI
        for document in quota
        if document["kind"] == "ClusterQueue"
        for group in document["spec"]["resourceGroups"]
        for resource in group["flavors"][0]["resources"]
        if resource["name"] == GPU
    }
    return {
        document["metadata"]["namespace"]: (document["spec"]["clusterQueue"], nominal[document["spec"]["clusterQueue"]])
        for document in quota
        if document["kind"] == "LocalQueue"
    }
