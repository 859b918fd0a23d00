"""What the built-in admission plugins write into a new pod: priority, limits, overhead, tolerations.

A job's template does not get these; only its pods do. That is why a gang may be priced lower than its pods: the
webhook under test has to know.
"""

from collections.abc import Mapping
from typing import Any

from webhook.core.notation import quantity
from webhook.laboratory.simulated.objects.store import Store
from webhook.laboratory.simulated.requests.refusals import Json, Refused

_PRIORITY_CLASSES = ("scheduling.k8s.io", "priorityclasses")
_TOLERATED_SECONDS = 300
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def fill(store: Store, pod: Json) -> None:
    """Complete a new pod in place. Raises Refused (403) for a priority class or runtime class that does not exist."""
    _priority(store, pod)
    _runtime_class(store, pod)
    tolerate(pod)
    for stored in store.items(("", "limitranges"), pod["metadata"]["namespace"]):
        for limit in stored.object["spec"].get("limits") or ():
            if limit.get("type") == "Container":
                _limit_containers(pod, limit)


def inject(containers: Mapping[str, Json], pod: Json) -> None:
    """Add sidecars, as a mutating webhook of somebody else does: by the pod's label that is ``true``, unless it has one
    of that name.
    """
    for label, container in containers.items():
        known = pod["spec"].get("initContainers") or []
        if (pod["metadata"].get("labels") or {}).get(label) == "true" and all(
            each.get("name") != container["name"] for each in known
        ):
            pod["spec"]["initContainers"] = [*known, {**container, "restartPolicy": "Always"}]


def tolerate(pod: Json) -> None:
    """Let a new or changed pod stay for a while on a node that has become unready or unreachable."""
    known = [*(pod["spec"].get("tolerations") or ())]
    pod["spec"]["tolerations"] = known
    for trouble in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{trouble}"
        if not any(t.get("key") in (None, "", key) and t.get("effect") in (None, "", "NoExecute") for t in known):
            shown = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            known.append({**shown, "tolerationSeconds": _TOLERATED_SECONDS})


def _refused(pod: Json, why: str) -> Refused:
    name = pod["metadata"].get("name") or pod["metadata"].get("generateName", "")
    return Refused(403, "Forbidden", f'pods "{name}" is forbidden: {why}', {"name": name, "kind": "pods"})


def _priority(store: Store, pod: Json) -> None:
    spec = pod["spec"]
    name = spec.get("priorityClassName")
    if not name:
        default = _default_class(store)
        if default is None:
            spec.setdefault("priority", 0)
            return
        name = spec["priorityClassName"] = default
    if name in _SYSTEM_PRIORITIES:
        spec["priority"] = _SYSTEM_PRIORITIES[name]
        return
    stored = store.get(_PRIORITY_CLASSES, "", name)
    if stored is None:
        raise _refused(pod, f"no PriorityClass with name {name} was found")
    spec["priority"] = stored.object.get("value", 0)


def _default_class(store: Store) -> str | None:
    defaults = [s for s in store.items(_PRIORITY_CLASSES, "") if s.object.get("globalDefault")]
    return min(defaults, key=lambda s: int(s.object.get("value", 0))).key[1] if defaults else None


def _runtime_class(store: Store, pod: Json) -> None:
    name = pod["spec"].get("runtimeClassName")
    if not name:
        return
    stored = store.get(("node.k8s.io", "runtimeclasses"), "", name)
    if stored is None:
        raise _refused(pod, f'pod rejected: RuntimeClass "{name}" not found')
    overhead = stored.object.get("overhead")
    if overhead:
        pod["spec"]["overhead"] = dict(overhead.get("podFixed") or {})
    scheduling = stored.object.get("scheduling") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        own = pod["spec"].setdefault("nodeSelector", {}).setdefault(key, value)
        if own != value:
            raise _refused(
                pod,
                "pod rejected: conflict: runtimeClass.scheduling.nodeSelector["
                f"{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}",
            )
    if scheduling.get("tolerations"):
        own = pod["spec"].setdefault("tolerations", [])
        pod["spec"]["tolerations"] = [*own, *(each for each in scheduling["tolerations"] if each not in own)]


def _limit_containers(pod: Json, limit: Json) -> None:
    for container in (*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())):
        resources = container.setdefault("resources", {})
        for kind, source in (("limits", "default"), ("requests", "defaultRequest")):
            for name, amount in (limit.get(source) or {}).items():
                resources.setdefault(kind, {}).setdefault(name, amount)
        _check_bounds(pod, resources, limit)


def _check_bounds(pod: Json, resources: Json, limit: Json) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in (limit.get("max") or {}).items():
        if name not in limits or _over(limits[name], amount):
            raise _refused(pod, f"maximum {name} usage per Container is {amount}, but {_stated(limits, name, 'limit')}")
    for name, amount in (limit.get("min") or {}).items():
        if name not in requests or _over(amount, requests[name]):
            raise _refused(
                pod, f"minimum {name} usage per Container is {amount}, but {_stated(requests, name, 'request')}"
            )


def _over(amount: Any, bound: Any) -> bool:
    return quantity.parse(amount) > quantity.parse(bound)


def _stated(amounts: Json, name: str, what: str) -> str:
    return f"{what} is {amounts[name]}" if name in amounts else f"no {what} is specified"
