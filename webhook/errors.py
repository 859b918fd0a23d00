"""Every error of Tutti.

A denial is a value (``core.reasons.reasons.Reason``), not an exception; a broken invariant is an assertion.

TuttiError
├── RequestError        an admission request that cannot be answered by a review; carries the HTTP status
├── WrongName           somebody names an object that is not there, or that is none of ours
├── WrongInput          configuration, policy or another file that cannot be used; carries problems
└── ApiError            the API server said no, or nothing
    ├── NotFound        404
    ├── Conflict        409: the object moved on, or exists already
    ├── Gone            410: the watch or list position is too old
    ├── Forbidden       401, 403
    ├── Invalid         400, 405, 415, 422: sent again it fails again
    ├── TooLarge        the answer was longer than is read at once: ask for less
    └── Unavailable     429, 5xx, time-out, reset: try again later; the outcome of a write may be unknown
"""

from typing import Final

from webhook.core.notation.problem import Problem

WRONG: Final = 2
"""Exit status when arguments (typer says it so too), a file, a configuration or a kubeconfig are wrong. Warnings alone
count for ``tutti try`` only, whose answer they may change."""


def in_words(error: Exception) -> str:
    """Return what a person needs to know of an error that a file caused: no numbers of the system, a place in YAML."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        problem = getattr(error, "problem", None) or getattr(error, "context", None) or "cannot be read"
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    if isinstance(error, UnicodeDecodeError):
        return "is not text in UTF-8"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


class TuttiError(Exception):
    """Base of all errors that Tutti raises on purpose."""


class RequestError(TuttiError):
    """An admission request that is not an answerable AdmissionReview."""

    def __init__(self, http_status: int, message: str) -> None:
        super().__init__(message)
        self.http_status = http_status


class WrongName(TuttiError):
    """What was asked for by name is not there, or is no gang of ours."""


class WrongInput(TuttiError):
    """Configuration, policy or another file given to us that cannot be used."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class ApiError(TuttiError):
    """The API server refused a request or did not answer it."""

    def __init__(self, status: int, reason: str, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else f"{reason}: {message}")
        self.status = status
        """HTTP status, 0 when there was no answer."""
        self.reason = reason
        self.message = message
        self.outcome_unknown = outcome_unknown
        """A write was sent and nobody can say whether it was applied."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: a resourceVersion or uid precondition failed, or the name is taken."""


class Gone(ApiError):
    """410: list again."""


class Forbidden(ApiError):
    """401 or 403."""


class Invalid(ApiError):
    """The request itself is wrong."""


class TooLarge(ApiError):
    """A page of a list is longer than is read at once."""


class Unavailable(ApiError):
    """The API server is overloaded, starting or unreachable."""
