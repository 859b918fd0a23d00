"""Names that a shell proposes while a user types: of jobs and queues in the cluster, with the user's own rights.

They come from the read API, which knows jobs of every kind by one list. If it does not answer soon, nothing is
proposed here, since a word on the terminal would stand in the line that is being typed; the command itself says what is
wrong when it runs.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final

from typer import Context

from webhook.kube.api import Api

PROPOSE_SECONDS: Final = 2.0
"""Somebody waits with their fingers on the keys."""
_SHOWN: Final = 200
"""More than that no shell lists without asking."""


def jobs(ctx: Context, incomplete: str) -> list[str]:
    """Return the jobs of the namespace, as KIND/NAME; kinds, where a selector picks the jobs."""
    from webhook.jobs.kinds.registry import KINDS  # noqa: PLC0415 - see the command line

    if ctx.params.get("selector"):
        return _beginning(sorted({kind.singular for kind in KINDS.values()}), incomplete)
    return _beginning(_asked(ctx, job_names), incomplete)


def queues(ctx: Context, incomplete: str) -> list[str]:
    """Return the queues and cohorts that who types may see."""
    return _beginning(_asked(ctx, queue_names), incomplete)


async def job_names(api: Api, namespace: str) -> list[str]:
    """Return what waits and runs in a namespace, as the commands take it. Raises ApiError."""
    from webhook.commands.show.reading import read_api  # noqa: PLC0415
    from webhook.visibility.http.group import ROOT  # noqa: PLC0415

    documents = await read_api(api, f"{ROOT}/namespaces/{namespace}/workloads")
    return [_called(document["metadata"]["ownerReferences"][0]) for document in documents]


async def queue_names(api: Api, namespace: str) -> list[str]:
    """Return the names that ``tutti queues`` takes. Raises ApiError."""
    from webhook.commands.show.reading import visible_queues  # noqa: PLC0415

    return [document["metadata"]["name"] for document in await visible_queues(api, namespace)]


def _called(owner: dict[str, Any]) -> str:
    """Return KIND/NAME; with the group where the kind's name alone means another kind."""
    from webhook.jobs.kinds.registry import by_name  # noqa: PLC0415

    word, group = owner["kind"].lower(), owner["apiVersion"].rpartition("/")[0]
    known = by_name(word)
    plain = known is None or known.group == group
    return f"{word if plain else f'{word}.{group}'}/{owner['name']}"


def _beginning(found: list[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(found) if name.startswith(incomplete)][:_SHOWN]


def _asked(ctx: Context, names: Callable[[Api, str], Awaitable[list[str]]]) -> list[str]:
    """Return what the cluster of the options typed so far says, or nothing."""

    async def ask(kubeconfig: Path | None, namespace: str | None) -> list[str]:
        from webhook.commands.show.reading import namespace_of  # noqa: PLC0415
        from webhook.kube.connecting import connected  # noqa: PLC0415

        async with asyncio.timeout(PROPOSE_SECONDS), connected(kubeconfig, "tutti-completion") as api:
            return await names(api, namespace_of(namespace, kubeconfig))

    given = ctx.params.get("kubeconfig")
    # Everything: a kubeconfig is a file that anybody may have broken in any way.
    with suppress(Exception), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return asyncio.run(ask(Path(given) if given else None, ctx.params.get("namespace")))
    return []
