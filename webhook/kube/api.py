"""The seam between Tutti and an API server: requests in, bytes and lines out.

``kube.http`` speaks to a real one; ``simulated`` answers in memory, under a virtual clock and seeded faults. Everything
above this seam is the same code in production, in the demo and in the simulation.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
"""Costs the API server half of what a merge patch does, for it is applied without a detour over JSON. Built-in kinds
alone take it."""
JSON: Final = "application/json"
METADATA: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
"""For answers whose metadata alone is read: encoding a page of the ledger takes as long as storing it."""

PAGE_BYTES_MAX: Final = 16 * 2**20
"""The longest page of a list that is read: 500 objects of 1.5 MB each are more memory than a process has."""
REQUEST_TIMEOUT_SECONDS: Final = 10.0
"""No call may hang: a renewal that hangs outlives its lease."""


class Api(Protocol):
    """One cluster's API server, as one identity."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bytes:
        """Send one request and return the body of a 2xx answer, ``METADATA`` alone of an object where that will do.

        A page (a query with ``limit``) of more than ``PAGE_BYTES_MAX`` raises ``errors.TooLarge``. To a write so long
        an answer is none. The server stops working on a write when nobody waits for it any more, or else after the
        ``timeout`` of the query (such as ``4.5s``), and says so.
        Raises ``errors.ApiError`` (the subclass for its status) otherwise. ``Unavailable.outcome_unknown`` is set when
        a write was sent but not answered.
        """
        ...

    def watch(self, path: str, *, query: Mapping[str, str], idle_seconds: float) -> AsyncIterator[bytes]:
        """Yield the lines of a watch until the server ends it (which is normal) or ``idle_seconds`` pass in silence.

        Raises ``errors.ApiError`` when the watch cannot start, or a line is longer than ``PAGE_BYTES_MAX``; ends
        without error when the connection breaks.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
