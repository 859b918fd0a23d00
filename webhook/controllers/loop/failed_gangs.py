"""The gangs on which the engine fails in one process: it is asked about them never again.

A bug of ours that meets one gang must stop nobody else. What the engine holds is not to be trusted afterwards, so a
leader's term ends, and a follower begins again with an empty engine.
"""

import traceback
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from webhook import metrics
from webhook.cluster.view import View
from webhook.controllers.ledger.errors import GangFailed
from webhook.core.ledger.record import Claim
from webhook.core.notation.problem import some
from webhook.core.reasons.reasons import Code, Reason

log = structlog.get_logger(__name__)

FAILED: Final = Reason(Code.UNREADABLE, "Tutti failed on this job; its log has the reason")
FAILED_MAX: Final = 100
"""Gangs at which the engine fails in one process: with more it is not they that are wrong, and the process ends."""
FAILED_NAMED_MAX: Final = 3
"""Jobs of one gang that are named: thousands may share a PodGroup."""


class FailedGangs:
    """Uids of the jobs of these gangs."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._gang_of: dict[str, str] = {}
        """Uid to that of its gang's first job."""
        self._error: Exception | None = None
        """Why the engine is not to be trusted until it is reset."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._gang_of

    @property
    def doubted(self) -> bool:
        """Whether the engine is not to be trusted."""
        return self._error is not None

    def begin(self) -> None:
        """The engine is reset."""
        self._error = None

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        self._gang_of.pop(uid, None)

    def add(self, uids: Sequence[str], error: Exception) -> None:
        """Hold back the jobs of the gang at which the engine failed; where there is none or too many failed, nobody."""
        if not uids or len(set(self._gang_of.values())) >= FAILED_MAX:
            self._error = error
            return
        self._gang_of |= dict.fromkeys(uids, uids[0])
        metrics.BROKEN_JOBS.inc()
        named = some(uids, FAILED_NAMED_MAX, lambda uid: job.key if (job := self._view.jobs.get(uid)) else uid)
        log.error("gang.broken", jobs=named, exc_info=error)
        self._error = GangFailed(f"Tutti failed on {named}; it is held back from now on")
        self._error.__cause__ = error

    def without(self, claims: Mapping[str, Claim]) -> dict[str, Claim]:
        """Return the claims of all other gangs."""
        return {uid: claim for uid, claim in claims.items() if uid not in self}

    def check(self) -> None:
        """Raise GangFailed where the engine failed on a gang, and what it failed with where that is no gang's fault."""
        if self._error is not None:
            raise self._error


def cause_of(error: Exception) -> str:
    """Return what went wrong and where, without the numbers that may differ at each look."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}"
