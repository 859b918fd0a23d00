"""``tutti fleet lost``: somebody says that a member will not come back, which a hub never concludes by itself (P3).

Each gang that the member has, or may have, is written as nowhere without proof that nothing of it is left, and is then
offered to others. That it is lost is noted in a ConfigMap, so that hubs no longer wait for it: also one that is started
later, which otherwise offers nothing before every member was swept (P4). Should the member come back all the same, its
copies are deleted when it is swept, which ends the note; until then such a gang may run twice.
"""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import orjson

from webhook.clock import Clock
from webhook.core.fleet.text import UnreadableRecord
from webhook.core.notation import names
from webhook.core.notation.counted import counted
from webhook.core.notation.moments import time_text
from webhook.errors import ApiError, Conflict, Invalid, NotFound, TuttiError, WrongName
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.jobs.own import OwnJob
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import collection_path
from webhook.kube.api import JSON_PATCH, MERGE_PATCH, Api
from webhook.kube.finding import every, find
from webhook.untyped import paths
from webhook.untyped.values import text

ATTEMPTS: Final = 5
LOST: Final = "tutti-fleet-lost"
"""ConfigMap of the members that are lost, and since when."""
SILENT: Final = "tutti-fleet-silent"
"""ConfigMap of the members whose Lease nobody renews any more, for they do not answer (``dead_man``)."""
NAMED_MAX: Final = 10
"""Of what could not be read or written, that a message names."""
_CONFIG_MAPS: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps"


class NotAllGivenUp(TuttiError):
    """A member is noted as lost, and not all gangs could be read and written that may be there."""


async def noted(api: Api, where: str = LOST) -> dict[str, str]:
    """Return the members that were noted, and when. Raises ApiError."""
    found = await find(api, f"{_CONFIG_MAPS}/{where}")
    return {name: text(when) for name, when in paths.find_mapping(found, ("data",)).items()}


async def came_back(api: Api, member: str, when: str, where: str = LOST) -> None:
    """End the note of a member, if it is the one that was read. Raises ApiError."""
    pointer = f"/data/{paths.escape(member)}"
    patch = [{"op": "test", "path": pointer, "value": when}, {"op": "remove", "path": pointer}]
    try:
        await api.request("PATCH", f"{_CONFIG_MAPS}/{where}", body=orjson.dumps(patch), content_type=JSON_PATCH)
    except (Conflict, Invalid, NotFound):
        # Another hub ended it, or it was noted again.
        return


async def note(api: Api, member: str, when: str, where: str = LOST) -> None:
    """Note a member. Raises ApiError."""
    data = {"data": {member: when}}
    try:
        await api.request("PATCH", f"{_CONFIG_MAPS}/{where}", body=orjson.dumps(data), content_type=MERGE_PATCH)
    except NotFound:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": where}, **data}
        await api.request("POST", _CONFIG_MAPS, body=orjson.dumps(made))


async def take_back(api: Api, member: str) -> None:
    """End the note of a member that is not lost: hubs wait for it again. Raises ApiError, WrongName."""
    there = await noted(api)
    if member not in there:
        raise WrongName(f"{member} was not declared lost; these were: {', '.join(sorted(there)) or 'none'}")
    await came_back(api, member, there[member])


async def give_up(
    api: Api, kinds: Mapping[str, JobKind], member: str, clock: Clock, *, dry_run: bool, force: bool, cluster: str = ""
) -> AsyncIterator[str]:
    """Yield each gang that is given up, as KIND NAMESPACE/NAME; ``api`` is the hub's.

    Raises ApiError, WrongName, and NotAllGivenUp at the end where one kind or gang could not be read or written.

    A member that has no gang may be no member at all, whose note nobody would end: that takes ``force``. Where its
    name has led to several clusters, ``cluster`` is the one that is lost, by the uid of its kube-system: what runs in
    another one would run twice. What cannot be read may be in another one too.
    """
    failed: dict[str, ApiError] = {}
    looked_at = _gangs(api, kinds, member, clock, cluster, failed=failed, dry_run=True)
    held = Counter([where async for _, where in looked_at])
    if len(held) > 1 or (held and failed and not cluster):
        found = ", ".join(f"{counted(number, 'gang')} in the cluster {where}" for where, number in sorted(held.items()))
        raise WrongName(
            f"{member} has {found}{_unread(failed)}: say with --cluster which one is lost. The event MemberChanged on "
            "its gangs names it; a cluster says with: kubectl get namespace kube-system -o jsonpath={.metadata.uid}"
        )
    if not dry_run:
        if not force and not held:
            there = f" in the cluster {cluster}" if cluster else ""
            unread = _unread(failed)
            raise WrongName(f"no gang is in {member}{there}{unread}: is that its name? If it is, add --force")
        await note(api, member, time_text(int(clock.now())))
    cluster = cluster or "".join(held)
    async for gang, _ in _gangs(api, kinds, member, clock, cluster, failed=failed, dry_run=dry_run):
        yield gang
    if failed:
        raise NotAllGivenUp(f"gangs may be left in {member}{_unread(failed)}. Run this again when that works")


async def _gangs(
    api: Api,
    kinds: Mapping[str, JobKind],
    member: str,
    clock: Clock,
    cluster: str,
    *,
    failed: dict[str, ApiError],
    dry_run: bool,
) -> AsyncIterator[tuple[str, str]]:
    """Yield (KIND NAMESPACE/NAME, cluster) of each gang in a member; where ``cluster`` is empty, in whichever.

    What cannot be read or written is added to ``failed``; what is there already is left alone.
    """
    fleet = Fleet(api, {}, clock)
    placed = (kind for kind in kinds.values() if kind.dispatchable)
    for kind in itertools.chain.from_iterable(each.every_version for each in placed):
        path = collection_path(kind)
        if path in failed:
            continue
        async with _noting(failed, path, api):
            async for found in every(api, path):
                namespace, name = (text(paths.find(found, ("metadata", key))) for key in ("namespace", "name"))
                gang, where = f"{kind.kind} {namespace}/{name}", ""
                if gang in failed:
                    continue
                async with _noting(failed, gang, api):
                    where = await _given_up(OwnJob(fleet, kind, namespace, name), member, cluster, dry_run=dry_run)
                if where:
                    yield gang, where


@asynccontextmanager
async def _noting(failed: dict[str, ApiError], what: str, api: Api) -> AsyncIterator[None]:
    """Go on without one kind or gang that cannot be read or written. Raises ApiError where the hub does not answer."""
    try:
        yield
    except ApiError as error:
        await noted(api)
        failed[what] = error


def _unread(failed: Mapping[str, ApiError]) -> str:
    """Return in words, to follow where gangs are, of what it is not known, and why."""
    if not failed:
        return ""
    named = [f"{what} ({error})" for what, error in sorted(failed.items())[:NAMED_MAX]]
    more = [f"{len(failed) - NAMED_MAX} more"] if len(failed) > NAMED_MAX else []
    return f", and these could not be read or written: {', '.join([*named, *more])}"


async def _given_up(job: OwnJob, member: str, cluster: str, *, dry_run: bool) -> str:
    """Return the cluster in which a gang is, or would be, given up; nothing where it is not there."""
    for attempt in range(ATTEMPTS):
        try:
            stored = await job.read()
            dispatch = dispatch_of(stored)
            if dispatch.member != member or not dispatch.holds or cluster not in ("", dispatch.cluster):
                return ""
            if not dry_run:
                await job.write(stored, dispatch.lost(f"{member} was declared lost"))
        except (NotFound, UnreadableRecord):
            return ""
        except (Conflict, Invalid):
            if attempt + 1 == ATTEMPTS:
                raise
            continue
        return dispatch.cluster
    return ""
