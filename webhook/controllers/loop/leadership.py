"""Follow, campaign, lead, step down, and again: what one process does, term after term.

Losing the lease does not end the process: its tasks of that term are cancelled and awaited, and it follows again with
all that it knows of the cluster. It begins the next term as another process would, with nothing of the last one.
"""

import asyncio
from random import Random
from typing import Final, Protocol

import structlog

from webhook import metrics
from webhook.controllers.ledger.errors import GangFailed, LeaseLost, LedgerRefused
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.terms import Terms
from webhook.controllers.loop.death_watch import DeathWatch
from webhook.controllers.reporting.announce import Announcer
from webhook.errors import ApiError, Conflict, NotFound, Unavailable
from webhook.kube.backoff import Backoff

log = structlog.get_logger(__name__)

LATE_SECONDS: Final = 0.01
"""How long after its end a lease is asked for."""
REST_FIRST_SECONDS: Final = 2.0
REST_MAX_SECONDS: Final = 60.0
"""Longest pause before trying to lead again while the ledger may not be read or written."""


class Replica(Protocol):
    """What leads and follows."""

    def begin_term(self, keeper: LedgerKeeper) -> None:
        """Get ready to lead with ``keeper``, and remember nothing of an earlier term."""

    async def follow(self) -> None:
        """Follow until cancelled."""

    async def lead(self) -> None:
        """Lead until cancelled. Raises LeaseLost."""

    async def end_term(self) -> None:
        """Cancel what this term has begun, and return when all of it has ended."""


class Leadership:
    """Of one process, over all its terms."""

    def __init__(self, terms: Terms, announcer: Announcer, retry_seconds: float, rng: Random) -> None:
        self._terms = terms
        self._announcer = announcer
        self._retry_seconds = retry_seconds
        self._backoff = Backoff(rng, first_seconds=REST_FIRST_SECONDS, most_seconds=REST_MAX_SECONDS)
        """Between one denial and the next try; a term that lasts, or another's, ends it."""
        self._denied = ""
        """Why the last campaign was denied."""
        self._said = set[str]()
        """Why campaigns were denied and terms ended, as it was told since a term lasted."""
        self._unrenewed = False
        """The last term ended before its lease was renewed once."""
        self._another_since = float("inf")
        """Loop time since when another replica has led without a break."""

    async def run(self, replica: Replica) -> None:
        """Follow, and lead whenever the lease can be taken, until cancelled. Raises SetBack."""
        rest_seconds, loop = 0.0, asyncio.get_running_loop()
        while True:
            replica.begin_term(self._terms.begin())
            await self._follow_until_elected(replica, rest_seconds)
            began = loop.time()
            try:
                await self._lead_a_term(replica)
            except LeaseLost as lost:
                if loop.time() - began >= REST_MAX_SECONDS:
                    self._trusted_again()
                elif not lost.lasting:
                    self._backoff.reset()
                rest_seconds = self._rest_seconds(lost, began)
                await self._step_down(lost)

    async def resign(self) -> None:
        """Hand the lease over, if it is ours; to be called when nothing runs any more."""
        await self._terms.keeper.step_down()

    async def _follow_until_elected(self, replica: Replica, rest_seconds: float) -> None:
        following = asyncio.create_task(replica.follow(), name="follower")
        watch, keeper = DeathWatch(self._terms.death_of), self._terms.keeper
        try:
            await asyncio.sleep(rest_seconds)
            while not await self._campaign():
                if following.done():
                    following.result()
                leader = keeper.leader
                if await watch.wait(leader, self._until_next_campaign()) and leader is not None:
                    keeper.died(leader)
        finally:
            watch.stop()
            following.cancel()
            await asyncio.wait([following])

    def _until_next_campaign(self) -> float:
        if self._denied:
            return self._backoff.next_seconds()
        # Not long after a lease has run out: until somebody leads nobody starts.
        runs_out = self._terms.keeper.free_in_seconds or self._retry_seconds
        return min(self._retry_seconds, runs_out + LATE_SECONDS)

    async def _campaign(self) -> bool:
        leads, denied = False, ""
        try:
            leads = await self._terms.keeper.campaign()
            self._note_another(leads=not leads and bool(self._terms.keeper.free_in_seconds))
        except (Conflict, NotFound, Unavailable) as error:
            log.info("campaign.failed", error=str(error))
        except (ApiError, LedgerRefused) as error:
            denied = str(error)
        self._tell_denied(denied)
        if not leads:
            # It may have held the lease for a while: nobody waits for its end any more.
            self._terms.ended()
        return leads

    def _rest_seconds(self, lost: LeaseLost, began: float) -> float:
        if lost.lasting:
            return self._backoff.next_seconds()
        return 0.0 if lost.kept else self._left_to_others(began)

    def _left_to_others(self, began: float) -> float:
        """Return how long to leave the lease to others after a term in which it was never renewed.

        Once that is chance. Twice in a row it may be us alone whose writes do not arrive.
        """
        lease_seconds = self._terms.lease_seconds
        before, self._unrenewed = self._unrenewed, asyncio.get_running_loop().time() - began <= lease_seconds
        return lease_seconds if before and self._unrenewed else 0.0

    def _note_another(self, *, leads: bool) -> None:
        """Take note whether another replica leads: if it does for so long, what ended our terms is over."""
        now = asyncio.get_running_loop().time()
        self._another_since = min(self._another_since, now) if leads else float("inf")
        if now - self._another_since >= REST_MAX_SECONDS:
            self._trusted_again()

    async def _lead_a_term(self, replica: Replica) -> None:
        try:
            async with self._terms.held():
                await replica.lead()
        finally:
            # Nothing of this term may write once the next one has begun.
            await replica.end_term()
            metrics.term_ended()
            self._terms.ended()

    def _tell_denied(self, denied: str) -> None:
        """Say once that this replica may not lead, and why; the metric also that it may again."""
        self._denied = denied
        metrics.LEADING_DENIED.set(bool(denied))
        if denied and denied not in self._said:
            self._said.add(denied)
            log.error("campaign.denied", why=denied, retry_seconds=REST_MAX_SECONDS)
            self._announcer.denied(denied, REST_MAX_SECONDS)

    def _trusted_again(self) -> None:
        self._backoff.reset()
        self._said.clear()

    async def _step_down(self, lost: LeaseLost) -> None:
        metrics.LEADING.set(0)
        metrics.STEPPED_DOWN.labels(_why(lost)).inc()
        renewal = self._terms.keeper.last_renewal
        log.error("ledger.stepped_down", why=str(lost), lease=renewal)
        if lost.why not in self._said:
            # A write that fails in each of many short terms is one piece of news, at whatever time, and so is a lease
            # that goes to and fro.
            self._said.add(lost.why)
            self._announcer.stepped_down(f"{lost}; {renewal}" if renewal else str(lost))
        if lost.kept:
            # Another replica may be allowed what we are not, or know what we fail on.
            await self._terms.keeper.step_down()


def _why(lost: LeaseLost) -> str:
    if isinstance(lost, GangFailed):
        return "bug"
    return "refused" if lost.lasting else "lease lost"
