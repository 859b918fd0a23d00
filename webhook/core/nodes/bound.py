"""A pod that is bound to a node."""

from dataclasses import dataclass

from webhook.core.notation.amounts import Amounts


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod that holds room on a node."""

    node: str
    requests: Amounts
    gang: str | None = None
    """Uid of its gang."""
    pod_set: str = ""
    owner: str = ""
    """Uid of its controller."""
