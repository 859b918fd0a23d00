"""What wakes the jobs of a hub: watches of its own jobs, and in each member of copies and of the ledger.

A watch wakes and decides nothing: each step reads for itself, consistently. So a watch that lags, lies or hangs costs
the gangs of its member some seconds, and no rule of the protocol depends on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import orjson

from webhook.core.ledger import text as ledger_text
from webhook.core.notation import names
from webhook.fleet.jobs.copies import placed_by_hub
from webhook.fleet.rules import multikueue, propagation
from webhook.fleet.rules.multikueue import Named, SetUp
from webhook.fleet.rules.propagation import Propagation
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import collection_path
from webhook.kube.api import Api
from webhook.kube.informer import Informer
from webhook.untyped import paths
from webhook.untyped.values import text
from webhook.wire.watch import version_number

UNSERVED_SECONDS: Final = 15.0
"""Until a kind that a cluster does not serve is asked for again."""
_NO_ENTRIES: Final = frozenset({ledger_text.META, ledger_text.CLAIMS, ledger_text.BOOKINGS, ledger_text.PAGES})
"""What a ledger holds besides its entries: that a gang's own booking has gone is no room for it."""
_PATH: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps"


@dataclass(frozen=True, slots=True)
class Seen:
    """Which state of which object a watch has shown."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    keys: frozenset[str] = frozenset()
    """Of a ConfigMap's data."""


def own_jobs(
    api: Api, kind: JobKind, on_change: Callable[[str, Seen | None, Seen | None], None], *, rng: Random
) -> Informer[Seen]:
    """Return a watch of the hub's jobs of a kind, those that it places."""

    def decode(raw: bytes) -> Seen | None:
        job = orjson.loads(raw)
        return _seen(job) if placed_by_hub(kind, job) else None

    return Informer(
        api,
        collection_path(kind),
        decode,
        rng=rng,
        name=f"hub {kind.plural}",
        on_change=lambda old, new: on_change(kind.key, old, new),
        missing_retry_seconds=UNSERVED_SECONDS,
    )


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
        return SetUp(
            {each.name: each for each in queues},
            {(each.namespace, each.name): each for each in local},
            {each.name: each for each in checks},
            {each.name: each for each in configs},
            {each.name: each for each in clusters},
        )


def copies(
    api: Api,
    kind: JobKind,
    hub: str,
    on_change: Callable[[str, Seen | None, Seen | None], None],
    *,
    name: str,
    rng: Random,
) -> Informer[Seen]:
    """Return a watch of a member's copies of a kind from this hub; their status comes with it."""
    return Informer(
        api,
        collection_path(kind),
        lambda raw: _seen(orjson.loads(raw)),
        rng=rng,
        name=f"{name} {kind.plural}",
        label_selector=f"{names.ORIGIN_LABEL}={hub}",
        on_change=lambda old, new: on_change(kind.key, old, new),
        missing_retry_seconds=UNSERVED_SECONDS,
    )


def ledger(
    api: Api, on_change: Callable[[frozenset[str], frozenset[str]], None], *, name: str, rng: Random
) -> tuple[Informer[Seen], Informer[Seen]]:
    """Return watches of a member's ledger, its index and its pages, that tell whose entries came and whose went."""

    def changed(old: Seen | None, new: Seen | None) -> None:
        before, after = (frozenset() if seen is None else seen.keys for seen in (old, new))
        # The index is written every two seconds for its lease alone.
        if before != after:
            on_change(after - before, before - after)

    index, pages = f"metadata.name={names.LEDGER_NAME}", names.LEDGER_PAGE
    return (
        Informer(api, _PATH, _entries, rng=rng, name=f"{name} ledger", field_selector=index, on_change=changed),
        Informer(api, _PATH, _entries, rng=rng, name=f"{name} pages", label_selector=pages, on_change=changed),
    )


def _entries(raw: bytes) -> Seen:
    found = orjson.loads(raw)
    return _seen(found, frozenset(paths.find_mapping(found, ("data",))) - _NO_ENTRIES)


def _seen(obj: Mapping[str, Any], keys: frozenset[str] = frozenset()) -> Seen:
    namespace, name, uid, version = (
        text(paths.find(obj, ("metadata", key))) for key in ("namespace", "name", "uid", "resourceVersion")
    )
    return Seen(namespace, name, uid, version_number(version), keys)
