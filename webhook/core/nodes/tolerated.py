"""Which taints many tolerations bear: found in a few look-ups, however many there are."""

from collections.abc import Iterable
from typing import Final

from webhook.core.model.gang import Toleration
from webhook.core.model.policy import Taint, whole_number

_ANY: Final = None
"""Any value."""


class Tolerated:
    """The same as ``tolerates`` says of any of them."""

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._exact: set[tuple[str, str | None, str]] = set()
        """Key, value and effect; no effect: any, and no key: any."""
        self._above: dict[tuple[str, str], int] = {}
        """Key and effect to the number above which values are borne."""
        self._below: dict[tuple[str, str], int] = {}
        for each in tolerations:
            self._add(each)

    def bear(self, taint: Taint) -> bool:
        """Return whether a pod with these tolerations bears ``taint``."""
        return any(self._with(taint, effect) for effect in ("", taint.effect))

    def _add(self, each: Toleration) -> None:
        key, effect = each.key, each.effect
        if each.operator == "Exists":
            self._exact.add((key, _ANY, effect))
        elif key and each.operator in ("Gt", "Lt"):
            number = whole_number(each.value)
            if number is not None and each.operator == "Gt":
                self._above[key, effect] = min(number, self._above.get((key, effect), number))
            elif number is not None:
                self._below[key, effect] = max(number, self._below.get((key, effect), number))
        elif key:
            self._exact.add((key, each.value, effect))

    def _with(self, taint: Taint, effect: str) -> bool:
        """Return whether any that names just this effect bears a taint."""
        key = taint.key
        if not self._exact.isdisjoint((("", _ANY, effect), (key, _ANY, effect), (key, taint.value, effect))):
            return True
        above, below = self._above.get((key, effect)), self._below.get((key, effect))
        if above is None and below is None:
            return False
        number = whole_number(taint.value)
        return number is not None and ((above is not None and number > above) or (below is not None and number < below))
