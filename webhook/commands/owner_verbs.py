"""``tutti hold``, ``release`` and ``cancel``: an owner's handles on their own jobs, with the owner's own rights.

A running job is held by its suspend field, as without Tutti. A waiting one is suspended already, so it is held by the
annotation for admission gates instead, which Kueue's users know: it leaves the queue until the annotation is gone.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

import orjson

from webhook.clock import SystemClock
from webhook.cluster.waiting import OWNER_GATE
from webhook.commands import terminal
from webhook.commands.installed import stored_config
from webhook.commands.show.reading import kind_and_name, namespace_of, stored
from webhook.core.fleet.dispatch import NOWHERE, Dispatch
from webhook.core.fleet.text import UnreadableRecord
from webhook.core.notation import names
from webhook.core.notation.moments import time_text
from webhook.core.notation.problem import Problem
from webhook.errors import ApiError, Conflict, Forbidden, NotFound, TuttiError, WrongInput, WrongName
from webhook.fleet.members.copies import dispatch_of, placed_by_hub
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS, by_name, with_custom
from webhook.jobs.kinds.rest_paths import object_path
from webhook.jobs.reading import annotations, status
from webhook.jobs.reading.gating import gang_owner
from webhook.kube.api import MERGE_PATCH, Api
from webhook.untyped import paths

_PAUSES_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Before a change is tried again: a job is written to several times within the second in which its state changes."""

Kinds = Mapping[str, JobKind]


Verb = Callable[[Api, str, str, Kinds], Coroutine[Any, Any, str]]
"""What is done to KIND/NAME in a namespace, by these kinds; returns what it did, and raises WrongName and ApiError."""


async def each(
    verb: Verb, jobs: Sequence[str], selector: str | None, namespace: str | None, kubeconfig: Path | None
) -> None:
    """Apply ``verb`` to each of ``jobs`` and print what it did; one that fails keeps no other from it.

    With a ``selector`` the words are kinds, and it goes to all jobs of these that have the labels. Raises the first
    WrongName or ApiError at the end; nothing is done where a word names no job. Raises WrongInput for a selector that
    is blank, as of a shell's variable that is not set: it would choose all jobs.
    """
    if selector is not None and not selector.strip():
        fix = "give a label, for example run=night, or name the jobs"
        raise WrongInput((Problem("--selector", repr(selector), "would choose every job", fix),))
    failed = list[TuttiError]()
    async with terminal.cluster(kubeconfig) as api:
        space, kinds = namespace_of(namespace, kubeconfig), await every_kind(api)
        chosen = _with_kinds(jobs) if selector is None else await selected(api, jobs, selector, space, kinds)
        for job in chosen:
            _kind_and_name(job, kinds)
        for job in chosen:
            try:
                said = await verb(api, job, space, kinds)
            except (WrongName, ApiError) as error:
                failed.append(error)
                continue
            terminal.console().print(said, highlight=False, markup=False)
    for other in failed[1:]:
        sys.stderr.write(f"tutti: {other}\n")
    if failed:
        raise failed[0]


def _with_kinds(words: Sequence[str]) -> list[str]:
    """Return KIND/NAME for each job; a first word without a name is the kind of all that follow, as in kubectl."""
    if len(words) < 2 or any("/" in word for word in words):
        return list(words)
    return [f"{words[0]}/{name}" for name in words[1:]]


async def every_kind(api: Api) -> Kinds:
    """Return the shipped kinds and those that the cluster's configuration adds, which everybody may read."""
    try:
        return with_custom((await stored_config(api)).kinds)
    except Forbidden:
        return KINDS


async def selected(api: Api, words: Sequence[str], selector: str, namespace: str, kinds: Kinds) -> list[str]:
    """Return, as KIND/NAME, the jobs of the kinds ``words`` that have the labels. Raises WrongName for none.

    The oldest of a kind comes first, so that jobs which are released together stand in the order that they had.
    """
    found: list[str] = []
    for word in words:
        kind = _kind(word, kinds)
        for served in kind.every_version:
            path = object_path(served, namespace, "").rstrip("/")
            try:
                listed = orjson.loads(await api.request("GET", path, query={"labelSelector": selector}))["items"]
            except NotFound:
                continue
            oldest_first = sorted(
                (item["metadata"] for item in listed), key=lambda each: str(each.get("creationTimestamp"))
            )
            found += [f"{word}/{each['name']}" for each in oldest_first]
            break
    if not found:
        raise WrongName(f"namespace {namespace} has no {' and no '.join(words)} with the labels {selector!r}")
    return found


def _until_unmoved(verb: Verb) -> Verb:
    """Return a verb that reads the job again where somebody, as the reconciler, has written to it meanwhile."""

    @wraps(verb)
    async def repeated(api: Api, job: str, namespace: str, kinds: Kinds) -> str:
        for pause_seconds in _PAUSES_SECONDS:
            try:
                return await verb(api, job, namespace, kinds)
            except Conflict:
                await asyncio.sleep(pause_seconds)
        return await verb(api, job, namespace, kinds)

    return repeated


@_until_unmoved
async def hold(api: Api, job: str, namespace: str, kinds: Kinds) -> str:
    """Keep a job from starting, or stop it whole, until ``release``."""
    kind, path, obj = await _find_whole(api, job, namespace, kinds)
    if status.finished(kind, obj) is not None:
        raise WrongName(f"{job} has ended: there is nothing to hold")
    if paths.find(obj, ("metadata", "deletionTimestamp")) is not None:
        raise WrongName(f"{job} is being deleted: there is nothing to hold")
    if kind.suspend is not None and paths.find(obj, kind.suspend) is not True:
        await _merge(api, path, obj, paths.nest(kind.suspend, True))
        if not kind.evictable and _is_admitted(obj):
            return f"{job}: starts no more pods until it is released; those that run go on, and it keeps its room"
        where = "as soon as the member that has it hears of it" if placed_by_hub(kind, obj) else "at once"
        return f"{job}: all its pods stop {where}; it keeps its place and waits until it is released"
    if kind.suspend is None and _is_admitted(obj):
        raise WrongName(f"{job} runs, and a {kind.kind} cannot be stopped and started again; cancel it instead")
    if OWNER_GATE in _gates(obj) or _is_stopped(obj) or _is_paused(kind, obj):
        return f"{job}: is already held"
    gates = _gates(obj) if OWNER_GATE in _gates(obj) else [*_gates(obj), OWNER_GATE]
    await _merge(api, path, obj, {"metadata": {"annotations": {names.ADMISSION_GATES: ",".join(gates)}}})
    return f"{job}: does not start until it is released"


@_until_unmoved
async def release(api: Api, job: str, namespace: str, kinds: Kinds) -> str:
    """Let a held job wait for its turn again."""
    kind, path, obj = await _find_whole(api, job, namespace, kinds)
    gates, patch = _gates(obj), dict[str, Any]()
    if OWNER_GATE in gates:
        left = ",".join(gate for gate in gates if gate != OWNER_GATE)
        patch = {"metadata": {"annotations": {names.ADMISSION_GATES: left or None}}}
    paused = _is_paused(kind, obj)
    if (_is_stopped(obj) or paused) and kind.suspend is not None:
        patch |= paths.nest(kind.suspend, False)
    if not patch:
        there = _record(kind, obj)
        return f"{job}: is not held" + (f" here; {there.member} {there.waits}" if there.holds and there.waits else "")
    await _merge(api, path, obj, patch)
    return f"{job}: goes on" if paused else f"{job}: waits for its turn again"


async def cancel(api: Api, job: str, namespace: str, kinds: Kinds) -> str:
    """Delete a job and its pods; whose part it is, where its controller may make it again."""
    kind, path, obj = await _find(api, job, namespace, kinds)
    only_this = {"preconditions": {"uid": obj["metadata"]["uid"]}, "propagationPolicy": "Background"}
    await api.request("DELETE", path, body=orjson.dumps(only_this))
    if whole := _whole_of(kind, obj, kinds):
        return f"{job}: is deleted, but may be made again: it is a part of {whole}; cancel that to be rid of all of it"
    if placed_by_hub(kind, obj):
        return f"{job}: is deleted once nothing of it is left in a member; until then it keeps its quota"
    if kind.suspend is not None and paths.find(obj, kind.suspend) is True:
        return f"{job}: is deleted"
    return f"{job}: is deleted; its quota returns when its last pod is gone"


@_until_unmoved
async def top(api: Api, job: str, namespace: str, kinds: Kinds) -> str:
    """Move a waiting job before all others of its priority in its queue. Raises Forbidden for who may not."""
    kind, path, obj = await _find_whole(api, job, namespace, kinds)
    if _is_admitted(obj) and placed_by_hub(kind, obj) and not _record(kind, obj).holds:
        raise WrongName(f"{job} has its quota here, and waits for a member: its place in a queue here changes nothing")
    if status.finished(kind, obj) is not None or _is_admitted(obj):
        raise WrongName(f"{job} is not waiting: only waiting jobs have a place in a queue")
    await _merge(api, path, obj, {"metadata": {"annotations": {names.TOP: time_text(SystemClock().now())}}})
    return f"{job}: is the first of its priority in its queue; its priority is unchanged, and nothing is stopped for it"


def _record(kind: JobKind, obj: Mapping[str, Any]) -> Dispatch:
    """Return where a job of a hub is; nowhere for any other, and where that cannot be read."""
    with contextlib.suppress(UnreadableRecord):
        return dispatch_of(obj) if placed_by_hub(kind, obj) else NOWHERE
    return NOWHERE


VERBS: Final[Mapping[str, Verb]] = {"hold": hold, "release": release, "cancel": cancel, "top": top}


def _kind(word: str, kinds: Kinds) -> JobKind:
    kind = by_name(word, kinds)
    if kind is None:
        raise WrongName(
            f"{word!r} is not a job kind that Tutti knows; write KIND/NAME, for example job/train, or with --selector "
            "only KIND"
        )
    return kind


def _kind_and_name(job: str, kinds: Kinds) -> tuple[JobKind, str]:
    try:
        word, name = kind_and_name(job)
    except WrongName as error:
        if "/" in job:
            raise
        raise WrongName(f"{error}, or with --selector only KIND") from None
    return _kind(word, kinds), name


async def _find(api: Api, job: str, namespace: str, kinds: Kinds) -> tuple[JobKind, str, dict[str, Any]]:
    kind, name = _kind_and_name(job, kinds)
    found = await stored(api, kind, namespace, name)
    if found is None:
        raise WrongName(f"there is no {kind.kind} {name!r} in namespace {namespace}")
    return found[0], object_path(found[0], namespace, name), found[1]


async def _find_whole(api: Api, job: str, namespace: str, kinds: Kinds) -> tuple[JobKind, str, dict[str, Any]]:
    """Return what ``_find`` does. Raises WrongName for a part of a gang: it waits, starts and stops with its owner.

    That one's controller undoes what is written on it.
    """
    kind, path, obj = await _find(api, job, namespace, kinds)
    if whole := _whole_of(kind, obj, kinds):
        raise WrongName(f"{job} is a part of {whole}, which starts and stops as a whole: name that")
    return kind, path, obj


def _whole_of(kind: JobKind, obj: Mapping[str, Any], kinds: Kinds) -> str:
    """Return the kind and name of the owner to whose gang an object belongs; empty for a gang of its own."""
    owner = gang_owner(kind, obj, kinds)
    return "" if owner is None else f"{kinds[owner.kind].kind} {owner.name}"


async def _merge(api: Api, path: str, obj: dict[str, Any], patch: dict[str, Any]) -> None:
    """Write ``patch`` unless the object has changed since it was read."""
    metadata = {**patch.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
    body = orjson.dumps({**patch, "metadata": metadata})
    await api.request("PATCH", path, body=body, content_type=MERGE_PATCH)


def _gates(obj: dict[str, Any]) -> list[str]:
    text = paths.find(obj, ("metadata", "annotations", names.ADMISSION_GATES))
    return [gate for part in str(text or "").split(",") if (gate := part.strip())]


def _is_stopped(obj: dict[str, Any]) -> bool:
    """Return whether it was suspended after it had been admitted: by its owner, or as its time or attempts ran out."""
    text = paths.find(obj, ("metadata", "annotations", names.HOLD))
    return annotations.decode_hold(text, obj["metadata"]["uid"])


def _is_paused(kind: JobKind, obj: dict[str, Any]) -> bool:
    """Return whether its owner suspended a job that cannot be stopped, since it was admitted."""
    suspended = kind.suspend is not None and paths.find(obj, kind.suspend) is True
    return suspended and not kind.evictable and _is_admitted(obj)


def _is_admitted(obj: dict[str, Any]) -> bool:
    text = paths.find(obj, ("metadata", "annotations", names.ADMISSION))
    return annotations.decode_admission(text, obj["metadata"]["uid"]) is not None
