"""What one pod costs, priced from its spec exactly as the API server prices the pod (Kubernetes 1.36).

    A   = all app containers + all sidecars (init containers with restartPolicy Always)
    I_k = init container k + the sidecars started before it
    pod = max(A, max I_k) per resource; pod-level resources replace it; overhead is added

Requests default to limits per container and resource, as pod defaulting does; a pod-level request that is not stated
defaults to what the containers ask, else to the pod-level limit. Overhead raises only limits above 0.
The rules are those of ``k8s.io/component-helpers/resource`` and of pod defaulting. A field that could bear resources
and is not known here makes the pod unpriceable: it is refused by name, never taken as free.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from operator import is_not
from typing import Any, Final

from webhook.core.model.gang import PodPrice
from webhook.core.notation import amounts, quantity
from webhook.core.notation.problem import Unreadable

# fmt: off
POD_FIELDS: Final = frozenset(
    {
        "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
        "enableServiceLinks", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers",
        "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os",
        "overhead", "preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resources",
        "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "schedulingGroup", "securityContext",
        "serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
        "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes", "workloadRef",
    }
)
# fmt: on
"""Fields of a pod spec that are either priced here or bear no resources. ``resourceClaims`` is missing on purpose."""
# fmt: off
CONTAINER_FIELDS: Final = frozenset(
    {
        "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name",
        "ports", "readinessProbe", "resizePolicy", "resources", "restartPolicy", "restartPolicyRules",
        "securityContext", "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy",
        "tty", "volumeDevices", "volumeMounts", "workingDir",
    }
)
# fmt: on
_RESOURCE_FIELDS: Final = frozenset({"limits", "requests"})
CONTAINERS_MAX: Final = 512
"""Of one pod: far more than a node runs, and few enough that nobody's pod is dear to price."""
_COMPUTE: Final = frozenset({"cpu", "memory"})
_TELLTALE: Final = ("resource", "request", "limit", "claim", "overhead", "quota", "device")
NAMES_MAX: Final = 1_000
"""Resources that one container names at most; far fewer are admitted (``core.ledger.bounds``)."""
_UNKNOWN_FIELDS_MAX: Final = 100
_UNKNOWN_VALUES_MAX: Final = 10_000
"""What is looked through of fields that nobody here knows: how many of one object, and values in each."""
_NOTHING: Final[Mapping[str, int]] = {}
_ALL_STATED: Final = frozenset[str]()

Demand = tuple[Mapping[str, int], Mapping[str, int]]
"""Requests and limits, in thousandths."""


AMOUNT_MAX: Final = 2**63 - 1
"""The most of a resource that one pod can ask, in thousandths: what other programs and files keep exactly, too."""
_TOO_MUCH: Final = "is more than any pod can ask"
_MOST: Final = f"write at most {AMOUNT_MAX // quantity.MILLI}"


def named(pod_spec: Mapping[str, Any], field: str) -> str:
    """Return the name that a field of a pod spec states, or the empty string. Raises Unreadable for no text."""
    name = pod_spec.get(field) or ""
    if not isinstance(name, str):
        raise Unreadable(f"spec.{field}", name, "is not a name", "write text")
    return name


def price(
    pod_spec: Mapping[str, Any], overhead: Mapping[str, Any] | None = None, *, default_priority_class: str = ""
) -> PodPrice:
    """Return what one pod of ``pod_spec`` costs, no amount above ``AMOUNT_MAX``.

    ``overhead`` is that of its RuntimeClass, used where the spec states none; ``default_priority_class`` is the
    cluster's default PriorityClass, which admission writes into pods without one. Raises Unreadable.
    """
    _refuse_unknown(pod_spec, POD_FIELDS, "spec")
    containers, first = _demands(pod_spec, "containers"), _demands(pod_spec, "initContainers")
    always = [each.get("restartPolicy") == "Always" for each in pod_spec["initContainers"]] if first else ()
    inits, demands = [*zip(first, always, strict=True)], [*containers, *first] if first else containers
    pod_level, extra = pod_spec.get("resources"), _amounts(pod_spec.get("overhead") or overhead, "spec.overhead")
    requests = limits = _aggregate(containers, inits, 0)
    if extra or pod_level is not None or any(starmap(is_not, demands)):
        limits = _aggregate(containers, inits, 1)
    if pod_level is not None:
        best_effort = _apply_pod_level(pod_level, requests, limits)
    else:
        best_effort = not any(map(_has_compute, demands))
    for name, amount in extra.items():
        requests[name] = requests.get(name, 0) + amount
        if limits.get(name):
            limits[name] += amount
    if max((0, *requests.values(), *limits.values())) > AMOUNT_MAX:
        amount, name = max((amount, name) for name, amount in (*requests.items(), *limits.items()))
        raise Unreadable("spec", f"{quantity.render(amount)} {name}", _TOO_MUCH, _MOST)
    deadline = pod_spec.get("activeDeadlineSeconds")
    return PodPrice(
        requests=requests,
        limits=limits,
        has_deadline=isinstance(deadline, int) and deadline >= 0,
        best_effort=best_effort,
        priority_class=named(pod_spec, "priorityClassName") or default_priority_class,
        cross_namespace_affinity=_crosses_namespaces(pod_spec.get("affinity")),
        unstated=_unstated(demands, pod_level),
    )


def _unstated(containers: list[Demand], pod_level: Mapping[str, Any] | None) -> frozenset[str]:
    """Return what a ResourceQuota would have every container state; nothing once the pod as a whole states anything."""
    if all(requests.keys() >= _COMPUTE and limits.keys() >= _COMPUTE for requests, limits in containers):
        return _ALL_STATED
    whole = _requirements(pod_level, "spec.resources") if pod_level else ()
    if any(_is_pod_level(name) for side in whole for name in side):
        return _ALL_STATED
    return frozenset(
        [
            f"{kind}.{name}"
            for requests, limits in containers
            for kind, side in (("requests", requests), ("limits", limits))
            for name in _COMPUTE
            if name not in side
        ]
    )


def with_limit_range_defaults(
    pod_spec: Mapping[str, Any], limit_ranges: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return ``pod_spec`` as the LimitRanger leaves it: container defaults of each LimitRange (API objects) filled in.

    A container's own limits become its requests first, and pod-level resources are settled, because pod defaulting runs
    before admission; then the first LimitRange (by name) that has a default for a resource wins. LimitRanges of type
    Pod have no defaults. Raises Unreadable where the pod has pod-level resources and cannot be priced.
    """
    defaults = [d for limit_range in sorted(limit_ranges, key=_name) for d in _container_defaults(limit_range)]
    if not defaults:
        return pod_spec
    changed = dict(with_pod_level_defaults(pod_spec))
    for field in ("containers", "initContainers"):
        if isinstance(pod_spec.get(field), list):
            changed[field] = [_with_defaults(c, defaults) if isinstance(c, dict) else c for c in pod_spec[field]]
    return changed


def with_pod_level_defaults(pod_spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``pod_spec`` with what pod defaulting adds to pod-level resources: limits of huge pages, and requests.

    What admission adds to its containers later does not change them. Raises Unreadable.
    """
    whole = pod_spec.get("resources")
    if not isinstance(whole, dict) or not (whole.get("limits") or whole.get("requests")):
        return pod_spec
    pod = price({**pod_spec, "overhead": None})
    stated = whole.get("requests") or {}
    pages = {name: f"{amount}m" for name, amount in pod.limits.items() if _is_pages(name) and name not in stated}
    limits = {**pages, **(whole.get("limits") or {})}
    if not limits:
        return pod_spec
    requests = {name: f"{amount}m" for name, amount in pod.requests.items() if _is_pod_level(name)}
    return {**pod_spec, "resources": {**whole, "requests": requests, "limits": limits}}


def _container_defaults(limit_range: Mapping[str, Any]) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            yield {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}, limits


def _with_defaults(
    container: Mapping[str, Any], defaults: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    if not isinstance(resources, dict) or not all(
        isinstance(resources.get(side) or {}, dict) for side in _RESOURCE_FIELDS
    ):
        return container  # pricing says so
    limits = dict(resources.get("limits") or {})
    requests = {**limits, **(resources.get("requests") or {})}
    for default_requests, default_limits in defaults:
        requests = {**default_requests, **requests}
        limits = {**default_limits, **limits}
    return {**container, "resources": {**resources, "requests": requests, "limits": limits}}


def _name(limit_range: Mapping[str, Any]) -> str:
    return str((limit_range.get("metadata") or {}).get("name", ""))


def _demands(pod_spec: Mapping[str, Any], field: str) -> list[Demand]:
    """Return what each container of a list asks. Raises Unreadable."""
    containers = pod_spec.get(field)
    if containers is None:
        return []
    if not isinstance(containers, list):
        raise Unreadable(f"spec.{field}", containers, "is not a list", "write a list of containers")
    if len(containers) > CONTAINERS_MAX:
        raise Unreadable(f"spec.{field}", len(containers), f"is more than {CONTAINERS_MAX} containers", "use more pods")
    found: list[Demand] = []
    for container in containers:
        try:
            found.append(_demand(container))
        except Unreadable as error:
            raise Unreadable.of(error.problem.within(f"spec.{field}[{len(found)}]")) from None
    return found


def _demand(container: object) -> Demand:
    """Return what a container asks. Raises Unreadable with a path from the container on."""
    if not isinstance(container, dict):
        raise Unreadable("", container, "is not a container", "write a container object")
    _refuse_unknown(container, CONTAINER_FIELDS, "")
    resources = container.get("resources")
    return _requirements(resources, ".resources") if resources else (_NOTHING, _NOTHING)


def _requirements(resources: object, path: str) -> Demand:
    """Return stated requests (defaulting to limits) and limits."""
    if not isinstance(resources, dict):
        raise Unreadable(path, resources, "is not an object", "write resources.requests and resources.limits")
    for field in () if _RESOURCE_FIELDS.issuperset(resources) else resources.keys() - _RESOURCE_FIELDS:
        if resources[field]:
            fix = "ask extended resources such as nvidia.com/gpu in resources.limits instead"
            raise Unreadable(f"{path}.{field}", resources[field], "resources asked this way cannot be counted", fix)
    stated, bound = resources.get("requests"), resources.get("limits")
    limits = _amounts(bound, f"{path}.limits")
    if not stated or stated == bound:
        return limits, limits
    return {**limits, **_amounts(stated, f"{path}.requests")}, limits


def _amounts(quantities: object, path: str) -> Mapping[str, int]:
    if not quantities:
        return _NOTHING
    if not isinstance(quantities, dict):
        raise Unreadable(path, quantities, "is not a map of quantities", "write resource names with quantities")
    if len(quantities) > NAMES_MAX:
        # Read they would block whoever reads them, and nobody admits them.
        raise Unreadable(path, f"{len(quantities)} names", f"are more than {NAMES_MAX}", "name only what it needs")
    parsed = {}
    for name, value in quantities.items():
        try:
            amount = quantity.parse(value)
        except quantity.QuantityError as error:
            raise Unreadable.of(error.problem.within(f"{path}.{name}")) from None
        if amount < 0:
            raise Unreadable(f"{path}.{name}", value, "is negative", "write 0 or more")
        if amount > AMOUNT_MAX:
            raise Unreadable(f"{path}.{name}", value, _TOO_MUCH, _MOST)
        parsed[name] = amount
    return parsed


def _aggregate(containers: list[Demand], inits: list[tuple[Demand, bool]], side: int) -> dict[str, int]:
    """Return what they come to together: ``side`` 0 are their requests, 1 their limits."""
    running = dict(containers[0][side]) if len(containers) == 1 else amounts.total(each[side] for each in containers)
    if not inits:
        return running
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for demand, always in inits:
        # What it asks nothing of stands as high as the sidecars before it, which were looked at when they came.
        for name, amount in demand[side].items():
            step = sidecars.get(name, 0) + amount
            peak[name] = max(step, peak.get(name, step))
            if always:
                sidecars[name] = step
                running[name] = running.get(name, 0) + amount
    return _largest(running, peak)


def _largest(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    """Return the larger of both per resource. A stated 0 stays: a LimitRange tells it from none."""
    return {**right, **{name: max(amount, right.get(name, 0)) for name, amount in left.items()}}


def _apply_pod_level(pod_level: object, requests: dict[str, int], limits: dict[str, int]) -> bool:
    """Write pod-level resources over the containers' sums, in place; return whether the pod is best effort."""
    if not isinstance(pod_level, dict):
        raise Unreadable("spec.resources", pod_level, "is not an object", "write spec.resources.requests and limits")
    _, pod_limits = _requirements({**pod_level, "requests": None}, "spec.resources")
    pod_requests = _amounts(pod_level.get("requests"), "spec.resources.requests")
    for name, amount in pod_limits.items():
        if _is_pod_level(name):
            # What may be overcommitted (cpu, memory) keeps the containers' sum where they ask any.
            if name not in pod_requests and (name not in requests or _is_pages(name)):
                requests[name] = amount
            limits[name] = amount
    for name, amount in pod_requests.items():
        if _is_pod_level(name):
            requests[name] = amount
    # Pod-level limits, those of huge pages that defaulting writes too, bring pod-level requests of all that is asked.
    defaulted = pod_limits or (pod_requests and any(_is_pages(name) and name not in pod_requests for name in limits))
    return not _has_compute((requests if defaulted else pod_requests, pod_limits))


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or _is_pages(name)


def _is_pages(name: str) -> bool:
    return name.startswith("hugepages-")


def _has_compute(demand: Demand) -> bool:
    requests, limits = demand
    return bool(requests.get("cpu") or requests.get("memory") or limits.get("cpu") or limits.get("memory"))


def _crosses_namespaces(affinity: object) -> bool:
    """Return whether a pod (anti-)affinity term reaches into other namespaces (scope CrossNamespacePodAffinity)."""
    if not isinstance(affinity, dict):
        return False
    for side in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(side)
        if not isinstance(rules, dict):
            continue
        weighted = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms = [*(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())]
        terms += [term.get("podAffinityTerm") for term in weighted if isinstance(term, dict)]
        for term in terms:
            if isinstance(term, dict) and (term.get("namespaces") or term.get("namespaceSelector") is not None):
                return True
    return False


def _refuse_unknown(node: Mapping[str, Any], known: frozenset[str], path: str) -> None:
    if known.issuperset(node):
        return
    unknown = node.keys() - known
    if len(unknown) > _UNKNOWN_FIELDS_MAX:
        raise Unreadable(path, len(unknown), "has more unknown fields than are looked through", "remove them")
    for field in unknown:
        value = node[field]
        if value and (_tells(field) or _bears_resources(value)):
            fix = "ask extended resources such as nvidia.com/gpu in resources.limits instead"
            message = "this field may ask for resources that cannot be counted"
            raise Unreadable(f"{path}.{field}", value, message, fix)


def _tells(field: object) -> bool:
    lowered = str(field).lower()
    return any(word in lowered for word in _TELLTALE)


def _bears_resources(value: object) -> bool:
    left, looked = [value], 0
    while left:
        node = left.pop()
        looked += 1 + (len(node) if isinstance(node, dict) else 0)
        if looked > _UNKNOWN_VALUES_MAX:
            # No field of a pod is that large: to look on would keep others waiting.
            return True
        if isinstance(node, dict):
            if any(map(_tells, node)):
                return True
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)
    return False
