"""``tutti hub`` as a process: the hub, and its health."""

import asyncio
import os
from collections.abc import Callable
from random import Random

import structlog

from webhook.clock import ApiServersClock, telling
from webhook.config import Config
from webhook.core.notation.problem import Problem
from webhook.errors import WrongInput
from webhook.fleet.credentials.connection import reached
from webhook.fleet.hub import Hub
from webhook.fleet.roster import Roster
from webhook.jobs.kinds.registry import with_custom
from webhook.kube.connecting import connect
from webhook.server.http.health import build_health_app
from webhook.server.http.listener import serve

log = structlog.get_logger(__name__)


async def serve_hub(config: Config, stop: asyncio.Event) -> None:
    """Serve as the hub of a fleet until ``stop``, and its health."""
    hubs: list[Hub] = []

    def problems() -> list[str]:
        return hubs[0].problems if hubs else ["it begins"]

    health = await serve(build_health_app(problems), config.listen.host, config.listen.health_port)
    try:
        await run_hub(config, stop, hubs.append)
    finally:
        await health.close()


async def run_hub(config: Config, stop: asyncio.Event, on_start: Callable[[Hub], None]) -> None:
    """Run a hub until ``stop``. Raises WrongInput where the directory of its members is not there."""
    if config.fleet_members is None:
        fix = "name the directory with the members' kubeconfigs"
        raise WrongInput((Problem("fleet_members", "absent", "is needed by tutti hub", fix),))
    clock = ApiServersClock()
    api = await connect(config.kubeconfig, "tutti-hub", on_date=telling(clock))
    rng = Random(os.getpid())  # noqa: S311 - jitter
    hidden, kinds = config.hide_neighbours, with_custom(config.kinds)
    dead_man = config.fleet_dead_man
    hub = Hub(api, {}, kinds, clock=clock, rng=rng, hides_neighbours=hidden, dead_man=dead_man)
    try:
        members = Roster(hub, config.fleet_members, reached)
        on_start(hub)
        log.info("fleet.serving", members=sorted(hub.fleet.members))
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(hub.run(), name="hub"),
                tasks.create_task(members.run(), name="members"),
            ]
            await stop.wait()
            for task in running:
                task.cancel()
    finally:
        for member in hub.fleet.members.values():
            await member.close()
        await api.close()
