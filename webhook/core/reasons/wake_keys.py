"""What could change so that a waiting gang may start: the keys under which it is woken, each a small frozen value.

Only values: a copy of the engine knows each by the same key.
"""

from dataclasses import dataclass
from typing import NamedTuple

from webhook.core.notation.amounts import FlavorResource


class Freed(NamedTuple):
    """A vertex of the quota tree uses less of ``key``."""

    vertex: int
    """Its index."""
    key: FlavorResource


@dataclass(frozen=True, slots=True)
class Releasing:
    """Somebody in a tree is being stopped: a head may count on what it will leave of ``key``."""

    root: int
    """Index of the root."""
    key: FlavorResource


@dataclass(frozen=True, slots=True)
class NamespaceFences:
    """A fence of a namespace has more room: it changed, or pods are gone."""

    namespace: str


@dataclass(frozen=True, slots=True)
class NodesFreed:
    """There is more free on some node: for gangs that the quota has room for and the nodes have not."""


@dataclass(frozen=True, slots=True)
class NodesTurn:
    """The nodes were looked at for the gang ``uid``, which had to wait for that, or it is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class QueueHead:
    """The head of a queue moved. Also the owner of the quota that a queue keeps for its blocked head."""

    queue: str | None


@dataclass(frozen=True, slots=True)
class BesideHead:
    """There is more room outside what is booked for the head ``uid``."""

    uid: str


@dataclass(frozen=True, slots=True)
class BeforeHeads:
    """Who may start before the booked heads of a tree changed."""

    root: int | None
    """Index of the root; None without a tree."""


@dataclass(frozen=True, slots=True)
class Owed:
    """A gang whose queue uses less than it owns waits for room, and others leave it to that gang."""

    queue: str
    equivalence: tuple[object, ...]
    """Equivalence class of the gang in its queue."""
    cohort: int
    """Index of the cohort below which its side of the tree is compared with another."""
    key: FlavorResource


WakeKey = Freed | Releasing | NamespaceFences | NodesFreed | NodesTurn | QueueHead | BesideHead | BeforeHeads | Owed

Promisee = str | QueueHead
"""What quota that is about to be free is kept for: a gang, by uid, or the blocked head of a queue."""
