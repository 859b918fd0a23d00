"""Why a gang fits no nodes, as placing it found."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from webhook.core.placement.overlay import Asked


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Why a gang fits no nodes now: the first pod set that did not, and the numbers."""

    asked: Asked
    found: int
    """Pods of it that fit."""
    certain: bool
    """It is impossible, not only unfound: every other pod set left out, it would not fit either."""
    postponed: bool = False
    """It is not known yet: too many shapes are new in this round."""
    shapes: int = 0
    """So many different ones it asks for, where these are too many to be looked at together; else 0."""
    unread: bool = False
    """It has to be in one domain, and nobody knows the nodes."""
    nearest: str | None = None
    """The domain that has most room, where it has to be in one: that of ``found`` pods. None where there is none."""
    gang: Sequence[Asked] = field(default=(), compare=False)
    """All pod sets that were to be placed."""

    @property
    def unseen(self) -> bool:
        """No node was looked at: what is free there says nothing of it."""
        return self.postponed or self.unread or self.shapes > 0
