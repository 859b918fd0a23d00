"""The nodes by the values of some of their labels, and how many pods of a shape each such domain holds.

What is in which domain is noted once for all shapes, until a node comes, goes, or gets other labels. A ranking sums up
its nodes by it when it is asked first, and keeps the sums up to date: a question costs as much as there are domains.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from webhook.core.nodes.node import NodeRecord

Path = tuple[str, ...]
"""Labels, the widest level first."""
Domain = tuple[str, ...]
"""The values that nodes have of the labels of a path."""

PATHS_MAX: Final = 16
"""As many levels as a Topology may have; of more, the path used longest ago is forgotten."""


@dataclass(slots=True)
class Domains:
    """Which nodes are in which domain of a path. Nodes that lack one of its labels are in none."""

    path: Path
    of: dict[str, Domain] = field(default_factory=dict)
    members: dict[Domain, list[str]] = field(default_factory=dict)

    def read(self, nodes: Mapping[str, NodeRecord]) -> None:
        """Take note of all nodes."""
        path, one = self.path, dict[Domain, Domain]()
        for name, node in nodes.items():
            labels = node.labels
            values = tuple([labels[level] for level in path if level in labels])
            if len(values) == len(path):
                domain = one.setdefault(values, values)
                self.of[name] = domain
                self.members.setdefault(domain, []).append(name)


@dataclass(slots=True)
class Sums:
    """How many pods of one shape the domains of a path hold; those that hold none are left out."""

    domains: Domains
    pods: dict[Domain, int] = field(default_factory=dict)

    def add(self, node: str, count: int) -> None:
        """Take note that a node holds so many more, fewer where negative."""
        domain = self.domains.of.get(node)
        if domain is not None:
            now = self.pods.get(domain, 0) + count
            if now:
                self.pods[domain] = now
            else:
                self.pods.pop(domain, None)


_Key = TypeVar("_Key")
_Kept = TypeVar("_Kept")


def keep_last(kept: dict[_Key, _Kept], key: _Key, each: _Kept, most: int = PATHS_MAX) -> None:
    """Keep what was asked for last, and no more than there may be."""
    kept[key] = each
    if len(kept) > most:
        del kept[next(iter(kept))]
