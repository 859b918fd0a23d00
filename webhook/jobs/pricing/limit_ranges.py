"""What keeps pods from being created though there is quota: requests above limits, containers above what is stated for
their pod, and LimitRanges.

Such a gang would hold quota and never start. The rules are those of the LimitRanger (Kubernetes 1.36), which looks at
more than Kueue does before it admits: bounds hold for requests and for limits, a bound on what is not stated is broken,
and a pod's overhead is no part of its sums. Of several LimitRanges the narrowest bounds count. ``Container`` bounds
hold for each container, ``Pod`` bounds for the pod as it is priced, but for huge pages: of them the LimitRanger sees
what containers state. That extended resources need limits equal to requests is left to the API server: it refuses the
job's own object for that, and Kueue's objects need not state limits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from webhook.core.notation import amounts, quantity
from webhook.core.notation.amounts import Amounts
from webhook.core.notation.problem import some
from webhook.jobs.pricing.pod_requests import price, with_limit_range_defaults, with_pod_level_defaults

_FIELDS: Final = ("initContainers", "containers")
NAMED_MAX: Final = 5
"""Broken rules that are told at once."""


class _Bounds(NamedTuple):
    """The largest minimum, the smallest maximum and the smallest ratio of limit to request, of each resource."""

    least: Amounts
    most: Amounts
    ratio: Amounts


_UNBOUNDED: Final = _Bounds({}, {}, {})


def out_of_bounds(pods: Iterable[tuple[str, Mapping[str, Any]]], limit_ranges: Sequence[Mapping[str, Any]]) -> str:
    """Return every rule that keeps ``pods`` from being created, each pod set by its name; empty where none does.

    Raises as ``violations``.
    """
    broken = [f"pod set {name}: {each}" for name, spec in pods for each in violations(spec, limit_ranges)]
    return some(broken, NAMED_MAX, between="; ")


def violations(pod_spec: Mapping[str, Any], limit_ranges: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return every rule that pods of ``pod_spec`` break: what is mended of one alone would be refused by the next.

    ``limit_ranges`` are the LimitRange objects of the namespace. Raises Unreadable or QuantityError where the spec
    cannot be priced.
    """
    if not limit_ranges and not pod_spec.get("resources"):
        return [*_of_containers(pod_spec, _UNBOUNDED)]
    spec = with_limit_range_defaults(with_pod_level_defaults(pod_spec), limit_ranges)
    return [*_of_containers(spec, _bounds(limit_ranges, "Container")), *_of_pod(spec, _bounds(limit_ranges, "Pod"))]


def _of_containers(spec: Mapping[str, Any], bounds: _Bounds) -> Iterator[str]:
    for field in _FIELDS:
        for container in spec.get(field) or ():
            resources = container.get("resources") or {}
            requested, limited = resources.get("requests"), resources.get("limits")
            if bounds is _UNBOUNDED and (requested == limited or not requested or not limited):
                continue
            asked, limits = amounts.parse(requested or {}), amounts.parse(limited or {})
            for broken in (*_above(asked, limits), *_outside(asked, limits, bounds)):
                yield f"container {container.get('name')}: {broken}"


def _of_pod(spec: Mapping[str, Any], bounds: _Bounds) -> Iterator[str]:
    whole = [amounts.parse((spec.get("resources") or {}).get(side) or {}) for side in ("requests", "limits")]
    broken = [*_above(*whole), *_beyond(spec, *whole)]
    if any(bounds):
        compute = [{name: f"{side[name]}m" for name in ("cpu", "memory") if name in side} for side in whole]
        pod = price({**spec, "overhead": None, "resources": dict(zip(("requests", "limits"), compute, strict=True))})
        broken += _outside(pod.requests, pod.limits, bounds)
    yield from (f"pod: {each}" for each in broken)


def _beyond(spec: Mapping[str, Any], requests: Amounts, limits: Amounts) -> Iterator[str]:
    """Yield which containers exceed what is stated for their pod: all requests together, or the limit of one."""
    if not requests and not limits:
        return
    sums = price({**spec, "overhead": None, "resources": None})
    for name in sorted(requests.keys() & sums.requests.keys()):
        if sums.requests[name] > requests[name]:
            asked = _shown(sums.requests, name)
            yield f"its containers request {asked}, more than is requested for the whole pod ({_shown(requests, name)})"
    for container in spec.get("containers") or ():
        own = amounts.parse((container.get("resources") or {}).get("limits") or {})
        for name in sorted(own.keys() & limits.keys()):
            if own[name] > limits[name]:
                who = f"container {container.get('name')} has a limit of {_shown(own, name)}"
                yield f"{who}, above that of the whole pod ({_shown(limits, name)})"


def _bounds(limit_ranges: Sequence[Mapping[str, Any]], kind: str) -> _Bounds:
    if not limit_ranges:
        return _UNBOUNDED
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    ratio: dict[str, int] = {}
    for limit_range in limit_ranges:
        for item in (limit_range.get("spec") or {}).get("limits") or ():
            if item.get("type") == kind:
                for name, amount in amounts.parse(item.get("min") or {}).items():
                    least[name] = max(amount, least.get(name, amount))
                _narrow(most, item.get("max"))
                _narrow(ratio, item.get("maxLimitRequestRatio"))
    return _Bounds(least, most, ratio)


def _narrow(known: dict[str, int], stated: Mapping[str, Any] | None) -> None:
    for name, amount in amounts.parse(stated or {}).items():
        known[name] = min(amount, known.get(name, amount))


def _above(asked: Amounts, limits: Amounts) -> Iterator[str]:
    for name in sorted(asked.keys() & limits.keys()):
        if asked[name] > limits[name]:
            yield f"{_shown(asked, name)} exceeds its limit"


def _outside(asked: Amounts, limits: Amounts, bounds: _Bounds) -> Iterator[str]:
    for name in sorted(bounds.most):
        if max(asked.get(name, 0), limits.get(name, 0)) > bounds.most[name]:
            high = amounts.maximum(asked, limits)
            yield f"{_shown(high, name)} is more than a LimitRange allows ({_shown(bounds.most, name)})"
        elif name not in limits:
            yield f"no limit of {name} is stated; a LimitRange allows {_shown(bounds.most, name)}"
    for name in sorted(bounds.least):
        low = {name: min(asked[name], limits.get(name, asked[name]))} if name in asked else None
        if low is None:
            yield f"no {name} is requested; a LimitRange demands {_shown(bounds.least, name)}"
        elif low[name] < bounds.least[name]:
            yield f"{_shown(low, name)} is less than a LimitRange demands ({_shown(bounds.least, name)})"
    for name in sorted(bounds.ratio):
        request, limit = asked.get(name, 0), limits.get(name, 0)
        if not request or not limit or limit * quantity.MILLI > request * bounds.ratio[name]:
            times = quantity.render(bounds.ratio[name])
            yield f"a LimitRange wants a limit of {name} of at most {times} times its request"


def _shown(found: Amounts, name: str) -> str:
    return f"{quantity.render(found[name], name)} {name}"
