"""What ends a term, or a ledger."""

from webhook.controllers.ledger.stored import Stored
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.text import UnknownSchema
from webhook.errors import ApiError, TuttiError


class LeaseLost(TuttiError):
    """Another replica leads, or our lease could not be renewed in time: step down."""

    lasting = False
    """Trying again at once would end the same."""
    kept = False
    """The lease is still ours: it is handed over, so that nobody has to wait for its end."""

    def __init__(self, why: str, about: str = "") -> None:
        """``about`` may differ each time that it happens for the same reason, as who leads since when."""
        super().__init__(f"{why}: {about}" if about else why)
        self.why = why


class LedgerRefused(LeaseLost):
    """The API server takes no write of ours, or the ledger is of another release: step down, try again later."""

    lasting = kept = True


class GangFailed(LeaseLost):
    """A bug of ours met one gang while the engine decided: begin again, with a new engine and without that gang."""

    kept = True


class SetBack(TuttiError):
    """A backup was restored: what this process remembers of jobs and pods never happened, so it must end."""


class LedgerBroken(TuttiError):
    """The ledger is missing or was edited by somebody else: stop admitting and rebuild it."""

    def __init__(self, why: str, stored: Stored | None = None, *, deleted: bool = False, first: bool = False) -> None:
        super().__init__(why)
        self.stored = stored
        """What is stored instead, to be kept for people to look at."""
        self.deleted = deleted
        """The index is gone."""
        self.first = first
        """There was none when this process began to lead: where nothing holds anything either, nothing was lost."""


def refused(error: ApiError) -> LedgerRefused:
    """Return what a refusal by the API server means for a term."""
    return LedgerRefused(f"the API server refuses to write the ledger: {error}")


def refuse_unknown(stored: Stored | None) -> None:
    """Leave what another release wrote alone: what it says beyond our knowledge would be lost."""
    if stored is None:
        return
    try:
        ledger_text.check_schema(stored.data)
    except UnknownSchema as error:
        raise LedgerRefused(f"{stored.name} is left as it is: {error}") from error
