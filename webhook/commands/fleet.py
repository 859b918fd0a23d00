"""``tutti fleet``: what an administrator has to give a hub, or tell it."""

import os
import sys
from pathlib import Path

from webhook.clock import SystemClock
from webhook.commands import terminal
from webhook.commands.owner_verbs import every_kind
from webhook.core.notation.counted import counted
from webhook.fleet.credentials.account import made
from webhook.fleet.lost import give_up, take_back


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
    """Give up what a member has. Raises ApiError, WrongName."""
    console, number = terminal.console(), 0
    async with terminal.cluster(kubeconfig) as api:
        kinds, how = await every_kind(api), {"dry_run": dry_run, "force": force}
        async for gang in give_up(api, kinds, member, SystemClock(), cluster=cluster, **how):
            number += 1
            console.print(f"{gang} {'would be' if dry_run else 'is'} offered elsewhere", highlight=False, markup=False)
    console.print(outcome(number, member, dry_run=dry_run), highlight=False, markup=False)
