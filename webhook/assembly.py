"""The composition root: builds the two processes from their parts, over any ``Api``.

``reconciler`` and ``webhook`` wire parts together without touching a socket, so that the demo and the simulation run
the very objects that production runs; ``processes`` adds listeners, certificates, signals and the watchdog.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from webhook.clock import Clock
from webhook.cluster import rebuild
from webhook.cluster.feeds import Feeds
from webhook.cluster.listener import Listener
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.queue_counts import QueueCounts
from webhook.cluster.view import View
from webhook.config import Config, engine_settings
from webhook.controllers.ledger.terms import Terms
from webhook.controllers.loop.reconciler import Reconciler
from webhook.controllers.reporting.announce import Announcer
from webhook.controllers.reporting.events import EventRecorder
from webhook.controllers.reporting.queue_metrics import QueueGauges
from webhook.controllers.reporting.status import StatusWriter
from webhook.core.model.pods import PodRecord
from webhook.core.notation import names
from webhook.core.scheduler.engine import Engine
from webhook.jobs.compute_class import catalog as compute_class_catalog
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import of_hub, with_custom
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.kube.api import Api
from webhook.read_api import ReadApi, read_api
from webhook.server.handler import Beside, ReviewHandler
from webhook.server.pods.tally import Tally
from webhook.server.review.settings import ReviewSettings
from webhook.server.sharding.forward import Forwarder, Peers
from webhook.server.sharding.ownership import Ownership

log = structlog.get_logger(__name__)


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


def job_kinds(config: Config) -> Mapping[str, JobKind]:
    """Return the shipped job kinds and those of the configuration. Raises WrongInput."""
    kinds = with_custom(config.kinds)
    return of_hub(kinds) if config.hub else kinds


def reconciler(
    api: Api,
    config: Config,
    *,
    identity: str,
    clock: Clock,
    rng: random.Random,
    on_renewed: Callable[[float], None] = lambda deadline: None,
    on_ended: Callable[[], None] = lambda: None,
) -> ReconcilerParts:
    """Return a reconciler replica.

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
    )
    feeds.lease_seen = terms.lease_seen
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


@dataclass(frozen=True, slots=True)
class WebhookParts:
    """One webhook replica of one cluster."""

    view: View
    feeds: Feeds
    handler: ReviewHandler
    forwarder: Forwarder | None

    def problems(self) -> list[str]:
        """Return what it has to read before it may decide."""
        unmet = self.forwarder is not None and not self.forwarder.met
        return [*(["the list of replicas has not been read yet"] if unmet else ()), *unsynced(self.view)]

    async def run(self) -> None:
        """Keep the view and the picture of the peers current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.feeds.run(), name="feeds")
            if self.forwarder is not None:
                tasks.create_task(self.forwarder.run(), name="peers")


def unsynced(view: View) -> list[str]:
    """Return what a process has to read before it is well."""
    return [f"{name} has not been read yet" for name in sorted(view.unsynced)]


class _WebhookListener(Listener):
    """Keeps what the handler answers from in step with the view.

    That is an engine on the present policy, for the one question the webhook asks it (can this ever fit?), and the
    tally of pods let pass.
    """

    def __init__(self, view: View, clock: Clock) -> None:
        self.engine = Engine()
        self.tally: Tally | None = None
        self._view = view
        self._clock = clock

    def pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """A pod that is seen is no longer pending."""
        seen = new or old
        if self.tally is not None and seen is not None:
            self.tally.forget(seen.namespace, seen.uid)

    def policy_changed(self) -> None:
        """Take the new policy."""
        self.engine.set_policy(self._view.policy, self._view.namespaces, self._clock.now())

    def namespace_changed(self, name: str) -> None:
        """Namespace selectors decide who may use a queue."""
        self.policy_changed()


def webhook(
    api: Api,
    config: Config,
    *,
    identity: str,
    clock: Clock,
    rng: random.Random,
    peers: Peers | None = None,
    forwarder: Callable[[Ownership, Peers], Forwarder] = Forwarder,
    started_seconds: float = float("-inf"),
    beside: Callable[[], Beside] | None = None,
) -> WebhookParts:
    """Return a webhook replica. ``peers`` names the replicas that share the pod checks; None: it is alone.

    ``started_seconds`` is the monotonic time of a start that the other replicas still have to learn of.
    Raises WrongInput where the configuration's compute classes or job kinds are wrong.
    """
    kinds, view = job_kinds(config), View(hides_neighbours=config.hide_neighbours)
    feeds = Feeds(api, view, config, kinds, rng)
    listener = _WebhookListener(view, clock)
    feeds.listener = listener
    ownership = Ownership(identity, started_seconds=started_seconds, joining=started_seconds > float("-inf"))
    passing_on = None if peers is None else forwarder(ownership, peers)
    handler = ReviewHandler(
        view,
        ReviewSettings(
            transformed=engine_settings(config).transformed,
            network_tiers=config.network_tiers,
            exempt_namespaces=frozenset((*config.exempt_namespaces, names.SYSTEM_NAMESPACE)),
            left_to_kueue=config.left_to_kueue,
        ),
        kinds=kinds,
        context=lambda: feeds.context,
        potential=listener.engine.potential,
        policy_objects=feeds.policy_objects_beside,
        forwarder=passing_on,
        classes=None if config.compute_classes is None else compute_class_catalog.load(config.compute_classes),
        pods_heard_seconds=lambda: feeds.informers["pods"].heard_seconds,
        clock=clock,
        **({} if beside is None else {"beside": beside(), "counting": beside()}),
    )
    listener.tally = handler.tally
    return WebhookParts(view, feeds, handler, passing_on)
