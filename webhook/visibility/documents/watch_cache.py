"""Documents with versions: what the read API lists, and what a watch sends since a version.

A version is Unix milliseconds with the replica's number below, and always grows: versions of two replicas can be
compared, and a replica knows which ones it gave out itself. A watch that comes from another replica is told the last
seconds again, because that replica may have noticed the same change a little later. What was deleted, and what was
selected otherwise before it changed, is remembered up to a bound. A watch from before that is refused and lists again,
as Kubernetes does with 410.

A document is kept as JSON text without its version, which is written in when it is read, and packed: twenty thousand
would be most of the process if they were parsed, and a tenth of it as mere text.
"""

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import orjson

from webhook.untyped import paths
from webhook.visibility.http.group import API_VERSION, FIELDS, RESOURCES

REPLICA_BITS: Final = 10
PAST_MAX: Final = 20_000
PAST_BYTES_MAX: Final = 16 * 2**20
"""Documents that are remembered as they were, and their packed bytes: these have some 350."""
PAST_TEXT_MAX: Final = 4096
"""Bytes of the text that is remembered of one document. A longer one, which may have a megabyte, would take the place
of thousands, of other namespaces too. Of it only what it is selected by is kept, and its labels only if they fit."""
VALUE_MAX: Final = 1024
"""Characters of a field by which what is so long is selected: no name is longer."""
WORDS_BYTES_MAX: Final = 4096
OVERLAP_MILLIS: Final = 5_000
"""What a watch is told again when its version is another replica's."""


class Key(NamedTuple):
    """One document's place."""

    resource: str
    """Plural."""
    namespace: str
    name: str


class Expired(Exception):
    """The version is too old to tell what changed since."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document as it stands, or stood when it went away. It is never changed: lists under way hold it."""

    key: Key
    packed: bytes
    """JSON of the members of metadata and all that follows, without the opening, packed by the words of its shelf."""
    words: bytes
    size: int
    """Bytes of its text: what reading it costs."""
    version: int
    since_version: int
    """Since when selectors see it as they do now; 0 where that is not known here."""
    traits: int
    """Hash of all that selectors can ask of it."""
    deleted: bool = False
    labels_known: bool = True
    """False where they were too long to remember: any selector may have met them."""
    brief: "Document | None" = None
    """What is remembered of it, where that is not all."""

    def render(self) -> bytes:
        """Return the whole document as JSON."""
        text = _unpacked(self.packed, self.words)
        return b'%b{"resourceVersion":"%d",%b' % (_HEADS[self.key.resource], self.version, text)

    def parse(self) -> dict[str, Any]:
        """Return the whole document."""
        parsed: dict[str, Any] = orjson.loads(self.render())
        return parsed


_HEADS: Final = {
    plural: f'{{"apiVersion":"{API_VERSION}","kind":"{resource.kind}","metadata":'.encode()
    for plural, resource in RESOURCES.items()
}


def _text(document: Mapping[str, Any]) -> bytes:
    # The opening brace of metadata goes: the version is written in its place.
    text = orjson.dumps({name: part for name, part in document.items() if name not in ("apiVersion", "kind")})
    return text[len(b'{"metadata":{') :]


def _packed(text: bytes, words: bytes) -> bytes:
    packer = zlib.compressobj(zlib.Z_BEST_SPEED, zdict=words)
    return packer.compress(text) + packer.flush()


def _unpacked(packed: bytes, words: bytes) -> bytes:
    return zlib.decompressobj(zdict=words).decompress(packed)


_LABELS: Final = ("metadata", "labels")
_SELECTED_BY: Final = (_LABELS, *(paths.parse(path) for path in FIELDS))


def _traits(document: Mapping[str, Any]) -> int:
    return hash(orjson.dumps([paths.find(document, path) for path in _SELECTED_BY]))


_KEPT: Final = (
    ("metadata", "uid"),
    ("metadata", "creationTimestamp"),
    ("status", "pods"),
    *(path for path in _SELECTED_BY if path != _LABELS),
)
"""Of a long document. The numbers of pods are for tables, which show them of each workload."""


def _remembered(document: Mapping[str, Any], text: bytes) -> tuple[bytes, bool]:
    """Return what to remember of a document that has ``text``, and whether its labels are in it."""
    if len(text) <= PAST_TEXT_MAX:
        return text, True
    brief: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {"conditions": []}}
    for path in (_LABELS, *_KEPT):
        _copy(document, path, brief)
    text = _text(brief)
    if len(text) <= PAST_TEXT_MAX:
        return text, True
    brief = {"metadata": {}, "spec": {}, "status": {"conditions": []}}
    for path in _KEPT:
        if len(str(paths.find(document, path))) <= VALUE_MAX:
            _copy(document, path, brief)
    return _text(brief), False


def _copy(document: Mapping[str, Any], path: paths.Path, to: dict[str, Any]) -> None:
    value = paths.find(document, path)
    if value is not None:
        for key in path[:-1]:
            to = to.setdefault(key, {})
        to[path[-1]] = value


class _Past(NamedTuple):
    """A document as selectors saw it once."""

    document: Document
    until_version: int
    """Of the change, or of the deletion, after which they did not any more."""


@dataclass(slots=True)
class _Shelf:
    """The documents of one resource."""

    words: bytes = b""
    """The first of them, as far as it is read at each packing: most of what another one says stands there too, so that
    it takes a quarter of its length.
    """
    standing: dict[str, dict[str, Document]] = field(default_factory=dict)
    """By namespace and name."""
    log: dict[Key, Document] = field(default_factory=dict)
    """Latest change of every document, tombstones included, oldest first."""


class WatchCache:
    """All documents of the read API."""

    def __init__(self, now: Callable[[], float], replica: int = 0) -> None:
        """``now`` returns Unix seconds; ``replica`` tells versions of several replicas apart (its low bits count)."""
        self._now = now
        self._replica = replica & ((1 << REPLICA_BITS) - 1)
        self._shelves = {plural: _Shelf() for plural in RESOURCES}
        self._past: deque[_Past] = deque()
        """What was deleted, or is selected otherwise since; oldest first."""
        self._past_bytes = 0
        self._moved = asyncio.Event()
        self.ended = False
        """Nothing follows any more: watches end."""
        self.version = 0
        self.version = self._next_version()
        self._floor = self.version
        self._others_floor = self.version
        """No watch goes on here from an earlier version of another replica."""
        self._changed = self.version
        """The version of the last change."""

    # -- writing ----------------------------------------------------------------------------------------------------

    def put(self, key: Key, document: Mapping[str, Any]) -> bool:
        """Write a document (metadata without resourceVersion, then the rest); return whether it changed."""
        shelf = self._shelves[key.resource]
        text = _text(document)
        shelf.words = shelf.words or text[:WORDS_BYTES_MAX]
        packed = _packed(text, shelf.words)
        known = shelf.standing.get(key.namespace, {}).get(key.name)
        if known is not None and known.packed == packed:
            return False
        version, traits = self._next_version(), _traits(document)
        is_same = known is not None and known.traits == traits
        since = known.since_version if known is not None and is_same else version
        written = Document(key, packed, shelf.words, len(text), version, since, traits)
        if len(text) > PAST_TEXT_MAX:
            # Now, and not when it goes: a look drops all that is gone in one turn of the loop.
            brief, labels_known = _remembered(document, text)
            packed = _packed(brief, shelf.words)
            was = replace(written, packed=packed, size=len(brief), labels_known=labels_known)
            written = replace(written, brief=was)
        if known is not None and not is_same:
            self._remember(known.brief or known, version)
        shelf.standing.setdefault(key.namespace, {})[key.name] = written
        self._note(shelf, key, written)
        return True

    def drop(self, key: Key) -> None:
        """Take a document away; an unknown one is fine."""
        shelf = self._shelves[key.resource]
        known = shelf.standing.get(key.namespace, {}).pop(key.name, None)
        if known is None:
            return
        if not shelf.standing[key.namespace]:
            del shelf.standing[key.namespace]
        version, was = self._next_version(), known.brief or known
        self._note(shelf, key, replace(was, version=version, deleted=True))
        self._remember(was, version)

    def drop_unwritten(self, key: Key, document: Mapping[str, Any], *, labels_known: bool = True) -> None:
        """Tell that a document went away which does not stand here: another replica may have shown it."""
        was = self.remember(key, document, labels_known=labels_known)
        self._note(self._shelves[key.resource], key, replace(was, deleted=True))

    def remember(self, key: Key, document: Mapping[str, Any], *, labels_known: bool = True) -> Document:
        """Keep, and return, a document as it was until now and was not written then: another replica may have shown it
        so.
        """
        shelf, version = self._shelves[key.resource], self._next_version()
        text, has_labels = _remembered(document, _text(document))
        # Its words are not the shelf's: it may lack most of what other documents say.
        packed, traits = _packed(text, shelf.words), _traits(document)
        was = Document(
            key, packed, shelf.words, len(text), version, 0, traits, labels_known=labels_known and has_labels
        )
        self._remember(was, version)
        standing = self.get(key)
        if standing is not None:
            # It may be written next as it stands, which is no change; only of changes a watch is told.
            again = replace(standing, version=version)
            shelf.standing[key.namespace][key.name] = again
            self._note(shelf, key, again)
        return was

    def refuse_others(self) -> None:
        """Refuse other replicas' versions from before now: what they may have shown until then was not noted here."""
        self._others_floor = self._next_version()

    def end(self) -> None:
        """End every watch: this replica stops, and clients go on with another."""
        self.ended = True
        self._moved.set()

    def _note(self, shelf: _Shelf, key: Key, document: Document) -> None:
        shelf.log.pop(key, None)
        shelf.log[key] = document
        self._changed = document.version
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _remember(self, document: Document, until_version: int) -> None:
        self._past.append(_Past(document, until_version))
        self._past_bytes += len(document.packed)
        while len(self._past) > PAST_MAX or self._past_bytes > PAST_BYTES_MAX:
            self._forget(self._past.popleft())

    def _forget(self, past: _Past) -> None:
        self._floor = past.until_version
        self._past_bytes -= len(past.document.packed)
        key = past.document.key
        log = self._shelves[key.resource].log
        last = log.get(key)
        if last is not None and last.deleted and last.version == past.until_version:
            del log[key]

    def _next_version(self) -> int:
        at = int(self._now() * 1000) << REPLICA_BITS | self._replica
        self.version = max(at, self.version + (1 << REPLICA_BITS))
        return self.version

    # -- reading ----------------------------------------------------------------------------------------------------

    def get(self, key: Key) -> Document | None:
        """Return a document that stands."""
        return self._shelves[key.resource].standing.get(key.namespace, {}).get(key.name)

    def documents(self, resource: str, namespace: str | None) -> list[tuple[Key, Document]]:
        """Return the documents of one namespace, or of all, by namespace and name."""
        standing = self._shelves[resource].standing
        spaces = sorted(standing) if namespace is None else [namespace]
        return [
            (named[name].key, named[name])
            for space in spaces
            for named in (standing.get(space, {}),)
            for name in sorted(named)
        ]

    def advance(self) -> int:
        """Return a version of this moment: what stands was true then, though it may not have changed for long."""
        return self._next_version()

    def position(self, version: int) -> int:
        """Return from which version on a watch since ``version``, which any replica may have given, is told changes.

        Raises Expired.
        """
        overlap = 0 if self._is_own(version) else OVERLAP_MILLIS << REPLICA_BITS
        oldest = self._floor if self._is_own(version) else max(self._floor, self._others_floor) + overlap
        if version < oldest:
            raise Expired(f"version {version} is too old; the oldest that can be watched from is {oldest}")
        if self._is_own(version):
            if version > self.version:
                # Nothing would be told until then. Kubernetes answers 504, which may also mean that a server is slow;
                # 410 means nothing but to list again.
                raise Expired(f"version {version} is in the future; the last that was given is {self.version}")
            return version
        return max(self._floor, min(version, self.version) - overlap)

    def held(self, resource: str, namespace: str | None, version: int) -> list[tuple[Key, Document]]:
        """Return what a client may hold that has read up to ``version``, each as selectors saw it then.

        Of another replica's version these may be several states of one document, and some that the client has not
        read: those are since a later version than the ``position``. That replica may have shown them long before they
        were written here. Raises Expired.
        """
        after = self.position(version)
        found = self.documents(resource, namespace)
        for document, until_version in reversed(self._past):
            if until_version <= after:
                break
            if document.key.resource == resource and namespace in (None, document.key.namespace):
                found.append((document.key, document))
        return [each for each in found if each[1].since_version <= version] if self._is_own(version) else found

    def _is_own(self, version: int) -> bool:
        return version & ((1 << REPLICA_BITS) - 1) == self._replica

    def changes(self, resource: str, after: int) -> list[tuple[Key, Document]]:
        """Return what changed after a ``position``, oldest first. Raises Expired when that was forgotten meanwhile."""
        if after < self._floor:
            raise Expired(f"version {after} is too old; the oldest that can be watched from is {self._floor}")
        found = []
        for key, document in reversed(self._shelves[resource].log.items()):
            if document.version <= after:
                break
            found.append((key, document))
        return found[::-1]

    async def moved(self, seconds_max: float, after: int) -> None:
        """Return once there is a change after version ``after``, or after ``seconds_max``."""
        moved = self._moved
        # What changed while a watch was sending woke nobody.
        if self.ended or self._changed > after:
            return
        try:
            async with asyncio.timeout(seconds_max):
                await moved.wait()
        except TimeoutError:
            return
