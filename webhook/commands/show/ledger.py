"""``tutti ledger``: who leads, every reservation, and which gangs room is kept for."""

from collections.abc import Sequence
from pathlib import Path

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from webhook.clock import SystemClock
from webhook.cluster.ledger_book import LedgerBook
from webhook.commands import terminal
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import Found, PagesMismatch
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.ledger.text import LedgerCorrupt
from webhook.core.notation import amounts, names
from webhook.core.notation.counted import counted
from webhook.core.pod_group.ensemble import uid_of
from webhook.core.quota.tree import for_people
from webhook.errors import NotFound
from webhook.kube.api import Api
from webhook.kube.election import LeaderRecord, leader_of, readable_seconds
from webhook.kube.finding import every
from webhook.visibility.http.group import Document
from webhook.wire.times import human_age


async def show(kubeconfig: Path | None) -> None:
    """Print who leads and every reservation. Raises ApiError when the ledger cannot be read."""
    async with terminal.cluster(kubeconfig) as api:
        stored = await read_ledger(api)
        pages = await read_pages(api, stored)
    print_ledger(terminal.console(), stored, SystemClock().now(), pages)


async def read_ledger(api: Api) -> Document:
    """Return the ledger's ConfigMap. Raises ApiError."""
    try:
        stored: Document = orjson.loads(await api.request("GET", f"{names.CONFIG_MAPS}/{names.LEDGER_NAME}"))
    except NotFound as error:
        name = f"{names.SYSTEM_NAMESPACE}/{names.LEDGER_NAME}"
        raise NotFound(0, "NoLedger", f"there is no ConfigMap {name}: no reconciler has led here yet") from error
    return stored


async def read_pages(api: Api, index: Document) -> list[Document]:
    """Return the pages of an index; none where it lists none. Raises ApiError."""
    if ledger_text.PAGES not in (index.get("data") or {}):
        return []
    return [page async for page in every(api, names.CONFIG_MAPS, names.LEDGER_PAGES)]


def print_ledger(console: Console, stored: Document, now: float, pages: Sequence[Document] = ()) -> None:
    """Print who leads and every reservation, as one table. Raises NotFound for a ledger that cannot be read."""
    book = LedgerBook(stored.get("data") or {})
    book.pages = {each["metadata"]["name"]: Found(each["metadata"]["uid"], each.get("data") or {}) for each in pages}
    leads, line = leader_line(leader_of(stored), now)
    console.print(f"[{'bold' if leads else 'red'}]{escape(line)}[/]", highlight=False)
    try:
        ledger = book.read()
        if ledger is None:
            raise LedgerCorrupt("it holds only the lease")
    except (LedgerCorrupt, PagesMismatch) as error:
        raise NotFound(0, "LedgerCorrupt", f"{error}; the leader rebuilds it from the jobs") from error
    on_pages = f" on the index and {counted(len(ledger.pages), 'page')}" if ledger.pages else ""
    size = sum(ledger_text.size_bytes(data) for data in book.read_data(ledger))
    held = counted(len(ledger.entries), "reservation")
    console.print(f"epoch {ledger.epoch}, write {ledger.seq}, {held}{on_pages}, {size} bytes", highlight=False)
    if ledger.entries:
        console.print(_ledger_table(list(ledger.entries.values()), now), highlight=False)
    called = _called(ledger)
    for claim in sorted(ledger.claims.values(), key=lambda claim: claim.planned.since_seconds):
        pods, queue = counted(sum(claim.planned.counts.values()), "pod"), claim.planned.queue
        going = ", ".join(called[uid] for uid in claim.awaits if uid in called)
        console.print(f"kept for {claim.planned} ({pods}, queue {queue}), once gone: {going}", highlight=False)


def _called(ledger: Ledger) -> dict[str, str]:
    """Return what people call each gang that holds something, by the uid under which the engine knows it."""
    entries = ledger.entries.values()
    shared = [uid_of((entry.namespace, entry.membership.ensemble)) for entry in entries if entry.membership is not None]
    return {entry.uid: str(entry) for entry in entries} | {uid: uid for uid in shared}


def leader_line(leader: LeaderRecord | None, now: float) -> tuple[bool, str]:
    """Return whether somebody leads at Unix time ``now``, and who."""
    if leader is None or not leader.holder:
        return False, "no replica leads"
    ended = leader.ended_seconds()
    if ended is not None and now > ended:
        return False, (
            f"no replica leads: the lease of {leader.holder} expired {human_age(now - ended)} ago; "
            "nothing is admitted until a reconciler takes over"
        )
    return True, f"leader {leader.holder} for {_age(leader.acquired, now)}, renewed {_age(leader.renewed, now)} ago"


def _age(time: str, now: float) -> str:
    """Return how long ago a time of the lease is, as people read it; as it stands where it is no time.

    A time to come counts as now: the lease was renewed while other things were read, or the clocks differ.
    """
    seconds = readable_seconds(time)
    return time if seconds is None else human_age(max(now - seconds, 0.0))


def _ledger_table(reservations: Sequence[Reservation], now: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Job", "Queue", "Pods", "Holds", "Epoch", "Since", "State"):
        table.add_column(heading)
    for entry in sorted(reservations, key=lambda entry: entry.since_seconds):
        asked = (amounts.scale(s.price.requests, s.count) for s in entry.pod_sets)
        table.add_row(
            escape(str(entry)),
            escape(entry.queue or "-"),
            str(sum(entry.counts.values())),
            escape(amounts.render(for_people(entry.usage()) or amounts.total(asked))),
            str(entry.epoch),
            human_age(now - entry.since_seconds),
            f"[red]stopping: {escape(entry.stopping)}[/red]" if entry.stopping else "adopted" * entry.adopted or "runs",
        )
    return table
