"""What one informer remembers: one record per name, never replaced by an older state of the same object.

Every operation returns the changes it made, as (old, new) pairs: (None, new) added, (old, new) changed, (old, None)
gone. An object that was deleted and created again under its name is two changes. resourceVersions are compared as
integers, which Kubernetes guarantees since 1.35 and has always kept.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

TOMBSTONES_MAX: Final = 1024
"""Deletions remembered, so that a late copy of an older event does not bring an object back."""


class Record(Protocol):
    """The few attributes a store needs."""

    @property
    def uid(self) -> str:
        """The object's uid: another uid is another object, whatever its name."""
        ...

    @property
    def resource_version(self) -> int:
        """The state of the object this is."""
        ...

    @property
    def namespace(self) -> str:
        """Namespace; empty for cluster-scoped objects."""
        ...

    @property
    def name(self) -> str:
        """Name within the namespace."""
        ...


R = TypeVar("R", bound=Record)
Key = tuple[str, str]
"""(namespace, name)."""
Change = tuple[R | None, R | None]
"""(old, new); new is None when the object is gone."""


class Store(Generic[R]):
    """Records by (namespace, name), fed by lists and by watch events, never both at once."""

    def __init__(self) -> None:
        self._records: dict[Key, R] = {}
        self._tombstones: dict[str, int] = {}
        self._listed: set[Key] = set()

    @property
    def records(self) -> Mapping[Key, R]:
        """All records, live: it changes with the store."""
        return self._records

    # -- events -----------------------------------------------------------------------------------------------------

    def put(self, new: R) -> Sequence[Change[R]]:
        """Take in an added or modified object, unless it is older than what is known."""
        key = (new.namespace, new.name)
        old = self._records.get(key)
        if new.resource_version <= self._tombstones.get(new.uid, -1):
            return ()
        if old is not None and (
            new.resource_version < old.resource_version
            or (new.uid == old.uid and new.resource_version == old.resource_version)
        ):
            return ()
        self._records[key] = new
        return _replaced(old, new)

    def drop(self, key: Key, uid: str, resource_version: int) -> Sequence[Change[R]]:
        """Take in that the object ``uid`` called ``key`` is gone since ``resource_version``."""
        self._tombstones[uid] = resource_version
        if len(self._tombstones) > TOMBSTONES_MAX:
            del self._tombstones[next(iter(self._tombstones))]
        old = self._records.get(key)
        if old is None or old.uid != uid or old.resource_version > resource_version:
            return ()
        del self._records[key]
        return ((old, None),)

    def keep(self, key: Key, uid: str) -> Sequence[Change[R]]:
        """Keep what is known of an object whose new state cannot be read; a predecessor of its name is gone."""
        old = self._records.get(key)
        if old is None or old.uid == uid:
            return ()
        del self._records[key]
        return ((old, None),)

    # -- lists ------------------------------------------------------------------------------------------------------

    def begin_list(self) -> None:
        """Start taking in a list. A list is the truth at its version: it wins over whatever is known."""
        self._listed.clear()
        self._tombstones.clear()

    def put_listed(self, new: R) -> Sequence[Change[R]]:
        """Take in one object of the list."""
        key = (new.namespace, new.name)
        self._listed.add(key)
        old = self._records.get(key)
        if old is new or old == new:
            return ()
        self._records[key] = new
        return _replaced(old, new)

    def keep_listed(self, key: Key, uid: str) -> Sequence[Change[R]]:
        """Keep what is known of an object that the list names but that cannot be read now."""
        self._listed.add(key)
        return self.keep(key, uid)

    def end_list(self) -> Sequence[Change[R]]:
        """Drop what the complete list did not name: absence there is the one proof of deletion."""
        gone = self._records.keys() - self._listed
        self._listed.clear()
        # Sorted, so that a run can be repeated exactly.
        return tuple((self._records.pop(key), None) for key in sorted(gone))


def _replaced(old: R | None, new: R) -> Sequence[Change[R]]:
    if old is not None and old.uid != new.uid:
        return ((old, None), (None, new))
    return ((old, new),)
