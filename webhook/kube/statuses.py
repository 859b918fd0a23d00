"""From an HTTP status and a metav1.Status to the error class that says what to do next."""

from http import HTTPStatus
from typing import Final

from webhook import errors
from webhook.wire.watch import read_status

_CLASSES: Final[dict[int, type[errors.ApiError]]] = {
    401: errors.Forbidden,
    403: errors.Forbidden,
    404: errors.NotFound,
    408: errors.Unavailable,
    409: errors.Conflict,
    410: errors.Gone,
    429: errors.Unavailable,
}
_STARTING: Final = "not yet ready to handle request"
"""An API server whose admission is not synced after a start answers 403 with this; it means 503."""


def _reason(status: int) -> str:
    """Return what a status means where the answer does not say, as the API server would write it."""
    try:
        return HTTPStatus(status).phrase.title().replace(" ", "").replace("-", "")
    except ValueError:
        return "Refused"


def refusal(status: int, body: bytes, *, is_write: bool) -> errors.ApiError:
    """Return the error for an answer other than 2xx.

    After a 5xx nobody can say whether a write was applied (a time-out towards etcd is a 500); after a 4xx it was not.
    """
    said = read_status(body)
    reason = (said.reason if said else "") or _reason(status)
    message = (said.message if said else "") or " ".join(body[:200].decode(errors="replace").split())
    if status == 403 and _STARTING in message:
        return errors.Unavailable(status, reason, message)
    if status >= 500:
        return errors.Unavailable(status, reason, message, outcome_unknown=is_write)
    return _CLASSES.get(status, errors.Invalid)(status, reason, message)
