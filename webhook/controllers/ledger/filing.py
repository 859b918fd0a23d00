"""Which entries belong together on one page, and where each stands, as the keeper files them."""

from collections.abc import Callable, Iterable, Mapping

from webhook.controllers.gangs import siblings
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import Layout
from webhook.core.ledger.record import Ledger, Reservation


def gangs(entries: Iterable[Reservation]) -> list[list[Reservation]]:
    """Return the entries, those of one ensemble together."""
    found: dict[str, list[Reservation]] = {}
    for entry in entries:
        found.setdefault(siblings.name_of(entry), []).append(entry)
    return list(found.values())


def laid_out(parts: Mapping[str, Ledger], texts: Mapping[str, Mapping[str, str]]) -> Layout:
    """Return where everything stands, by what each object was read to say and the ``texts`` it says it in."""
    layout = Layout()
    for page, ledger in parts.items():
        layout.bytes_of.setdefault(page, 0)
        for uid, entry in ledger.entries.items():
            refile(layout, uid, page, (None, None), (entry, texts[page][uid]))
    return layout


Filed = tuple[Reservation | None, str | None]
"""An entry and its text; None and None where there is none."""


def refile(layout: Layout, uid: str, page: str, before: Filed, after: Filed) -> None:
    """Take note of what stands on ``page`` from now on."""
    was, now = length(uid, before[1]), length(uid, after[1])
    if after[1] is None:
        layout.drop(uid, was)
    else:
        layout.put(uid, page, was, now)
    _count(layout, before[0], -was, set.discard)
    _count(layout, after[0], now, set.add)


def _count(layout: Layout, entry: Reservation | None, size: int, how: Callable[[set[str], str], None]) -> None:
    if entry is None:
        return
    layout.bytes_in[entry.namespace] += size
    if not layout.bytes_in[entry.namespace]:
        del layout.bytes_in[entry.namespace]
    _join(layout, entry, how)


def _join(layout: Layout, entry: Reservation, how: Callable[[set[str], str], None]) -> None:
    """Take note that an entry is one of its ensemble, or none any more."""
    if entry.membership is None:
        return
    name = siblings.name_of(entry)
    members = layout.members.setdefault(name, set())
    how(members, entry.uid)
    if not members:
        del layout.members[name]


def joined(entry: Reservation, layout: Layout) -> list[str]:
    """Return the uids of the entries that stand for others of its ensemble."""
    return [] if entry.membership is None else sorted(layout.members.get(siblings.name_of(entry), ()))


def text_of(entry: Reservation | None) -> str | None:
    """Return what is written of an entry; None where it is dropped."""
    return None if entry is None else ledger_text.encode_entry(entry)


def length(uid: str, text: str | None) -> int:
    """Return the bytes that an entry takes."""
    return 0 if text is None else len(uid) + len(text)
