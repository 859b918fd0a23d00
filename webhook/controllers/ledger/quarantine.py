"""Copies of broken ledgers, kept for people to look at: only the last few.

Whoever damages the ledger again and again must not fill etcd with copies of it. All of it is best effort: nothing
waits for a copy.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson
import structlog

from webhook.clock import AGREES_SECONDS
from webhook.core.notation import names
from webhook.core.notation.moments import time_text
from webhook.core.notation.names import CONFIG_MAPS
from webhook.errors import ApiError, NotFound
from webhook.kube.api import Api
from webhook.untyped.values import seconds

log = structlog.get_logger(__name__)

PLACES: Final = tuple(f"{names.LEDGER_NAME}-quarantine-{number}" for number in range(5))
"""Names that copies can have."""
KEPT_SECONDS: Final = 30 * 86_400.0
TIDY_SECONDS: Final = 3600.0
"""How often copies are looked at, to delete the old ones."""
SINCE: Final = "tutti.dev/quarantined-at"
"""Annotation: when the copy was made, in RFC 3339."""


def kept_since(copy: Mapping[str, Any]) -> float:
    """Return the Unix time of a copy; 0 where somebody took its note away."""
    return seconds((copy["metadata"].get("annotations") or {}).get(SINCE))


class Quarantine:
    """The places for copies of one ledger."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._tidy_at = 0.0

    async def keep(self, data: Mapping[str, str], now_seconds: float) -> None:
        """Keep a copy of ``data``; the oldest one goes where all places are taken."""
        try:
            taken = await self._tidied(now_seconds)
            free = [place for place in PLACES if place not in taken]
            if not free:
                free = [min(taken, key=lambda place: taken[place])]
                await self._api.request("DELETE", f"{CONFIG_MAPS}/{free[0]}")
            metadata = {
                "name": free[0],
                "namespace": names.SYSTEM_NAMESPACE,
                "annotations": {SINCE: time_text(int(now_seconds))},
            }
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
            await self._api.request("POST", CONFIG_MAPS, body=orjson.dumps(body))
        except ApiError as error:
            log.warning("ledger.quarantine_failed", error=str(error))

    async def tidy(self, now_seconds: float) -> None:
        """Delete the copies that were kept for long enough; asked often, it looks now and then."""
        if now_seconds < self._tidy_at:
            return
        self._tidy_at = now_seconds + TIDY_SECONDS
        try:
            await self._tidied(now_seconds)
        except ApiError as error:
            log.info("ledger.quarantine_not_tidied", error=str(error))

    async def _tidied(self, now_seconds: float) -> dict[str, float]:
        """Delete what is old, and return since when each other copy is there, by place."""
        taken: dict[str, float] = {}
        for place in PLACES:
            try:
                found = orjson.loads(await self._api.request("GET", f"{CONFIG_MAPS}/{place}"))
                since = kept_since(found)
                if now_seconds - since > KEPT_SECONDS:
                    await self._api.request("DELETE", f"{CONFIG_MAPS}/{place}")
                else:
                    # One from the future says nothing of its age: it is the first to go where its place is needed.
                    taken[place] = since if since <= now_seconds + AGREES_SECONDS else 0.0
            except NotFound:
                continue
        return taken
