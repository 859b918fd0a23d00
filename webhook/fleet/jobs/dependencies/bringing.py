"""Brings what a job refers to from the hub into the member that is to run it, where its policy asks for that.

Between the grant and its permit, so it is there before a pod is, and is done again by whoever writes the permit after a
crash. The hub reads with its own rights, in the job's own namespace alone.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

import orjson

from webhook.core.fleet.dispatch import Dispatch
from webhook.core.notation.shortened import shortened
from webhook.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from webhook.fleet.jobs.dependencies.dependency import (
    SECRET,
    SERVICE_ACCOUNT,
    TOKEN,
    Dependency,
    made,
    owner_of_all,
    pull_secrets,
)
from webhook.fleet.jobs.dependencies.holding import put, why_lacking
from webhook.fleet.jobs.dependencies.references import references
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.members import answers, words
from webhook.fleet.members.member import Look, Member, Refused
from webhook.fleet.members.told import REASON_CHARACTERS
from webhook.jobs.kinds.kind import JobKind
from webhook.untyped import paths

BROUGHT_MAX: Final = 32
"""Objects that are brought for one job."""
BYTES_MAX: Final = 4 << 20
"""Of all of them as the hub's API server answers them."""
OBJECT_BYTES_MAX: Final = 3 << 19
"""Of one, likewise: an API server answers some characters with six bytes. What a member answers is read up to
``answers.OBJECT_BYTES_MAX``, and has its owners as well.
"""
AT_ONCE: Final = 4
"""Objects of one job that are under way together."""
BRINGING_SECONDS: Final = 20.0
"""Less than a member keeps room without a permit."""
_OPENED_BY: Final = "bind the ClusterRole {} to it in this namespace, in the hub and in {}"
ROLE: Final = "tutti-hub-dependencies"
"""What lets a hub read ConfigMaps and ServiceAccounts, and make them in a member."""
SECRETS_ROLE: Final = "tutti-hub-secrets"
"""The same of Secrets: an administrator binds it in the namespaces where that may be."""
_OF_THE_HUB: Final = (0, words.UNAUTHORIZED)
"""Statuses by which the hub's own API server says nothing of the one object that it is asked for."""
_BUSY: Final = (429, 503)
"""Statuses by which it may."""
RETRYING_SECONDS: Final = 4.0
"""So long, for all that one job refers to, what may pass in a moment is read again."""
_FIRST_REST_SECONDS: Final = 0.5
"""Until the first time; then twice as long each time."""


class HubBusy(Refused):
    """It is the hub's own cluster that does not let something be read at the moment, and no member is to blame."""


class _MayPass(Exception):
    """What was asked of the hub's API server is worth asking again."""


async def bring(
    fleet: Fleet, kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch, look: Look | None
) -> tuple[str, ...]:
    """Bring what a granted job refers to; return, in words, what its member does not have as the hub has it.

    ``look`` shows its copy. Raises ApiError where the hub's own API server does not answer, HubBusy where it has too
    much to do, NoAnswer and Refused of the member.
    """
    if fleet.unread:
        # Its policy may be what cannot be read: a copy is permitted once, and would start without what it needs.
        raise HubBusy(f"the hub {fleet.unread}")
    optional = references(job.get("spec"))
    # A member could name anything in its copy: only what the hub's job refers to is brought.
    copied = None if look is None else paths.find(look.object, ("spec",))
    said = [
        f"{each} is not brought: the job was changed in the hub since it was offered; suspend it and resume it"
        for each in sorted(references(copied).keys() - optional.keys())[:1]
    ]
    if not optional:
        return tuple(said)
    owner = owner_of_all(job["apiVersion"], kind.kind, job["metadata"]["name"], dispatch.copy_uid)
    bringing = _Bringing(fleet, fleet.member(dispatch.member), job["metadata"]["namespace"], owner)
    try:
        async with asyncio.timeout(BRINGING_SECONDS):
            return (*said, *await bringing.all(optional))
    except TimeoutError as error:
        raise Refused(f"what the job refers to was not there in {BRINGING_SECONDS:.0f} s") from error


class _Bringing:
    """What is brought for one copy."""

    def __init__(self, fleet: Fleet, member: Member, namespace: str, owner: Mapping[str, str]) -> None:
        self._fleet, self._member, self._namespace, self._owner = fleet, member, namespace, owner
        self._size = 0
        """Of what was read so far, in bytes."""
        self._said: list[str] = []
        self._patient_until = asyncio.get_running_loop().time() + RETRYING_SECONDS

    async def all(self, wanted: Mapping[Dependency, bool]) -> list[str]:
        """Bring what is ``wanted``, each with whether pods start without it, and what a ServiceAccount names; return
        what stays different.
        """
        # ServiceAccounts first: they name more.
        optional, at = dict(wanted), 0
        queue = sorted(optional, key=lambda each: each.kind != SERVICE_ACCOUNT)
        while at < min(len(queue), BROUGHT_MAX) and self._size <= BYTES_MAX:
            batch = queue[at : min(at + AT_ONCE, BROUGHT_MAX)]
            more, at = await _together(self._one(each, optional=optional[each]) for each in batch), at + len(batch)
            # Pods start without them, if their nodes have the images.
            new = dict.fromkeys((each for each in more if each not in optional), True)
            optional |= new
            queue += new
        if at < len(queue):
            bound = f"{BYTES_MAX >> 20} MiB" if self._size > BYTES_MAX else f"{BROUGHT_MAX} objects"
            self._said.append(f"{queue[at]} and what comes after it are not brought: {bound} is the most for one job")
        return self._said

    async def _one(self, dependency: Dependency, *, optional: bool) -> tuple[Dependency, ...]:
        """Bring one; return what it names in turn."""
        now, rest = asyncio.get_running_loop().time, _FIRST_REST_SECONDS
        while True:
            patient = now() + rest < self._patient_until
            with contextlib.suppress(_MayPass):
                async with self._fleet.turn(self._member.name, self._namespace):
                    return await self._brought(dependency, optional=optional, patient=patient)
            # It is not its turn meanwhile: what is read of others may be there at once.
            await asyncio.sleep(rest)
            rest *= 2

    async def _brought(self, dependency: Dependency, *, optional: bool, patient: bool) -> tuple[Dependency, ...]:
        found, why = await self._read(dependency, optional=optional, patient=patient)
        if found is not None:
            wanted = made(dependency, found, self._namespace, self._fleet.uid, self._owner)
            why = await put(self._member, dependency, wanted)
        elif why:
            why = await why_lacking(self._member, dependency, self._namespace, self._owner["uid"], why)
        if why:
            self._said.append(f"{dependency} {why}")
        return () if found is None else _named_by(dependency, found)

    async def _read(
        self, dependency: Dependency, *, optional: bool, patient: bool
    ) -> tuple[dict[str, Any] | None, str]:
        """Return what the hub has; or, of what pods need, why it is not brought: the member may have it.

        ``patient``: raises _MayPass for what may be otherwise in a moment.
        """
        member = self._member.name
        try:
            raw = await self._fleet.api.request("GET", dependency.path(self._namespace), query=answers.ONE)
        except NotFound:
            lacking = f"is not in the hub, and {member} has none of its own: create it in the hub, or in {member}"
            return None, "" if optional else lacking
        except ApiError as error:
            if error.status in _OF_THE_HUB:
                raise
            if patient and isinstance(error, Conflict | Unavailable):
                raise _MayPass from error
            cannot = f"cannot be read in the hub: {shortened(str(error), REASON_CHARACTERS)}"
            if error.status in _BUSY:
                # Tried again soon, and told: it may say so of this one object for good.
                raise HubBusy(f"{dependency} {cannot}") from error
            if not isinstance(error, Forbidden):
                return None, cannot
            role = SECRETS_ROLE if dependency.kind == SECRET else ROLE
            return None, f"may not be read by this hub: {_OPENED_BY.format(role, member)}"
        self._size += len(raw)
        if len(raw) > OBJECT_BYTES_MAX:
            return None, f"is not brought: it has {len(raw)} bytes as JSON, and {OBJECT_BYTES_MAX} are the most"
        found: dict[str, Any] = orjson.loads(raw)
        if dependency.kind == SECRET and found.get("type") == TOKEN:
            return None, "is a token of a ServiceAccount, which no other cluster accepts"
        return found, ""


def _named_by(dependency: Dependency, found: Mapping[str, Any]) -> tuple[Dependency, ...]:
    if dependency.kind != SERVICE_ACCOUNT:
        return ()
    return tuple(references({"imagePullSecrets": [*pull_secrets(found)]}))


async def _together(brought: Iterable[Any]) -> list[Dependency]:
    """Return what all of these name, once all are done. Raises what the first raised that failed."""
    done = await asyncio.gather(*brought, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return [*chain.from_iterable(each for each in done if isinstance(each, tuple))]
