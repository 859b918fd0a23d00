"""Carries out a rebuild of the ledger while the lease is kept: read everything, void what could still start, write.

The order is that of ledger rules 4 and 5: the objects are read, every job that an earlier leader's start could still
reach is written, the objects are read again, pods of deleted jobs are let go, and then the new ledger is written.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from webhook import metrics
from webhook.clock import Clock
from webhook.cluster import rebuild
from webhook.cluster.feeds import Feeds
from webhook.cluster.unread import JOBS
from webhook.cluster.view import DAEMON_SETS, NAMESPACE_QUEUES, NODES, POLICY
from webhook.config import Config
from webhook.controllers.gangs import gated_pods
from webhook.controllers.ledger.errors import LedgerBroken, refused
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.quarantine import Quarantine
from webhook.controllers.reporting.announce import Announcer
from webhook.controllers.writes.effects import REBUILD, Effect, Effects
from webhook.core.ledger.record import Ledger
from webhook.errors import ApiError, Unavailable
from webhook.jobs.patches import job as patches
from webhook.kube.api import Api

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 0.5
RETRY_MAX_SECONDS: Final = 8.0
"""Longest pause before jobs that could not be written are written again: each try reads all jobs and pods. The same
for pages that cannot be listed or deleted."""
LEAVING_SECONDS: Final = 30.0
"""A pod's usual time to end: a rebuild waits this long for pods of deleted jobs."""
UNREAD_RETRY_SECONDS: Final = 5.0
TELL_AGAIN_SECONDS: Final = 600.0
"""How often an event says for what a rebuild waits: events are kept for an hour."""


class Recovery:
    """Replaces a missing or broken ledger by what the objects prove."""

    def __init__(
        self,
        api: Api,
        feeds: Feeds,
        keeper: LedgerKeeper,
        effects: Effects,
        announcer: Announcer,
        *,
        config: Config,
        clock: Clock,
    ) -> None:
        self.quarantine = Quarantine(api)
        self._feeds = feeds
        self._keeper = keeper
        self._effects = effects
        self._announcer = announcer
        self._config = config
        self._clock = clock

    async def run(self, broken: LedgerBroken) -> Ledger:
        """Return the new ledger once it is stored; whoever damages it again meanwhile has it rebuilt again.

        Raises LeaseLost.
        """
        self._keeper.forget()
        with metrics.LEDGER_REBUILDING.track_inprogress():
            while True:
                log.warning("ledger.rebuild", why=str(broken))
                try:
                    ledger = await self._once(broken)
                except LedgerBroken as again:
                    metrics.LEDGER_REBUILDS.inc()
                    broken = again
                    continue
                if ledger.entries or not broken.first:
                    # The first ledger of an installation replaces none.
                    metrics.LEDGER_REBUILDS.inc()
                return ledger

    async def _once(self, broken: LedgerBroken) -> Ledger:
        if broken.deleted:
            await self._keeper.recreate()
        async with self._lease_kept():
            ledger = await self._prove(broken)
        await self._keeper.replace(ledger)
        return ledger

    async def doubt(self, ledger: Ledger) -> LedgerBroken | None:
        """Return what is wrong with a ledger that was taken over while something runs that it does not mention.

        What was read by watching may be old: it is read again before that is believed, for a while. Somebody may delete
        or edit the ledger meanwhile. Raises LeaseLost.
        """
        view = self._feeds.view
        if not rebuild.unheld(view, ledger):
            return None
        try:
            async with self._lease_kept(), asyncio.timeout(LEAVING_SECONDS):
                await self._feeds.relist_all()
                if unheld := rebuild.unheld(view, ledger):
                    return LedgerBroken(f"it says nothing of {', '.join(unheld)}: an old copy was put back")
        except TimeoutError:
            pass
        except LedgerBroken as broken:
            return broken
        return None

    @asynccontextmanager
    async def _lease_kept(self) -> AsyncIterator[None]:
        """Renew the lease meanwhile, and end what is done meanwhile once that fails.

        Raises LeaseLost, and LedgerBroken when the ledger was deleted or edited.
        """
        limit, over = asyncio.timeout(None), asyncio.Event()
        renewing = asyncio.create_task(self._keep_lease(over), name="lease during rebuild")
        renewing.add_done_callback(lambda _: None if over.is_set() else limit.reschedule(0.0))
        failed: Exception | None = None
        try:
            try:
                async with limit:
                    yield
            except Exception as error:
                failed = error
            # A renewal under way is waited for: one that landed later would look like a write of somebody else.
            over.set()
            await asyncio.wait([renewing])
        finally:
            over.set()
            renewing.cancel()
            await asyncio.wait([renewing])
        renewing.result()
        if failed is not None:
            raise failed

    async def _keep_lease(self, over: asyncio.Event) -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.lease.retry_seconds / 2):
                    await over.wait()
            if not over.is_set() and self._keeper.renew_due:
                await self._keeper.renew()

    async def _prove(self, broken: LedgerBroken) -> Ledger:
        view = self._feeds.view
        await self._effects.drain()
        # Before anything is read: what an earlier leader wrote of them late would rest on another ledger.
        await self._delete_pages()
        if broken.stored is not None:
            await self.quarantine.keep(broken.stored.data, self._clock.now())
        while True:
            await self._all_counted()
            await self._feeds.relist_all()
            suspects = {job.uid for job in view.jobs.values() if rebuild.must_be_voided(job, view)}
            await self._void(suspects, view.ledger.epoch + 1)
            # Last: whoever deletes a job while others are written leaves pods too.
            await self._let_leave()
            if not self._waits_for():
                return rebuild.rebuilt_ledger(view, self._keeper.known)

    async def _delete_pages(self) -> None:
        rests = _Rests()
        while True:
            try:
                await self._keeper.delete_pages()
            except Unavailable as error:
                log.warning("ledger.pages_not_deleted", error=str(error))
                if rests.is_time_to_tell():
                    self._announcer.rebuild_cannot_delete(str(error))
                await rests.rest()
            except ApiError as error:
                raise refused(error) from error
            else:
                return

    async def _all_counted(self) -> None:
        """Wait while something that runs may be of a kind that cannot be read: what it holds would be given away."""
        loop, told_at = asyncio.get_running_loop(), float("-inf")
        while unread := self._waits_for():
            pods = rebuild.uncounted(self._feeds.view)
            log.warning("ledger.rebuild_waits", unread=unread, pods=pods[:10], left=len(pods))
            if loop.time() - told_at >= TELL_AGAIN_SECONDS:
                told_at = loop.time()
                self._announcer.rebuild_waits(unread, len(pods))
            await asyncio.sleep(UNREAD_RETRY_SECONDS)

    def _waits_for(self) -> Mapping[str, str]:
        """Return the kinds that cannot be read and without which no ledger may be made, and why."""
        view = self._feeds.view
        unread = {topic: why for topic, why in view.unread.items() if topic not in (NODES, DAEMON_SETS)}
        unread |= {name: why for name, why in view.outdated.items() if name in ("pods", JOBS)}
        # Without policy nobody is admitted anyway; everything is proved by the pods, and most by Jobs.
        needed = {POLICY, NAMESPACE_QUEUES, "pods", JOBS} & unread.keys()
        return unread if needed or (unread and rebuild.uncounted(view)) else {}

    async def _let_leave(self) -> None:
        """Wait for pods that take room that is written nowhere, as long as they can be expected to go."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LEAVING_SECONDS
        while (pods := rebuild.leaving(self._feeds.view, self._feeds.view.ledger)) and loop.time() < until:
            log.warning("ledger.pods_leave", pods=pods[:10], left=len(pods))
            await asyncio.sleep(RETRY_SECONDS)

    async def _void(self, suspects: set[str], epoch: int) -> None:
        """Write every suspect until each write is known to be stored, and read everything again (rule 4).

        A write that conflicts or whose outcome is unknown proves nothing: the start it is meant to rule out may rest on
        the newer version. One that is refused for good would be refused to a start as well.
        """
        rests, view = _Rests(), self._feeds.view
        while True:
            found = (view.jobs.get(uid) for uid in sorted(suspects))
            due = [job for job in found if job is not None and rebuild.must_be_voided(job, view)]
            for job in due:
                effect = Effect(REBUILD, job, patches.void(job, epoch))
                if gated_pods.is_pod_group(job):
                    effect = gated_pods.voiding(job, view, epoch)
                if not self._effects.busy(job.uid):
                    self._effects.start(effect)
            await self._effects.drain()
            await self._feeds.relist_all()
            unsettled = {job.uid: job.key for job in due if not self._effects.settled(job.uid)}
            if not unsettled:
                return
            suspects = set(unsettled)
            jobs = [f"{key}: {self._effects.why_open(uid)}" for uid, key in unsettled.items()]
            log.warning("ledger.void_again", jobs=jobs[:10], left=len(jobs))
            if rests.is_time_to_tell():
                self._announcer.rebuild_cannot_write(jobs)
            await rests.rest()


class _Rests:
    """What lies between one try and the next, ever longer."""

    def __init__(self) -> None:
        self._seconds = RETRY_SECONDS
        self._told_at = float("-inf")

    def is_time_to_tell(self) -> bool:
        """Return whether what fails is to be told now: not of what passes soon, and then as often as it is read."""
        now = asyncio.get_running_loop().time()
        if self._seconds < RETRY_MAX_SECONDS or now - self._told_at < TELL_AGAIN_SECONDS:
            return False
        self._told_at = now
        return True

    async def rest(self) -> None:
        """Wait until the next try."""
        await asyncio.sleep(self._seconds)
        self._seconds = min(RETRY_MAX_SECONDS, 2 * self._seconds)
