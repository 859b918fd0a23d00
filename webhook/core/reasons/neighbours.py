"""Keeps the names of other namespaces' jobs out of what one namespace is told.

Reasons name who holds what is missing, since that is what people ask for. If tenants are strangers to each other, an
operator hides it (``hide_neighbours``): amounts stay, but names of other namespaces are taken out of every text.
"""

import re
from collections.abc import Container
from dataclasses import replace
from typing import Final

from webhook.core.reasons.reasons import Holder, Reason

SOMEBODY: Final = "a job of another namespace"
_NAMES: Final = re.compile(r"(?<![\w./-])([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)/([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)")


class _Anything:
    """Whatever reads like a name. ``4/8`` are amounts."""

    def __contains__(self, item: object) -> bool:
        return not str(item).isdigit()


ANY_NAMESPACE: Final[Container[str]] = _Anything()
"""Where namespaces are not known, as those of another cluster."""


def text_for(text: str, namespace: str, namespaces: Container[str]) -> str:
    """Return ``text`` with each ``namespace/name`` of another of ``namespaces`` taken out."""
    return _NAMES.sub(lambda m: m[0] if m[1] == namespace or m[1] not in namespaces else SOMEBODY, text)


def reason_for(reason: Reason, namespace: str, namespaces: Container[str]) -> Reason:
    """Return ``reason`` with no name of another namespace in it; what they hold stands as one amount."""
    own = tuple(each for each in reason.holders if text_for(each.gang, namespace, namespaces) == each.gang)
    others = sum(each.amount for each in reason.holders) - sum(each.amount for each in own)
    return replace(
        reason,
        message=text_for(reason.message, namespace, namespaces),
        where=text_for(reason.where, namespace, namespaces),
        help=text_for(reason.help, namespace, namespaces),
        holders=own if len(own) == len(reason.holders) else (*own, Holder("other namespaces", others)),
    )
