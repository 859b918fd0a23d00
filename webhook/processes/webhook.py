"""The webhook as a process: reviews on one port, its health on another."""

import asyncio
import random

import structlog

from webhook.assembly.webhook import webhook
from webhook.clock import ApiServersClock, SystemClock, telling
from webhook.config import Config
from webhook.core.notation import names
from webhook.kube.connecting import connect
from webhook.kube.server_version import log_server_version
from webhook.processes.running import identity_of
from webhook.server.http.app import Stranger, build_app, named_in_certificate
from webhook.server.http.health import build_health_app
from webhook.server.http.listener import Connections, serve
from webhook.server.http.tls import ServingCertificate, authority_in, certificate_problems
from webhook.server.http.worker_thread import OneThread
from webhook.server.sharding.forward import Forwarder
from webhook.server.sharding.peers import ServicePeers

log = structlog.get_logger(__name__)


async def serve_webhook(config: Config, stop: asyncio.Event) -> None:
    """Serve the admission webhook until ``stop``; then drain."""
    clock, certificate_clock, identity = ApiServersClock(), SystemClock(), identity_of(config)
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
