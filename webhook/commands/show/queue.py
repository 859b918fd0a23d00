"""One queue on a terminal: what it owns and may take, uses, borrows (and from where) and lends."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from webhook.errors import WrongName
from webhook.visibility.http.group import FULL_NAME, Document


def find_queues(documents: Sequence[Document], name: str, namespace: str | None = None) -> list[Document]:
    """Return the documents of that name: those of ``namespace`` where it has any, else of all. Raises WrongName."""
    found = [document for document in documents if name in names_of(document)]
    found = [document for document in found if document["metadata"]["namespace"] == namespace] or found
    if not found:
        known = sorted({names_of(document)[0] for document in documents})
        there = f"there are {', '.join(known[:20])}" if known else "you see none"
        raise WrongName(f"there is no queue {name!r} that you may see; {there}")
    return found


def names_of(document: Document) -> list[str]:
    """Return the names that a queue goes by; people read the first one."""
    metadata = document["metadata"]
    full = (metadata.get("annotations") or {}).get(FULL_NAME)
    plain = [metadata["name"], f"{metadata['namespace']}/{metadata['name']}"]
    return plain if full is None else [full, *plain]


def awaiting_member(document: Document) -> int:
    """Return how many gangs have a queue's quota in a hub, and wait for a member of the fleet."""
    return int(document["status"].get("awaitingMember", 0))


def waiting(document: Document) -> int:
    """Return how many gangs of a queue wait: for its quota, or with it for a member of the fleet."""
    return int(document["status"]["pending"]) + awaiting_member(document)


def waiting_text(document: Document) -> str:
    """Return the same for people."""
    for_member = awaiting_member(document)
    return f"{waiting(document)} ({for_member} for a member)" if for_member else str(waiting(document))


def running_text(document: Document) -> str:
    """Return how many gangs of a queue run, and how many still hold its quota while they are being stopped."""
    status = document["status"]
    stopping = int(status["reserving"]) - int(status["admitted"]) - awaiting_member(document)
    return f"{status['admitted']} ({stopping} stopping)" if stopping > 0 else str(status["admitted"])


def print_queue(console: Console, document: Document) -> None:
    """Print one queue, cohort or LocalQueue."""
    spec, status = document["spec"], document["status"]
    kind = "LocalQueue" if "clusterQueue" in spec else "Queue" if "queueingStrategy" in spec else "Cohort"
    console.print(f"[bold]{kind} {escape(names_of(document)[0])}[/bold]", highlight=False)
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    for heading, key in (("of queue", "clusterQueue"), ("below", "parent"), ("strategy", "queueingStrategy")):
        if key in spec:
            lines.add_row(heading, escape(spec[key]))
    lines.add_row("waiting", waiting_text(document))
    lines.add_row("running", running_text(document))
    for condition in status.get("conditions", ()):
        if condition["type"] == "Active" and condition["status"] == "False":
            lines.add_row("stopped", f"[red]{escape(condition['message'])}[/red]")
    if "weight" in spec and "weightedShare" in status:
        lines.add_row("share", f"{status['weightedShare']} of weight {spec['weight']}")
    for lender in status.get("borrowedFrom", ()):
        lines.add_row("borrows", escape(f"{_amounts(lender['amounts'])} from {lender['name']}"))
    console.print(lines, highlight=False)
    _print_amounts(console, document)


def _print_amounts(console: Console, document: Document) -> None:
    spec, status = document["spec"], document["status"]
    owned = {quota["resource"] for quota in spec["quota"]}
    resources = sorted(owned | status["usage"].keys() | status.get("nominal", {}).keys())
    if not resources:
        return
    columns = [
        ("used", "usage"),
        ("used by all", "queueUsage"),
        ("owned", "nominal"),
        ("limit", "limit"),
        ("free", "available"),
    ]
    columns += [("borrowed", "borrowed"), ("lent", "lent")]
    shown = [(heading, key) for heading, key in columns if key in status]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Resource")
    for heading, _ in shown:
        table.add_column(heading.capitalize(), justify="right")
    for resource in resources:
        empty = {"limit": "none"}
        cells = [status[key].get(resource, empty.get(key, "0")) for _, key in shown]
        table.add_row(escape(resource), *map(escape, cells))
    console.print(table, highlight=False)


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items())
