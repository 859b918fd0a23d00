"""``tutti queues``: queues and cohorts as the tree that they are, or one in full."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from webhook.commands import terminal
from webhook.commands.show.queue import find_queues, print_queue, running_text, waiting, waiting_text
from webhook.commands.show.reading import namespace_of, visible_queues
from webhook.commands.show.uncharged import uncharged
from webhook.core.notation.counted_jobs import resource_text
from webhook.visibility.http.group import FULL_NAME, Document

_KEYS: Final[Mapping[str, Callable[[Document], tuple[int, str]]]] = {
    "waiting": lambda document: (-waiting(document), document["metadata"]["name"]),
    "running": lambda document: (-document["status"]["admitted"], document["metadata"]["name"]),
    "name": lambda document: (0, document["metadata"]["name"]),
}


async def show(
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
        documents = await visible_queues(api, namespace_of(namespace, kubeconfig))
        beside = await uncharged(api) if output == "table" and name is None else None
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


def in_order(documents: Sequence[Document], sort: str | None) -> list[Document]:
    """Return the documents sorted by ``waiting``, ``running`` (the most first) or ``name``; None leaves their order."""
    return list(documents) if sort is None else sorted(documents, key=_KEYS[sort])


def print_queues(console: Console, documents: Sequence[Document], sort: str | None = None) -> None:
    """Print queues below their cohorts, or as a list in the order of ``sort``."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Queue", "Strategy"):
        table.add_column(heading, no_wrap=True)
    for heading in ("Waiting", "Running"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Used/owned ≤limit (+borrowed)")
    vertices = [document for document in documents if "clusterQueue" not in document["spec"]]
    handles = [document for document in documents if "clusterQueue" in document["spec"]]
    tree = _in_tree_order(vertices) if sort is None else [(0, document) for document in in_order(vertices, sort)]
    for depth, document in tree:
        _queue_row(table, "  " * depth + _full_name(document), document)
    if not vertices:
        for document in handles:
            _queue_row(table, f"{document['metadata']['name']}, of {document['spec']['clusterQueue']}", document)
    if not documents:
        console.print("There are no queues: apply a ClusterQueue, an ElasticQuotaTree or a Volcano Queue.")
        return
    console.print(table, highlight=False)


def _queue_row(table: Table, name: str, document: Document) -> None:
    spec, status = document["spec"], document["status"]
    stopped = [c["message"] for c in status.get("conditions", ()) if c["type"] == "Active" and c["status"] == "False"]
    # A LocalQueue owns nothing; its limit says what could be used while nothing is.
    resources = status.get("nominal", status.get("limit", {}) | status["usage"])
    amounts_text = ", ".join(_amount_of(status, name) for name in resources) or "-"
    if stopped:
        amounts_text = f"[red]{escape(stopped[0])}[/red]; {amounts_text}"
    strategy = spec.get("queueingStrategy", "cohort")
    table.add_row(escape(name), strategy, waiting_text(document), running_text(document), amounts_text)


def _amount_of(status: Document, resource: str) -> str:
    used = status["usage"].get(resource, "0")
    owned = f"/{status['nominal'][resource]}" if "nominal" in status else ""
    borrowed = status.get("borrowed", {}).get(resource)
    limit = status.get("limit", {}).get(resource)
    if limit is not None and limit != status.get("nominal", {}).get(resource):
        owned += f" ≤{limit}"
    return escape(f"{resource_text(resource)} {used}{owned}") + (f" [yellow](+{borrowed})[/yellow]" if borrowed else "")


def _in_tree_order(documents: Sequence[Document]) -> list[tuple[int, Document]]:
    """Return the queues and cohorts, parents first, with their depth."""
    children: dict[str, list[Document]] = {}
    present = {_full_name(document) for document in documents if "queueingStrategy" not in document["spec"]}
    for document in documents:
        parent = document["spec"].get("parent", "")
        children.setdefault(parent if parent in present else "", []).append(document)
    ordered: list[tuple[int, Document]] = []

    def walk(parent: str, depth: int) -> None:
        for document in sorted(children.get(parent, ()), key=_full_name):
            ordered.append((depth, document))
            if "queueingStrategy" not in document["spec"]:
                walk(_full_name(document), depth + 1)

    walk("", 0)
    return ordered


def _full_name(document: Document) -> str:
    return str(document["metadata"]["annotations"][FULL_NAME])
