"""Puts the read API together and on the wire: its documents, its listener, its certificate and which callers it trusts.

The certificate and the front proxy's authority may come late; decisions do not wait for them.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web

from webhook.clock import Clock
from webhook.cluster.queue_counts import QueueCounts
from webhook.cluster.view import View
from webhook.config import Start
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.core.reasons.reasons import Reason
from webhook.jobs.kinds.kind import JobKind
from webhook.kube.api import Api
from webhook.server.http.listener import Connections, serve
from webhook.server.http.tls import BadCertificate, ServingCertificate, certificate_problems
from webhook.visibility.documents.milestones import Chronicle
from webhook.visibility.documents.queue_writer import QueueWriter
from webhook.visibility.documents.reporter import Reporter
from webhook.visibility.documents.watch_cache import WatchCache
from webhook.visibility.documents.workload_writer import WorkloadWriter
from webhook.visibility.http.app import build_app
from webhook.visibility.http.front_proxy import FrontProxy

RETRY_SECONDS: Final = 2.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ReadApi:
    """The read API of one replica."""

    cache: WatchCache
    reporter: Reporter
    view: View
    clock: Clock
    _certificate: ServingCertificate | None = None

    def problems(self) -> list[str]:
        """Return why nobody could be answered; empty when nothing is in the way."""
        if self._certificate is None:
            return ["the serving certificate has not been read yet"]
        return certificate_problems(self._certificate, self.clock)

    def app(
        self, refusal: Callable[[web.Request], str | None], connections: Connections | None = None
    ) -> web.Application:
        """Return the application; ``refusal`` says why a caller is turned away."""
        return build_app(
            self.cache,
            self.reporter,
            now=self.clock.now,
            refusal=refusal,
            ready=lambda: self.view.synced,
            close_after=(connections or Connections()).close_after,
        )

    async def serve(self, api: Api, cert_dir: Path, host: str, port: int) -> None:
        """Serve until cancelled."""
        certificate = self._certificate = await _certificate(cert_dir, self.clock)
        front_proxy, connections = FrontProxy(api, certificate.ask_clients), Connections()
        listener = await serve(
            self.app(front_proxy.refusal, connections), host, port, tls=certificate.context, connections=connections
        )
        log.info("read_api.serving", port=listener.port)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(certificate.run(), name="read API certificate")
                tasks.create_task(front_proxy.run(), name="front proxy")
                tasks.create_task(self.reporter.run(), name="read API documents")
        finally:
            # Open watches would hold up the end, and with it the hand-over of the lease.
            self.cache.end()
            await listener.close()


def read_api(
    view: View,
    engine: EnsembleEngine,
    queue_counts: QueueCounts,
    kinds: Mapping[str, JobKind],
    *,
    identity: str,
    clock: Clock,
    reason: Callable[[str], Reason | None],
    policy_objects: Callable[[], Iterable[Mapping[str, Any]]],
    start: Start,
) -> ReadApi:
    """Return the read API over one view. ``reason`` says why a gang waits; ``identity`` is this replica's name."""
    cache, chronicle = WatchCache(clock.now, zlib.crc32(identity.encode())), Chronicle(view, clock.now)
    workloads = WorkloadWriter(cache, view, engine, kinds, chronicle, reason, start)
    queues = QueueWriter(cache, view, queue_counts, policy_objects)
    return ReadApi(cache, Reporter(workloads, queues), view, clock)


async def _certificate(cert_dir: Path, clock: Clock) -> ServingCertificate:
    while True:
        try:
            return ServingCertificate(cert_dir, clock=clock)
        except BadCertificate as error:
            log.warning("read_api.no_certificate", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
