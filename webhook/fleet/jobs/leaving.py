"""What keeps a gang in the member that it is to leave, in that member's words: its copy, or pods that stay."""

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

from webhook.core.fleet.dispatch import NO_OFFER, Dispatch
from webhook.fleet.jobs.asking.refusal import REFUSED_SECONDS, Refusal
from webhook.fleet.members.member import Look, Member
from webhook.untyped import paths
from webhook.untyped.values import items, text

LONG_SECONDS: Final = 40.0
"""So long nobody asks what keeps it: pods have 30 s to end, unless they say otherwise."""
AGAIN_SECONDS: Final = 5.0
LOOK_SECONDS: Final = REFUSED_SECONDS / 2
"""At most from one look to the next, so that what was refused is tried as often as is said."""
LOOK_EACH: Final = 0.1
"""From one look to the next, of the time that it has taken so far: what ends soon is seen soon."""
NAMED_MAX: Final = 3
"""Pods, or finalizers of one object, that are named."""
NAME_CHARACTERS: Final = 63
ROOM: Final = "still has its reservation, which that member's Tutti has not dropped"


class Leaving:
    """What one process knows of it, for one gang."""

    def __init__(self) -> None:
        self.refusal = Refusal()
        """Of the deletion of its copy."""
        self._offer = NO_OFFER
        self._since = inf
        """Loop time at which it was first seen to be on its way out."""
        self._ask_at = inf
        """Loop time at which to ask what keeps it."""
        self._words = ""

    def look_at(self, dispatch: Dispatch) -> float:
        """Return the loop time at which to look again at a recalled gang, for what no watch tells: pods that go."""
        now = asyncio.get_running_loop().time()
        self._begin(dispatch, now)
        return now + min(LOOK_SECONDS, LOOK_EACH * (now - self._since))

    def _begin(self, dispatch: Dispatch, now: float) -> None:
        if self._offer != dispatch.offer:
            self._offer, self._since, self._ask_at, self._words = dispatch.offer, now, now + LONG_SECONDS, ""

    async def words(self, member: Member, namespace: str, dispatch: Dispatch, found: Look | None) -> str:
        """Return what keeps a recalled gang in its member; nothing where that is not known, or is no news yet.

        Raises NoAnswer.
        """
        now = asyncio.get_running_loop().time()
        self._begin(dispatch, now)
        copy = None if found is None or found.sight.copy is None else found.sight.copy
        stands = copy is not None and copy.uid == dispatch.copy_uid
        if stands and copy is not None and not copy.deleting:
            if refused := self.refusal.words(dispatch):
                return f"refuses to delete its copy ({refused}), and is asked again every {REFUSED_SECONDS:.0f} s"
            return ""
        if now >= self._ask_at:
            self._ask_at = now + AGAIN_SECONDS
            pods = await member.pods_of(namespace, dispatch.copy_uid, NAMED_MAX + 1)
            self._words = kept_by(found.object if found is not None and stands else None, pods)
            if self._words == ROOM and member.health.idle:
                self._words = f"{ROOM}: it {member.health.idle}"
        return self._words


def kept_by(copy: Mapping[str, Any] | None, pods: Sequence[Mapping[str, Any]]) -> str:
    """Return, in words, what is left of a gang in a member: its copy while that is being deleted, its pods, or room."""
    said = [f"its copy, which has {held}"] if (held := _finalizers(copy)) else []
    said += [_pod(pod) for pod in pods[:NAMED_MAX]]
    if len(pods) > NAMED_MAX:
        said.append("more pods")
    if not said and copy is None:
        return ROOM
    return f"still has {'; '.join(said)}" if said else ""


def _pod(pod: Mapping[str, Any]) -> str:
    metadata = paths.find_mapping(pod, ("metadata",))
    name, held = text(metadata.get("name"))[:NAME_CHARACTERS], _finalizers(pod)
    if held:
        return f"pod {name}, which has {held}"
    if metadata.get("deletionTimestamp") is None:
        alone = "" if items(metadata.get("ownerReferences")) else " because no job owns it: delete it there"
        return f"pod {name}, which nothing deletes{alone}"
    node = text(paths.find(pod, ("spec", "nodeName")))[:NAME_CHARACTERS]
    until = text(metadata.get("deletionTimestamp"))[:NAME_CHARACTERS]
    return f"pod {name}, which node {node} must end by {until}" if node else f"pod {name}, which must end by {until}"


def _finalizers(obj: Mapping[str, Any] | None) -> str:
    found = [text(each)[:NAME_CHARACTERS] for each in items(paths.find(obj, ("metadata", "finalizers")))]
    more = [f"{len(found) - NAMED_MAX} more"] if len(found) > NAMED_MAX else []
    return f"finalizer {', '.join(found[:NAMED_MAX] + more)}" if found else ""
