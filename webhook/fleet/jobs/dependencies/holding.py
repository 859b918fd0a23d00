"""Has a member hold what a job refers to."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from webhook.core.notation import names
from webhook.errors import ApiError
from webhook.fleet.jobs.dependencies.dependency import (
    OWNERS_MAX,
    Dependency,
    another_hub,
    change,
    is_from,
    is_of_others,
    owners_of,
)
from webhook.fleet.members import words
from webhook.fleet.members.member import Member, NoAnswer, Refused
from webhook.kube.api import JSON, JSON_PATCH, METADATA
from webhook.untyped import paths
from webhook.untyped.values import text

_TRIES: Final = 3
"""For others may write there at the same time."""
_OF_OTHERS: Final = "what is there was brought for other jobs, and goes with them"
_GOES: Final = "was brought there by another hub, and goes when that one's jobs have: have it called otherwise here"


async def put(member: Member, dependency: Dependency, wanted: Mapping[str, Any]) -> str:
    """Have a member hold what was ``dependency.made`` of the hub's; return in words what stays different of it.

    What is not of this hub is not touched. Raises NoAnswer, Refused.
    """
    namespace, hub = wanted["metadata"]["namespace"], wanted["metadata"]["labels"][names.ORIGIN_LABEL]
    try:
        for _ in range(_TRIES):
            there = await _read(member, dependency, namespace)
            if there is None:
                where, body = dependency.collection(namespace), orjson.dumps(wanted)
                if await member.write("POST", where, body, name=dependency.name) is not None:
                    return ""
            elif not is_from(hub, there):
                return _GOES if another_hub(hub, there) else ""
            elif (differs := await _change(member, dependency, there, wanted)) is not None:
                return differs
    except Refused as error:
        raise Refused(f"{dependency}: {error}") from error
    raise Refused(f"{dependency}: it keeps changing there")


async def why_lacking(member: Member, dependency: Dependency, namespace: str, copy_uid: str, why: str) -> str:
    """Return ``why`` an object is not brought; nothing where its member shows one that does not go from under the copy.

    What the hub has not any more is not kept for one more copy: somebody has taken it away. Raises NoAnswer.
    """
    try:
        there = await _read(member, dependency, namespace, METADATA)
    except Refused:
        return why
    if there is None:
        return why
    return f"{why}; {_OF_OTHERS}" if is_of_others(copy_uid, there) else ""


async def _read(member: Member, dependency: Dependency, namespace: str, accept: str = JSON) -> dict[str, Any] | None:
    try:
        return await member.get(dependency.path(namespace), accept, of_itself=True)
    except ApiError as error:
        # Whatever it says is of this one object: its other answers go on.
        if error.status not in (0, words.UNAUTHORIZED):
            raise Refused(str(error)) from error
        raise NoAnswer(f"{member.name}: {error}") from error


async def _change(
    member: Member, dependency: Dependency, there: Mapping[str, Any], wanted: Mapping[str, Any]
) -> str | None:
    """Return what stays different; None where it is to be read again. Raises NoAnswer, Refused."""
    metadata = paths.find_mapping(there, ("metadata",))
    if metadata.get("deletionTimestamp") is not None:
        raise Refused("it is being deleted there")
    found = change(there, wanted)
    if not found.patch:
        return found.differs
    if owners_of(there) >= OWNERS_MAX:
        raise Refused(f"{OWNERS_MAX} jobs there use it")
    only, where = (text(metadata.get("uid")), found.version), dependency.path(wanted["metadata"]["namespace"])
    written = await member.write("PATCH", where, orjson.dumps(found.patch), JSON_PATCH, only)
    return None if written is None else found.differs
