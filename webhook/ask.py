"""Answers for people at a terminal: why a job waits, what each queue holds, what the ledger says.

Everything is read through the Kubernetes API, with the rights of whoever asks: the read API for gangs and queues, the
ledger's ConfigMap for the ledger. Nothing here needs to run where Tutti runs.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from webhook import terminal
from webhook.clock import SystemClock
from webhook.core import amounts, ledger_text, names, quantity
from webhook.core.ensemble import uid_of
from webhook.core.ledger import Ledger, Reservation
from webhook.core.ledger_text import LedgerCorrupt
from webhook.errors import ApiError, Forbidden, NotFound, Unavailable
from webhook.jobs.kinds import JobKind
from webhook.jobs.pod_groups import POD_GROUP
from webhook.jobs.registry import by_name
from webhook.jobs.rest_paths import object_path
from webhook.kube.api import Api
from webhook.kube.election import LeaderRecord, parse
from webhook.visibility.app import ROOT
from webhook.visibility.conditions import is_true
from webhook.visibility.tables import age_since, human_age

Document = Mapping[str, Any]
_IN_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_CORE_LEDGER: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.LEDGER_NAME}"


async def explain(job: str, namespace: str | None, kubeconfig: Path | None) -> None:
    """Print where ``job`` (KIND/NAME) stands and why. Raises ApiError with a sentence when that cannot be known."""
    async with _connected(kubeconfig) as api:
        found = await workloads_of(api, job, namespace or default_namespace(kubeconfig))
    for document in found:
        print_workload(terminal.console(), document, SystemClock().now())


async def queues(kubeconfig: Path | None) -> None:
    """Print every queue and cohort with its quota and what is in use. Raises ApiError when that cannot be known."""
    async with _connected(kubeconfig) as api:
        documents = await visible_queues(api, default_namespace(kubeconfig))
    print_queues(terminal.console(), documents)


async def ledger(kubeconfig: Path | None) -> None:
    """Print who leads and every reservation. Raises ApiError when the ledger cannot be read."""
    async with _connected(kubeconfig) as api:
        try:
            stored = orjson.loads(await api.request("GET", _CORE_LEDGER))
        except NotFound as error:
            name = f"{names.SYSTEM_NAMESPACE}/{names.LEDGER_NAME}"
            raise NotFound(0, "NoLedger", f"there is no ConfigMap {name}: no reconciler has led here yet") from error
    print_ledger(terminal.console(), stored, SystemClock().now())


# -- reading -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _connected(kubeconfig: Path | None) -> AsyncIterator[Api]:
    from webhook.kube.http import connect  # noqa: PLC0415 - takes more than a second

    api = await connect(None if kubeconfig is None else str(kubeconfig), user_agent="tutti-cli")
    try:
        yield api
    finally:
        await api.close()


def default_namespace(kubeconfig: Path | None) -> str:
    """Return the namespace of the current context, as kubectl takes it."""
    paths = str(kubeconfig or os.environ.get("KUBECONFIG") or "")
    if not paths and _IN_POD.exists():
        return _IN_POD.read_text().strip()
    contexts: dict[str, Any] = {}
    current = ""
    for path in (paths or str(Path.home() / ".kube" / "config")).split(os.pathsep):
        if path and Path(path).is_file():
            config = yaml.safe_load(Path(path).read_text()) or {}
            current = current or config.get("current-context") or ""
            for entry in config.get("contexts") or ():
                contexts.setdefault(entry.get("name"), entry.get("context") or {})
    return str(contexts.get(current, {}).get("namespace") or "default")


async def workloads_of(api: Api, job: str, namespace: str) -> list[Document]:
    """Return the workloads of ``job`` (KIND/NAME). Raises ApiError with a sentence when there is none."""
    kind, slash, name = job.partition("/")
    if not slash or not kind or not name:
        raise NotFound(0, "WrongName", f"{job!r} names no job; write KIND/NAME, for example job/train")
    documents = await _read_api(api, f"{ROOT}/namespaces/{namespace}/workloads")
    found = [document for document in documents if _is_of(document, kind, name)]
    if not found:
        raise await _unknown(api, kind, namespace, name)
    return found


async def visible_queues(api: Api, namespace: str) -> list[Document]:
    """Return all queues, or those of ``namespace`` for who may not see the whole cluster. Raises ApiError."""
    try:
        return await _read_api(api, f"{ROOT}/queues")
    except Forbidden:
        return await _read_api(api, f"{ROOT}/namespaces/{namespace}/queues")


async def _read_api(api: Api, path: str) -> list[Document]:
    try:
        items: list[Document] = orjson.loads(await api.request("GET", path))["items"]
    except NotFound as error:
        raise NotFound(
            0, "NotInstalled", "this cluster does not serve visibility.tutti.dev: Tutti is not installed in it"
        ) from error
    except Unavailable as error:
        if not error.status:  # nobody at the API server's own address
            raise
        raise Unavailable(error.status, error.reason, f"Tutti's read API does not answer: {error.message}") from error
    return items


def _is_of(document: Document, kind: str, name: str) -> bool:
    owner = document["metadata"]["ownerReferences"][0]
    if owner["name"] != name:
        return False
    known = by_name(kind)
    group = owner["apiVersion"].rpartition("/")[0]
    if known is not None and (known.kind, known.group) == (owner["kind"], group):
        return True
    # Kinds that only the installation's configuration knows.
    return _names(owner["kind"], kind)


def _names(kind: str, word: str) -> bool:
    """Whether ``word`` is what kubectl would take for a kind."""
    return word.lower().partition(".")[0] in (kind.lower(), f"{kind.lower()}s")


async def _unknown(api: Api, kind: str, namespace: str, name: str) -> ApiError:
    """Return the error for a job that the read API does not show."""
    known = by_name(kind)
    if _names(POD_GROUP.kind, kind):
        why = f"no plain pods wait or run as PodGroup {name!r} in namespace {namespace}; a job goes by its own name"
        return NotFound(0, "JobUnknown", why)
    if _names("Pod", kind):
        why = "a pod waits with its gang: ask for podgroup/NAME, or for the job that it belongs to"
        return NotFound(0, "PodOfGang", why)
    if known is None:
        return NotFound(0, "KindUnknown", f"{kind!r} is no kind of job that Tutti knows, and none of that name waits")
    try:
        if not await _exists(api, known, namespace, name):
            return NotFound(0, "JobUnknown", f"there is no {known.kind} {name!r} in namespace {namespace}")
    except ApiError as error:
        return error
    return NotFound(
        0,
        "NotHeld",
        f"{known.kind} {namespace}/{name} exists and Tutti does not hold it: it carries no queue label "
        f"({' or '.join(names.QUEUE_LABELS)}), names no PodGroup, and its namespace maps to no queue",
    )


async def _exists(api: Api, kind: JobKind, namespace: str, name: str) -> bool:
    """Return whether the object exists, in any version of its kind."""
    for served in kind.every_version:
        try:
            await api.request("GET", object_path(served, namespace, name))
        except NotFound:
            continue
        return True
    return False


# -- one gang ----------------------------------------------------------------------------------------------------------


def print_workload(console: Console, document: Document, now: float) -> None:
    """Print one gang: where it stands, what it asks, and why it waits."""
    metadata, spec, status = document["metadata"], document["spec"], document["status"]
    owner = metadata["ownerReferences"][0]
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    state, since = _state(document)
    title = f"[bold]{owner['kind']} {metadata['namespace']}/{owner['name']}[/bold]"
    console.print(f"{title}  [{_COLOURS[state]}]{state}[/] for {age_since(since, now)}", highlight=False)
    lines.add_row("queue", escape(_queue_line(spec, status)))
    if "position" in status:
        ahead = status["position"]
        lines.add_row("position", "first of its queue" if ahead == 0 else f"{ahead} ahead of it in its queue")
    if spec["podSets"]:
        lines.add_row("asks", escape(_asks(spec)))
    lines.add_row("priority", str(spec["priority"]))
    pods = status["pods"]
    here = "past their gates" if owner["kind"] == POD_GROUP.kind else "exist"
    if pods["wanted"]:
        lines.add_row("pods", f"{pods['present']} of {pods['wanted']} {here}")
    for condition in status["conditions"]:
        if condition["status"] == "True" and condition["type"] in ("Evicted", "Finished"):
            lines.add_row(condition["type"].lower(), escape(f"{condition['reason']}: {condition['message']}"))
    if "requeueAt" in status.get("requeueState", {}):
        lines.add_row("again at", f"{status['requeueState']['requeueAt']} (attempt {status['requeueState']['count']})")
    for name, text in _why(status):
        lines.add_row(name, escape(text))
    console.print(lines, highlight=False)


_COLOURS: Final = {
    "waits": "yellow",
    "runs": "green",
    "starts": "green",
    "lacks pods": "yellow",
    "stops": "red",
    "finished": "blue",
}


def _state(document: Document) -> tuple[str, str]:
    """Return a word for where the gang stands, and since when."""
    since = {c["type"]: c["lastTransitionTime"] for c in document["status"]["conditions"]}
    if is_true(document, "Finished"):
        return "finished", since["Finished"]
    if is_true(document, "QuotaReserved"):
        if is_true(document, "Evicted"):
            return "stops", since["Evicted"]
        if is_true(document, "PodsReady"):
            return "runs", since["Admitted"]
        lost = any(c["reason"] == "WaitForRecovery" for c in document["status"]["conditions"])
        return ("lacks pods", since["PodsReady"]) if lost else ("starts", since["Admitted"])
    return "waits", since["QuotaReserved"]


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
    quorum = f"; worth starting with {spec['quorum']} pods" if "quorum" in spec else ""
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
        where = f" at {reason['node']}" if "node" in reason else ""
        lines.append(("numbers", f"{reason.get('resource', '')}{flavor}{where}: {', '.join(numbers)}"))
    for index, holder in enumerate(reason.get("holders", ())):
        lines.append(("" if index else "held by", f"{holder['gang']} ({holder['amount']})"))
    if "help" in reason:
        lines.append(("help", reason["help"]))
    return lines


# -- queues ------------------------------------------------------------------------------------------------------------


def print_queues(console: Console, documents: Sequence[Document]) -> None:
    """Print queues below their cohorts."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, justify in (("Queue", "left"), ("Policy", "left"), ("Waiting", "right"), ("Running", "right")):
        table.add_column(heading, justify="right" if justify == "right" else "left", no_wrap=True)
    table.add_column("Used/owned ≤limit (+borrowed)")
    nodes = [document for document in documents if "clusterQueue" not in document["spec"]]
    handles = [document for document in documents if "clusterQueue" in document["spec"]]
    for depth, document in _in_tree_order(nodes):
        _queue_row(table, "  " * depth + document["metadata"]["annotations"]["kube-queue/quota-fullname"], document)
    if not nodes:
        for document in handles:
            _queue_row(table, f"{document['metadata']['name']}, of {document['spec']['clusterQueue']}", document)
    if not documents:
        console.print("There are no queues: apply a ClusterQueue, an ElasticQuotaTree or a Volcano Queue.")
        return
    console.print(table, highlight=False)


def _queue_row(table: Table, name: str, document: Document) -> None:
    spec, status = document["spec"], document["status"]
    stopped = [c["message"] for c in status.get("conditions", ()) if c["type"] == "Active" and c["status"] == "False"]
    amounts_text = ", ".join(_amount_of(status, name) for name in status.get("nominal", status["usage"])) or "-"
    if stopped:
        amounts_text = f"[red]{escape(stopped[0])}[/red]; {amounts_text}"
    policy = spec.get("queuePolicy", "cohort")
    table.add_row(escape(name), policy, str(status["pending"]), str(status["admitted"]), amounts_text)


def _amount_of(status: Document, resource: str) -> str:
    used = status["usage"].get(resource, "0")
    owned = f"/{status['nominal'][resource]}" if "nominal" in status else ""
    borrowed = status.get("borrowed", {}).get(resource)
    limit = status.get("limit", {}).get(resource)
    if limit is not None and limit != status["nominal"].get(resource):
        owned += f" ≤{limit}"
    return escape(f"{resource} {used}{owned}") + (f" [yellow](+{borrowed})[/yellow]" if borrowed else "")


def _in_tree_order(documents: Sequence[Document]) -> list[tuple[int, Document]]:
    """Return the nodes, parents first, with their depth."""
    children: dict[str, list[Document]] = {}
    present = {_full_name(document) for document in documents if "queuePolicy" not in document["spec"]}
    for document in documents:
        parent = document["spec"].get("parent", "")
        children.setdefault(parent if parent in present else "", []).append(document)
    ordered: list[tuple[int, Document]] = []

    def walk(parent: str, depth: int) -> None:
        for document in sorted(children.get(parent, ()), key=_full_name):
            ordered.append((depth, document))
            if "queuePolicy" not in document["spec"]:
                walk(_full_name(document), depth + 1)

    walk("", 0)
    return ordered


def _full_name(document: Document) -> str:
    return str(document["metadata"]["annotations"]["kube-queue/quota-fullname"])


# -- the ledger --------------------------------------------------------------------------------------------------------


def print_ledger(console: Console, stored: Document, now: float) -> None:
    """Print who leads and every reservation. Raises NotFound for a ledger that cannot be read."""
    data = stored.get("data") or {}
    leader = parse((stored["metadata"].get("annotations") or {}).get(names.LEASE_ANNOTATION) or "")
    console.print(_leader_line(leader), highlight=False)
    try:
        ledger = ledger_text.decode(data)
    except LedgerCorrupt as error:
        raise NotFound(0, "LedgerCorrupt", f"{error}; the leader rebuilds it from the jobs") from error
    size = ledger_text.size_bytes(data)
    share = 100 * size / ledger_text.BYTES_MAX
    console.print(
        f"epoch {ledger.epoch}, write {ledger.seq}, {len(ledger.entries)} reservations, "
        f"{size} bytes ({share:.1f} % of what fits)",
        highlight=False,
    )
    if ledger.entries:
        console.print(_ledger_table(list(ledger.entries.values()), now), highlight=False)
    called = _called(ledger)
    for claim in sorted(ledger.claims.values(), key=lambda claim: claim.planned.since_seconds):
        pods, queue = sum(claim.planned.counts.values()), claim.planned.queue
        going = ", ".join(called[uid] for uid in claim.awaits if uid in called)
        console.print(f"kept for {claim.planned} ({pods} pods, queue {queue}), once gone: {going}", highlight=False)


def _called(ledger: Ledger) -> dict[str, str]:
    """Return what people call each gang that holds something, by the uid under which the engine knows it."""
    entries = ledger.entries.values()
    shared = [uid_of((entry.namespace, entry.membership.ensemble)) for entry in entries if entry.membership is not None]
    return {entry.uid: str(entry) for entry in entries} | {uid: uid for uid in shared}


def _leader_line(leader: LeaderRecord | None) -> str:
    if leader is None or not leader.holder:
        return "[yellow]nobody leads[/yellow]"
    return f"leader [bold]{escape(leader.holder)}[/bold], renewed {leader.renewed}, since {leader.acquired}"


def _ledger_table(reservations: Sequence[Reservation], now: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Job", "Queue", "Pods", "Holds", "Epoch", "Since", "State"):
        table.add_column(heading)
    for entry in sorted(reservations, key=lambda entry: entry.since_seconds):
        held: dict[str, int] = {}
        for key, amount in entry.usage().items():
            held[key.resource] = held.get(key.resource, 0) + amount
        if not held:
            held = amounts.total(amounts.scale(s.price.requests, s.count) for s in entry.pod_sets)
        table.add_row(
            escape(str(entry)),
            escape(entry.queue or "-"),
            str(sum(entry.counts.values())),
            escape(", ".join(f"{quantity.render(amount, name)} {name}" for name, amount in sorted(held.items()))),
            str(entry.epoch),
            human_age(now - entry.since_seconds),
            f"[red]stopping: {escape(entry.stopping)}[/red]" if entry.stopping else "adopted" * entry.adopted or "runs",
        )
    return table
