"""The hub's own job of one gang: read, and written only as it was read."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
import structlog

from webhook.core.fleet.dispatch import NOWHERE, Dispatch, DispatchPhase
from webhook.core.fleet.text import encode
from webhook.core.notation import names
from webhook.errors import ApiError, Forbidden, Invalid
from webhook.fleet.jobs.counting import count
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.jobs.last_read import LastRead
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import object_path
from webhook.kube.api import JSON_PATCH, METADATA
from webhook.untyped import paths
from webhook.untyped.editing import Patch

log = structlog.get_logger(__name__)

_GOES_ON: Final = (DispatchPhase.OFFERED, DispatchPhase.GRANTED)
"""What follows soon: a grant, a first status."""
FAILED: Final = 500
"""HTTP status by which an API server says that something behind it failed."""


class RecordRefused(Invalid):
    """A record is not stored: the job was made again meanwhile, has no room for it, or somebody forbids it."""


def is_refusal(error: ApiError) -> bool:
    """Return whether the hub's API server says of one write that it does not store it.

    What etcd finds too large, and what an admission webhook fails on, is called a fault of the server's own.
    """
    return isinstance(error, Forbidden | Invalid) or error.status == FAILED


class OwnJob:
    """One job of the hub's cluster, with its record."""

    def __init__(self, fleet: Fleet, kind: JobKind, namespace: str, name: str) -> None:
        self._fleet = fleet
        self.namespace, self.name = namespace, name
        self._path = object_path(kind, namespace, name)
        self.last_read = LastRead()
        self.record = NOWHERE
        """As it was read at the last look or written since: it says where to look first."""
        self._taken = "", 0
        """Uid of the job of which that is, and how often its server had been set back then."""
        self.known: dict[str, Any] | None = None
        """As a watch has shown it, or as it was when an offer or a grant was stored on it."""

    def is_shown(self, job: dict[str, Any] | None) -> None:
        """Take in the job as a watch shows it, where that is later than what was read."""
        if job is not None and int(job["metadata"]["resourceVersion"]) > self.last_read.newest:
            self.known = job

    async def read(self, *, is_written: bool = False) -> dict[str, Any]:
        """Return the job. Raises ApiError.

        ``is_written``: what is known of it will do, for whatever follows is written on it first, if it is still so.
        """
        job, self.known = self.known if is_written else None, None
        if job is None:
            job = orjson.loads(await self._fleet.api.request("GET", self._path))
        self._note_version(job)
        return job

    def take(self, job: Mapping[str, Any]) -> Dispatch:
        """Return the record of a job as it was just read. Raises UnreadableRecord.

        A record never goes back by itself. Where etcd's versions were raised after a restore, or the job was written
        to since, nothing else shows that the hub's cluster was set back.
        """
        dispatch, before, taken = dispatch_of(job), self.record, (job["metadata"]["uid"], self._fleet.set_backs)
        if taken == self._taken and not dispatch.may_follow(before):
            self._fleet.begin_again(int(job["metadata"]["resourceVersion"]))
        self.record, self._taken = dispatch, (taken[0], self._fleet.set_backs)
        return dispatch

    async def write(self, job: Mapping[str, Any], dispatch: Dispatch) -> dict[str, Any]:
        """Store the record, if the job is still as it was read; return the job as it is then.

        Raises ApiError, RecordRefused.
        """
        metadata = paths.find_mapping(job, ("metadata",))
        noted = {**paths.find_mapping(metadata, ("annotations",)), names.DISPATCH: encode(dispatch)}
        kept = [each for each in metadata.get("finalizers") or () if each != names.DISPATCH]
        if dispatch.phase is not DispatchPhase.NOWHERE:
            kept.append(names.DISPATCH)
        patch = [
            *_only(metadata),
            {"op": "add", "path": "/metadata/annotations", "value": noted},
            {"op": "add", "path": "/metadata/finalizers", "value": kept},
        ]
        try:
            stored = {**job, "metadata": await self._patch(self._path, patch)}
        except ApiError as error:
            if not is_refusal(error):
                raise
            raise RecordRefused(error.status, error.reason, error.message) from error
        count(dispatch_of(job), dispatch)
        self.record, self.known = dispatch, stored if dispatch.phase in _GOES_ON else None
        log.info("fleet.dispatch", job=f"{self.namespace}/{self.name}", phase=dispatch.phase, member=dispatch.member)
        return stored

    async def write_status(self, job: dict[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
        """Store a status, if the job is still as it was read; return the job as it is then. Raises ApiError."""
        patch = [*_only(job["metadata"]), {"op": "add", "path": "/status", "value": told}]
        return {**job, "metadata": await self._patch(f"{self._path}/status", patch), "status": told}

    async def _patch(self, path: str, patch: Patch) -> dict[str, Any]:
        """Change the job, and return its metadata."""
        body = orjson.dumps(patch)
        answer = await self._fleet.api.request("PATCH", path, body=body, content_type=JSON_PATCH, accept=METADATA)
        stored: dict[str, Any] = orjson.loads(answer)
        self._note_version(stored)
        return stored["metadata"]  # type: ignore[no-any-return]

    def _note_version(self, job: Mapping[str, Any]) -> None:
        version = int(job["metadata"]["resourceVersion"])
        if self.last_read.own(version, self._fleet.set_backs):
            # The server itself may have been written to so often meanwhile that it is at a later version again.
            self._fleet.begin_again(version)


def _only(metadata: Mapping[str, Any]) -> Patch:
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
    ]
