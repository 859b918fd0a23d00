"""Follow, campaign, lead, step down, and again: what one process does, term after term.

Losing the lease does not end the process: its tasks of that term are cancelled and awaited, and it follows again with
all that it knows of the cluster. It begins the next term as another process would, with nothing of the last one.
"""

import asyncio
from typing import Final, Protocol

import structlog

from webhook import metrics
from webhook.controllers.ledger.faults import LeaseLost, LedgerRefused
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.terms import Terms
from webhook.controllers.reporting.announce import Announcer
from webhook.errors import ApiError

log = structlog.get_logger(__name__)

LATE_SECONDS: Final = 0.01
"""How long after its end a lease is asked for."""
REST_MAX_SECONDS: Final = 60.0
"""Longest pause before leading again where each term ends because the ledger cannot be written."""


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

    def __init__(self, terms: Terms, announcer: Announcer, retry_seconds: float) -> None:
        self._terms = terms
        self._announcer = announcer
        self._retry_seconds = retry_seconds

    async def run(self, replica: Replica) -> None:
        """Follow, and lead whenever the lease can be taken, until cancelled. Raises SetBack."""
        failures, loop = 0, asyncio.get_running_loop()
        while True:
            replica.begin_term(self._terms.begin())
            await self._follow_until_elected(replica, min(REST_MAX_SECONDS, 2.0**failures) if failures else 0.0)
            began = loop.time()
            try:
                await self._lead_a_term(replica)
            except LeaseLost as lost:
                failures = failures + 1 if lost.lasting and loop.time() - began < REST_MAX_SECONDS else 0
                await self._step_down(lost)

    async def resign(self) -> None:
        """Hand the lease over, if it is ours; to be called when nothing runs any more."""
        await self._terms.keeper.step_down()

    async def _follow_until_elected(self, replica: Replica, rest_seconds: float) -> None:
        following = asyncio.create_task(replica.follow(), name="follower")
        try:
            await asyncio.sleep(rest_seconds)
            while not await self._campaign():
                if following.done():
                    following.result()
                # Not long after a lease has run out: until somebody leads nobody starts.
                runs_out = self._terms.keeper.free_in_seconds or self._retry_seconds
                await asyncio.sleep(min(self._retry_seconds, runs_out + LATE_SECONDS))
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _campaign(self) -> bool:
        leads = False
        try:
            leads = await self._terms.keeper.campaign()
        except (ApiError, LedgerRefused) as error:
            log.info("campaign.failed", error=str(error))
        if not leads:
            # It may have held the lease for a while: nobody waits for its end any more.
            self._terms.ended()
        return leads

    async def _lead_a_term(self, replica: Replica) -> None:
        try:
            async with self._terms.held():
                await replica.lead()
        finally:
            # Nothing of this term may write once the next one has begun.
            await replica.end_term()
            self._terms.ended()

    async def _step_down(self, lost: LeaseLost) -> None:
        metrics.LEADING.set(0)
        metrics.STEPPED_DOWN.labels("refused" if lost.lasting else "lease lost").inc()
        log.error("ledger.stepped_down", why=str(lost))
        self._announcer.stepped_down(str(lost))
        if lost.lasting:
            # Another replica may be allowed what we are not.
            await self._terms.keeper.step_down()
