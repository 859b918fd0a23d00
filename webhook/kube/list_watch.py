"""The list-then-watch protocol as a state machine without I/O: it names the next request and is told the outcome.

                 page with a continue token
                    ┌──────┐
                    ▼      │         complete          ended, broken, silent: again from the last version
    start ───────▶ LISTING ┴───────────────────▶ WATCHING ◀──────────────────┐
                    ▲  ▲ │ 404: the kind is not        │  └──────────────────┘
                    │  └─┘ served; ask again slowly    │
                    └──────────────────────────────────┘
                      410 Gone, 404, or a re-read was asked for

A page that is too long to be read is asked for again with half as many objects.

Upstream rules kept (client-go reflector and pager): lists are paged and consistent (no resourceVersion asked); the
watch starts at the list's version and asks for bookmarks; an expired page token starts over, then without paging; an
expired watch lists again. A watch that ends is the normal case, not an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Final

from webhook import errors
from webhook.kube.backoff import Backoff
from webhook.wire.watch import version_number

PAGE_SIZE: Final = 500
WATCH_SECONDS: Final = 290.0
"""How long the server is asked to keep one watch; connections spread over its replicas again in this time."""
IDLE_SECONDS: Final = 120.0
"""Silence after which a watch is taken for dead. API servers send a bookmark about every minute."""
HEALTHY_SECONDS: Final = 5.0
"""A watch that lasted this long, or said anything, has worked: the next one starts at once."""
PUT_OFF_WATCHES: Final = 4
"""So many watches in a row that are to be asked for later: then a list tells whether there is anything to follow. After
another that helps nothing it is twice as many."""
STALE_LISTS_MAX: Final = 3
"""Lists older than what was seen already that are refused in a row. Then they are the truth: etcd was restored."""
MISSING_RETRY_SECONDS: Final = 5.0
UNANSWERED_SECONDS_MAX: Final = 3.0
"""Longest wait while there is nobody to connect to. Asking costs nobody anything then, and work is to resume soon after
the server is back; one that answers that it has too much to do is asked ever more rarely.
"""


class Progress(Enum):
    """What a page of a list meant."""

    MORE = auto()
    COMPLETE = auto()
    STALE = auto()
    """It shows a past before what was seen already; it must not be taken in."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Read one page."""

    query: Mapping[str, str]
    first: bool


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """Follow the changes."""

    query: Mapping[str, str]
    idle_seconds: float


class ListWatch:
    """Where one informer stands with one resource."""

    def __init__(
        self,
        rng: Random,
        *,
        selectors: Mapping[str, str] | None = None,
        page_size: int = PAGE_SIZE,
        watch_seconds: float = WATCH_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        missing_retry_seconds: float = MISSING_RETRY_SECONDS,
    ) -> None:
        self._rng = rng
        self._backoff = Backoff(rng)
        self._unanswered = Backoff(rng, most_seconds=UNANSWERED_SECONDS_MAX)
        self._selectors = dict(selectors or {})
        self._page_size = self._page_now = page_size
        self._watch_seconds = watch_seconds
        self._idle_seconds = idle_seconds
        self._missing_retry_seconds = missing_retry_seconds
        self._watching = False
        self._resource_version = ""
        self._list_version = ""
        self._token = ""
        self._paged = True
        self._stale_lists = 0
        self._missing_answers = 0
        self._heard = False
        self._gone_before = False
        self._put_off, self._put_off_max = 0, PUT_OFF_WATCHES
        self._doubted = False
        """It is being listed because its watches were put off."""
        self.position = 0
        """The newest resourceVersion seen."""
        self.served: bool | None = None
        """Whether the API server knows the resource; None until it has said so."""

    @property
    def listing(self) -> bool:
        """The next request, or the one under way, reads a page."""
        return not self._watching

    @property
    def within_list(self) -> bool:
        """Some pages of a list have been read, and not the last."""
        return bool(self._token)

    def request(self) -> ListRequest | WatchRequest:
        """Return what to ask next."""
        if self._watching:
            self._heard = False
            return WatchRequest(self._watch_query(), self._idle_seconds)
        return ListRequest(self._list_query(), first=not self._token)

    def _list_query(self) -> dict[str, str]:
        query = dict(self._selectors)
        if self._paged:
            query["limit"] = str(self._page_now)
        if self._token:
            query["continue"] = self._token
        return query

    def _watch_query(self) -> dict[str, str]:
        # Spread out, so that the watches of one process do not all end in the same second.
        seconds = self._rng.uniform(0.8, 1.0) * self._watch_seconds
        return self._selectors | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._resource_version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }

    # -- outcomes ---------------------------------------------------------------------------------------------------

    def page_read(self, resource_version: str, continue_token: str) -> Progress:
        """Note a page of the list. After COMPLETE, and once the page was taken in, call ``listed``."""
        if not self._token and version_number(resource_version) < self.position:
            self._stale_lists += 1
            if self._stale_lists <= STALE_LISTS_MAX:
                return Progress.STALE
        self._token = continue_token
        self._list_version = resource_version
        return Progress.MORE if continue_token else Progress.COMPLETE

    def listed(self) -> None:
        """Note that the complete list was taken in: the next request is the watch."""
        self._watching = self._paged = True
        self._resource_version, self.position = self._list_version, version_number(self._list_version)
        self._stale_lists = self._missing_answers = 0
        self._doubted = False
        self._page_now = self._page_size
        self.served = True

    def stale(self) -> float:
        """Note that a STALE page was thrown away; return the wait before the next request, in seconds."""
        return self._backoff.next_seconds()

    def advanced(self, resource_version: str) -> None:
        """Note an event or a bookmark: a later watch starts from it."""
        if not self._heard:
            self._works()
        number = version_number(resource_version)
        if number > self.position:
            self._resource_version, self.position = resource_version, number

    def watch_ended(self, lived_seconds: float) -> float:
        """Note that the watch ended without an error; return the wait before the next request, in seconds."""
        if self._heard or lived_seconds >= HEALTHY_SECONDS:
            self._works()
            return 0.0
        return self._backoff.next_seconds()

    def _works(self) -> None:
        # Not as soon as a list succeeds: a server whose watches always fail would be listed over and over.
        self._heard = True
        self._gone_before = False
        self._put_off, self._put_off_max = 0, PUT_OFF_WATCHES
        self._backoff.reset()
        self._unanswered.reset()

    def failed(self, error: errors.ApiError) -> float:
        """Note that the request failed, or that the watch said so; return the wait before the next, in seconds."""
        match error:
            case errors.Gone():
                return self._gone()
            case errors.NotFound():
                return self._not_found()
            case errors.TooLarge() if self._page_now > 1:
                self._page_now //= 2
                return 0.0
            case errors.Unavailable(status=0, reason="ConnectionFailed"):
                return self._unanswered.next_seconds()
            case errors.Unavailable(status=429) if self._watching:
                return self._watch_put_off()
        if self._doubted and not (isinstance(error, errors.Unavailable) and error.status < 500):
            # That is why: it is soon known for good.
            self._doubted = False
            self._backoff.reset()
        return self._backoff.next_seconds()

    def _watch_put_off(self) -> float:
        """Note that the watch is to be asked for later; return the wait before the next request.

        An API server says so that has too much to do, and also one that cannot read a resource any more (a conversion
        webhook is dead): it has nothing to follow, and would put off every watch for ever. A list tells which it is.
        """
        self._put_off += 1
        if self._put_off < self._put_off_max:
            return self._backoff.next_seconds()
        self._put_off, self._put_off_max = 0, 2 * self._put_off_max
        self._doubted = True
        self.relist()
        return 0.0

    def _gone(self) -> float:
        if self._token:
            # Compaction overtook the pages once; a big list on a busy server may never finish in pages.
            self._paged = False
        again = self._gone_before
        self._gone_before = True
        self.relist()
        return self._backoff.next_seconds() if again else 0.0

    def _not_found(self) -> float:
        if self._watching:
            self.relist()
            return 0.0
        self.relist()
        self._missing_answers += 1
        if self.served is None or self._missing_answers > 1:
            # One 404 may come from a server that is still installing its paths; two in a row are believed.
            self.served = False
            self.position = 0
        return self._missing_retry_seconds

    def relist(self) -> None:
        """Read everything again with the next request."""
        self._watching = False
        self._token = ""
