"""Which claims and bookings find room in the index next to its entries.

Neither may keep an entry from being written, and a new leader works out again what is left out. What is left out
depends on the namespace: the one with most loses some before any other does.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from webhook.core.ledger import text
from webhook.core.ledger.record import Booked, Claim, Ledger
from webhook.core.ledger.witness import short

META_BYTES: Final = 200
"""More than ``meta`` takes, but for what it says of pages."""
SEEN_BYTES: Final = 24
"""What it takes at most for one page besides its name: a number of a write, and what is around both."""
Texts = dict[str, str | None]
"""Key to what is written there; None removes it."""


class ClaimTexts:
    """The text of each claim, made once: each of a thousand may await a thousand gangs, and few change in a write."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Claim, str]] = {}

    def take(self, claims: Mapping[str, Claim]) -> None:
        """Know the texts of these claims, and of no others."""
        known = self._known
        self._known = {
            uid: known[uid] if uid in known and known[uid][0] is claim else (claim, text.encode_claim(claim))
            for uid, claim in claims.items()
        }

    def of(self, uids: Iterable[str]) -> dict[str, str]:
        """Return the texts of some of the claims that were taken."""
        return {uid: self._known[uid][1] for uid in uids}


def written(
    before: Ledger,
    ledger: Ledger,
    index: Mapping[str, str],
    changes: Mapping[str, str | None],
    known: ClaimTexts,
) -> tuple[Ledger, Texts]:
    """Return ``ledger`` with the claims and bookings that fit, and what is new of both.

    ``index`` is what the object holds now, ``changes`` what is written of it besides claims and bookings.
    """
    known.take(ledger.claims)
    texts = _texts(before, ledger, known)
    if not (ledger.claims or ledger.bookings):
        return ledger, texts
    data = {key: value for key, value in {**index, **changes, **texts, text.META: None}.items() if value is not None}
    over = text.size_bytes(data) + meta_bytes({*before.pages, *ledger.pages}) - text.BYTES_MAX
    if over <= 0:
        return ledger, texts
    room_bytes = sum(len(data.get(key, "").encode()) for key in (text.CLAIMS, text.BOOKINGS)) - over
    claims, bookings = fitting(ledger.claims, ledger.bookings, max(0, room_bytes), known)
    ledger = replace(ledger, claims=claims, bookings=bookings)
    return ledger, _texts(before, ledger, known)


def meta_bytes(pages: Iterable[str]) -> int:
    """Return more than ``meta`` takes in an index that knows these pages, however many writes there are of each: it is
    written again while nothing else of the index is, so what it will take is kept free.
    """
    return META_BYTES + sum(len(short(page).encode()) + SEEN_BYTES for page in pages)


def _texts(before: Ledger, ledger: Ledger, known: ClaimTexts) -> Texts:
    texts: Texts = {}
    if ledger.claims != before.claims:
        texts[text.CLAIMS] = text.join_claims(known.of(ledger.claims)) if ledger.claims else None
    if ledger.bookings != before.bookings:
        texts[text.BOOKINGS] = text.encode_bookings(ledger.bookings) if ledger.bookings else None
    return texts


def fitting(
    claims: Mapping[str, Claim], bookings: Mapping[str, Booked], room_bytes: int, known: ClaimTexts
) -> tuple[dict[str, Claim], dict[str, Booked]]:
    """Return those that fit ``room_bytes``.

    Bookings are short and as many as there are queues: they come first. The namespace whose claims are longest
    together loses the longest of them, as often as it takes.
    """
    left = room_bytes - len(text.encode_bookings(bookings))
    if left < 0:
        bookings, left = {}, room_bytes
    sizes = {uid: len(text.join_claims({uid: each}).encode()) for uid, each in known.of(claims).items()}
    kept: dict[str, list[str]] = {}
    for uid in sorted(sizes, key=lambda uid: (sizes[uid], uid)):
        kept.setdefault(claims[uid].planned.namespace, []).append(uid)
    held = Counter({namespace: sum(sizes[uid] for uid in uids) for namespace, uids in kept.items()})
    total = held.total()
    while total > left:
        greediest = max(held, key=lambda namespace: (held[namespace], namespace))
        size = sizes[kept[greediest].pop()]
        held[greediest] -= size
        total -= size
    stay = {uid for uids in kept.values() for uid in uids}
    return {uid: claim for uid, claim in claims.items() if uid in stay}, dict(bookings)
