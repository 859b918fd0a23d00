"""Writes on a hub's job that its API server answers, and does not store: they were outrun, or they are refused.

An admission webhook of the hub may refuse by any status: by 409, as if the job had changed meanwhile, by 404, as if it
were gone, or by 429, as if the server had too much to do. What was outrun finds the job changed at the next try, and
what is refused finds it as it was. So nothing more has to be read to tell one from the other.
"""

from math import inf
from typing import Any, Final

from webhook.errors import ApiError, Forbidden, Invalid

FAILED: Final = 500
"""HTTP status by which an API server says that something behind it failed: also that etcd finds an object too large."""
BUSY: Final = (429, 503)
"""HTTP statuses by which an API server says that it has too much to do, or starts or ends: that passes."""
BUSY_TRIES: Final = 3
BUSY_SECONDS: Final = 8.0
"""So long, and so often, a server may say so of a job that stays as it is, until that counts as a refusal."""
REST_SECONDS: Final = 5.0
REST_SECONDS_MAX: Final = 15.0
"""From one try to the next."""
REST_EACH: Final = 0.5
"""From one try to the next, of the time since the first: what ends soon is seen soon."""


class Unstored:
    """The last writes of one kind on a job, as long as none of them is stored."""

    def __init__(self) -> None:
        self._about = "", ""
        """Uid of the job, and its version if the write may have been outrun."""
        self._tried: tuple[str, str, object] | None = None
        """Uid and version of the job, and what was to be written, at the last try."""
        self._answer: tuple[type[ApiError], tuple[int, str, str]] | None = None
        self._times = 0
        self._since = self._until = -inf
        self.is_refused = False
        """By whatever status the last one was answered, the job was as it was at the try before."""

    def heard(self, metadata: Any, what: object, error: ApiError, now: float) -> None:
        """Take in, at this loop time, what was answered to a write of ``what`` on a job as it was read."""
        uid, version = metadata["uid"], metadata["resourceVersion"]
        about = uid, "" if _is_no_race(error) else version
        if about != self._about:
            self._about, self._times, self._since = about, 0, now
        self._times, lasted = self._times + 1, now - self._since
        busy = error.status in BUSY
        self.is_refused = self._times >= BUSY_TRIES and lasted >= BUSY_SECONDS if busy else self._times > 1
        self._tried, self._answer = (uid, version, what), (type(error), (error.status, error.reason, error.message))
        rest = min(REST_SECONDS_MAX, max(REST_SECONDS, REST_EACH * lasted))
        self._until = now + rest if self._times > 1 else -inf

    def resting(self, metadata: Any, what: object, now: float) -> ApiError | None:
        """Return what was answered last where it is too early to try the same once more; None where it is not.

        Whoever changes the job may have mended it.
        """
        tried = metadata["uid"], metadata["resourceVersion"], what
        if self._answer is None or now >= self._until or tried != self._tried:
            return None
        kind, said = self._answer
        return kind(*said)

    def stored(self) -> None:
        """Note that a write is stored."""
        self._about, self._tried, self._answer, self.is_refused = ("", ""), None, None, False


def _is_no_race(error: ApiError) -> bool:
    """Return whether an error does not come of another writer, unless that one has made the job again."""
    return isinstance(error, Forbidden | Invalid) or error.status == FAILED
