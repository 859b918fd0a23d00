"""Objects, one global revision, and the events of a bounded past: what etcd and the watch cache are to a real server.

An object is a plain dict that is never changed once stored; its JSON text is made once, when somebody first asks for
it, and shared by every reader and watcher. Every write takes the next revision. Each kind remembers its last
``history`` events; a watch that starts before them is told 410, as after etcd's compaction.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import orjson

from webhook.laboratory.simulated.requests.refusals import Json, expired

Storage = tuple[str, str]
"""(group, plural): the store that one or more served resources share."""
Key = tuple[str, str]
"""(namespace, name); namespace is empty for cluster-scoped objects."""
EventType = Literal["ADDED", "MODIFIED", "DELETED"]

DEFAULT_HISTORY: Final = 4096
BUMP: Final = 1_000_000_000
"""By how much a restored revision is raised where that is asked for, as etcd's documentation has it."""


class Stored:
    """One version of one object, with its JSON text on demand."""

    __slots__ = ("_raw", "key", "object", "revision")

    def __init__(self, item: Json, revision: int) -> None:
        self.object = item
        self.revision = revision
        self._raw: bytes | None = None
        metadata = item["metadata"]
        self.key: Key = (metadata.get("namespace", ""), metadata["name"])
        """Namespace and name."""

    @property
    def raw(self) -> bytes:
        """The object as JSON; begins with kind and apiVersion."""
        if self._raw is None:
            self._raw = orjson.dumps(self.object)
        return self._raw

    def copy(self) -> Json:
        """Return the object as a new dict that may be changed."""
        fresh: Json = orjson.loads(self.raw)
        return fresh

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.object["metadata"].get("labels") or {}

    @property
    def uid(self) -> str:
        """Its uid."""
        uid: str = self.object["metadata"]["uid"]
        return uid


class Event:
    """One change, shared by all watchers."""

    __slots__ = ("_lines", "current", "previous", "revision", "seen", "storage", "type")

    def __init__(self, kind: EventType, storage: Storage, current: Stored, previous: Stored | None) -> None:
        self.type: EventType = kind
        self.storage = storage
        self.current = current
        self.previous = previous
        self.revision = current.revision
        self._lines: dict[str, bytes] = {}
        self.seen: list[tuple[object, EventType | None]] = []
        """What it is to who selects some of the objects, by the selection, of which many watches share one."""

    def line(self, kind: EventType) -> bytes:
        """Return the watch line that tells this change as ``kind``."""
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = b'{"type":"%b","object":%b}\n' % (kind.encode(), self.current.raw)
        return line


Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Backup:
    """Everything that is stored at one moment."""

    revision: int
    objects: Mapping[Storage, Mapping[Key, Stored]]


class _Shelf:
    """The objects and the recent events of one kind."""

    __slots__ = ("events", "floor", "listeners", "namespaces")

    def __init__(self, history: int) -> None:
        self.namespaces: dict[str, dict[str, Stored]] = {}
        self.events: deque[Event] = deque(maxlen=history)
        self.floor = 0
        self.listeners: list[Listener] = []


class Store:
    """All objects of one simulated cluster. Synchronous: one call is one atomic step."""

    def __init__(self, history: int = DEFAULT_HISTORY) -> None:
        self.revision = 1
        self._history = history
        self._floor = 0
        """Revision before which nothing is known of any kind."""
        self._shelves: dict[Storage, _Shelf] = {}
        self._listeners: list[Listener] = []
        self._dependents: dict[str, dict[tuple[Storage, Key], None]] = {}
        self.restores = 0
        """How often a backup was restored: what was asked before that is stored no more."""
        self.on_restore: dict[Callable[[], None], None] = {}
        """Called when a backup is about to be restored: connections do not outlive that."""

    # -- reading ----------------------------------------------------------------------------------------------------

    def get(self, storage: Storage, namespace: str, name: str) -> Stored | None:
        """Return the object of that name."""
        shelf = self._shelves.get(storage)
        return None if shelf is None else shelf.namespaces.get(namespace, {}).get(name)

    def storages(self) -> tuple[Storage, ...]:
        """Return the kinds of which anything was stored, in the order of their first objects."""
        return tuple(self._shelves)

    def items(self, storage: Storage, namespace: str | None = None) -> Iterator[Stored]:
        """Yield the objects of one namespace, or of all for None, in key order."""
        shelf = self._shelves.get(storage)
        if shelf is None:
            return
        for space in sorted(shelf.namespaces) if namespace is None else (namespace,):
            objects = shelf.namespaces.get(space, {})
            for name in sorted(objects):
                yield objects[name]

    def unordered(self, storage: Storage, namespace: str) -> Iterable[Stored]:
        """Return the objects of one namespace in order of creation; cheaper than ``items``."""
        shelf = self._shelves.get(storage)
        return () if shelf is None else tuple(shelf.namespaces.get(namespace, {}).values())

    def dependents(self, uid: str) -> list[Stored]:
        """Return the objects that name ``uid`` in an ownerReference, in order of creation."""
        found = (self.get(storage, *key) for storage, key in self._dependents.get(uid, ()))
        return [stored for stored in found if stored is not None]

    def owned(self, storage: Storage, uid: str) -> list[Stored]:
        """Return the objects of one kind that ``uid`` controls, in order of creation."""
        return [
            stored
            for kind, key in self._dependents.get(uid, ())
            if kind == storage
            and (stored := self.get(kind, *key)) is not None
            and any(o["uid"] == uid and o.get("controller") for o in stored.object["metadata"]["ownerReferences"])
        ]

    # -- writing ----------------------------------------------------------------------------------------------------

    def put(self, storage: Storage, item: Json) -> Stored:
        """Store ``item`` (which now belongs to the store) under the next revision, replacing what has its name."""
        shelf = self._shelf(storage)
        metadata = item["metadata"]
        space = shelf.namespaces.setdefault(metadata.get("namespace", ""), {})
        previous = space.get(metadata["name"])
        stored = self._stamp(item)
        space[metadata["name"]] = stored
        self._index(storage, previous, stored)
        self._publish(shelf, Event("MODIFIED" if previous else "ADDED", storage, stored, previous))
        return stored

    def remove(self, storage: Storage, namespace: str, name: str) -> Stored:
        """Remove an object; its last state is published under the next revision."""
        shelf = self._shelves[storage]
        previous = shelf.namespaces[namespace].pop(name)
        if not shelf.namespaces[namespace]:
            del shelf.namespaces[namespace]
        last = {**previous.object, "metadata": {**previous.object["metadata"]}}
        stored = self._stamp(last)
        self._index(storage, previous, None)
        self._publish(shelf, Event("DELETED", storage, stored, previous))
        return stored

    def _stamp(self, item: Json) -> Stored:
        self.revision += 1
        item["metadata"]["resourceVersion"] = str(self.revision)
        return Stored(item, self.revision)

    def _index(self, storage: Storage, previous: Stored | None, current: Stored | None) -> None:
        before = _owner_uids(previous)
        after = _owner_uids(current)
        if before == after:
            return
        known = previous or current
        assert known is not None
        for uid in before:
            owned = self._dependents[uid]
            owned.pop((storage, known.key), None)
            if not owned:
                del self._dependents[uid]
        for uid in after:
            self._dependents.setdefault(uid, {})[(storage, known.key)] = None

    # -- backups ----------------------------------------------------------------------------------------------------

    def backup(self) -> Backup:
        """Return what is stored."""
        objects = {
            storage: {stored.key: stored for space in shelf.namespaces.values() for stored in space.values()}
            for storage, shelf in self._shelves.items()
        }
        return Backup(self.revision, objects)

    def restore(self, backup: Backup, *, bumped: bool = False) -> None:
        """Be as at ``backup``. Listeners are told what is different; the past is forgotten, and watches end.

        The revision is that of the backup and counts on from there, so that one number comes to mean two states; or,
        ``bumped``, it is higher than any before, while objects keep theirs.
        """
        self.restores += 1
        for ends in list(self.on_restore):
            ends()
        self.revision = self._floor = self.revision + BUMP if bumped else backup.revision
        differences = []
        for storage, shelf in self._shelves.items():
            now, then = self.backup().objects[storage], backup.objects.get(storage, {})
            differences += [(shelf, Event("DELETED", storage, now[key], now[key])) for key in now if key not in then]
            for key, stored in then.items():
                if now.get(key) is not stored:
                    kind: EventType = "MODIFIED" if key in now else "ADDED"
                    differences.append((shelf, Event(kind, storage, stored, now.get(key))))
            shelf.namespaces = {}
            for (namespace, name), stored in then.items():
                shelf.namespaces.setdefault(namespace, {})[name] = stored
            shelf.events.clear()
            shelf.floor = self.revision
        self._dependents = {}
        for storage, objects in backup.objects.items():
            for stored in objects.values():
                self._index(storage, None, stored)
        for shelf, event in differences:
            for listener in (*shelf.listeners, *self._listeners):
                listener(event)

    # -- watching ---------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener, storage: Storage | None = None) -> Callable[[], None]:
        """Call ``listener`` after every change (of one kind, or of all), inside the write; returns how to stop it."""
        listeners = self._listeners if storage is None else self._shelf(storage).listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def since(self, storage: Storage, revision: int) -> list[Event]:
        """Return the events of one kind after ``revision``. Raises Refused (410) when they are no longer known."""
        shelf = self._shelf(storage)
        if revision < shelf.floor:
            raise expired(f"too old resource version: {revision} ({shelf.floor + 1})")
        return [event for event in shelf.events if event.revision > revision]

    def compact(self) -> None:
        """Forget all past events: every watch that starts before now is told 410."""
        for shelf in self._shelves.values():
            shelf.events.clear()
            shelf.floor = self.revision

    def _shelf(self, storage: Storage) -> _Shelf:
        shelf = self._shelves.get(storage)
        if shelf is None:
            shelf = self._shelves[storage] = _Shelf(self._history)
            shelf.floor = self._floor
        return shelf

    def _publish(self, shelf: _Shelf, event: Event) -> None:
        if len(shelf.events) == self._history:
            shelf.floor = shelf.events[0].revision
        shelf.events.append(event)
        for listener in (*shelf.listeners, *self._listeners):
            listener(event)


def _owner_uids(stored: Stored | None) -> tuple[str, ...]:
    """Return the uids of an object's owners, without repetition: it may list one several times."""
    if stored is None:
        return ()
    references = stored.object["metadata"].get("ownerReferences") or ()
    return tuple(dict.fromkeys(reference["uid"] for reference in references))
