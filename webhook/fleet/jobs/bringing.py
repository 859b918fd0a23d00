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
from webhook.jobs.kinds.kind import JobKind

BROUGHT_MAX: Final = 32
"""Objects that are brought for one job."""
BYTES_MAX: Final = 4 << 20
"""Of all of them as the hub's API server answers them; one is at most 1 MiB or so."""
_OPENED_BY: Final = "bind the ClusterRole {} to it in this namespace, in the hub and in {}"
ROLE: Final = "tutti-hub-dependencies"
"""What lets a hub read ConfigMaps and ServiceAccounts, and make them in a member."""
SECRETS_ROLE: Final = "tutti-hub-secrets"
"""The same of Secrets: an administrator binds it in the namespaces where that may be."""


async def bring(fleet: Fleet, kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch) -> tuple[str, ...]:
    """Bring what a granted job refers to; return, in words, what its member does not have as the hub has it.

    Raises ApiError where the hub's own API server does not answer, NoAnswer and Refused of the member.
    """
    optional = references(job.get("spec"))
    if not optional:
        return ()
    member, namespace, name = fleet.member(dispatch.member), job["metadata"]["namespace"], job["metadata"]["name"]
    found = _Found(fleet, namespace, member.name)
    await found.read(optional)
    owner = owner_of_all(job["apiVersion"], kind.kind, name, dispatch.copy_uid)
    puts = (
        put(member, each, made(each, object_, namespace, fleet.uid, owner)) for each, object_ in found.objects.items()
    )
    said = list(found.said)
    differs = await _all(*puts)
    said += [f"{each} {how}" for each, how in zip(found.objects, differs, strict=True) if how]
    for each, why in found.missing.items():
        if not await has(member, each, namespace):
            said.append(f"{each} {why}")
    return tuple(said)


class _Found:
    """What the hub has of it."""

    def __init__(self, fleet: Fleet, namespace: str, member: str) -> None:
        self._fleet, self._namespace, self._member = fleet, namespace, member
        self.objects: dict[Dependency, dict[str, Any]] = {}
        self.missing: dict[Dependency, str] = {}
        """What pods need and is not brought, with why: the member may have it."""
        self.said: list[str] = []

    async def read(self, wanted: Mapping[Dependency, bool]) -> None:
        """Read what is ``wanted``, each with whether pods start without it, and what a ServiceAccount names. One after
        another: no more than is brought is held in memory. Raises ApiError.
        """
        optional, size = dict(wanted), 0
        # ServiceAccounts first: they name more.
        queue = sorted(optional, key=lambda each: each.kind != SERVICE_ACCOUNT)
        for number, each in enumerate(queue):
            if number == BROUGHT_MAX or size > BYTES_MAX:
                bound = f"{BROUGHT_MAX} objects" if number == BROUGHT_MAX else f"{BYTES_MAX >> 20} MiB"
                self.said.append(f"{each} and what comes after it are not brought: {bound} is the most for one job")
                return
            try:
                raw = await self._fleet.api.request("GET", each.path(self._namespace))
            except (NotFound, Forbidden) as error:
                if isinstance(error, Forbidden) and error.status == words.UNAUTHORIZED:
                    raise
                if not (optional[each] and isinstance(error, NotFound)):
                    self.missing[each] = self._why(each, error)
                continue
            object_, size = orjson.loads(raw), size + len(raw)
            if each.kind == SECRET and object_.get("type") == TOKEN:
                self.missing[each] = "is a token of a ServiceAccount, which no other cluster accepts"
                continue
            self.objects[each] = object_
            for more in _named_by(each, object_):
                if more not in optional:
                    # Pods start without them, if their nodes have the images.
                    optional[more] = True
                    queue.append(more)

    def _why(self, dependency: Dependency, error: NotFound | Forbidden) -> str:
        if isinstance(error, NotFound):
            return f"is not there, nor in the hub: create it in the hub, or in {self._member}"
        role = SECRETS_ROLE if dependency.kind == SECRET else ROLE
        return f"may not be read by this hub: {_OPENED_BY.format(role, self._member)}"


def _named_by(dependency: Dependency, found: Mapping[str, Any]) -> Iterator[Dependency]:
    if dependency.kind == SERVICE_ACCOUNT:
        yield from references({"imagePullSecrets": [*pull_secrets(found)]})


async def _all(*puts: Any) -> list[str]:
    """Return what each says, once all are done. Raises what the first says that fails."""
    done = await asyncio.gather(*puts, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return [each for each in done if isinstance(each, str)]
