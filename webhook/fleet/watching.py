"""What wakes the jobs of a hub: watches of its own jobs, and in each member of copies and of the ledger.

A watch wakes and decides nothing: each step reads for itself, consistently, but for an offer, which is stored only on a
job that is still as a watch has shown it. So a watch that lags, lies or hangs costs the gangs of its member some
seconds, and no rule of the protocol depends on it. Of what a member shows only names are kept and a few numbers, and
no more of them than an honest one has.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from math import inf
from random import Random
from typing import Any, Final

import orjson

from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import PAGES_MAX
from webhook.core.notation import names
from webhook.fleet.members.copies import placed_by_hub
from webhook.fleet.members.member import COPIES_MAX
from webhook.fleet.members.seen import Seen, marks_of, own_job, seen
from webhook.fleet.policies import multikueue, propagation
from webhook.fleet.policies.multikueue import Named, SetUp
from webhook.fleet.policies.propagation import Propagation
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import collection_path
from webhook.kube.api import Api
from webhook.kube.informer import Informer
from webhook.untyped import paths

UNSERVED_SECONDS: Final = 15.0
"""Until a kind that a cluster does not serve is asked for again."""
UNREAD_SECONDS: Final = 30.0
"""What was not read by then of the hub's own cluster is not waited for any longer, as far as that does no harm."""
LOOK_SECONDS: Final = 0.5
"""How often it is asked whether what is not read yet is refused."""
NO_ANSWER: Final = "no answer yet"
LEFT_OUT_SECONDS: Final = 60.0
"""Until policies for which there was no room are asked for again, at least: somebody may write and delete them."""
_NO_ENTRIES: Final = frozenset({ledger_text.META, ledger_text.CLAIMS, ledger_text.BOOKINGS, ledger_text.PAGES})
"""What a ledger holds besides its entries: that a gang's own booking has gone is no room for it."""
PAGE_KEYS_MAX: Final = 512
"""Of one page of a ledger: twice as many as it has of the smallest entries."""
KEY_CHARACTERS_MAX: Final = 64
_PATH: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps"


class OwnJobsFeed:
    """Watches of the hub's own jobs, of those that it places, by kind."""

    def __init__(
        self,
        api: Api,
        kinds: Iterable[JobKind],
        on_change: Callable[[str, Seen | None, Seen | None, bool], None],
        *,
        rng: Random,
    ) -> None:
        """``on_change`` is also told whether a list has shown it: then it may have been there for long."""
        self.informers = {kind.feed: self._watch(api, kind, on_change, rng) for kind in kinds}
        self._set_backs = 0
        self._lists: dict[str, asyncio.Task[object]] = {}
        """By kind: ends when it was listed, since the hub was set back last."""
        self._unlisted: set[str] = set()
        """Kinds for which that has taken long."""

    async def unlisted(self, set_backs: int) -> set[str]:
        """Wait until it is known what jobs the hub has since it was set back last; return the kinds that cannot be
        listed, for which nobody waits long.
        """
        if not self._lists or self._set_backs != set_backs:
            self.close()
            self._set_backs, self._unlisted = set_backs, set()
            self._lists = {
                feed: asyncio.create_task(each.reread() if set_backs else each.synced.wait(), name=each.name)
                for feed, each in self.informers.items()
            }
        now = asyncio.get_running_loop().time
        deadline = now() + UNREAD_SECONDS
        while (waited := self._waited()) and now() < deadline:
            await asyncio.wait(waited, timeout=LOOK_SECONDS)
        self._unlisted = {feed for feed, task in self._lists.items() if not task.done()}
        return set(self._unlisted)

    def _waited(self) -> list[asyncio.Task[object]]:
        """Return the lists that may be there in a moment."""
        under_way = {feed: task for feed, task in self._lists.items() if not task.done()}
        return [
            task for feed, task in under_way.items() if not (feed in self._unlisted or self.informers[feed].refusal)
        ]

    @property
    def problems(self) -> list[str]:
        """Kinds that cannot be listed, and why, in words that follow "the hub"."""
        late = (self.informers[feed] for feed in sorted(self._unlisted) if not self._lists[feed].done())
        return [f"cannot list {each.name.removeprefix('hub ')}: {each.trouble or NO_ANSWER}" for each in late]

    def close(self) -> None:
        """Wait for nothing any more."""
        for task in self._lists.values():
            task.cancel()

    @staticmethod
    def _watch(
        api: Api, kind: JobKind, on_change: Callable[[str, Seen | None, Seen | None, bool], None], rng: Random
    ) -> Informer[Seen]:
        def decode(raw: bytes) -> Seen | None:
            job = orjson.loads(raw)
            return own_job(kind, raw, job) if placed_by_hub(kind, job) else None

        informer = Informer(
            api,
            collection_path(kind),
            decode,
            rng=rng,
            name=f"hub {kind.plural}",
            missing_retry_seconds=UNSERVED_SECONDS,
        )
        informer.subscribe(lambda old, new: on_change(kind.feed, old, new, informer.listing))
        return informer


class PropagationFeed:
    """Watches of the hub's propagation policies, of whichever of their kinds it has.

    Who writes thousands of them in a namespace has no more of them kept than is allowed for one: the first, by name
    where they were there before the hub. The others are read once one of those has gone.
    """

    def __init__(self, api: Api, on_change: Callable[[Propagation | None], None], *, rng: Random) -> None:
        self._on_change = on_change
        self._kept, self._bytes = Counter[str](), Counter[str]()
        """By namespace how many are kept, and how large they are together."""
        self._left_out: set[str] = set()
        """Namespaces of which some are not kept."""
        self._has_room = False
        """One has gone in such a namespace."""
        self._rests_until = -inf
        self.informers = [
            self._watch(api, version, plural, rng) for version in propagation.VERSIONS for plural in propagation.PLURALS
        ]

    def policies(self) -> dict[str, list[Propagation]]:
        """Return them by namespace as they are now."""
        return propagation.by_namespace(each for informer in self.informers for each in informer.records.values())

    def read_left_out(self, now: float) -> None:
        """Read again those for which there was no room, if there is some at this loop time; once a minute at most."""
        if self._has_room and now >= self._rests_until:
            self._has_room, self._rests_until = False, now + LEFT_OUT_SECONDS
            self._left_out.clear()
            for informer in self.informers:
                if informer.served:
                    informer.relist()

    def _watch(self, api: Api, version: str, plural: str, rng: Random) -> Informer[Propagation]:
        def decode(raw: bytes) -> Propagation:
            if len(raw) > propagation.BYTES_MAX:
                raise ValueError(f"has {len(raw)} bytes; a policy of more than {propagation.BYTES_MAX} is not read")
            found = propagation.read(orjson.loads(raw))
            self._check_room(found, informer.get(found.namespace, found.name))
            return found

        informer = Informer(
            api,
            f"/apis/{version}/{plural}",
            decode,
            rng=rng,
            name=f"hub {plural} of {version}",
            on_change=self._changed,
            missing_retry_seconds=UNSERVED_SECONDS,
        )
        return informer

    def _check_room(self, found: Propagation, before: Propagation | None) -> None:
        """Raise ValueError where a policy is too large, or its namespace has too many."""
        size, most = found.size_bytes, propagation.SIZE_BYTES_MAX
        if size > most:
            raise ValueError(
                f"its texts take {size} bytes of memory, {most} is the most: name fewer clusters and labels"
            )
        kept, total = self._kept[found.namespace] + 1, self._bytes[found.namespace] + size
        if before is not None:
            kept, total = kept - 1, total - before.size_bytes
        if kept > propagation.POLICIES_MAX or total > propagation.NAMESPACE_BYTES_MAX:
            self._left_out.add(found.namespace)
            where = f"namespace {found.namespace}" if found.namespace else "the cluster"
            bounds = f"{propagation.POLICIES_MAX} of {propagation.NAMESPACE_BYTES_MAX} bytes of memory together"
            raise ValueError(f"{where} has too many others: {bounds} is the most")

    def _changed(self, old: Propagation | None, new: Propagation | None) -> None:
        for each, sign in ((old, -1), (new, 1)):
            if each is not None:
                self._kept[each.namespace] += sign
                self._bytes[each.namespace] += sign * each.size_bytes
        if old is not None and old.namespace in self._left_out:
            self._has_room |= new is None or new.size_bytes < old.size_bytes
        self._on_change(new)


def why_unread(informers: Iterable[Informer[Any]], waited_seconds: float) -> str | None:
    """Return what cannot be read, and why, in words that follow "the hub"; None where it may be read in a moment.

    Once something was read it counts as read: what is known of it stands, whatever becomes of its watch.
    """
    unread = [informer for informer in informers if not informer.synced.is_set()]
    late = [each for each in unread if each.refusal] or (unread if waited_seconds >= UNREAD_SECONDS else [])
    if late:
        return f"cannot read {late[0].name.removeprefix('hub ')}: {late[0].trouble or NO_ANSWER}"
    return None if unread else ""


class SetUpFeed:
    """Watches of the objects of MultiKueue's set-up in the hub, in whichever of their versions it has."""

    def __init__(self, api: Api, on_change: Callable[[], None], *, rng: Random) -> None:
        self.informers: dict[tuple[str, str], Informer[Named]] = {
            (plural, version): Informer(
                api,
                f"/apis/{multikueue.GROUP}/{version}/{plural}",
                lambda raw, read=read: read(orjson.loads(raw)),  # type: ignore[misc]
                rng=rng,
                name=f"hub {plural} of {version}",
                on_change=lambda old, new: on_change(),
                missing_retry_seconds=UNSERVED_SECONDS,
            )
            for plural, read in multikueue.READERS.items()
            for version in multikueue.VERSIONS
        }

    @property
    def clusters_read(self) -> bool:
        """Whether it was read which clusters there are, in each version, or that is not served."""
        return all(self.informers["multikueueclusters", each].synced.is_set() for each in multikueue.VERSIONS)

    def version_of(self, plural: str) -> str:
        """Return the version in which objects are read and written: the preferred one of those that are served."""
        served = [each for each in multikueue.VERSIONS if self.informers[plural, each].served]
        return (served or multikueue.VERSIONS)[0]

    def set_up(self) -> SetUp:
        """Return the set-up as it is now."""
        queues, local, checks, configs, clusters = (
            self.informers[plural, self.version_of(plural)].records.values() for plural in multikueue.READERS
        )
        by_namespace: dict[str, dict[str, Named]] = {}
        for each in local:
            by_namespace.setdefault(each.namespace, {})[each.name] = each
        return SetUp(
            {each.name: each for each in queues},
            by_namespace,
            {each.name: each for each in checks},
            {each.name: each for each in configs},
            {each.name: each for each in clusters},
        )


def copies(
    api: Api,
    kinds: Iterable[JobKind],
    hub: str,
    on_change: Callable[[str, Seen | None, Seen | None], None],
    *,
    name: str,
    rng: Random,
    most: int = COPIES_MAX,
) -> list[Informer[Seen]]:
    """Return watches of a member's copies from this hub, by kind. Of all together ``most`` are followed, the first."""
    informers: list[Informer[Seen]] = []

    def watch(kind: JobKind) -> Informer[Seen]:
        def decode(raw: bytes) -> Seen | None:
            found = seen(raw, marks=marks_of(kind, orjson.loads(raw)))
            known = (found.namespace, found.name) in informer.records
            return found if known or sum(len(each.records) for each in informers) < most else None

        informer = Informer(
            api,
            collection_path(kind),
            decode,
            rng=rng,
            name=f"{name} {kind.plural}",
            label_selector=f"{names.ORIGIN_LABEL}={hub}",
            on_change=lambda old, new: on_change(kind.feed, old, new),
            missing_retry_seconds=UNSERVED_SECONDS,
        )
        return informer

    informers += map(watch, kinds)
    return informers


def ledger(
    api: Api, on_change: Callable[[frozenset[str], frozenset[str]], None], *, name: str, rng: Random
) -> tuple[Informer[Seen], Informer[Seen]]:
    """Return watches of a member's ledger, its index and its pages, that tell whose entries came and whose went."""

    def changed(old: Seen | None, new: Seen | None) -> None:
        before, after = (frozenset() if each is None else each.keys for each in (old, new))
        # The index is written every two seconds for its lease alone.
        if before != after:
            on_change(after - before, before - after)

    def watch(what: str, most: int, *, fields: str = "", labels: str = "") -> Informer[Seen]:
        def decode(raw: bytes) -> Seen | None:
            found = seen(raw, keys=_entries(raw))
            known = (found.namespace, found.name) in informer.records
            return found if known or len(informer.records) < most else None

        informer = Informer(
            api,
            _PATH,
            decode,
            rng=rng,
            name=f"{name} {what}",
            field_selector=fields,
            label_selector=labels,
            on_change=changed,
        )
        return informer

    index = watch("ledger", 1, fields=f"metadata.name={names.LEDGER_NAME}")
    return index, watch("pages", PAGES_MAX, labels=names.LEDGER_PAGE)


def _entries(raw: bytes) -> frozenset[str]:
    keys = paths.find_mapping(orjson.loads(raw), ("data",)).keys() - _NO_ENTRIES
    return frozenset(islice((key for key in sorted(keys) if len(key) <= KEY_CHARACTERS_MAX), PAGE_KEYS_MAX))
