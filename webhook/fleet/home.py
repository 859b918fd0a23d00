"""The hub's own cluster: whether it is still the one that it was, and at no earlier state."""

from collections import deque
from collections.abc import Iterable
from typing import Final

import orjson
import structlog

from webhook.errors import ApiError, TuttiError
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import collection_path
from webhook.kube.api import Api
from webhook.untyped import paths

log = structlog.get_logger(__name__)

_KUBE_SYSTEM: Final = "/api/v1/namespaces/kube-system"
_ANY_JOB: Final = "/apis/batch/v1/jobs"
"""Served by every API server, and readable to the hub, if all is well."""

_OF_ALL: Final = (0, 429, 502, 503, 504)
"""HTTP statuses that are no matter of one kind: there was no answer in time, or too much is asked already."""


class AnotherHub(TuttiError):
    """The hub's own address leads to another cluster than at the start: nothing that is known holds there."""


class Home:
    """What one hub process knows of it."""

    def __init__(self, api: Api, kinds: Iterable[JobKind]) -> None:
        """``kinds``: of jobs that the hub's account may list, if all is well."""
        self._api = api
        self._listed = deque(dict.fromkeys([_ANY_JOB, *map(collection_path, kinds)]))
        """That which answered last comes first."""
        self._newest = 0

    async def uid(self) -> str:
        """Return the uid of its kube-system. Raises ApiError."""
        return str(paths.find(orjson.loads(await self._api.request("GET", _KUBE_SYSTEM)), ("metadata", "uid")))

    async def check(self, uid: str) -> None:
        """See that it is the one that it was: what another one has not is not gone. Raises AnotherHub, ApiError."""
        if (found := await self.uid()) != uid:
            log.error("fleet.another_hub", was=uid, found=found)
            raise AnotherHub(f"the hub's address led to the cluster {uid}, and leads to {found}")

    async def set_back_to(self) -> int | None:
        """Return the version at which its API server is, if that is an earlier one than before. Raises ApiError."""
        version = await self._version()
        before, self._newest = self._newest, version
        return version if version < before else None

    async def _version(self) -> int:
        """Return the version that a list of any kind says, which is that of all that the API server stores.

        Raises ApiError. Where one kind cannot be listed, one more is tried each time.
        """
        try:
            return await self._version_by_first()
        except ApiError as error:
            if error.status in _OF_ALL:
                raise
            self._listed.rotate(-1)
            return await self._version_by_first()

    async def _version_by_first(self) -> int:
        listed = await self._api.request("GET", self._listed[0], query={"limit": "1"})
        return int(paths.find(orjson.loads(listed), ("metadata", "resourceVersion")) or 0)
