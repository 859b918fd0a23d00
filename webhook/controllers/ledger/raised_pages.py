"""The pages of a take-over: each is read, and its epoch raised, until one of them fails."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from webhook.controllers.ledger.stored import Kept, Objects, Stored
from webhook.core.ledger import pages as ledger_pages
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import Found
from webhook.core.ledger.record import Ledger
from webhook.core.ledger.text import Decoder, LedgerCorrupt
from webhook.errors import Conflict

AT_ONCE: Final = 24
"""Pages under way at a time, three times as many as of a commit: until all are raised nobody is admitted. Beside fifty
requests of others a page took half as long so (docs/scale.md).
"""


class RaisedPages:
    """What one take-over has read of the pages, and holds of them."""

    def __init__(self, objects: Objects, index: Ledger, decoder: Callable[[str], Decoder]) -> None:
        """``index`` is of the epoch that they are raised to."""
        self._objects = objects
        self._index = index
        self._decoder = decoder
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._failed = False
        self.read: dict[str, Ledger] = {}
        """What they say, by name."""
        self.kept: dict[str, Kept] = {}
        """They themselves, as they are stored now."""

    async def take(self, listed: Stored) -> None:
        """Raise one page: while it is written, the next is read. Once one has failed no other is: the take-over has.

        Raises Conflict when it was written since it was listed, LedgerCorrupt, PagesMismatch, and ApiError.
        """
        async with self._slots:
            if self._failed:
                return
            try:
                await self._raise(listed)
            except BaseException:
                self._failed = True
                raise

    async def _raise(self, listed: Stored) -> None:
        page = self.read[listed.name] = await self._read(listed)
        kept = Kept(listed.name, listed.uid, listed.resource_version)
        kept.take(self._decoder(listed.name).kept(listed.data))
        meta = ledger_text.encode_meta(replace(page, epoch=self._index.epoch), kept.digest)
        # A conflict is a last write of the leader before us: all is read once more, by the next attempt.
        version = await self._objects.patch(kept.name, kept.resource_version, {ledger_text.META: meta}, None)
        kept.resource_version, kept.meta = version, meta
        self.kept[kept.name] = kept

    async def _read(self, listed: Stored) -> Ledger:
        found = Found(listed.uid, listed.data)
        try:
            return ledger_pages.read(self._index, listed.name, found, self._decoder(listed.name))
        except LedgerCorrupt:
            # The watch may have shown a late write, perhaps our own, after the pages were listed.
            now = await self._objects.read(listed.name)
            if now is not None and (now.uid, now.resource_version) != (listed.uid, listed.resource_version):
                raise Conflict(409, "Conflict", f"{listed.name} was written since it was listed") from None
            raise
