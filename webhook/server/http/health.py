"""The plain HTTP port of every process: whether it lives, whether it is ready and why not, and its metrics."""

import asyncio
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, disable_created_metrics, generate_latest

Problems = Callable[[], list[str]]
"""Why the process is not ready; empty when it is."""


async def _alive(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok\n")


def build_health_app(
    problems: Problems,
    registry: CollectorRegistry = REGISTRY,
    *,
    look: Callable[[], Callable[[], None]] | None = None,
) -> web.Application:
    """Return the application of the plain HTTP port: ``/healthz``, ``/readyz``, ``/metrics``.

    ``look`` returns what sets the metrics that are known only when somebody asks. That runs in a thread, as the writing
    of the text does: thousands of series take longer than others can wait.

    The kubelet has no client certificate and Prometheus none to show, so this is never the webhook's port.
    """
    scraping = asyncio.Lock()

    async def ready(_request: web.Request) -> web.StreamResponse:
        found = problems()
        return web.Response(status=503 if found else 200, text="".join(f"{line}\n" for line in found) or "ok\n")

    async def exposition(_request: web.Request) -> web.StreamResponse:
        async with scraping:
            if look is not None:
                await asyncio.to_thread(look())
            text = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    # When each counter began would be a series of its own: it doubles what is scraped, and rates do without.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    app = web.Application()
    app.router.add_get("/healthz", _alive)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", exposition)
    return app
