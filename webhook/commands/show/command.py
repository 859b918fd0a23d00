"""``tutti explain``, ``tutti queues``, ``tutti ledger`` and ``tutti status``."""

from pathlib import Path

from webhook.clock import SystemClock
from webhook.commands import terminal
from webhook.commands.show.gang import print_placed, print_workload
from webhook.commands.show.health import look, print_health
from webhook.commands.show.ledger import print_ledger, read_ledger, read_pages
from webhook.commands.show.outside import outside
from webhook.commands.show.placed import placed
from webhook.commands.show.queue import find_queues, print_queue
from webhook.commands.show.queues import in_order, print_queues
from webhook.commands.show.reading import default_namespace, visible_queues, workloads_of
from webhook.errors import WrongName


async def explain(job: str, namespace: str | None, kubeconfig: Path | None) -> None:
    """Print where ``job`` (KIND/NAME) stands and why. Raises ApiError with a sentence when that cannot be known."""
    async with terminal.cluster(kubeconfig) as api:
        where = namespace or default_namespace(kubeconfig)
        in_members = await placed(api, job, where)
        try:
            found = await workloads_of(api, job, where)
        except WrongName:
            if in_members is None:
                raise
            print_placed(terminal.console(), job, where, in_members)
            return
    for document in found:
        print_workload(terminal.console(), document, SystemClock().now(), in_members)


async def queues(
    kubeconfig: Path | None,
    *,
    name: str | None = None,
    namespace: str | None = None,
    sort: str | None = None,
    output: str = "table",
) -> None:
    """Print every queue and cohort with its quota and what is in use, and devices that none of them is charged for; or
    one queue in full.

    Raises ApiError when that cannot be known, WrongName when there is no queue of that name.
    """
    async with terminal.cluster(kubeconfig) as api:
        documents = await visible_queues(api, namespace or default_namespace(kubeconfig))
        beside = await outside(api) if output == "table" and name is None else None
    if name is not None:
        documents = find_queues(documents, name, namespace)
        if output == "table":
            for document in documents:
                print_queue(terminal.console(), document)
            return
    if output != "table":
        terminal.write(terminal.console(), {"items": in_order(documents, sort)}, output)
        return
    print_queues(terminal.console(), documents, sort)
    if beside is not None:
        terminal.console().print(beside, highlight=False)


async def ledger(kubeconfig: Path | None) -> None:
    """Print who leads and every reservation. Raises ApiError when the ledger cannot be read."""
    async with terminal.cluster(kubeconfig) as api:
        stored = await read_ledger(api)
        pages = await read_pages(api, stored)
    print_ledger(terminal.console(), stored, SystemClock().now(), pages)


async def status(kubeconfig: Path | None) -> bool:
    """Print whether each part of Tutti is well; return whether all are."""
    async with terminal.cluster(kubeconfig) as api:
        found = await look(api, SystemClock().now())
    print_health(terminal.console(), found)
    return all(finding.well for finding in found)
