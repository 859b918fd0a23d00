"""What a pod holds while it is resized in place: the most of what it asks, was granted by its node and runs with.

A ResourceQuota counts that (``k8s.io/component-helpers/resource`` of Kubernetes 1.36, with ``UseStatusResources``): a
pod that shrinks frees nothing before its node has shrunk it, and one whose node cannot ever give more (a resize that is
infeasible) counts as it runs. Init containers are resized only where they are sidecars.
"""

from collections.abc import Mapping
from typing import Any

from webhook.core.notation import quantity
from webhook.wire.pods import ContainerStatus, Status


def as_held(spec: dict[str, Any], status: Status) -> dict[str, Any]:
    """Return ``spec`` with the resources that each container holds by ``status``; ``spec`` itself where they agree."""
    infeasible = _is_infeasible(status)
    changed = {}
    for field, statuses in (
        ("containers", status.container_statuses),
        ("initContainers", status.init_container_statuses),
    ):
        known = {each.name: each for each in statuses or () if each.resources is not None}
        before = spec.get(field)
        if known and isinstance(before, list):
            after = [_container(item, known, infeasible, sidecar=field != "containers") for item in before]
            if after != before:
                changed[field] = after
    return {**spec, **changed} if changed else spec


def _is_infeasible(status: Status) -> bool:
    pending = next((each for each in status.conditions or () if each.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


def _container(item: Any, known: Mapping[str, ContainerStatus], infeasible: bool, *, sidecar: bool) -> Any:
    status = known.get(item.get("name", "")) if isinstance(item, dict) else None
    if status is None or status.resources is None or (sidecar and item.get("restartPolicy") != "Always"):
        return item
    asked = item.get("resources") or {}
    requests = quantity.largest(status.resources.requests, status.allocated_resources)
    limits: Mapping[str, Any] = status.resources.limits or {}
    if not infeasible:
        most = asked.get("limits") or {}
        requests = quantity.largest({**most, **(asked.get("requests") or {})}, requests)
        limits = quantity.largest(most, limits)
    requests = {**dict.fromkeys(limits, "0"), **requests}  # what a node does not report is none, not its limit
    held = {name: side for name, side in (("requests", requests), ("limits", limits)) if side}
    kept = {name: value for name, value in asked.items() if name not in ("requests", "limits")}
    return item if asked == {**kept, **held} else {**item, "resources": {**kept, **held}}
