"""What is kept of what a watch shows, and whether it is news for a gang. Pure.

A look takes a read in the member and one in the hub. Most of what a member's controllers write on a copy changes
nothing that the hub decides by.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple

import orjson

from webhook.core.notation import names
from webhook.fleet.members.copies import copy_read, why_unwanted
from webhook.jobs.kinds.kind import JobKind
from webhook.untyped import paths
from webhook.untyped.values import items
from webhook.wire.watch import read_metadata, version_number


class Marks(NamedTuple):
    """One state of a copy: equal where nothing has changed that counts."""

    decided_by: int
    """A hash of what is decided by, but for whether it is suspended."""
    status: int
    """Another."""
    permitted: bool
    suspended: bool


KEPT_BYTES_MAX: Final = 1 << 14
"""Of a job's JSON."""
NO_MARKS: Final = Marks(0, 0, permitted=False, suspended=True)


class News(Enum):
    """What a gang has to do about a change of its copy."""

    NOTHING = "nothing"
    STATUS = "status"
    """It has another status to show."""
    LOOK = "look"


@dataclass(frozen=True, slots=True)
class Seen:
    """Which state of which object a watch has shown."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    keys: frozenset[str] = frozenset()
    """Of a ConfigMap's data."""
    marks: Marks = NO_MARKS
    """Of a copy."""
    untouched: bool = False
    """A job of the hub that is not to run, and on which nothing is written yet."""
    job: dict[str, Any] | None = field(default=None, compare=False, repr=False)
    """One that is to run, and has no record yet: it is as good as read."""


def seen(raw: bytes, **more: Any) -> Seen:
    """Return what is kept of an object, and ``more`` of it. Raises Malformed."""
    found = read_metadata(raw)
    return Seen(found.namespace, found.name, found.uid, version_number(found.resource_version), **more)


def own_job(kind: JobKind, raw: bytes, job: dict[str, Any]) -> Seen:
    """Return what is kept of a job of the hub. Raises Malformed."""
    metadata = paths.find_mapping(job, ("metadata",))
    recorded = names.DISPATCH in paths.find_mapping(metadata, ("annotations",))
    if recorded or names.DISPATCH in items(metadata.get("finalizers")):
        return seen(raw)
    if not why_unwanted(kind, job):
        # What a list has does not say of which kind it is.
        return seen(raw, job=job if "kind" in job and len(raw) <= KEPT_BYTES_MAX else None)
    return seen(raw, untouched=not job.get("status"))


def marks_of(kind: JobKind, obj: Mapping[str, Any]) -> Marks:
    """Return what counts of a member's object."""
    copy, status = copy_read(kind, obj), orjson.dumps(paths.find(obj, ("status",)))
    return Marks(hash(replace(copy, version="", suspended=True)), hash(status), copy.permitted, copy.suspended)


def news(old: Marks, new: Marks) -> News:
    """Return what has changed from one state of a copy to a later one.

    Of one without a permit no status is shown; that one with a permit has started is shown by its status.
    """
    if old.decided_by != new.decided_by or (old.suspended != new.suspended and not (new.permitted and old.suspended)):
        return News.LOOK
    return News.STATUS if new.permitted and old.status != new.status else News.NOTHING
