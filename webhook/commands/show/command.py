"""``tutti explain``, ``tutti queues`` and ``tutti ledger``."""

from pathlib import Path
from typing import Final

import orjson

from webhook.clock import SystemClock
from webhook.commands import terminal
from webhook.commands.show.gang import print_workload
from webhook.commands.show.ledger import print_ledger
from webhook.commands.show.outside import outside
from webhook.commands.show.queues import print_queues
from webhook.commands.show.reading import default_namespace, visible_queues, workloads_of
from webhook.core.model import names
from webhook.errors import NotFound

_USER_AGENT: Final = "tutti-cli"
_LEDGER: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.LEDGER_NAME}"


async def explain(job: str, namespace: str | None, kubeconfig: Path | None) -> None:
    """Print where ``job`` (KIND/NAME) stands and why. Raises ApiError with a sentence when that cannot be known."""
    from webhook.kube.http import connected  # noqa: PLC0415 - takes more than a second

    async with connected(kubeconfig, _USER_AGENT) as api:
        found = await workloads_of(api, job, namespace or default_namespace(kubeconfig))
    for document in found:
        print_workload(terminal.console(), document, SystemClock().now())


async def queues(kubeconfig: Path | None) -> None:
    """Print every queue and cohort with its quota and what is in use, and devices that none of them is charged for.

    Raises ApiError when that cannot be known.
    """
    from webhook.kube.http import connected  # noqa: PLC0415

    async with connected(kubeconfig, _USER_AGENT) as api:
        documents = await visible_queues(api, default_namespace(kubeconfig))
        beside = await outside(api)
    print_queues(terminal.console(), documents)
    if beside is not None:
        terminal.console().print(beside, highlight=False)


async def ledger(kubeconfig: Path | None) -> None:
    """Print who leads and every reservation. Raises ApiError when the ledger cannot be read."""
    from webhook.kube.http import connected  # noqa: PLC0415

    async with connected(kubeconfig, _USER_AGENT) as api:
        try:
            stored = orjson.loads(await api.request("GET", _LEDGER))
        except NotFound as error:
            name = f"{names.SYSTEM_NAMESPACE}/{names.LEDGER_NAME}"
            raise NotFound(0, "NoLedger", f"there is no ConfigMap {name}: no reconciler has led here yet") from error
    print_ledger(terminal.console(), stored, SystemClock().now())
