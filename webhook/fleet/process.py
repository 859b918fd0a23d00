"""The process ``tutti hub``: the hub, and who its members are, until it is stopped."""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Callable
from random import Random

import structlog

from webhook import suites
from webhook.clock import ApiServersClock, telling
from webhook.config import Config
from webhook.core.notation.problem import Problem
from webhook.errors import WrongInput
from webhook.fleet.credentials.kubeconfig import Account
from webhook.fleet.hub import Hub
from webhook.fleet.roster import Roster
from webhook.jobs.kinds.registry import with_custom
from webhook.kube.api import Api

log = structlog.get_logger(__name__)


def reached(account: Account) -> Api:
    """Return a connection to a member. Raises WrongInput where its certificates cannot be used."""
    from webhook.kube.connecting import reach  # noqa: PLC0415 - takes more than a second

    try:
        tls = suites.client_context(account.authority or None)
        if account.certificate:
            _present(tls, account)
    except (OSError, ValueError) as error:
        problem = Problem("kubeconfig", "", f"its certificates cannot be used: {error}", "copy them again")
        raise WrongInput((problem,)) from error
    return reach(account.server, tls, account.token, server_hostname=account.server_name, user_agent="tutti-hub")


def _present(tls: ssl.SSLContext, account: Account) -> None:
    """Load a client certificate, which OpenSSL takes from a file alone: one that is gone when this returns."""
    with tempfile.NamedTemporaryFile("w", prefix="tutti-hub-") as pair:
        os.chmod(pair.name, 0o600)
        pair.write(f"{account.certificate}\n{account.key}\n")
        pair.flush()
        # Without a password OpenSSL would ask somebody at a terminal for that of an encrypted key.
        tls.load_cert_chain(pair.name, password="")


async def serve_hub(config: Config, stop: asyncio.Event, on_start: Callable[[Hub], None] = lambda hub: None) -> None:
    """Run a hub until ``stop``. Raises WrongInput where the directory of its members is not there."""
    from webhook.kube.connecting import connect  # noqa: PLC0415

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
