"""The hub's own job of one gang: read, and written only as it was read."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import orjson
import structlog

from webhook.core.fleet.dispatch import NOWHERE, Dispatch, DispatchPhase
from webhook.core.fleet.sight import Copy
from webhook.core.fleet.text import encode
from webhook.core.notation import names
from webhook.errors import ApiError, Invalid
from webhook.fleet.jobs.counting import count
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.jobs.last_read import LastRead
from webhook.fleet.jobs.unstored import Unstored
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import object_path
from webhook.kube.api import JSON_PATCH, METADATA, REQUEST_TIMEOUT_SECONDS
from webhook.untyped import paths
from webhook.untyped.editing import Patch
from webhook.wire.watch import version_number

log = structlog.get_logger(__name__)

_GOES_ON: Final = (DispatchPhase.OFFERED, DispatchPhase.GRANTED)
"""What follows soon: a grant, a first status."""
SOONER: Final[Mapping[str, str]] = {"timeout": f"{REQUEST_TIMEOUT_SECONDS - 0.5:g}s"}
"""Has the API server give up a write before the hub does, and so say that something behind it hangs."""


class RecordRefused(Invalid):
    """A record is not stored: the job changed meanwhile, has no room for it, or somebody forbids it."""

    def __init__(self, error: ApiError, *, again: bool) -> None:
        """``again``: the job was as it was at the last try, so nobody else's write is the reason."""
        super().__init__(error.status, error.reason, error.message)
        self.again = again


class OwnJob:
    """One job of the hub's cluster, with its record."""

    def __init__(self, fleet: Fleet, kind: JobKind, namespace: str, name: str) -> None:
        self._fleet = fleet
        self.namespace, self.name = namespace, name
        self.which = kind, namespace, name
        self._path = object_path(kind, namespace, name)
        self.last_read = LastRead()
        self.record = NOWHERE
        """As it was read at the last look or written since: it says where to look first."""
        self._taken = "", 0
        """Uid of the job of which that is, and how often its server had been set back then."""
        self.known: dict[str, Any] | None = None
        """As a watch has shown it, or as it was when an offer or a grant was stored on it."""
        self.came_after = 0
        """How many ``times_due`` of ``Swept`` there had been when it was created; 0: it may have been there before."""
        self._records, self.statuses = Unstored(), Unstored()

    def is_shown(self, job: dict[str, Any] | None) -> None:
        """Take in the job as a watch shows it, where that is later than what was read."""
        if job is not None and int(job["metadata"]["resourceVersion"]) > self.last_read.newest:
            self.known = job

    def runs_in(self, member: str) -> bool:
        """Return whether its copy in a member has a permit, by what was read last."""
        return self.record.phase is DispatchPhase.GRANTED and self.record.member == member

    def runs_as_read(self, cluster: str, copy: Copy) -> bool:
        """Return whether this is the copy that its record names, and nothing was written to it since the last step."""
        named = (self.record.cluster, self.record.copy_uid) == (cluster, copy.uid)
        return named and self.last_read.has_copy(copy.uid, version_number(copy.version))

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

        A record that was just refused is not sent again at once. Raises ApiError where nobody answers, RecordRefused.
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
            stored = {**job, "metadata": await self._patch("", metadata, patch, self._records, dispatch.phase)}
        except ApiError as error:
            if not error.status:
                raise
            raise RecordRefused(error, again=self._records.is_refused) from error
        count(dispatch_of(job), dispatch)
        self.record, self.known = dispatch, stored if dispatch.phase in _GOES_ON else None
        log.info("fleet.dispatch", job=f"{self.namespace}/{self.name}", phase=dispatch.phase, member=dispatch.member)
        return stored

    async def write_status(self, job: dict[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
        """Store a status, if the job is still as it was read; return the job as it is then. Raises ApiError.

        Whether it was refused, ``statuses`` says; then the same is not sent again at once.
        """
        metadata = job["metadata"]
        # Definitions may require fields of a status (a SparkApplication's does), but none has to be there.
        clears = not told and "status" in job
        change = {"op": "remove", "path": "/status"} if clears else {"op": "add", "path": "/status", "value": told}
        patch = [*_only(metadata), change]
        return {**job, "metadata": await self._patch("/status", metadata, patch, self.statuses, told), "status": told}

    async def _patch(
        self, part: str, metadata: Mapping[str, Any], patch: Patch, unstored: Unstored, what: object
    ) -> dict[str, Any]:
        """Change the job, and return its metadata. Raises ApiError."""
        now = asyncio.get_running_loop().time
        if (refused := unstored.resting(metadata, what, now())) is not None:
            raise refused
        how: dict[str, Any] = {"query": SOONER, "content_type": JSON_PATCH, "accept": METADATA}
        try:
            answer = await self._fleet.api.request("PATCH", f"{self._path}{part}", body=orjson.dumps(patch), **how)
        except ApiError as error:
            if error.status:
                unstored.heard(metadata, what, error, now())
            raise
        unstored.stored()
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
