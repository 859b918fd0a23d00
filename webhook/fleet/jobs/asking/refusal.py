"""What a member said that answers and takes no copy of a gang: a policy of its own, or a schema that differs."""

from math import inf
from typing import Final

from webhook.core.fleet.dispatch import NO_OFFER, Dispatch, DispatchPhase, Offer
from webhook.core.fleet.sight import Copy

REFUSED_SECONDS: Final = 5.0
"""After which the same offer is tried there once more: whoever refuses it may have mended it."""


class Refusal:
    """The last refusal of one gang's copy."""

    def __init__(self) -> None:
        self._offer: Offer = NO_OFFER
        self._words = ""
        self._until = -inf

    def heard(self, offer: Offer, words: str, now: float) -> None:
        """Note that the copy of an offer was refused at this loop time."""
        self._offer, self._words, self._until = offer, words, now + REFUSED_SECONDS

    def words(self, offer: Offer) -> str:
        """Return what was said of an offer; nothing where its copy was not refused."""
        return self._words if offer == self._offer else ""

    def of_permit(self, dispatch: Dispatch, copy: Copy | None) -> str:
        """Return how the member refuses the permit of a granted copy; nothing where it does not."""
        granted = dispatch.phase is DispatchPhase.GRANTED and copy is not None and copy.uid == dispatch.copy_uid
        return self.words(dispatch.offer) if granted and copy is not None and not copy.permitted else ""

    def rests(self, offer: Offer, now: float) -> bool:
        """Return whether it is too early to try the offer once more."""
        return offer == self._offer and now < self._until
