"""The composition root: builds the two processes from their parts, over any ``Api``.

``reconciler`` and ``webhook`` wire parts together without touching a socket, so that the demo and the simulation run
the very objects that production runs; ``serve_*`` add listeners, certificates, signals and the watchdog.
"""

import asyncio
import os
import random
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from webhook import garbage, logs
from webhook.clock import ApiServersClock, Clock, SystemClock, telling
from webhook.cluster import rebuild
from webhook.cluster.feeds import Feeds
from webhook.cluster.listener import Listener
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.queue_counts import QueueCounts
from webhook.cluster.view import View
from webhook.config import Config, engine_settings
from webhook.controllers.ledger.faults import SetBack
from webhook.controllers.ledger.terms import Terms
from webhook.controllers.loop.reconciler import Reconciler
from webhook.controllers.reporting.announce import Announcer
from webhook.controllers.reporting.events import EventRecorder
from webhook.controllers.reporting.queue_metrics import QueueGauges
from webhook.controllers.reporting.registrations import RegistrationWatch
from webhook.controllers.reporting.status import StatusWriter
from webhook.core.model.pods import PodRecord
from webhook.core.notation import names
from webhook.core.scheduler.engine import Engine
from webhook.fleet.hub import Hub
from webhook.jobs.compute_class import catalog as compute_class_catalog
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import of_hub, with_custom
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.kube.api import Api
from webhook.kube.release import say_release
from webhook.kube.watchdog import EXIT_CODE, HUNG_SECONDS, Watchdog
from webhook.read_api import ReadApi, certificate_problems, read_api
from webhook.server.gate import Beside, Gate
from webhook.server.http.app import Stranger, build_app, build_health_app, named_in_certificate
from webhook.server.http.listener import Connections, serve
from webhook.server.http.tls import ServingCertificate, authority_in
from webhook.server.http.worker_thread import OneThread
from webhook.server.pods.tally import Tally
from webhook.server.review.settings import GateSettings
from webhook.server.sharding.forward import Forwarder, Peers
from webhook.server.sharding.ownership import Ownership
from webhook.server.sharding.peers import ServicePeers

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
        namespace=names.SYSTEM_NAMESPACE,
        name=names.LEDGER_NAME,
        now=clock.now,
        on_renewed=on_renewed,
        on_ended=on_ended,
        decoder=feeds.ledger_decoder,
        proved_seq=lambda: rebuild.proved_seq(view),
    )
    feeds.lease_seen = terms.lease_seen
    recorder = EventRecorder(
        api,
        identity,
        clock.now,
        config.events_per_second,
        namespace=names.SYSTEM_NAMESPACE,
        ledger_name=names.LEDGER_NAME,
    )
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
        system_namespace=names.SYSTEM_NAMESPACE,
        start=config.starting,
    )
    gauges = QueueGauges(view, queue_counts, leading=lambda: loop.leading)
    return ReconcilerParts(view, feeds, terms, loop, recorder, status, reads, gauges)


@dataclass(frozen=True, slots=True)
class WebhookParts:
    """One webhook replica of one cluster."""

    view: View
    feeds: Feeds
    gate: Gate
    forwarder: Forwarder | None

    def problems(self) -> list[str]:
        """Return what it has to read before it may decide."""
        unmet = self.forwarder is not None and not self.forwarder.met
        return [*(["not read yet: which other replicas there are"] if unmet else ()), *_unsynced(self.view)]

    async def run(self) -> None:
        """Keep the view and the picture of the peers current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.feeds.run(), name="feeds")
            if self.forwarder is not None:
                tasks.create_task(self.forwarder.run(), name="peers")


class _GateListener(Listener):
    """Keeps what the gate answers from in step with the view.

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
    listener = _GateListener(view, clock)
    feeds.listener = listener
    ownership = Ownership(identity, started_seconds=started_seconds, joining=started_seconds > float("-inf"))
    passing_on = None if peers is None else forwarder(ownership, peers)
    gate = Gate(
        view,
        GateSettings(
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
    listener.tally = gate.tally
    return WebhookParts(view, feeds, gate, passing_on)


# -- processes ------------------------------------------------------------------------------------------------------


async def serve_webhook(config: Config, stop: asyncio.Event) -> None:
    """Serve the admission webhook until ``stop``; then drain."""
    from webhook.kube.http import connect  # noqa: PLC0415 - takes more than a second

    clock, certificate_clock, identity = ApiServersClock(), SystemClock(), _identity(config)
    certificate = ServingCertificate(config.cert_dir, clock=certificate_clock)
    if config.reviewers is not None:
        certificate.ask_clients(authority_in(config.reviewers.authority))
    api = await connect(config.kubeconfig, on_date=telling(clock))
    saying = asyncio.create_task(say_release(api), name="release")
    rng = random.Random(identity)  # noqa: S311 - jitter
    service_peers = None if config.peers else ServicePeers(api, names.SYSTEM_NAMESPACE, config.peer_service, rng)
    parts = webhook(
        api,
        config,
        identity=identity,
        clock=clock,
        rng=rng,
        peers=service_peers or (lambda: config.peers),
        started_seconds=asyncio.get_running_loop().time(),
        beside=OneThread,
    )
    if parts.forwarder is not None:
        _trust_peers(parts.forwarder, certificate)
    connections = Connections()
    listener = await serve(
        build_app(parts.gate, connections.close_after, lambda: connections.draining, _strangers(config)),
        config.listen.host,
        config.listen.webhook_port,
        tls=certificate.context,
        connections=connections,
    )

    def problems() -> list[str]:
        draining = ["draining"] if connections.draining else []
        return [*draining, *parts.problems(), *certificate_problems(certificate, certificate_clock)]

    health = await serve(build_health_app(problems), config.listen.host, config.listen.health_port)
    log.info("webhook.serving", identity=identity, port=listener.port)
    try:
        async with asyncio.TaskGroup() as tasks:
            # What answers are made from is kept current until the last answer.
            followed = (parts.run(), certificate.run(), *(() if service_peers is None else (service_peers.run(),)))
            running = [tasks.create_task(piece) for piece in followed]
            await stop.wait()
            await listener.drain()
            for task in running:
                task.cancel()
    finally:
        saying.cancel()
        await health.close()
        await api.close()


def _strangers(config: Config) -> Stranger:
    return (lambda request: False) if config.reviewers is None else named_in_certificate(config.reviewers.names)


def _trust_peers(forwarder: Forwarder, certificate: ServingCertificate) -> None:
    def follow() -> None:
        context = certificate.client_context()
        # Peers are reached by address; that they hold a certificate of our authority is what counts.
        context.check_hostname = False
        forwarder.use_tls(context, certificate.key)

    certificate.on_change(follow)
    follow()


async def serve_reconciler(config: Config, stop: asyncio.Event) -> None:
    """Run a reconciler until ``stop``; then hand the lease over.

    The watchdog ends the process when its event loop hangs while it leads: it could not step down.
    """
    from webhook.kube.http import connect  # noqa: PLC0415

    clock, identity = ApiServersClock(), _identity(config)
    api = await connect(config.kubeconfig, on_date=telling(clock))
    saying = asyncio.create_task(say_release(api), name="release")
    watchdog = Watchdog()
    watchdog.start()
    parts = reconciler(
        api,
        config,
        identity=identity,
        clock=clock,
        rng=random.Random(identity),  # noqa: S311 - jitter
        on_renewed=lambda deadline: watchdog.feed(deadline + HUNG_SECONDS),
        on_ended=watchdog.disarm,
    )

    def problems() -> list[str]:
        return [*_unsynced(parts.view), *parts.read_api.problems()]

    registrations = RegistrationWatch(
        api,
        parts.recorder,
        kinds=parts.feeds.kinds,
        exempt=config.exempt_namespaces,
        leading=lambda: parts.reconciler.leading,
    )
    app = build_health_app(problems, look=parts.gauges.look)
    health = await serve(app, config.listen.host, config.listen.health_port)
    reads = parts.read_api.serve(api, config.cert_dir, config.listen.host, config.listen.visibility_port)
    try:
        await _until(stop, parts.run(), reads, registrations.run())
        watchdog.disarm()
        await parts.reconciler.leadership.resign()
    except* SetBack as back:
        log.error("ledger.set_back", why=str(back.exceptions[0]))
        # Nothing of what it remembers may run on.
        os._exit(EXIT_CODE)
    finally:
        saying.cancel()
        await health.close()
        await api.close()


async def _until(stop: asyncio.Event, *work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until ``stop``; a piece of it that fails or ends is an error."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(piece) for piece in work]
        stopping = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (*running, stopping):
            if task not in done:
                task.cancel()


async def serve_hub(config: Config, stop: asyncio.Event) -> None:
    """Serve as the hub of a fleet until ``stop``, beside its health."""
    from webhook.fleet import process  # noqa: PLC0415

    hubs: list[Hub] = []

    def problems() -> list[str]:
        return [] if hubs and hubs[0].fleet.uid else ["its own API server has not answered yet"]

    health = await serve(build_health_app(problems), config.listen.host, config.listen.health_port)
    try:
        await process.serve_hub(config, stop, hubs.append)
    finally:
        await health.close()


def _unsynced(view: View) -> list[str]:
    return [f"{name} has not been read yet" for name in sorted(view.unsynced)]


def _identity(config: Config) -> str:
    return config.identity or os.environ.get("POD_NAME") or socket.gethostname()


def run_process(main: Callable[[Config, asyncio.Event], Coroutine[Any, Any, None]], config: Config) -> None:
    """Run a process until SIGTERM or SIGINT. Raises WrongInput for wrong job kinds before anything is opened."""
    import uvloop  # noqa: PLC0415

    logs.configure(config.log_level)
    job_kinds(config)

    async def body() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        collecting = asyncio.create_task(garbage.run(), name="collector")
        await main(config, stop)
        collecting.cancel()

    garbage.tune()
    uvloop.run(body())
