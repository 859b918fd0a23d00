"""``tutti hold``, ``release`` and ``cancel``: an owner's handles on their own jobs, with the owner's own rights.

A running job is held by its suspend field, as without Tutti. A waiting one is suspended already, so it is held by the
annotation for admission gates instead, which Kueue's users know: it leaves the queue until the annotation is gone.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from webhook.commands import terminal
from webhook.commands.show.reading import default_namespace, kind_and_name
from webhook.core.model import names
from webhook.errors import NotFound, WrongName
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import by_name
from webhook.jobs.kinds.rest_paths import object_path
from webhook.jobs.reading import annotations, status
from webhook.kube.api import MERGE_PATCH, Api
from webhook.untyped import paths

GATE: Final = "tutti.dev/owner"
"""What ``hold`` writes into the annotation."""
_USER_AGENT: Final = "tutti-cli"

Verb = Callable[[Api, str, str], Awaitable[str]]
"""Does something to KIND/NAME in a namespace and returns what it did. Raises WrongName and ApiError."""


async def each(verb: Verb, jobs: Sequence[str], namespace: str | None, kubeconfig: Path | None) -> None:
    """Apply ``verb`` to each of ``jobs`` and print what it did; the first that fails ends it."""
    from webhook.kube.http import connected  # noqa: PLC0415 - takes more than a second

    async with connected(kubeconfig, _USER_AGENT) as api:
        for job in jobs:
            said = await verb(api, job, namespace or default_namespace(kubeconfig))
            terminal.console().print(said, highlight=False, markup=False)


async def hold(api: Api, job: str, namespace: str) -> str:
    """Keep a job from starting, or stop it whole, until ``release``."""
    kind, path, obj = await _find(api, job, namespace)
    if status.finished(kind, obj) is not None:
        raise WrongName(f"{job} has ended: there is nothing to hold")
    if kind.suspend is not None and paths.find(obj, kind.suspend) is not True:
        await _merge(api, path, obj, _nested(kind.suspend, True))
        return f"{job}: stops, all its pods at once; it keeps its place and waits until it is released"
    if kind.suspend is None and _is_admitted(obj):
        raise WrongName(f"{job} runs, and a {kind.kind} cannot be stopped and started again; cancel it instead")
    if _is_held(obj):
        return f"{job}: is held already"
    gates = [*_gates(obj), GATE] if GATE not in _gates(obj) else _gates(obj)
    await _merge(api, path, obj, {"metadata": {"annotations": {names.ADMISSION_GATES: ",".join(gates)}}})
    return f"{job}: does not start until it is released"


async def release(api: Api, job: str, namespace: str) -> str:
    """Let a held job wait for its turn again."""
    kind, path, obj = await _find(api, job, namespace)
    gates, patch = _gates(obj), dict[str, Any]()
    if GATE in gates:
        left = ",".join(gate for gate in gates if gate != GATE)
        patch = {"metadata": {"annotations": {names.ADMISSION_GATES: left or None}}}
    if _is_stopped(obj) and kind.suspend is not None:
        patch |= _nested(kind.suspend, False)
    if not patch:
        return f"{job}: is not held"
    await _merge(api, path, obj, patch)
    return f"{job}: waits for its turn again"


async def cancel(api: Api, job: str, namespace: str) -> str:
    """Delete a job and its pods."""
    _, path, obj = await _find(api, job, namespace)
    only_this = {"preconditions": {"uid": obj["metadata"]["uid"]}, "propagationPolicy": "Background"}
    await api.request("DELETE", path, body=orjson.dumps(only_this))
    return f"{job}: is deleted; its quota returns when its last pod is gone"


async def _find(api: Api, job: str, namespace: str) -> tuple[JobKind, str, dict[str, Any]]:
    word, name = kind_and_name(job)
    kind = by_name(word)
    if kind is None:
        raise WrongName(f"{word!r} is no kind of job that Tutti knows; write KIND/NAME, for example job/train")
    for served in kind.every_version:
        path = object_path(served, namespace, name)
        try:
            return served, path, orjson.loads(await api.request("GET", path))
        except NotFound:
            continue
    raise WrongName(f"there is no {kind.kind} {name!r} in namespace {namespace}")


async def _merge(api: Api, path: str, obj: dict[str, Any], patch: dict[str, Any]) -> None:
    """Write ``patch`` unless the object has changed since it was read."""
    metadata = {**patch.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
    body = orjson.dumps({**patch, "metadata": metadata})
    await api.request("PATCH", path, body=body, content_type=MERGE_PATCH)


def _nested(path: paths.Path, value: object) -> dict[str, Any]:
    document: Any = value
    for key in reversed(path):
        document = {key: document}
    assert isinstance(document, dict)
    return document


def _gates(obj: dict[str, Any]) -> list[str]:
    text = paths.find(obj, ("metadata", "annotations", names.ADMISSION_GATES))
    return [gate for part in str(text or "").split(",") if (gate := part.strip())]


def _is_stopped(obj: dict[str, Any]) -> bool:
    """Return whether it was suspended after it had been admitted: by its owner, or as its time or attempts ran out."""
    text = paths.find(obj, ("metadata", "annotations", names.HOLD))
    return annotations.decode_hold(text, obj["metadata"]["uid"])


def _is_admitted(obj: dict[str, Any]) -> bool:
    text = paths.find(obj, ("metadata", "annotations", names.ADMISSION))
    return annotations.decode_admission(text, obj["metadata"]["uid"]) is not None


def _is_held(obj: dict[str, Any]) -> bool:
    return GATE in _gates(obj) or _is_stopped(obj)
