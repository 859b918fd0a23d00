"""What becomes of offers and grants, counted from one record of a gang to the next."""

from webhook import metrics
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase


def count(before: Dispatch, after: Dispatch) -> None:
    """Count an offer or a grant that is over now that ``after`` is stored."""
    if before.phase is DispatchPhase.OFFERED and (after.phase, after.offer) != (before.phase, before.offer):
        outcomes = {DispatchPhase.GRANTED: "granted", DispatchPhase.OFFERED: "moved"}
        metrics.OFFERS.labels(before.member, outcomes.get(after.phase, "withdrawn")).inc()
    elif before.phase is DispatchPhase.GRANTED and after.phase is not DispatchPhase.GRANTED:
        metrics.GRANTS.labels(before.member, "ended" if after.failed == before.failed else "failed").inc()
