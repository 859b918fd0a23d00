"""Room on nodes that is kept for gangs whose victims are still there.

On each node that is what is claimed there, less what the victims hold: as they leave, it is kept free for who claims,
and nobody else starts in it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.core.model.amounts import Amounts
from webhook.core.nodes.allotment import Allotment

_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class Claimed:
    """What one gang is to have on nodes."""

    allotment: Allotment
    awaits: set[str]
    """Uids of the gangs that leave it room."""


@dataclass(slots=True)
class ClaimedRoom:
    """All that is claimed."""

    claims: dict[str, Claimed] = field(default_factory=dict)
    """By uid of the gang that claims."""
    awaited: Counter[str] = field(default_factory=Counter)
    """Uid of a gang that leaves to the claims that count on it."""
    _claimed: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node to amounts."""
    _leaving: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node to what the gangs that are awaited hold there."""

    def put(self, uid: str, claimed: Claimed) -> tuple[set[str], list[str]]:
        """Add a claim; return its nodes, and the gangs that nobody awaited before."""
        assert uid not in self.claims
        self.claims[uid] = claimed
        new = [gang for gang in sorted(claimed.awaits) if not self.awaited[gang]]
        self.awaited.update(claimed.awaits)
        return self._note(claimed, 1), new

    def drop(self, uid: str) -> tuple[set[str], list[str]]:
        """Forget a claim; return its nodes, and the gangs that nobody awaits any more."""
        claimed = self.claims.pop(uid)
        self.awaited.subtract(claimed.awaits)
        old = [gang for gang in sorted(claimed.awaits) if not self.awaited[gang]]
        for gang in old:
            del self.awaited[gang]
        return self._note(claimed, -1), old

    def has_left(self, gang: str) -> None:
        """Stop awaiting a gang: what it holds from now on it keeps."""
        self.awaited.pop(gang, None)
        for claimed in self.claims.values():
            claimed.awaits.discard(gang)

    def leaves(self, node: str, amounts: Amounts, count: int) -> None:
        """Take note that gangs that are awaited hold so much more on a node; less where ``count`` is negative."""
        _add(self._leaving, node, amounts, count)

    def withheld(self, node: str, gone: Amounts | None = None) -> dict[str, int]:
        """Return what is kept on a node beside what is about to leave it, and beside what is ``gone`` of that."""
        claimed, leaving = self._claimed.get(node), self._leaving.get(node, _NOTHING)
        if claimed is None:
            return {}
        kept = {name: amount - leaving.get(name, 0) + (gone or {}).get(name, 0) for name, amount in claimed.items()}
        return {name: amount for name, amount in kept.items() if amount > 0}

    def enough(self, node: str, free: Mapping[str, int]) -> bool:
        """Return whether all that is claimed on a node fits there once who leaves is gone; ``free`` is what others may
        take now.
        """
        claimed, leaving = self._claimed.get(node, _NOTHING), self._leaving.get(node, _NOTHING)
        withheld = self.withheld(node)
        return all(
            amount <= free.get(name, 0) + withheld.get(name, 0) + leaving.get(name, 0)
            for name, amount in claimed.items()
        )

    def copy(self) -> "ClaimedRoom":
        """Return an independent copy."""
        claimed, leaving = (
            {node: dict(amounts) for node, amounts in each.items()} for each in (self._claimed, self._leaving)
        )
        claims = {uid: Claimed(each.allotment, set(each.awaits)) for uid, each in self.claims.items()}
        return ClaimedRoom(claims, Counter(self.awaited), claimed, leaving)

    def _note(self, claimed: Claimed, sign: int) -> set[str]:
        nodes: set[str] = set()
        for name, places in claimed.allotment.places.items():
            requests = dict(claimed.allotment.shapes[name].requests)
            for node, count in places.items():
                _add(self._claimed, node, requests, sign * count)
                nodes.add(node)
        return nodes


def _add(to: dict[str, dict[str, int]], node: str, amounts: Amounts, count: int) -> None:
    sums = to.setdefault(node, {})
    for name, amount in amounts.items():
        now = sums.get(name, 0) + count * amount
        if now:
            sums[name] = now
        else:
            sums.pop(name, None)
    if not sums:
        del to[node]
