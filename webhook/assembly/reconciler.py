"""A reconciler replica from its parts."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from webhook.assembly.read_api import ReadApi, read_api
from webhook.clock import Clock
from webhook.cluster import rebuild
from webhook.cluster.feeds import Feeds
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.queue_counts import QueueCounts
from webhook.cluster.view import View
from webhook.config import Config, job_kinds
from webhook.controllers.ledger.terms import Terms
from webhook.controllers.loop.reconciler import Reconciler
from webhook.controllers.reporting.announce import Announcer
from webhook.controllers.reporting.events import EventRecorder
from webhook.controllers.reporting.queue_metrics import QueueGauges
from webhook.controllers.reporting.status import StatusWriter
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.kube.api import Api


@dataclass(frozen=True, slots=True)
class ReconcilerParts:
    """One reconciler replica of one cluster."""

    view: View
    feeds: Feeds
    terms: Terms
    reconciler: Reconciler
    recorder: EventRecorder
    status: StatusWriter
    read_api: ReadApi
    """Not part of ``run``: it needs a listener."""
    gauges: QueueGauges

    async def run(self) -> None:
        """Run until cancelled. Raises SetBack (in an exception group) when a backup was restored."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.feeds.run(), name="feeds")
            tasks.create_task(self.recorder.run(), name="events")
            tasks.create_task(self.status.run(), name="status")
            tasks.create_task(self.reconciler.run(), name="reconciler")


def reconciler(
    api: Api,
    config: Config,
    *,
    identity: str,
    clock: Clock,
    rng: random.Random,
    on_renewed: Callable[[float], None] = lambda deadline: None,
    on_ended: Callable[[], None] = lambda: None,
    address: str = "",
    death_of: Callable[[str], Awaitable[object]] | None = None,
) -> ReconcilerParts:
    """Return a reconciler replica. ``address`` and ``death_of`` are as ``Terms`` takes them.

    ``on_renewed`` is told the monotonic time by which the lease must be renewed or a term be over, ``on_ended`` that it
    is over.
    """
    kinds = job_kinds(config)
    view = View(hides_neighbours=config.hide_neighbours, nodes=Occupancy(config.exempt_namespaces))
    feeds = Feeds(api, view, config, kinds, rng)
    terms = Terms(
        api,
        identity,
        config.lease,
        now=clock.now,
        on_renewed=on_renewed,
        on_ended=on_ended,
        decoder=feeds.ledger_decoder,
        proved_seq=lambda: rebuild.proved_seq(view),
        address=address,
        death_of=death_of,
    )
    feeds.index_seen = terms.index_seen
    recorder = EventRecorder(api, identity, clock.now, config.events_per_second)
    every_kind = {**kinds, POD_GROUP.key: POD_GROUP}
    announcer = Announcer(recorder, view, every_kind, clock.now)
    loop = Reconciler(api, feeds, terms, config=config, clock=clock, announcer=announcer)
    feeds.listener = loop.dirty
    queue_counts = QueueCounts(view)
    status = StatusWriter(
        api,
        view,
        queue_counts,
        leading=lambda: loop.leading,
        policy_objects=feeds.policy_objects,
        pod_group_object=feeds.pod_group_object,
        now=clock.now,
        interval_seconds=config.status_seconds,
        with_kueue=not config.left_to_kueue,
    )
    loop.after_cycle = status.touch
    reads = read_api(
        view,
        loop.engine,
        queue_counts,
        every_kind,
        identity=identity,
        clock=clock,
        reason=loop.reason,
        policy_objects=feeds.policy_objects,
        start=config.starting,
    )
    gauges = QueueGauges(view, queue_counts, leading=lambda: loop.leading)
    return ReconcilerParts(view, feeds, terms, loop, recorder, status, reads, gauges)
