"""What is said of one gang's copy in its member, by events on it."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.core.notation import names
from webhook.core.notation.shortened import shortened
from webhook.core.reasons import neighbours
from webhook.errors import NotFound
from webhook.untyped import paths
from webhook.untyped.values import seconds, text

REASON_CHARACTERS: Final = 200
"""Of a reason that a hub keeps on its job."""
HUB: Final = "the hub"
"""Stands for a member in words of what keeps a gang from all of them."""
_NOT_CREATED: Final = ("FailedCreate", "FailedToCreate", "Invalid", "TrainJobResourcesCreationFailed")
"""How the reasons of events begin by which controllers say that they cannot create what a job needs: of Jobs and
PyTorchJobs, KubeRay's two, and the Trainer's.
"""

Objects = Callable[[str, Mapping[str, str]], AsyncIterator[dict[str, Any]]]
"""Of a path and a query. Raises NotFound, NoAnswer."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What a member says of a copy that it has no room for."""

    why: str = ""
    """With numbers."""
    starts_at: float | None = None
    """Unix time at which its queue has booked room for it, if it has."""
    never: bool = False
    """It cannot start there, whatever ends."""


@dataclass(frozen=True, slots=True)
class Stop:
    """What a member says of its last stop of a copy."""

    why: str = ""
    which: str = ""
    """Different for each stop."""


class Told:
    """What one member tells by events."""

    def __init__(self, objects: Objects, *, hides_neighbours: bool = False) -> None:
        """``hides_neighbours``: what it says of one namespace is told with no name of another in it."""
        self._objects = objects
        self._hides_neighbours = hides_neighbours

    async def why_waiting(self, namespace: str, copy_uid: str) -> Waits:
        """Return why its Tutti said last that a copy waits; nothing while it has not. Raises NoAnswer."""
        newest = await self._newest(namespace, copy_uid, "reason=Queued")
        notes = paths.find_mapping(newest, ("metadata", "annotations"))
        starts, never = seconds(notes.get(names.STARTS_BY)), notes.get(names.NEVER_STARTS) == "true"
        return Waits(self._message(newest, namespace), starts or None, never)

    async def why_stopped(self, namespace: str, copy_uid: str, earlier: str = "") -> Stop:
        """Return why its Tutti said last that it stops a copy, and what of it could not be created, if so.

        Nothing while its Tutti has not said, or only of an ``earlier`` stop. Raises NoAnswer.
        """
        newest = await self._newest(namespace, copy_uid, "reason=Evicted")
        which, said = f"{paths.find(newest, ('metadata', 'name'))} {_when(newest)}", self._message(newest, namespace)
        if not said or which == earlier:
            return Stop()
        failed = await self._newest(namespace, copy_uid, "type=Warning", _NOT_CREATED)
        return Stop("; ".join(filter(None, (said, self._message(failed, namespace)))), which)

    async def _newest(
        self, namespace: str, copy_uid: str, which: str, reasons: tuple[str, ...] = ("",)
    ) -> dict[str, Any]:
        about = {"fieldSelector": f"involvedObject.uid={copy_uid},{which}"}
        newest: dict[str, Any] = {}
        with contextlib.suppress(NotFound):
            async for each in self._objects(f"/api/v1/namespaces/{namespace}/events", about):
                if text(each.get("reason")).startswith(reasons) and (not newest or _when(each) > _when(newest)):
                    newest = each
        return newest

    def _message(self, event: Mapping[str, Any], namespace: str) -> str:
        said = text(event.get("message"))
        if self._hides_neighbours:
            # Before it is cut: half a name would not be known as one.
            said = neighbours.text_for(said, namespace, neighbours.ANY_NAMESPACE)
        return shortened(said, REASON_CHARACTERS)


def _when(event: Mapping[str, Any]) -> str:
    """Return when it was told last; by the newer of the two APIs that make events, only when at all."""
    return text(event.get("lastTimestamp")) or text(event.get("eventTime"))
