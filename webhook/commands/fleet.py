"""``tutti fleet``: what an administrator has to give a hub, or tell it."""

import os
import sys
from pathlib import Path

from webhook import logs
from webhook.clock import SystemClock
from webhook.commands import members, terminal
from webhook.commands.owner_verbs import every_kind
from webhook.commands.show import fleet_health
from webhook.core.notation.counted import counted
from webhook.errors import ApiError, TuttiError, WrongName
from webhook.fleet.credentials.account import made
from webhook.fleet.lost import NotAllGivenUp, give_up, take_back
from webhook.kube.api import Api


async def account(kubeconfig: Path | None) -> None:
    """Write a kubeconfig for a hub to standard output. Raises ApiError, WrongInput."""
    own = kubeconfig or Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    async with terminal.cluster(own) as api:
        written, until = await made(api, own)
    sys.stdout.write(written)
    sys.stderr.write(f"valid until {until}: give the hub a new one before then\n")


async def found(member: str, kubeconfig: Path | None) -> None:
    """Take back that a member is lost. Raises ApiError, WrongName."""
    async with terminal.cluster(kubeconfig) as api:
        await take_back(api, member)
    terminal.console().print(f"the hub waits for {member} again", highlight=False, markup=False)


def outcome(gangs: int, member: str, *, dry_run: bool) -> str:
    """Return what is said when a member was, or would be, given up that had so many gangs."""
    were, gets = ("is" if gangs == 1 else "are", "would get") if dry_run else ("was" if gangs == 1 else "were", "gets")
    return f"{counted(gangs, 'gang')} {were} in {member}; it {gets} no more"


async def lost(member: str, kubeconfig: Path | None, *, cluster: str, dry_run: bool, force: bool) -> None:
    """Give up what a member has. Raises ApiError, WrongName, and NotAllGivenUp once all else is."""
    # What is written on each job is logged for the hub's process; here a line says it.
    logs.configure("warning", console=True)
    console, number, unfinished = terminal.console(), 0, None
    async with terminal.cluster(kubeconfig) as api:
        kinds, how = await every_kind(api), {"dry_run": dry_run, "force": force}
        try:
            async for gang in give_up(api, kinds, member, SystemClock(), cluster=cluster, **how):
                number += 1
                said = f"{gang} {'would be' if dry_run else 'is'} offered elsewhere"
                console.print(said, highlight=False, markup=False)
        except NotAllGivenUp as error:
            unfinished = error
        if number == 0 and dry_run and not force:
            await _is_known(api, member)
        answering = number and await _answers(api, member)
    console.print(outcome(number, member, dry_run=dry_run), highlight=False, markup=False)
    if answering:
        sys.stderr.write(f"{member} answers: a hub that reaches it takes up again what is there, or it runs twice\n")
    if unfinished is not None:
        raise unfinished


async def _is_known(api: Api, member: str) -> None:
    """Raises WrongName where nothing is in a member because there is none of that name, ApiError, TuttiError."""
    if member not in (known := await members.written(api)):
        told = f"the hub has {', '.join(sorted(known)) or 'none'}"
        raise WrongName(f"{member} is no member, {told}; if it was one, add --force")


async def _answers(api: Api, member: str) -> bool:
    """Return whether a member answers now, by the kubeconfig that the hub has of it."""
    try:
        usable, _ = await members.kubeconfigs(api)
        return not await fleet_health.answers(usable[member])
    except (ApiError, TuttiError, KeyError):
        return False
