"""Whether the members of a fleet answer, as ``tutti status`` says it in the fleet's hub."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from webhook.commands import members
from webhook.commands.show.finding import Finding
from webhook.core.notation import names
from webhook.errors import ApiError, TuttiError, WrongInput
from webhook.fleet import lost
from webhook.fleet.credentials import kubeconfig as credentials
from webhook.fleet.credentials.connection import reached
from webhook.fleet.credentials.kubeconfig import Account
from webhook.kube.api import Api
from webhook.kube.finding import find

HUB: Final = f"{names.CONFIG_MAPS}/tutti-hub"
"""The configuration of ``tutti hub``: whichever cluster has it is a hub."""
ANSWER_SECONDS: Final = 5.0


async def look(api: Api, reach: Callable[[Account], Api] = reached) -> Sequence[Finding]:
    """Return how each member of this hub is; nothing where it is no hub. Raises ApiError."""
    if await find(api, HUB) is None:
        return []
    try:
        written = await members.written(api)
    except TuttiError as error:
        return [Finding("members", False, str(error))]
    gone = await lost.noted(api)
    found = await asyncio.gather(*(_member(name, *written[name], reach) for name in sorted(written)))
    given_up = [Finding("member", True, f"{name} was declared lost at {when}") for name, when in sorted(gone.items())]
    return [*found, *given_up]


async def answers(written: str, reach: Callable[[Account], Api] = reached) -> str:
    """Return why a member does not answer who has its kubeconfig; empty when it does."""
    try:
        member = reach(credentials.read(written, "kubeconfig"))
    except WrongInput as error:
        return str(error)
    try:
        await member.request("GET", "/version", timeout_seconds=ANSWER_SECONDS)
    except ApiError as error:
        return str(error)
    finally:
        await member.close()
    return ""


async def _member(name: str, secret: str, encoded: object, reach: Callable[[Account], Api]) -> Finding:
    try:
        why = await answers(members.harmless(name, secret, encoded), reach)
    except TuttiError as error:
        return Finding("member", False, f"{name} cannot be asked: {error}")
    return Finding("member", not why, f"{name} does not answer: {why}" if why else f"{name} answers")
