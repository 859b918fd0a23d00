"""``tutti hub`` as a process: the hub, and its health."""

import asyncio

from webhook.config import Config
from webhook.fleet import process
from webhook.fleet.hub import Hub
from webhook.server.http.health import build_health_app
from webhook.server.http.listener import serve


async def serve_hub(config: Config, stop: asyncio.Event) -> None:
    """Serve as the hub of a fleet until ``stop``, and its health."""
    hubs: list[Hub] = []

    def problems() -> list[str]:
        return [] if hubs and hubs[0].fleet.uid else ["its own API server has not answered yet"]

    health = await serve(build_health_app(problems), config.listen.host, config.listen.health_port)
    try:
        await process.serve_hub(config, stop, hubs.append)
    finally:
        await health.close()
