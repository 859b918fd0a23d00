"""What each object of the ledger says of the others: how far they had come when it was written.

An old copy of one object is well-formed, so nothing in it tells that it was put back while nobody led. The others do:
the index names the last write of each page that was known to be stored when the index itself was, which is every time
the lease is renewed; a page names that of the index, and of the pages that were written since the index. None of it
costs a write of its own.
"""

from collections.abc import Mapping
from typing import Final

from webhook.core.ledger.pages import INDEX, PagesMismatch
from webhook.core.ledger.record import Ledger

BESIDE_MAX: Final = 16
"""Other pages that one page names, those that were written last."""


def short(name: str) -> str:
    """Return what stands for an object where it is named by others: of a page, what is its own in the name."""
    return "index" if name == INDEX else name.rpartition("-page-")[2]


class Witness:
    """Knows the last stored write of each object, for one leader."""

    def __init__(self, parts: Mapping[str, Ledger] | None = None) -> None:
        """``parts`` are index and pages as they were read, or written."""
        parts = parts or {}
        seen = parts[INDEX].seen if parts else {}
        self._seqs = {name: part.seq for name, part in parts.items()}
        self._fresh = dict.fromkeys(name for name in parts if seen.get(short(name)) != self._seqs[name])
        """What the index does not say yet, in the order in which it was stored."""
        self._fresh.pop(INDEX, None)

    def seq_of(self, name: str) -> int:
        """Return the number of the last write."""
        return self._seqs.get(name, 0)

    def stored(self, name: str, seq: int, seen: Mapping[str, int]) -> None:
        """Take note that an object is stored as of write ``seq``, and says this of others."""
        self._seqs[name] = seq
        self._fresh.pop(name, None)
        if name != INDEX:
            self._fresh[name] = None
        else:
            told = [page for page in self._fresh if seen.get(short(page)) == self._seqs.get(page)]
            for page in told:
                del self._fresh[page]

    def gone(self, name: str) -> None:
        """Take note that a page is gone."""
        self._seqs.pop(name, None)
        self._fresh.pop(name, None)

    def seen_by(self, name: str) -> dict[str, int]:
        """Return what an object that is written now is to say of the others."""
        others = self._seqs if name == INDEX else [INDEX, *list(self._fresh)[-BESIDE_MAX:]]
        return {short(other): self._seqs.get(other, 0) for other in others if other != name}


def check(parts: Mapping[str, Ledger], proved_seq: int) -> None:
    """Raise PagesMismatch where index or pages are older than another of them has seen them, or than a job proves.

    ``proved_seq`` is the number of a write by which a job was started.
    """
    names = {short(name): name for name in parts}
    for by, part in parts.items():
        for about, seq in part.seen.items():
            name = names.get(about)
            if name is not None and parts[name].seq < seq:
                which, who = name or "the index", by or "the index"
                raise PagesMismatch(
                    f"an old copy of {which} was put back: it is of write {parts[name].seq}, {who} has seen write {seq}"
                )
    newest = max(part.seq for part in parts.values())
    if newest < proved_seq:
        raise PagesMismatch(f"an old copy was put back: write {proved_seq} started a job, the last one is {newest}")
