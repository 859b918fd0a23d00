"""Why a gang fits no nodes now, with the numbers that an administrator would look up."""

from collections import Counter

from webhook.core.model.gang import Nearness
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.shape import TAINT, Shape
from webhook.core.notation import names, quantity
from webhook.core.notation.counted import counted, does
from webhook.core.placement.beyond import asked_by
from webhook.core.placement.misplaced import Misplaced
from webhook.core.reasons.reasons import Code, Reason


def misplaced(found: Misplaced) -> Reason:
    """Return the reason in short: a decision is made more often than somebody asks for it."""
    if found.postponed:
        return Reason(Code.PENDING_EVALUATION, "one of the next cycles checks whether its pods fit the nodes")
    if found.shapes:
        return Reason(
            Code.NODES_DO_NOT_FIT,
            f"its pods ask {counted(found.shapes, 'different thing')} of nodes, too many to be looked at together",
            help="have more of its pods ask the same, or make it several jobs",
        )
    if _near(found) is not None:
        return _no_domain(found)
    return Reason(Code.NODES_DO_NOT_FIT, f"{asked_by(found.asked)}; {_fit(found)}", help=_help(found))


def why_misplaced(capacity: Capacity, found: Misplaced) -> Reason:
    """Return the reason with what keeps the pods off each node; it looks at all of them."""
    if found.unseen:
        return misplaced(found)
    shape = found.asked.shape
    lack, pieces = _lacks(capacity, shape)
    parts = [
        (count, f"{does(count, 'lack')} {resource}{_in_pieces(resource, pieces)}") for resource, count in lack.items()
    ]
    parts += [(count, f"{count} {why}") for why, count in capacity.eligible(shape).kept_out.items()]
    kept = ", ".join(text for _, text in sorted(parts, key=lambda part: (-part[0], part[1].partition(" ")[2])))
    kept_out = sum(count for count, _ in parts)
    none = f"; of {counted(len(capacity.nodes), 'node')} {does(kept_out, 'take')} none: {kept}" if parts else ""
    if _near(found) is not None:
        anywhere = capacity.ranking(shape).total
        # Where they fit elsewhere it is not the nodes that lack anything, but the domains.
        return _no_domain(found, anywhere, none if anywhere < found.asked.count else "")
    # Room that becomes free on nodes that it may not use is none for it.
    known, fix = capacity.eligible(shape), _help(found)
    if known.no_such_node:
        fix = "change the labels that it asks of nodes, or have such nodes added"
    elif not known.admitted and any(why.startswith(TAINT) for why in known.kept_out):
        fix = "have a taint removed, or give the pods a toleration for it"
    return Reason(
        Code.NODES_DO_NOT_FIT, f"{asked_by(found.asked)}; {_fit(found)}{none}", help=fix, is_beyond=known.no_such_node
    )


def _lacks(capacity: Capacity, shape: Shape) -> tuple[Counter[str], Counter[str]]:
    """Return what the nodes lack that may take the pods and hold none, each what it has least of, and how much of that
    is free on them.
    """
    lack, pieces, takes = Counter[str](), Counter[str](), capacity.ranking(shape).rooms
    short = [each for each in capacity.asked(shape) if min(each[2], default=0) < each[1]]
    resources = [each for each in short if each[0] not in shape.ports]
    for row, (node, why) in enumerate(zip(capacity.names, capacity.verdict(shape), strict=True)):
        if why is not None or node in takes:
            continue
        found = [(free[row] / amount, name, free[row]) for name, amount, free in resources if free[row] < amount]
        if found:
            _, name, left = min(found)
            lack[name] += 1
            pieces[name] += max(0, left)
        else:
            lack[f"a free port {next(name for name, amount, free in short if free[row] < amount)}"] += 1
    return lack, pieces


def _near(found: Misplaced) -> Nearness | None:
    near = found.asked.near
    return near if near is not None and near.binding else None


def _no_domain(found: Misplaced, anywhere: int | None = None, none: str = "") -> Reason:
    near = found.asked.near
    assert near is not None
    asked = f"{asked_by(found.asked)} within one {near.level}" if near.required else asked_by(found.asked)
    if near.slice_size:
        asked += f", {near.slice_size} and {near.slice_size} within one {near.slice_level}"
    code, missing = Code.TOPOLOGY_PLACEMENT_FAILED, found.asked.count - found.found
    if found.unread:
        text = f"{asked}; the nodes are not known"
        return Reason(code, text, help=f"let Tutti read Nodes, or remove {_annotation(near)}")
    if near.slice_size and not near.required:
        return Reason(
            code,
            f"{asked}; {does(found.found, 'fit')} now{none}",
            help=f"it starts when {does(missing, 'fit', 'more')}",
        )
    if found.nearest is None:
        text = f"{asked}; no node with that label has room for one{none}"
        return Reason(code, text, help="it starts when all of them fit in one")
    text = f"{asked}; none has room for all, {found.nearest} for most: {found.found}"
    if missing <= 0:
        return Reason(
            code, f"{text}, but not together with the gang's other pods", help="it starts when all its pods fit"
        )
    text += "" if anywhere is None else f"; {does(anywhere, 'fit')} anywhere{none}"
    fix = f"it starts when {does(missing, 'fit', 'more')} in {found.nearest}, or all in another"
    if near.required and not near.slice_size and anywhere is not None and anywhere >= found.asked.count:
        fix += f", or with {names.PREFERRED_TOPOLOGY}"
    return Reason(code, text, help=fix)


def _annotation(near: Nearness) -> str:
    return names.REQUIRED_TOPOLOGY if near.required else names.SLICE_TOPOLOGY


def _fit(found: Misplaced) -> str:
    return f"{does(found.found, 'fit')} now{'' if found.certain else ' together with its other pods'}"


def _in_pieces(resource: str, pieces: Counter[str]) -> str:
    free = pieces.get(resource, 0)
    return f" ({quantity.render(free, resource)} free in pieces too small)" if free else ""


def _help(misplaced: Misplaced) -> str:
    missing = misplaced.asked.count - misplaced.found
    some_more = does(missing, "fit", "more of its pods")
    return f"it starts when {some_more if misplaced.certain else 'all its pods fit'}"
