"""What a member said that answers and takes no copy of a gang: a policy of its own, or a schema that differs."""

from math import inf
from typing import Final

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase, Offer
from webhook.core.fleet.sight import Copy

REFUSED_SECONDS: Final = 5.0
"""After which the same offer is tried there once more: whoever refuses it may have mended it."""


class Refusal:
    """The last refusal of one gang's copy."""

    def __init__(self) -> None:
        self._of: tuple[Offer, DispatchPhase] | None = None
        """The offer, and the phase by which the copy was to be created, permitted or deleted."""
        self._words = ""
        self._until = -inf
        self.is_hubs = False
        """It was the hub's own cluster that kept it from being written, and not the member."""

    def heard(self, dispatch: Dispatch, words: str, now: float, *, is_hubs: bool = False) -> None:
        """Note that what a record asks for was refused at this loop time."""
        self._of, self._words, self._until = (dispatch.offer, dispatch.phase), words, now + REFUSED_SECONDS
        self.is_hubs = is_hubs

    def over(self) -> None:
        """Note that the member has taken what it had refused."""
        self._of = None

    def words(self, dispatch: Dispatch) -> str:
        """Return what was said of what a record asks for; nothing where that was not refused."""
        return self._words if (dispatch.offer, dispatch.phase) == self._of else ""

    def of_permit(self, dispatch: Dispatch, copy: Copy | None) -> str:
        """Return how the permit of a granted copy is refused; nothing where it is not."""
        granted = dispatch.phase is DispatchPhase.GRANTED and copy is not None and copy.uid == dispatch.copy_uid
        return self.words(dispatch) if granted and copy is not None and not copy.permitted else ""

    def rests(self, dispatch: Dispatch, now: float) -> bool:
        """Return whether it is too early to try once more what a record asks for."""
        return (dispatch.offer, dispatch.phase) == self._of and now < self._until
