"""All jobs of a hub, each driven by itself, and the sweeps of its members.

It polls: the hub's jobs are listed at an interval, and each is asked for its next step until there is none. A member
that hangs delays the steps of its own gangs; offers pass it by. Any number of hub processes may run at once: the record
on each job is what they agree by.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson
import structlog

from webhook.clock import Clock
from webhook.core.fleet import strays
from webhook.core.fleet.placement import Placement
from webhook.core.fleet.steps import Step
from webhook.core.fleet.strays import Verdict
from webhook.errors import ApiError, NotFound
from webhook.fleet.copies import UnreadableRecord, copy_read, placed_by_hub, placement_of
from webhook.fleet.job import Fleet, FleetJob
from webhook.fleet.member import Member, NoAnswer
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import collection_path
from webhook.kube.api import Api
from webhook.untyped import paths

log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 0.5
SWEEP_SECONDS: Final = 5.0
STEPS_MAX: Final = 20
"""Of one job at a look."""

JobName = tuple[str, str, str]
"""(key of its kind, namespace, name)."""


class Hub:
    """One hub process."""

    def __init__(self, api: Api, members: Mapping[str, Api], kinds: Mapping[str, JobKind], *, clock: Clock) -> None:
        self.kinds = {
            key: kind for key, kind in kinds.items() if kind.managed_by is not None and kind.suspend is not None
        }
        reached = {name: Member(name, member) for name, member in members.items()}
        self.fleet = Fleet(api, reached, clock, epoch=int(clock.now()), unswept=set(reached))
        self._jobs: dict[JobName, FleetJob] = {}
        self._driven: dict[JobName, asyncio.Task[None]] = {}
        self._newest = 0

    async def run(self) -> None:
        """Place jobs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._for_ever(self._poll, POLL_SECONDS), name="jobs")
            for member in self.fleet.members.values():
                tasks.create_task(self._for_ever(partial(self._sweep, member), SWEEP_SECONDS), name=member.name)

    async def _for_ever(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        try:
            while True:
                try:
                    await work()
                except (ApiError, NoAnswer) as error:
                    log.warning("fleet.not_answered", error=str(error))
                await asyncio.sleep(seconds)
        finally:
            for task in self._driven.values():
                task.cancel()

    # -- jobs ---------------------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        if not self.fleet.uid:
            self.fleet.uid = str(await self._own("/api/v1/namespaces/kube-system", ("metadata", "uid")))
        present: set[JobName] = set()
        for kind in self.kinds.values():
            for listed in await self._listed(kind):
                namespace, name = (str(paths.find(listed, ("metadata", key))) for key in ("namespace", "name"))
                present.add((kind.key, namespace, name))
        for gone in self._jobs.keys() - present:
            del self._jobs[gone]
        for which in sorted(present):
            kind, namespace, name = self.kinds[which[0]], which[1], which[2]
            job = self._jobs.setdefault(which, FleetJob(self.fleet, kind, namespace, name))
            if which not in self._driven:
                self._driven[which] = asyncio.create_task(self._drive(which, job), name="/".join(which))

    async def _own(self, path: str, place: tuple[str, ...]) -> object:
        return paths.find(orjson.loads(await self.fleet.api.request("GET", path)), place)

    async def _listed(self, kind: JobKind) -> list[Mapping[str, Any]]:
        try:
            listed = orjson.loads(await self.fleet.api.request("GET", collection_path(kind)))
        except NotFound:
            return []
        self._notice_set_back(int(paths.find(listed, ("metadata", "resourceVersion")) or 0))
        return [job for job in listed.get("items") or () if placed_by_hub(kind, job)]

    def _notice_set_back(self, version: int) -> None:
        """Begin again as after a loss of the record when the hub's API server is at an earlier version than before."""
        if version < self._newest:
            log.error("fleet.set_back", version=version, before=self._newest)
            self.fleet.unswept |= set(self.fleet.members)
            self.fleet.epoch = max(self.fleet.epoch + 1, int(self.fleet.clock.now()))
        self._newest = version

    async def _drive(self, which: JobName, job: FleetJob) -> None:
        try:
            for _ in range(STEPS_MAX):
                if await job.step() is Step.NOTHING:
                    return
        except NotFound:
            return
        except (ApiError, UnreadableRecord) as error:
            log.warning("fleet.job_not_placed", job="/".join(which), error=str(error))
        except Exception:
            # One job must not stop the others.
            log.exception("fleet.job_broken", job="/".join(which))
        finally:
            self._driven.pop(which, None)

    # -- sweeps -------------------------------------------------------------------------------------------------------

    async def _sweep(self, member: Member) -> None:
        """Settle every copy of this hub in a member that no record speaks of."""
        if not self.fleet.uid:
            return
        verdicts, cluster = [], await member.cluster()
        for kind in self.kinds.values():
            for found in await member.copies(kind, self.fleet.uid):
                verdicts.append(await self._settle(member, cluster, kind, found))
        if member.name in self.fleet.unswept:
            jobs = [(self.kinds[kind], namespace, name) for kind, namespace, name in self._jobs]
            if strays.swept(verdicts, await member.leftovers(jobs)):
                self.fleet.unswept.discard(member.name)
                log.info("fleet.swept", member=member.name)

    async def _settle(self, member: Member, cluster: str, kind: JobKind, found: Mapping[str, Any]) -> Verdict:
        copy = copy_read(kind, found)
        namespace, name = (str(paths.find(found, ("metadata", key))) for key in ("namespace", "name"))
        job = FleetJob(self.fleet, kind, namespace, name)
        own, placement = await self._record(kind, job, copy.job)
        verdict = strays.verdict(copy, cluster, placement, complete=not self.fleet.unswept)
        if verdict in (Verdict.SWEEP, Verdict.END):
            await member.delete(kind, namespace, name, copy, as_read=verdict is Verdict.SWEEP)
        elif verdict is Verdict.ADOPT and own is not None and placement is not None:
            await job.write(own, placement.adopted(copy.offer, member.name, cluster, copy.uid))
        return verdict

    async def _record(self, kind: JobKind, job: FleetJob, uid: str) -> tuple[dict[str, Any] | None, Placement | None]:
        """Return the hub's job of this uid and its record, read after the copy; None where there is none."""
        try:
            own = await job.read()
        except NotFound:
            # Gone, or its whole kind is not served at the moment, which says nothing of the job: then this is NotFound.
            await self.fleet.api.request("GET", collection_path(kind), query={"limit": "1"})
            return None, None
        if paths.find(own, ("metadata", "uid")) != uid:
            return None, None
        return own, placement_of(own)
