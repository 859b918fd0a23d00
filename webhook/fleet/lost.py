"""``tutti fleet lost``: somebody says that a member will not come back, which a hub never concludes by itself (P3).

Each gang that the member has, or may have, is written as nowhere without proof that nothing of it is left, and is then
offered to others. Should the member come back all the same, its copies are deleted when it is swept; until then such a
gang may run twice.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Final

import orjson

from webhook.clock import Clock
from webhook.core.fleet.text import UnreadableRecord
from webhook.errors import Conflict, Invalid, NotFound
from webhook.fleet.copies import placement_of
from webhook.fleet.job import Fleet, FleetJob
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import collection_path
from webhook.kube.api import Api
from webhook.untyped import paths
from webhook.untyped.values import text

ATTEMPTS: Final = 5
PAGE_SIZE: Final = 500


async def give_up(
    api: Api, kinds: Mapping[str, JobKind], member: str, clock: Clock, *, dry_run: bool
) -> AsyncIterator[str]:
    """Yield each gang that is given up, as KIND NAMESPACE/NAME; ``api`` is the hub's. Raises ApiError."""
    fleet = Fleet(api, {}, clock, epoch=0)
    for kind in kinds.values():
        if kind.managed_by is None or kind.suspend is None:
            continue
        async for namespace, name in _jobs(api, kind):
            if await _given_up(FleetJob(fleet, kind, namespace, name), member, dry_run=dry_run):
                yield f"{kind.kind} {namespace}/{name}"


async def _given_up(job: FleetJob, member: str, *, dry_run: bool) -> bool:
    for attempt in range(ATTEMPTS):
        try:
            stored = await job.read()
            placement = placement_of(stored)
            if placement.member != member or not placement.holds:
                return False
            if not dry_run:
                await job.write(stored, placement.lost(f"{member} was declared lost"))
        except (NotFound, UnreadableRecord):
            return False
        except (Conflict, Invalid):
            if attempt + 1 == ATTEMPTS:
                raise
            continue
        return True
    return False


async def _jobs(api: Api, kind: JobKind) -> AsyncIterator[tuple[str, str]]:
    query = {"limit": str(PAGE_SIZE)}
    while True:
        try:
            page = orjson.loads(await api.request("GET", collection_path(kind), query=query))
        except NotFound:
            return
        for item in page["items"]:
            yield text(paths.find(item, ("metadata", "namespace"))), text(paths.find(item, ("metadata", "name")))
        token = text(paths.find(page, ("metadata", "continue")))
        if not token:
            return
        query["continue"] = token
