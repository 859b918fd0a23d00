"""The ledger as index and pages are read: each by its own watch, decoded only where it changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.core.ledger import pages as ledger_pages
from webhook.core.ledger.pages import INDEX, Found, PagesMismatch
from webhook.core.ledger.record import Changes, Ledger
from webhook.core.ledger.text import Decoder


@dataclass(slots=True)
class LedgerBook:
    """What was last read of each object."""

    index: Mapping[str, str] | None = None
    pages: dict[str, Found] = field(default_factory=dict)
    """By name, those that the index does not list included: it may list them in a moment."""
    _decoders: dict[str, Decoder] = field(default_factory=dict)
    _decoded: dict[str, tuple[Mapping[str, str], Ledger]] = field(default_factory=dict)
    changes: Changes | None = None
    """How what was read last differs from what was read before that; None at first."""
    _last: Ledger | None = None
    _parts: dict[str, Ledger] = field(default_factory=dict)
    """What index and pages said when they were read last."""

    def read(self) -> Ledger | None:
        """Return the ledger that index and pages make; None where there is none. Raises as ``parts``."""
        return self.merged(self.parts())

    def parts(self) -> dict[str, Ledger] | None:
        """Return what index and pages say, each alone; None where there is no index.

        It costs what has changed, not what runs. Raises PagesMismatch while the index, or a page that it lists, was not
        read yet; LedgerCorrupt when something cannot be read at all.
        """
        if not self.index:
            return None
        index = self._part(INDEX, self.index)
        for name in self._decoders.keys() - index.pages.keys() - {INDEX}:
            del self._decoders[name]
            self._decoded.pop(name, None)
        parts = {INDEX: index}
        for name, uid in index.pages.items():
            page = self.pages.get(name)
            if page is None or page.uid != uid:
                raise PagesMismatch(f"page {name} is listed and was not read yet")
            parts[name] = self._part(name, page.data)
        return parts

    def merged(self, parts: dict[str, Ledger] | None) -> Ledger | None:
        """Return the ledger that ``parts`` make, of which only those that changed are looked into; None of none."""
        if parts is None:
            return None
        index = parts[INDEX]
        if self._last is None:
            pages = {name: part for name, part in parts.items() if name != INDEX}
            whole, self.changes = ledger_pages.merged(index, pages), None
        else:
            entries, uids = ledger_pages.succeeding(self._last.entries, self._parts, parts)
            seq = max(part.seq for part in parts.values())
            whole = Ledger(index.epoch, seq, entries, index.claims, index.bookings, index.pages)
            self.changes = Changes(self._last, uids)
        self._last, self._parts = whole, parts
        return whole

    def read_data(self, ledger: Ledger) -> list[Mapping[str, str]]:
        """Return what index and pages of ``ledger`` were read from."""
        return [self.index or {}, *(self.pages[name].data for name in ledger.pages)]

    def decoder(self, name: str) -> Decoder:
        """Return what has decoded that object so far."""
        return self._decoders.setdefault(name, Decoder())

    def _part(self, name: str, data: Mapping[str, str]) -> Ledger:
        known = self._decoded.get(name)
        if known is None or known[0] is not data:
            known = (data, self.decoder(name).decode(data))
            self._decoded[name] = known
        return known[1]


def newer(read: Ledger, known: Ledger) -> bool:
    """Return whether a leader, who knows what it wrote, takes what it ``read`` instead.

    Pages that one commit wrote bear the same version, and it may read one of them before the other.
    """
    return read.version > known.version or (read.version == known.version and not read.pages)
