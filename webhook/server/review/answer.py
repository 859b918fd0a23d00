"""What a handler can say: allow, allow with warnings, patch, or deny with a kind of refusal, a code and a sentence.

A denial is a value, not an exception. Its kind is a metric label and a field of the decision line; its message is for
the person in front of kubectl and carries the numbers.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from webhook.core.model.frozen import frozen


class Refusal(StrEnum):
    """Kinds of denial: few, so that they can be metric labels."""

    MALFORMED = "Malformed"
    UNCLASSIFIED = "Unclassified"
    UNSUSPENDED = "Unsuspended"
    NOT_ADMITTED = "NotAdmitted"
    QUEUE_CHANGE = "QueueChange"
    GROWTH = "Growth"
    OWN_FIELDS = "OwnFields"
    MALFORMED_GANG = "MalformedGang"
    COMPUTE_CLASS = "ComputeClass"
    FOREIGN_CREATOR = "ForeignCreator"
    BEYOND_RESERVATION = "BeyondReservation"
    FENCED = "ResourceQuotaExceeded"
    NODE_PRESET = "NodePreset"
    GATE_REMOVED = "GateRemoved"
    UNPRICEABLE = "Unpriceable"
    POLICY = "PolicyInvalid"
    IN_USE = "PolicyInUse"
    LEDGER_BEHIND = "LedgerBehind"
    LEDGER_UNTRUSTED = "LedgerUntrusted"
    NOT_READY = "NotReady"
    BUSY = "Busy"
    BROKEN = "InternalError"


@frozen
class Answer:
    """One decision about one request."""

    allowed: bool
    outcome: str
    """``allowed``, ``warned``, ``patched``, or the kind of refusal."""
    code: int = 200
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: tuple[Mapping[str, Any], ...] = ()


ALLOW: Final = Answer(True, "allowed")


def allow(warnings: tuple[str, ...] = ()) -> Answer:
    """Let the request pass; kubectl prints the warnings."""
    return Answer(True, "warned", warnings=warnings) if warnings else ALLOW


def patch(operations: tuple[Mapping[str, Any], ...], warnings: tuple[str, ...] = ()) -> Answer:
    """Let the request pass with JSON patch ``operations``; none is a plain allow."""
    return Answer(True, "patched", warnings=warnings, patch=operations) if operations else allow(warnings)


def deny(refusal: Refusal, message: str, code: int = 403, warnings: tuple[str, ...] = ()) -> Answer:
    """Refuse the request. 403 is final until something changes, 422 a wrong object, 429 and 503 are worth a retry."""
    return Answer(False, refusal.value, code=code, message=message, warnings=warnings)
