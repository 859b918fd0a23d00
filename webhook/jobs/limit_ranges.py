"""What keeps pods from being created though there is quota: requests above limits, and LimitRanges.

Kueue looks before it admits (``pkg/util/limitrange``), because such a gang would hold quota and never start. Of several
LimitRanges the narrowest bounds count. ``Container`` bounds hold for each container's requests and limits, ``Pod``
bounds for the sum of requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from webhook.core import amounts, quantity
from webhook.core.amounts import Amounts
from webhook.jobs.pod_requests import with_limit_range_defaults

_FIELDS: Final = ("initContainers", "containers")


def violation(pod_spec: Mapping[str, Any], requests: Amounts, limit_ranges: Sequence[Mapping[str, Any]]) -> str | None:
    """Return which rule pods of ``pod_spec`` break, or None; ``requests`` are what one such pod is priced at.

    ``limit_ranges`` are the LimitRange objects of the namespace. Raises QuantityError where the spec cannot be priced.
    """
    spec = with_limit_range_defaults(pod_spec, limit_ranges)
    bounds = _bounds(limit_ranges, "Container")
    for field in _FIELDS:
        for container in spec.get(field) or ():
            resources = container.get("resources") or {}
            asked, limits = (amounts.parse(resources.get(side) or {}) for side in ("requests", "limits"))
            for name in sorted(asked.keys() & limits.keys()):
                if asked[name] > limits[name]:
                    return f"container {container.get('name')}: {_shown(asked, name)} exceeds its limit"
            low = {name: min(side[name] for side in (asked, limits) if name in side) for name in {**asked, **limits}}
            found = _outside(low, amounts.maximum(asked, limits), bounds)
            if found is not None:
                return f"container {container.get('name')}: {found}"
    found = _outside(requests, requests, _bounds(limit_ranges, "Pod"))
    return None if found is None else f"pod: {found}"


def _bounds(limit_ranges: Iterable[Mapping[str, Any]], kind: str) -> tuple[Amounts, Amounts]:
    """Return the largest minimum and the smallest maximum of each resource."""
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    for limit_range in limit_ranges:
        for item in (limit_range.get("spec") or {}).get("limits") or ():
            if item.get("type") == kind:
                least = amounts.maximum(least, amounts.parse(item.get("min") or {}))
                for name, amount in amounts.parse(item.get("max") or {}).items():
                    most[name] = min(amount, most.get(name, amount))
    return least, most


def _outside(low: Amounts, high: Amounts, bounds: tuple[Amounts, Amounts]) -> str | None:
    least, most = bounds
    for name in sorted(high):
        if high[name] > most.get(name, high[name]):
            return f"{_shown(high, name)} is more than a LimitRange allows ({_shown(most, name)})"
        if low[name] < least.get(name, 0):
            return f"{_shown(low, name)} is less than a LimitRange demands ({_shown(least, name)})"
    return None


def _shown(found: Amounts, name: str) -> str:
    return f"{quantity.render(found[name], name)} {name}"
