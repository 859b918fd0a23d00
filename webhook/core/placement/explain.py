"""Why a gang fits no nodes now, with the numbers that an administrator would look up."""

from collections import Counter

from webhook.core.model import amounts, quantity
from webhook.core.model.reasons import Code, Reason
from webhook.core.placement.capacity import Capacity
from webhook.core.placement.fit import Misplaced
from webhook.core.placement.node import PODS


def misplaced(found: Misplaced) -> Reason:
    """Return the reason in short: a decision is made more often than somebody asks for it."""
    return Reason(Code.NODES_DO_NOT_FIT, f"{_asked(found)}; {_fit(found)}", help=_help(found))


def why_misplaced(capacity: Capacity, found: Misplaced) -> Reason:
    """Return the reason with what keeps the pods off each node; it looks at all of them."""
    shape, none, pieces = found.asked.shape, Counter[str](), Counter[str]()
    for name, node in capacity.nodes.items():
        short = shape.why_not(node)
        lacking = shape.lacks(capacity.free[name]) if short is None else None
        if lacking is not None:
            pieces[lacking] += max(0, capacity.free[name].get(lacking, 0))
            short = f"lack {lacking}"
        if short is not None:
            none[short] += 1
    kept = ", ".join(f"{count} {why}" + _in_pieces(why, pieces) for why, count in sorted(none.items(), key=_most))
    takes = f"of {len(capacity.nodes)} nodes {none.total()} take none" + (f": {kept}" if kept else "")
    return Reason(Code.NODES_DO_NOT_FIT, f"{_asked(found)}; {_fit(found)}; {takes}", help=_help(found))


def _asked(found: Misplaced) -> str:
    each = amounts.render({name: amount for name, amount in found.asked.shape.requests if name != PODS})
    return f"asks {found.asked.count} pods of {each}"


def _fit(found: Misplaced) -> str:
    return f"{found.found} fit now" if found.certain else f"{found.found} fit now beside its other pods"


def _most(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _in_pieces(why: str, pieces: Counter[str]) -> str:
    resource = why.removeprefix("lack ")
    free = pieces.get(resource, 0)
    return f" ({quantity.render(free, resource)} free in pieces too small)" if free else ""


def _help(misplaced: Misplaced) -> str:
    missing = misplaced.asked.count - misplaced.found
    return f"it starts when {missing} more of its pods fit" if misplaced.certain else "it starts when all its pods fit"
