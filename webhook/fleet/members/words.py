"""What an answer of a member says that is no success: of the request alone, or that the member does not answer. Pure.

An admission webhook refuses a write by any status that it likes, also by one that an API server has for itself.
"""

from typing import Final

from webhook.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, TooLarge

HUNG: Final = 504
FAILED: Final = (500, HUNG)
"""HTTP statuses by which an API server itself says that something behind it failed, or did not answer in time."""
UNAUTHORIZED: Final = 401
"""Of a token that nobody knows."""
TAKEN: Final = "AlreadyExists"
BEGINS: Final = "storage is (re)initializing"
"""Of a kind that is read for the first time, or whose cache is filled again; the status is 429 all the same."""


def is_of_the_read(error: ApiError) -> bool:
    """Return whether a member answers, and says of what was read alone why it is not shown."""
    return isinstance(error, Conflict | Invalid | NotFound | TooLarge)


def is_of_the_kind(error: ApiError) -> bool:
    """Return whether a member answers, and cannot show one kind for a moment, as when that was just defined there."""
    return error.message == BEGINS


def is_of_the_write(error: ApiError) -> bool:
    """Return whether a member answers, and says of a write alone why it is not stored.

    That may be so of any other error with a status too: if it answers when it is asked for what was to be written.
    """
    is_forbidden = isinstance(error, Forbidden) and error.status != UNAUTHORIZED
    return is_of_the_read(error) or is_forbidden or error.status in FAILED


def may_be_of_the_object(error: ApiError, method: str) -> bool:
    """Return whether a write may have failed for what is there: it is not as it was read, is gone, or is there already.

    If what is there does not bear that out, the write was refused.
    """
    if method == "POST":
        return isinstance(error, Conflict) and error.reason == TAKEN
    return isinstance(error, Conflict | NotFound) or (isinstance(error, Invalid) and method == "PATCH")


def told(error: ApiError, path: str) -> str:
    """Return in words why a write to ``path`` was refused."""
    # Where its kind is missing there, only the path says which; nor does it say what hangs.
    more = f" at {path}" if isinstance(error, NotFound) else ""
    return f"{error}{more}" + ("; an admission webhook there may hang" if error.status == HUNG else "")
