"""What wakes the jobs of a hub: watches of its own jobs, and in each member of copies and of the ledger.

A watch wakes and decides nothing: each step reads for itself, consistently, but for an offer, which is stored only on a
job that is still as a watch has shown it. So a watch that lags, lies or hangs costs the gangs of its member some
seconds, and no rule of the protocol depends on it. Of what a member shows only names are kept and a few numbers, and
no more of them than an honest one has.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from random import Random
from typing import Final

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
_NO_ENTRIES: Final = frozenset({ledger_text.META, ledger_text.CLAIMS, ledger_text.BOOKINGS, ledger_text.PAGES})
"""What a ledger holds besides its entries: that a gang's own booking has gone is no room for it."""
PAGE_KEYS_MAX: Final = 512
"""Of one page of a ledger: twice as many as it has of the smallest entries."""
KEY_CHARACTERS_MAX: Final = 64
_PATH: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps"


def own_jobs(
    api: Api, kind: JobKind, on_change: Callable[[str, Seen | None, Seen | None, bool], None], *, rng: Random
) -> Informer[Seen]:
    """Return a watch of the hub's jobs of a kind, those that it places.

    ``on_change`` is also told whether a list has shown it: then it may have been there for long.
    """

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


def propagations(
    api: Api, on_change: Callable[[Propagation | None], None], *, rng: Random
) -> list[Informer[Propagation]]:
    """Return watches of the hub's propagation policies, of whichever of their kinds it has."""

    def decode(raw: bytes) -> Propagation:
        if len(raw) > propagation.BYTES_MAX:
            raise ValueError(f"has {len(raw)} bytes; a policy of more than {propagation.BYTES_MAX} is not read")
        return propagation.read(orjson.loads(raw))

    return [
        Informer(
            api,
            f"/apis/{version}/{plural}",
            decode,
            rng=rng,
            name=f"hub {plural} of {version}",
            on_change=lambda old, new: on_change(new),
            missing_retry_seconds=UNSERVED_SECONDS,
        )
        for version in propagation.VERSIONS
        for plural in propagation.PLURALS
    ]


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
    def read(self) -> bool:
        """Whether all was read, or is not there, or not to be read by this hub: then no queue names its check."""
        return all(informer.synced.is_set() or informer.refusal for informer in self.informers.values())

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
