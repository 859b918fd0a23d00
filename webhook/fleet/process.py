"""The process ``tutti hub``: its members' kubeconfigs from a directory, a mounted Secret, followed as they change."""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import structlog

from webhook.clock import SystemClock
from webhook.config import Config
from webhook.core.model.problem import Problem
from webhook.errors import PolicyError, in_words
from webhook.fleet import kubeconfig
from webhook.fleet.hub import Hub
from webhook.fleet.kubeconfig import Account
from webhook.jobs.kinds.registry import with_custom
from webhook.kube.api import Api

log = structlog.get_logger(__name__)

FOLLOW_SECONDS: Final = 2.0
OLD_CONNECTION_SECONDS: Final = 30.0
"""What is under way on a connection ends on it."""


def accounts(directory: Path) -> dict[str, Account]:
    """Return the members of a directory by name. Raises PolicyError with all that is wrong with their kubeconfigs."""
    found: dict[str, Account] = {}
    problems: list[Problem] = []
    for name, text in _texts(directory).items():
        try:
            found[name] = kubeconfig.read(text, f"member {name}")
        except PolicyError as error:
            problems += error.problems
    if problems:
        raise PolicyError(tuple(problems))
    if not found:
        fix = "put one kubeconfig a member there, the file named as the member"
        raise PolicyError((Problem("fleet_members", str(directory), "holds no kubeconfig", fix),))
    return found


def _texts(directory: Path) -> dict[str, str]:
    # A mounted Secret has its files behind links, and folders of its own whose names begin with a dot.
    try:
        files = sorted(path for path in directory.iterdir() if not path.name.startswith(".") and path.is_file())
        return {path.name: path.read_text() for path in files}
    except (OSError, UnicodeDecodeError) as error:
        fix = "mount the Secret with the members' kubeconfigs there"
        raise PolicyError((Problem("fleet_members", str(directory), in_words(error), fix),)) from error


def reached(account: Account) -> Api:
    """Return a connection to a member. Raises PolicyError where its certificates cannot be used."""
    from webhook.kube.http import reach  # noqa: PLC0415 - takes more than a second

    try:
        tls = ssl.create_default_context(cadata=account.authority or None)
        if account.certificate:
            _present(tls, account)
    except ssl.SSLError as error:
        problem = Problem("kubeconfig", "", f"its certificates cannot be used: {error}", "copy them again")
        raise PolicyError((problem,)) from error
    return reach(account.server, tls, account.token, server_hostname=account.server_name, user_agent="tutti-hub")


def _present(tls: ssl.SSLContext, account: Account) -> None:
    """Load a client certificate, which OpenSSL takes from a file alone: one that is gone when this returns."""
    with tempfile.NamedTemporaryFile("w", prefix="tutti-hub-") as pair:
        os.chmod(pair.name, 0o600)
        pair.write(f"{account.certificate}\n{account.key}\n")
        pair.flush()
        tls.load_cert_chain(pair.name)


async def serve_hub(config: Config, stop: asyncio.Event, on_start: Callable[[Hub], None] = lambda hub: None) -> None:
    """Run a hub until ``stop``. Raises PolicyError where its members cannot be read at the start."""
    from webhook.kube.http import connect  # noqa: PLC0415

    if config.fleet_members is None:
        fix = "name the directory with the members' kubeconfigs"
        raise PolicyError((Problem("fleet_members", "absent", "is needed by tutti hub", fix),))
    known = accounts(config.fleet_members)
    api = await connect(config.kubeconfig, "tutti-hub")
    links = {name: reached(account) for name, account in known.items()}
    rng = Random(os.getpid())  # noqa: S311 - jitter
    hidden, kinds = config.hide_neighbours, with_custom(config.kinds)
    dead_man = config.fleet_dead_man
    hub = Hub(api, links, kinds, clock=SystemClock(), rng=rng, hides_neighbours=hidden, dead_man=dead_man)
    on_start(hub)
    log.info("fleet.serving", members=sorted(known))
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(hub.run(), name="hub"),
                tasks.create_task(follow(hub, config.fleet_members, known), name="members"),
            ]
            await stop.wait()
            for task in running:
                task.cancel()
    finally:
        for member in hub.fleet.members.values():
            await member.close()
        await api.close()


async def follow(hub: Hub, directory: Path, known: dict[str, Account]) -> None:
    """Take new credentials of members that are known; which members there are is read at the start alone."""
    told = ""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        try:
            current = await asyncio.to_thread(accounts, directory)
            for name in current.keys() & known.keys():
                if current[name] != known[name]:
                    before = hub.fleet.members[name].reach(reached(current[name]))
                    known[name] = current[name]
                    asyncio.get_running_loop().call_later(OLD_CONNECTION_SECONDS, _close_later, before)
                    log.info("fleet.credentials_changed", member=name)
            told = ""
        except PolicyError as error:
            # What was in use before stays so.
            if str(error) != told:
                told = str(error)
                log.error("fleet.kubeconfig_refused", error=told)


_closing: set[asyncio.Task[None]] = set()


def _close_later(api: Api) -> None:
    task = asyncio.get_running_loop().create_task(api.close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
