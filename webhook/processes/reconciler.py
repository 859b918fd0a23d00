"""The reconciler as a process: the loop, the read API, its health, and a watchdog while it leads."""

import asyncio
import os
import random
from collections.abc import Collection, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from webhook.assembly.reconciler import reconciler
from webhook.clock import ApiServersClock, telling
from webhook.cluster.view import unsynced
from webhook.config import Config, Listen
from webhook.controllers.ledger.errors import SetBack
from webhook.controllers.reporting.registration_faults import certificates_in
from webhook.controllers.reporting.registration_watch import RegistrationWatch
from webhook.kube.connecting import connect
from webhook.kube.process_death import death_of
from webhook.kube.server_version import log_server_version
from webhook.kube.watchdog import EXIT_CODE, HUNG_SECONDS, Watchdog
from webhook.processes.running import identity_of
from webhook.server.http.health import build_health_app
from webhook.server.http.listener import serve

log = structlog.get_logger(__name__)

EVERY_HOST: Final = ("", "::", "0.0.0.0")  # noqa: S104 - compared, not bound
"""What listens everywhere does not say where it is."""


async def serve_reconciler(config: Config, stop: asyncio.Event) -> None:
    """Run a reconciler until ``stop``; then hand the lease over.

    The watchdog ends the process when its event loop hangs while it leads: it could not step down.
    """
    clock, identity = ApiServersClock(), identity_of(config)
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
        address=address_of(config.listen, os.environ.get("POD_IP", "")),
        death_of=death_of,
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


def address_of(listen: Listen, pod_ip: str) -> str:
    """Return where a standby learns that this process is dead: at its health port. Empty where that is not known."""
    host = pod_ip if listen.host in EVERY_HOST else listen.host
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{listen.health_port}" if host and listen.health_port else ""


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
