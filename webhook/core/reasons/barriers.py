"""What keeps a gang from starting though its quota has room, as values; the text of each is made here only.

Nodes have their own value (``core.placement.misplaced``).
"""

from dataclasses import dataclass
from enum import Enum

from webhook.core.notation import quantity
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.counted_jobs import resource_text
from webhook.core.notation.problem import some
from webhook.core.reasons.blockers import Blocker, QuotaMissing, TooMuch, render, render_all
from webhook.core.reasons.reasons import Code, Holder, Reason

NAMED_MAX = 5
"""Pod sets, or starved gangs, that a reason names."""


@dataclass(frozen=True, slots=True)
class FenceFull:
    """A ResourceQuota has too little left."""

    fence: str
    """``ResourceQuota namespace/name``."""
    resource: str
    asked: int
    limit: int
    used: int | None = None
    """None: it would not fit if nothing were used."""
    holders: tuple[Holder, ...] = ()
    ahead: int = 0
    """Gangs before it, of whatever queue, that ask the same of it: they may take what becomes free."""
    others: tuple["FenceFull", ...] = ()
    """What else has too little, of this ResourceQuota and of others."""


@dataclass(frozen=True, slots=True)
class NotStated:
    """A ResourceQuota bounds what a container does not state: the API server refuses such pods, whatever is free."""

    fence: str
    resources: tuple[str, ...]
    pod_sets: tuple[str, ...]


class Passing(Enum):
    """Why a gang may not go before the head of a Backfill queue."""

    NO_LIMIT = "a gang without a run-time limit may not pass it"
    STOPS_OTHERS = "only the head may have other gangs stopped"
    START_UNKNOWN = "whose start depends on gangs without a run-time limit"
    TOO_LONG = "which may start in {:.0f} s, before this gang's run-time limit ends it"


@dataclass(frozen=True, slots=True)
class BehindHead:
    """The head of a Backfill queue goes first."""

    head: str
    """``namespace/name``."""
    why: Passing
    seconds: float = 0.0
    """From now to the head's booked start, where it has one."""
    other_queue: str | None = None
    """The queue that it heads, if that is another one."""
    beside: str | None = None
    """Uid of the head, if the gang has no room without what is booked for it, whoever else moves: it waits for that."""


@dataclass(frozen=True, slots=True)
class BehindStarved:
    """A gang of a queue below its own needs the room (the borrowing guard)."""

    starved: str
    """``namespace/name``."""
    queue: str
    key: FlavorResource
    queue_used: int
    queue_nominal: int
    """Of ``key``."""
    where: str
    """Where the gang that waits would take the room, with what it asks there and what is taken."""
    asked: int
    used: int
    limit: int
    others: tuple["BehindStarved", ...] = ()
    """What else is needed, by the same gang and by others of which it would keep one waiting as well."""


@dataclass(frozen=True, slots=True)
class StopsNobody:
    """It would have to have others stopped, and may not."""


Barrier = FenceFull | NotStated | BehindHead | BehindStarved | StopsNobody
HELD_UP = (BehindHead, BehindStarved, StopsNobody)
"""Those that a smaller start does not get past."""


def reason_of(barrier: Barrier) -> Reason:
    """Return what to tell the owner."""
    match barrier:
        case FenceFull():
            return _fence_full(barrier)
        case NotStated(fence, resources, pod_sets):
            of, sets = ", ".join(resources), "pod set" if len(pod_sets) == 1 else "pod sets"
            text = f"{fence} bounds {of}, which not every container of {sets} {some(pod_sets, NAMED_MAX)} states"
            tip = f"state {of} in every container, or let a LimitRange fill it in"
            return Reason(Code.FENCED, text, where=fence, resource=resources[0], help=tip, is_beyond=True)
        case BehindHead(head, why, seconds, queue, _):
            what = f"would pass {head}" if queue is None else f"would delay {head}, head of queue {queue}"
            text = f"{what}: {why.value.format(max(0, seconds))}"
            return Reason(Code.BEHIND_HEAD, text, help="it starts after the head or in a gap before it")
        case BehindStarved():
            return _behind_starved(barrier)
        case StopsNobody():
            return Reason(
                Code.ADMISSION_GATED,
                "others would have to be stopped for it, and it may stop nobody",
                help="it starts once it may, or when there is room without that",
            )


def _fence_full(barrier: FenceFull) -> Reason:
    all_short, lacks = [barrier, *barrier.others], tuple[Blocker, ...]()
    beyond = [each for each in all_short if each.asked > each.limit]
    if beyond:
        barrier, *others = beyond
        lacks = tuple(TooMuch(each.resource, each.asked, each.fence, each.limit) for each in others)
        never = () if barrier.used is None else ("it can never start: ask for less, or raise the ResourceQuota",)
        tip = "; ".join([*map(render, lacks), *never])
    else:
        lacks = tuple(_missing(each, barrier) for each in all_short)
        tip = f"{render_all(lacks)}; end something there, or raise the ResourceQuota"
    return Reason(
        Code.FENCED,
        where=barrier.fence,
        resource=barrier.resource,
        asked=barrier.asked,
        used=barrier.used,
        limit=barrier.limit,
        holders=barrier.holders,
        help=tip,
        blockers=lacks,
        is_beyond=bool(beyond),
    )


def _missing(short: FenceFull, first: FenceFull) -> QuotaMissing:
    missing = (short.used or 0) + short.asked - short.limit
    return QuotaMissing(short.resource, missing, first.ahead, fence=short.fence if short.fence != first.fence else "")


def _behind_starved(barrier: BehindStarved) -> Reason:
    needed: dict[tuple[str, str], list[str]] = {}
    for each in (barrier, *barrier.others):
        resource = each.key.resource
        used, own = quantity.render(each.queue_used, resource), quantity.render(each.queue_nominal, resource)
        needed.setdefault((each.starved, each.queue), []).append(f"{used} of its own {own} {resource_text(resource)}")
    waiting = [
        f"{who} waits in {queue}, which uses {' and '.join(of)}, and needs the room"
        for (who, queue), of in needed.items()
    ]
    awaited = " and ".join(who for who, _ in needed)
    return Reason(
        Code.BEHIND_STARVED,
        "; ".join(waiting),
        where=barrier.where,
        resource=barrier.key.resource,
        flavor=barrier.key.flavor,
        asked=barrier.asked,
        used=barrier.used,
        limit=barrier.limit,
        help=f"it starts after {awaited}, or once {barrier.where} uses less than its own",
    )
