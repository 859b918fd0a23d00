"""Brings what a job refers to from the hub into the member that is to run it, where its policy asks for that.

Between the grant and its permit, so it is there before a pod is, and is done again by whoever writes the permit after a
crash. The hub reads with its own rights, in the job's own namespace alone.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from webhook.core.fleet.dispatch import Dispatch
from webhook.errors import Forbidden, NotFound
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.jobs.references import references
from webhook.fleet.members import words
from webhook.fleet.members.bringing import has, put
from webhook.fleet.members.dependency import (
    SECRET,
    SERVICE_ACCOUNT,
    TOKEN,
    Dependency,
    made,
    owner_of_all,
    pull_secrets,
)
from webhook.fleet.members.member import NoAnswer
from webhook.jobs.kinds.kind import JobKind

BROUGHT_MAX: Final = 32
"""Objects that are brought for one job."""
BYTES_MAX: Final = 4 << 20
"""Of all of them as the hub's API server answers them; one is at most 1 MiB or so."""
BRINGING_SECONDS: Final = 20.0
"""Less than a member keeps room without a permit."""
_OPENED_BY: Final = "bind the ClusterRole {} to it in this namespace, in the hub and in {}"
ROLE: Final = "tutti-hub-dependencies"
"""What lets a hub read ConfigMaps and ServiceAccounts, and make them in a member."""
SECRETS_ROLE: Final = "tutti-hub-secrets"
"""The same of Secrets: an administrator binds it in the namespaces where that may be."""


async def bring(fleet: Fleet, kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch) -> tuple[str, ...]:
    """Bring what a granted job refers to; return, in words, what its member does not have as the hub has it.

    One job of a namespace and member at a time, and of that one object: a tenant with thousands of jobs takes no more
    of the hub's memory, and keeps no other one waiting. Raises ApiError where the hub's own API server does not answer,
    NoAnswer and Refused of the member.
    """
    optional = references(job.get("spec"))
    if not optional:
        return ()
    bringing = _Bringing(fleet, kind, job, dispatch)
    try:
        async with asyncio.timeout(BRINGING_SECONDS), fleet.turn(dispatch.member, bringing.namespace):
            return tuple(await bringing.all(optional))
    except TimeoutError as error:
        # What is there by then is there at the next look, which may find that the gang is no longer to start there.
        raise NoAnswer(
            f"{dispatch.member}: what the job refers to was not there in {BRINGING_SECONDS:.0f} s"
        ) from error


class _Bringing:
    """What is brought for one job."""

    def __init__(self, fleet: Fleet, kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch) -> None:
        self._fleet, self._member, self.namespace = fleet, fleet.member(dispatch.member), job["metadata"]["namespace"]
        self._owner = owner_of_all(job["apiVersion"], kind.kind, job["metadata"]["name"], dispatch.copy_uid)
        self._size = 0
        """Of what was read so far, in bytes."""

    async def all(self, wanted: Mapping[Dependency, bool]) -> list[str]:
        """Bring what is ``wanted``, each with whether pods start without it, and what a ServiceAccount names. Return
        what stays different. Raises ApiError, NoAnswer, Refused.
        """
        optional, said = dict(wanted), list[str]()
        # ServiceAccounts first: they name more.
        queue = sorted(optional, key=lambda each: each.kind != SERVICE_ACCOUNT)
        for number, each in enumerate(queue):
            if number == BROUGHT_MAX or self._size > BYTES_MAX:
                bound = f"{BROUGHT_MAX} objects" if number == BROUGHT_MAX else f"{BYTES_MAX >> 20} MiB"
                said.append(f"{each} and what comes after it are not brought: {bound} is the most for one job")
                break
            found, why = await self._read(each, optional=optional[each])
            if found is not None:
                why = await put(self._member, each, made(each, found, self.namespace, self._fleet.uid, self._owner))
                more = [name for name in _named_by(each, found) if name not in optional]
                # Pods start without them, if their nodes have the images.
                optional |= dict.fromkeys(more, True)
                queue += more
            elif why and await has(self._member, each, self.namespace):
                why = ""
            if why:
                said.append(f"{each} {why}")
        return said

    async def _read(self, dependency: Dependency, *, optional: bool) -> tuple[dict[str, Any] | None, str]:
        """Return what the hub has; or, of what pods need, why it is not brought: the member may have it."""
        try:
            raw = await self._fleet.api.request("GET", dependency.path(self.namespace))
        except (NotFound, Forbidden) as error:
            if isinstance(error, Forbidden) and error.status == words.UNAUTHORIZED:
                raise
            return None, "" if optional and isinstance(error, NotFound) else self._why(dependency, error)
        found: dict[str, Any] = orjson.loads(raw)
        self._size += len(raw)
        if dependency.kind == SECRET and found.get("type") == TOKEN:
            return None, "is a token of a ServiceAccount, which no other cluster accepts"
        return found, ""

    def _why(self, dependency: Dependency, error: NotFound | Forbidden) -> str:
        if isinstance(error, NotFound):
            return f"is not there, nor in the hub: create it in the hub, or in {self._member.name}"
        role = SECRETS_ROLE if dependency.kind == SECRET else ROLE
        return f"may not be read by this hub: {_OPENED_BY.format(role, self._member.name)}"


def _named_by(dependency: Dependency, found: Mapping[str, Any]) -> Iterator[Dependency]:
    if dependency.kind == SERVICE_ACCOUNT:
        yield from references({"imagePullSecrets": [*pull_secrets(found)]})
