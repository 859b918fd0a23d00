"""``tutti explain``: where one gang stands, what it asks, and why it waits."""

from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from webhook.clock import SystemClock
from webhook.commands import terminal
from webhook.commands.show.dispatched import Lines, dispatched
from webhook.commands.show.reading import namespace_of, workloads_of
from webhook.core.notation.counted import counted
from webhook.core.notation.counted_jobs import resource_text
from webhook.core.reasons.reasons import Code
from webhook.errors import WrongName
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.visibility.http.group import Document
from webhook.wire.times import age_since


async def explain(job: str, namespace: str | None, kubeconfig: Path | None) -> None:
    """Print where ``job`` (KIND/NAME) stands and why. Raises ApiError with a sentence when that cannot be known."""
    async with terminal.cluster(kubeconfig) as api:
        where = namespace_of(namespace, kubeconfig)
        in_members = await dispatched(api, job, where, SystemClock().now())
        try:
            found = await workloads_of(api, job, where)
        except WrongName:
            if in_members is None:
                raise
            print_placed(terminal.console(), job, where, in_members)
            return
    for document in found:
        print_workload(terminal.console(), document, SystemClock().now(), in_members)


def print_placed(console: Console, job: str, namespace: str, in_members: Lines) -> None:
    """Print a job that no queue of its hub admits, so that all there is to say is where it is."""
    console.print(f"[bold]{escape(job)}[/bold] of namespace {escape(namespace)}  has no queue here", highlight=False)
    lines = _grid()
    for name, text in in_members:
        lines.add_row(name, escape(text))
    console.print(lines, highlight=False)


def print_workload(console: Console, document: Document, now: float, in_members: Lines | None = None) -> None:
    """Print one gang: where it stands, what it asks, and why it waits.

    ``in_members`` is where a hub has it; its pods are there.
    """
    metadata, spec, status = document["metadata"], document["spec"], document["status"]
    owner = metadata["ownerReferences"][0]
    lines = _grid()
    state, since = _state(document)
    title = f"[bold]{owner['kind']} {metadata['namespace']}/{owner['name']}[/bold]"
    colour, words = _STATES[state]
    console.print(f"{title}  [{colour}]{words.format(age_since(since, now))}[/]", highlight=False)
    lines.add_row("queue", escape(_queue_line(spec, status)))
    if "position" in status:
        ahead = status["position"]
        lines.add_row("position", "first of its queue" if ahead == 0 else f"{ahead} ahead of it in its queue")
    if spec["podSets"]:
        lines.add_row("asks", escape(_asks(spec)))
    lines.add_row("priority", str(spec["priority"]))
    pods = status["pods"]
    here = "past their gates" if owner["kind"] == POD_GROUP.kind else "exist"
    for name, text in in_members or ():
        lines.add_row(name, escape(text))
    if pods["wanted"] and in_members is None:
        lines.add_row("pods", f"{pods['present']} of {pods['wanted']} {here}")
    if _is_true(document, "QuotaReserved") and 0 < sum(each["count"] for each in spec["podSets"]) < pods["wanted"]:
        lines.add_row("holds", f"the room of {counted(pods['wanted'], 'pod')}, as admitted, until it ends or is held")
    for condition in status["conditions"]:
        if condition["status"] == "True" and condition["type"] in ("Evicted", "Finished"):
            lines.add_row(condition["type"].lower(), escape(f"{condition['reason']}: {condition['message']}"))
        # Of a job that a hub places there are no pods here; the line of its member says what it waits for.
        if condition["type"] == "PodsReady" and condition["status"] == "False" and in_members is None:
            lines.add_row("why", escape(f"{condition['reason']}: {condition['message']}"))
    if "requeueAt" in status.get("requeueState", {}):
        lines.add_row("again at", f"{status['requeueState']['requeueAt']} (attempt {status['requeueState']['count']})")
    for name, text in _why(status):
        lines.add_row(name, escape(text))
    console.print(lines, highlight=False)


def _grid() -> Table:
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    return lines


_STATES: Final = {
    "waits": ("yellow", "has waited for {}"),
    "runs": ("green", "has run for {}"),
    "starts": ("green", "has been starting for {}"),
    "lacks pods": ("yellow", "has lacked pods for {}"),
    "stops": ("red", "has been stopping for {}"),
    "goes": ("red", "is being deleted, and was admitted {} ago"),
    "finished": ("blue", "finished {} ago"),
}


def _state(document: Document) -> tuple[str, str]:
    """Return a word for where the gang stands, and since when."""
    since = {c["type"]: c["lastTransitionTime"] for c in document["status"]["conditions"]}
    if _is_true(document, "Finished"):
        return "finished", since["Finished"]
    if _is_true(document, "QuotaReserved"):
        if _is_true(document, "Evicted"):
            return "stops", since["Evicted"]
        if document["status"].get("reason", {}).get("code") == Code.TERMINATING:
            return "goes", since["QuotaReserved"]
        if not _is_true(document, "Admitted"):
            # For a member of the fleet.
            return "waits", since["Admitted"]
        if _is_true(document, "PodsReady"):
            return "runs", since["Admitted"]
        lost = any(c["reason"] == "WaitForRecovery" for c in document["status"]["conditions"])
        return ("lacks pods", since["PodsReady"]) if lost else ("starts", since["Admitted"])
    return "waits", since["QuotaReserved"]


def _is_true(document: Document, kind: str) -> bool:
    """Return whether the condition ``kind`` of a workload document is True."""
    return any(c["type"] == kind and c["status"] == "True" for c in document["status"]["conditions"])


def _queue_line(spec: Document, status: Document) -> str:
    asked, held = spec.get("queueName"), status.get("admission", {}).get("clusterQueue")
    if asked is None:
        return "none: only the ResourceQuotas of its namespace bind it"
    return f"{asked}, of {held}" if held not in (None, asked) else str(asked)


def _asks(spec: Document) -> str:
    parts = []
    for pod_set in spec["podSets"]:
        least = f" (at least {pod_set['minCount']})" if "minCount" in pod_set else ""
        each = ", ".join(f"{amount} {name}" for name, amount in pod_set["requests"].items()) or "nothing"
        parts.append(f"{pod_set['count']} × {pod_set['name']}{least}: {each}")
    quorum = f"; worth starting with {counted(spec['quorum'], 'pod')}" if "quorum" in spec else ""
    return " + ".join(parts) + quorum


def _why(status: Document) -> list[tuple[str, str]]:
    """Return the typed reason line by line."""
    reason = status.get("reason")
    if reason is None:
        return []
    lines = [("why", f"{reason['code']}: {reason['message']}" if "message" in reason else reason["code"])]
    if "asked" in reason or "limit" in reason:
        numbers = [f"{name} {reason[name]}" for name in ("asked", "used", "limit") if name in reason]
        flavor = f" of flavor {reason['flavor']}" if "flavor" in reason else ""
        where = f" at {reason['where']}" if "where" in reason else ""
        lines.append(("numbers", f"{resource_text(reason.get('resource', ''))}{flavor}{where}: {', '.join(numbers)}"))
    for index, holder in enumerate(reason.get("holders", ())):
        lines.append(("" if index else "held by", f"{holder['gang']} ({holder['amount']})"))
    if "help" in reason:
        lines.append(("help", reason["help"]))
    return lines
