"""Which queue lends to which at the moment, for people: no decision depends on it.

What is lent has no names on it: at each cohort there is one pot, of the cohort's own quota and of what its children
leave idle and may lend. The cohort's own quota is taken for lent first, and the rest of what is borrowed is spread over
the children by how much each leaves idle. What a cohort lends to its parent's pot comes from its own pot in the same
way. Sums are exact: what all borrow is what all lend.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.tree import AmountsByFlavor, Vertex


@dataclass(slots=True)
class Loans:
    """What one vertex borrows and lends."""

    borrowed: dict[FlavorResource, int] = field(default_factory=dict)
    lent: dict[FlavorResource, int] = field(default_factory=dict)
    lenders: dict[Vertex, dict[FlavorResource, int]] = field(default_factory=dict)
    """Siblings, and the parent for its own quota and what it borrows itself, with what this vertex has of theirs."""


def loans(roots: Iterable[Vertex], charged: Callable[[Vertex], AmountsByFlavor]) -> dict[Vertex, Loans]:
    """Return the loans of all vertices below ``roots``; ``charged`` says what each uses, as ``Usage`` counts it."""
    found: dict[Vertex, Loans] = {}
    for root in roots:
        vertices = list(root.below())
        found |= {vertex: Loans() for vertex in vertices}
        usage = {vertex: charged(vertex) for vertex in vertices}
        for vertex in vertices:
            for key in {key for child in vertex.children for key in usage[child]} | found[vertex].lent.keys():
                _settle(vertex, key, usage, found)
    return found


def _settle(
    parent: Vertex, key: FlavorResource, usage: Mapping[Vertex, AmountsByFlavor], found: dict[Vertex, Loans]
) -> None:
    """Spread what is borrowed at one cohort over those whose quota it is."""
    borrowers: list[tuple[Vertex, int]] = []
    idle: list[tuple[Vertex, int]] = []
    for child in parent.children:
        used, owned, private = usage[child].get(key, 0), child.subtree.get(key, 0), child.local.get(key, 0)
        if used > owned:
            borrowers.append((child, used - owned))
        elif owned > max(used, private):
            idle.append((child, owned - max(used, private)))
    passed_on = found[parent].lent.get(key, 0)
    inflow = 0 if parent.parent is None else max(0, usage[parent].get(key, 0) - parent.subtree.get(key, 0))
    asked = sum(amount for _, amount in borrowers) + passed_on
    own = min(parent.nominal(key), max(0, asked - inflow))
    # Where a quota was lowered or a gang adopted, more is used than there is: nobody lends that.
    given = spread(min(asked - inflow - own, sum(amount for _, amount in idle)), [amount for _, amount in idle])
    for (child, _), amount in zip(idle, given, strict=True):
        if amount:
            found[child].lent[key] = amount
    pot = [(parent, own + inflow), *((child, amount) for (child, _), amount in zip(idle, given, strict=True))]
    left = [amount for _, amount in pot]
    for borrower, amount in borrowers:
        found[borrower].borrowed[key] = amount
        shares = spread(min(amount, sum(left)), left)
        left = [have - share for have, share in zip(left, shares, strict=True)]
        for (lender, _), share in zip(pot, shares, strict=True):
            if share:
                found[borrower].lenders.setdefault(lender, {})[key] = share


def spread(amount: int, weights: Sequence[int]) -> list[int]:
    """Return parts of ``amount`` in proportion to ``weights``, none above its weight; ``amount`` is at most their sum.

    Where all of them are whole units, so are the parts: nobody lends half a GPU.
    """
    unit = MILLI if all(each % MILLI == 0 for each in (amount, *weights)) else 1
    parts, rest = [], sum(weights)
    for weight in weights:
        part = 0 if rest == 0 else -(-(amount // unit) * weight // rest) * unit
        parts.append(part)
        amount, rest = amount - part, rest - weight
    return parts
