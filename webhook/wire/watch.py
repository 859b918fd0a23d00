"""Envelopes of lists, watches and errors: who an object is, while the object itself stays raw bytes.

Only the reader of one kind knows its fields; the informer needs names and versions alone. Leaving the object raw makes
a page of 500 cost one scan, and lets a single unreadable object fail by itself. What is nested too deeply to be scanned
is reported as such: it has to be cut first (``nesting``).
"""

from typing import Annotated, TypeVar

import msgspec

_T = TypeVar("_T")
_DIGITS_MAX = 32
"""Python reads no number of more than 4,300 digits."""
_Name = Annotated[str, msgspec.Meta(max_length=1024)]
"""What is kept of objects that are gone, too. API servers write a quarter of it at most."""
_Token = Annotated[str, msgspec.Meta(max_length=1 << 14)]
"""Has the name of the last object of a page in it."""


class Malformed(ValueError):
    """The bytes are not the envelope they were asked to be."""


class TooDeep(Malformed):
    """The bytes are nested too deeply to be scanned."""


class ObjectMeta(msgspec.Struct, rename="camel", gc=False):
    """What identifies one state of one object."""

    name: _Name = ""
    namespace: _Name = ""
    uid: _Name = ""
    resource_version: _Name = ""


class _Object(msgspec.Struct, gc=False):
    metadata: ObjectMeta


class ListMeta(msgspec.Struct, gc=False):
    """Where a list stands."""

    resource_version: _Name = msgspec.field(default="", name="resourceVersion")
    continue_token: _Token = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """One page of a list; ``items`` lack apiVersion and kind, as the API server sends them."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None
    kind: _Name = ""
    api_version: _Name = msgspec.field(default="", name="apiVersion")

    def objects(self) -> list[bytes]:
        """Return the JSON of each object; copies, so that keeping one does not keep the page."""
        return [bytes(item) for item in self.items or ()]


class Event(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR (then ``object`` is a Status)."""

    type: str
    object: msgspec.Raw


class Status(msgspec.Struct, gc=False):
    """metav1.Status: how the API server says no."""

    code: int = 0
    reason: str = ""
    message: str = ""


_PAGE = msgspec.json.Decoder(Page)
_EVENT = msgspec.json.Decoder(Event)
_OBJECT = msgspec.json.Decoder(_Object)
_STATUS = msgspec.json.Decoder(Status)


def _decoded(decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw, what: str) -> _T:
    try:
        return decoder.decode(raw)
    except RecursionError:
        raise TooDeep(f"{what}: nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"{what}: {error}") from error


def read_page(body: bytes) -> Page:
    """Return one page of a list. Raises Malformed, TooDeep where it has to be cut."""
    return _decoded(_PAGE, body, "list")


def read_event(line: bytes) -> Event:
    """Return one watch event. Raises as ``read_page`` does."""
    return _decoded(_EVENT, line, "watch event")


def read_metadata(raw: bytes | msgspec.Raw) -> ObjectMeta:
    """Return who an object is. Raises as ``read_page`` does."""
    return _decoded(_OBJECT, raw, "object").metadata


def read_status(body: bytes | msgspec.Raw) -> Status | None:
    """Return the Status in the body of a refusal, or None when a proxy or an old endpoint wrote something else."""
    try:
        return _decoded(_STATUS, body, "status")
    except Malformed:
        return None


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as the integer it is (Kubernetes 1.35 guarantees that order); 0 for none."""
    return int(resource_version[:_DIGITS_MAX]) if resource_version.isdecimal() else 0
