"""The ledger as index and pages are read: each by its own watch, decoded only where it changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.core.ledger import pages as ledger_pages
from webhook.core.ledger.pages import Found, Misplaced
from webhook.core.ledger.record import Ledger
from webhook.core.ledger.text import Decoder


@dataclass(slots=True)
class LedgerBook:
    """What was last read of each object."""

    index: Mapping[str, str] | None = None
    pages: dict[str, Found] = field(default_factory=dict)
    """By name, those that the index does not list included: it may list them in a moment."""
    _index_decoder: Decoder = field(default_factory=Decoder)
    _decoders: dict[str, Decoder] = field(default_factory=dict)
    _decoded: dict[str, tuple[Mapping[str, str], Ledger]] = field(default_factory=dict)

    def read(self) -> Ledger | None:
        """Return the ledger that index and pages make; None where there is none.

        Raises Misplaced while a page that is listed was not read yet, or its index not; LedgerCorrupt when something
        cannot be read at all.
        """
        if not self.index:
            return None
        index = self._index_decoder.decode(self.index)
        for name in self._decoded.keys() - index.pages.keys():
            del self._decoded[name], self._decoders[name]
        found = {}
        for name, uid in index.pages.items():
            page = self.pages.get(name)
            if page is None or page.uid != uid:
                raise Misplaced(f"page {name} is listed and was not read yet")
            found[name] = self._page(name, page.data)
        return ledger_pages.merged(index, found)

    def read_data(self, ledger: Ledger) -> list[Mapping[str, str]]:
        """Return what index and pages of ``ledger`` were read from."""
        return [self.index or {}, *(self.pages[name].data for name in ledger.pages)]

    def _page(self, name: str, data: Mapping[str, str]) -> Ledger:
        known = self._decoded.get(name)
        if known is None or known[0] is not data:
            decoder = self._decoders.setdefault(name, Decoder())
            known = (data, decoder.decode(data))
            self._decoded[name] = known
        return known[1]


def newer(read: Ledger, known: Ledger) -> bool:
    """Return whether a leader, who knows what it wrote, takes what it ``read`` instead.

    Pages that one commit wrote bear the same version, and it may read one of them before the other.
    """
    return read.version > known.version or (read.version == known.version and not read.pages)
