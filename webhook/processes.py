"""What runs in a pod: webhook, reconciler or hub, with listeners, certificates, signals and the watchdog."""

import asyncio
import os
import random
import signal
import socket
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from webhook import garbage, logs
from webhook.assembly import job_kinds, reconciler, unsynced, webhook
from webhook.clock import ApiServersClock, SystemClock, telling
from webhook.config import Config
from webhook.controllers.ledger.errors import SetBack
from webhook.controllers.reporting.registration_faults import certificates_in
from webhook.controllers.reporting.registration_watch import RegistrationWatch
from webhook.core.notation import names
from webhook.fleet.hub import Hub
from webhook.kube.server_version import log_server_version
from webhook.kube.watchdog import EXIT_CODE, HUNG_SECONDS, Watchdog
from webhook.read_api import certificate_problems
from webhook.server.http.app import Stranger, build_app, build_health_app, named_in_certificate
from webhook.server.http.listener import Connections, serve
from webhook.server.http.tls import ServingCertificate, authority_in
from webhook.server.http.worker_thread import OneThread
from webhook.server.sharding.forward import Forwarder
from webhook.server.sharding.peers import ServicePeers

log = structlog.get_logger(__name__)


async def serve_webhook(config: Config, stop: asyncio.Event) -> None:
    """Serve the admission webhook until ``stop``; then drain."""
    from webhook.kube.connecting import connect  # noqa: PLC0415 - takes more than a second

    clock, certificate_clock, identity = ApiServersClock(), SystemClock(), _identity(config)
    certificate = ServingCertificate(config.cert_dir, clock=certificate_clock)
    if config.reviewers is not None:
        certificate.ask_clients(authority_in(config.reviewers.authority))
    api = await connect(config.kubeconfig, on_date=telling(clock))
    saying = asyncio.create_task(log_server_version(api), name="release")
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
        build_app(parts.handler, connections.close_after, lambda: connections.draining, _strangers(config)),
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
    from webhook.kube.connecting import connect  # noqa: PLC0415

    clock, identity = ApiServersClock(), _identity(config)
    api = await connect(config.kubeconfig, on_date=telling(clock))
    saying = asyncio.create_task(log_server_version(api), name="release")
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
        return [*unsynced(parts.view), *parts.read_api.problems()]

    registrations = RegistrationWatch(
        api,
        parts.recorder,
        kinds=parts.feeds.kinds,
        exempt=config.exempt_namespaces,
        leading=lambda: parts.reconciler.leading,
        authorities=partial(_authorities, config.cert_dir),
        rng=random.Random(identity),  # noqa: S311 - jitter
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


def _authorities(cert_dir: Path) -> Collection[bytes]:
    """Return the authorities that sign our certificates, as they are mounted now; none where there is no such file."""
    try:
        return certificates_in((cert_dir / "ca.crt").read_bytes())
    except OSError:
        return ()


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
    """Serve as the hub of a fleet until ``stop``, and its health."""
    from webhook.fleet import process  # noqa: PLC0415

    hubs: list[Hub] = []

    def problems() -> list[str]:
        return [] if hubs and hubs[0].fleet.uid else ["its own API server has not answered yet"]

    health = await serve(build_health_app(problems), config.listen.host, config.listen.health_port)
    try:
        await process.serve_hub(config, stop, hubs.append)
    finally:
        await health.close()


def _identity(config: Config) -> str:
    return config.identity or os.environ.get("POD_NAME") or socket.gethostname()


SERVE: Final = {"webhook": serve_webhook, "reconciler": serve_reconciler, "hub": serve_hub}
"""By the name of the command."""


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
