"""What runs outside Tutti: devices that pods of no gang hold, and that no queue is charged for."""

from collections.abc import Collection, Iterable
from typing import Any, Final

from webhook.commands.show.reading import read_api, stored
from webhook.core.notation import amounts, names, quantity
from webhook.core.notation.problem import Unreadable
from webhook.errors import ApiError
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.pricing.pod_requests import price
from webhook.jobs.reading.gating import owner_of
from webhook.jobs.reading.record import Owner
from webhook.kube.api import Api
from webhook.kube.finding import every
from webhook.visibility.http.group import JOB_UID_LABEL, ROOT, Document

PODS_MAX: Final = 20_000
CHILDREN_MAX: Final = 200
"""Objects that are looked up, to see whose children they are."""
DEPTH: Final = 5
"""Owners that follow each other; anybody may write references that go round in a circle."""
_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"


async def uncharged(api: Api) -> str | None:
    """Return what pods of no gang hold of devices, as a sentence; None where that is nothing, or cannot be seen."""
    try:
        # The pods of a gang that ran before Tutti bear no label of it.
        gangs = await read_api(api, f"{ROOT}/workloads")
    except ApiError:
        return None
    ours = {gang["metadata"]["labels"][JOB_UID_LABEL] for gang in gangs}
    made, known = _made(gangs), dict[str, bool]()
    held: dict[str, int] = {}
    owners: set[str] = set()
    looked = 0
    try:
        async for pod in every(api, "/api/v1/pods", f"!{names.GANG_LABEL}", _RUNNING):
            if looked == PODS_MAX:
                break
            looked += 1
            namespace, owner, asked = pod["metadata"].get("namespace", ""), owner_of(pod), _devices(pod)
            holder = pod["metadata"]["uid"] if owner is None else owner.uid
            if not asked or holder in ours:
                continue
            if owner is not None and (namespace, owner.kind) in made and holder not in known:
                known[holder] = len(known) < CHILDREN_MAX and await _is_below(api, namespace, owner, ours)
            if not known.get(holder):
                held = amounts.add(held, asked)
                owners.add(holder)
    except ApiError:
        return None
    if not held:
        return None
    told = ", ".join(f"{quantity.render(amount, name)} {name}" for name, amount in sorted(held.items()))
    at_least = "at least " if looked == PODS_MAX else ""
    return f"outside Tutti: {at_least}{told} in {len(owners)} {'job' if len(owners) == 1 else 'jobs'} of no queue"


def _made(gangs: Iterable[Document]) -> set[tuple[str, str]]:
    """Return namespace and kind of what controllers of these gangs make: a JobSet's pods are controlled by its Jobs."""
    found: set[tuple[str, str]] = set()
    for gang in gangs:
        owner = gang["metadata"]["ownerReferences"][0]
        left = [f"{owner['kind']}.{owner['apiVersion'].rpartition('/')[0]}"]
        while left:
            kind = KINDS.get(left.pop())
            below = {(gang["metadata"]["namespace"], key) for key in (kind.child_kinds if kind else ())} - found
            found |= below
            left += [key for _, key in below]
    return found


async def _is_below(api: Api, namespace: str, owner: Owner, ours: Collection[str]) -> bool:
    """Return whether an object belongs to one of the gangs, by its owners."""
    above: Owner | None = owner
    for _ in range(DEPTH):
        kind = None if above is None or above.uid in ours else KINDS.get(above.kind)
        if above is None or kind is None:
            break
        try:
            found = await stored(api, kind, namespace, above.name)
        except ApiError:
            found = None
        above = None if found is None else owner_of(found[1])
    return above is not None and above.uid in ours


def _devices(pod: dict[str, Any]) -> dict[str, int]:
    try:
        asked = price(pod["spec"]).requests
    except Unreadable:
        return {}
    return {name: amount for name, amount in asked.items() if "/" in name and amount}
