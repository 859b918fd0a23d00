"""Whether the members of a fleet answer, as ``tutti status`` says it in the fleet's hub."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from webhook.commands import members
from webhook.commands.show.finding import Finding
from webhook.commands.show.ledger import leader_line, read_ledger
from webhook.core.notation import names
from webhook.errors import ApiError, TuttiError, WrongInput
from webhook.fleet import lost
from webhook.fleet.credentials import kubeconfig as credentials
from webhook.fleet.credentials.connection import reached
from webhook.fleet.credentials.kubeconfig import Account
from webhook.fleet.members.leader import LATE_SECONDS
from webhook.kube.api import Api
from webhook.kube.election import leader_of
from webhook.kube.finding import find

HUB: Final = f"{names.CONFIG_MAPS}/tutti-hub"
"""The configuration of ``tutti hub``: whichever cluster has it is a hub."""
ANSWER_SECONDS: Final = 5.0


async def look(api: Api, now: float, reach: Callable[[Account], Api] = reached) -> Sequence[Finding]:
    """Return how each member of this hub is, Unix time being ``now``; nothing where it is no hub. Raises ApiError."""
    if await find(api, HUB) is None:
        return []
    try:
        written = await members.written(api)
    except TuttiError as error:
        return [Finding("members", False, str(error))]
    gone = await lost.noted(api)
    found = await asyncio.gather(*(_member(name, *written[name], now, reach) for name in sorted(written)))
    given_up = [Finding("member", True, f"{name} was declared lost at {when}") for name, when in sorted(gone.items())]
    return [*found, *given_up]


async def answers(written: str, reach: Callable[[Account], Api] = reached) -> str:
    """Return why a member does not answer who has its kubeconfig; empty when it does."""
    try:
        async with _reached(written, reach) as member:
            await _version(member)
    except (WrongInput, ApiError) as error:
        return str(error)
    return ""


@asynccontextmanager
async def _reached(written: str, reach: Callable[[Account], Api]) -> AsyncIterator[Api]:
    """Yield a member by its kubeconfig. Raises WrongInput."""
    member = reach(credentials.read(written, "kubeconfig"))
    try:
        yield member
    finally:
        await member.close()


async def _version(member: Api) -> None:
    await member.request("GET", "/version", timeout_seconds=ANSWER_SECONDS)


async def _member(name: str, secret: str, encoded: object, now: float, reach: Callable[[Account], Api]) -> Finding:
    try:
        written = members.harmless(name, secret, encoded)
        async with _reached(written, reach) as member:
            try:
                await _version(member)
            except ApiError as error:
                return Finding("member", False, f"{name} does not answer: {error}")
            leads, line = await _leader(member, now)
    except TuttiError as error:
        return Finding("member", False, f"{name} cannot be asked: {error}")
    return Finding("member", leads, f"{name} answers" if leads else f"{name} answers, and starts nothing: {line}")


async def _leader(member: Api, now: float) -> tuple[bool, str]:
    """Return whether its Tutti leads, and in words who does."""
    try:
        lease = leader_of(await read_ledger(member))
    except ApiError as error:
        return False, str(error)
    # A change of leaders takes a while, and is no fault.
    return leader_line(lease, now - LATE_SECONDS)[0], leader_line(lease, now)[1]
