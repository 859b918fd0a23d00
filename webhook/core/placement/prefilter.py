"""Whether a set of pods could fit by counts alone: a "no" is certain.

Counts are kept while the room on nodes changes, so a question costs nothing. For one set that has no slices they are
all there is to ask.
"""

from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.domains import Domain
from webhook.core.nodes.ranking import Ranking
from webhook.core.placement.near import levels_of
from webhook.core.placement.overlay import Asked


class Prefilter:
    """How many pods of one set fit, were it alone: on all nodes, and where it has to be in one domain or in slices, in
    each.
    """

    def __init__(self, capacity: Capacity, asked: Asked, ranking: Ranking) -> None:
        self._wanted, self._total = asked.count, ranking.total
        self._in_domains = (
            _InDomains(capacity, asked, ranking) if asked.near is not None and asked.near.binding else None
        )

    @property
    def open(self) -> bool:
        """Whether the pods may fit."""
        return self._total >= self._wanted and (self._in_domains is None or self._in_domains.enough > 0)

    def add(self, node: str, pods: int) -> None:
        """Take note that a node holds so many more of the pods; fewer where negative."""
        self._total += pods
        if self._in_domains is not None:
            self._in_domains.add(node, pods)


class _InDomains:
    def __init__(self, capacity: Capacity, asked: Asked, ranking: Ranking) -> None:
        near, levels = asked.near, levels_of(asked)
        assert near is not None
        self._size = asked.slices or 1
        self._wanted = -(-asked.count // self._size)
        self._depth = levels.index(near.level) + 1 if near.required else 0
        inner = levels.index(near.slice_level) + 1 if asked.slices else self._depth
        self._domains = capacity.domains(levels[: max(inner, self._depth)])
        self._pods = dict(ranking.sums(self._domains))
        self._slices: dict[Domain, int] = {}
        for domain, pods in self._pods.items():
            outer = domain[: self._depth]
            self._slices[outer] = self._slices.get(outer, 0) + pods // self._size
        self.enough = sum(slices >= self._wanted for slices in self._slices.values())
        """Domains that hold all of them; slices may be in all domains together where the set need not be in one."""

    def add(self, node: str, pods: int) -> None:
        domain = self._domains.of.get(node)
        if domain is None or not pods:
            return
        before = self._pods.get(domain, 0)
        self._pods[domain] = before + pods
        slices = (before + pods) // self._size - before // self._size
        if slices:
            outer = domain[: self._depth]
            had = self._slices.get(outer, 0)
            self._slices[outer] = had + slices
            self.enough += (had + slices >= self._wanted) - (had >= self._wanted)
