"""The composition root: builds the two processes from their parts, over any ``Api``.

``reconciler`` and ``webhook`` wire parts together without touching a socket, so that the demo and the simulation run
the very objects that production runs; ``serve_*`` add listeners, certificates, signals and the watchdog.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from webhook.clock import Clock
from webhook.config import Config
from webhook.controllers.announce import Announcer
from webhook.controllers.events import EventRecorder
from webhook.controllers.ledger_keeper import LedgerKeeper
from webhook.controllers.reconciler import Reconciler
from webhook.feeds import Feeds
from webhook.jobs.kinds import JobKind
from webhook.jobs.registry import KINDS
from webhook.kube.api import Api
from webhook.kube.election import Elector
from webhook.view import View

log = structlog.get_logger(__name__)

DRAIN_SECONDS: Final = 95.0
"""How long a webhook replica keeps answering after SIGTERM: longer than the API server keeps an idle connection."""


@dataclass(frozen=True, slots=True)
class ReconcilerParts:
    """One reconciler replica of one cluster."""

    view: View
    feeds: Feeds
    keeper: LedgerKeeper
    reconciler: Reconciler
    recorder: EventRecorder

    async def run(self) -> None:
        """Run until cancelled or the lease is lost. Raises LeaseLost (in an exception group)."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.feeds.run(), name="feeds")
            tasks.create_task(self.recorder.run(), name="events")
            tasks.create_task(self.reconciler.run(), name="reconciler")


def job_kinds(config: Config) -> Mapping[str, JobKind]:
    """Return the shipped job kinds and those of the configuration. Raises PolicyError."""
    return dict(KINDS)


def reconciler(
    api: Api,
    config: Config,
    *,
    identity: str,
    clock: Clock,
    rng: random.Random,
    on_renewed: Callable[[float], None] = lambda deadline: None,
) -> ReconcilerParts:
    """Return a reconciler replica. ``on_renewed`` is told the monotonic time by which the lease must be renewed."""
    kinds, view = job_kinds(config), View()
    feeds = Feeds(api, view, config, kinds, rng)
    elector = Elector(identity, config.lease.lease_seconds, config.lease.renew_seconds, config.lease.retry_seconds)
    keeper = LedgerKeeper(
        api,
        elector,
        namespace=config.namespace,
        name=config.ledger_name,
        now=clock.now,
        on_renewed=on_renewed,
    )
    recorder = EventRecorder(
        api,
        identity,
        clock.now,
        config.events_per_second,
        namespace=config.namespace,
        ledger_name=config.ledger_name,
    )
    announcer = Announcer(recorder, view, kinds, clock.now)
    loop = Reconciler(api, feeds, keeper, config, clock, announcer)
    feeds.listener = loop
    return ReconcilerParts(view, feeds, keeper, loop, recorder)
