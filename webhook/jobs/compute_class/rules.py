"""Compute-class rules for pods and gangs that carry the compute-class label; nothing is said about others.

A platform corrects some breaches in silence (and bills the correction), refuses others long after the job was accepted,
and leaves some pending for ever. Each rule says so at the door, in its configured mode.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from webhook.core.notation import quantity
from webhook.core.notation.amounts import maximum
from webhook.core.notation.problem import Problem, Unreadable
from webhook.core.notation.quantity import MILLI
from webhook.jobs.compute_class.catalog import ComputeClass, ComputeClassCatalog, Mode, Rule, Shapes
from webhook.jobs.pricing.pod_requests import price
from webhook.untyped import paths

_GIB: Final = 1024**3 * MILLI
_HOST_FIELDS: Final = ("hostNetwork", "hostPID", "hostIPC")


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: where, what, why, and how to mend it."""

    rule: Rule
    problem: Problem
    """Its path is dotted, from the object's root."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """For mode mutate: JSON pointer within the pod template to the value to ``add`` there."""
    mode: Mode = Mode.OFF


@dataclass(frozen=True, slots=True)
class _Pod:
    """One pod template and its class."""

    path: str
    labels: Mapping[str, Any]
    annotations: Mapping[str, Any]
    spec: Mapping[str, Any]
    name: str
    compute_class: ComputeClass | None
    stated: bool

    def at(self, *keys: str) -> str:
        """Return the dotted path of a field of the template."""
        return ".".join((self.path, *keys) if self.path else keys)


def check(
    pod_templates: Sequence[tuple[str, Mapping[str, Any]]], catalog: ComputeClassCatalog, has_pod_group: bool
) -> list[Finding]:
    """Return the broken rules of one gang (or of one pod).

    ``pod_templates`` are (dotted path in the object, template with ``metadata`` and ``spec``); ``has_pod_group`` says
    whether the gang joins a PodGroup. Rules that are off are left out. An empty result means that all hold.
    """
    pods = [_pod(path, template, catalog) for path, template in pod_templates]
    if not any(pod.stated for pod in pods):
        return []
    found = [finding for pod in pods if pod.stated for finding in _check_pod(pod, catalog)]
    found += _check_gang(pods, catalog, has_pod_group)
    judged = [replace(each, mode=mode) for each in found if (mode := catalog.mode(each.rule)) is not Mode.OFF]
    return [each if each.mode is Mode.MUTATE else replace(each, changes={}) for each in judged]


def _pod(path: str, template: Mapping[str, Any], catalog: ComputeClassCatalog) -> _Pod:
    labels = paths.find_mapping(template, ("metadata", "labels"))
    name = labels.get(catalog.labels.compute_class)
    stated = name is not None
    name = str(name) if stated else catalog.default
    annotations = paths.find_mapping(template, ("metadata", "annotations"))
    spec = paths.find_mapping(template, ("spec",))
    return _Pod(path, labels, annotations, spec, name, catalog.classes.get(name), stated)


def _check_pod(pod: _Pod, catalog: ComputeClassCatalog) -> Iterator[Finding]:
    place = pod.at("metadata", "labels", catalog.labels.compute_class)
    if pod.compute_class is None:
        fix = f"write one of {', '.join(catalog.classes)}"
        yield Finding(Rule.KNOWN_CLASS, Problem(place, pod.name, "is not a compute class", fix))
        return
    yield from _check_qos(pod, pod.compute_class, catalog)
    if pod.compute_class.gpu:
        yield from _check_model(pod, catalog)
        yield from _check_annotations(pod, catalog)
    for field_name in _HOST_FIELDS:
        if pod.spec.get(field_name) is True:
            where, message = pod.at("spec", field_name), "the platform sets it to false"
            yield Finding(Rule.HOST_NAMESPACES, Problem(where, "true", message, "leave it out"))
    yield from _check_size(pod, pod.compute_class, catalog)


def _check_qos(pod: _Pod, compute_class: ComputeClass, catalog: ComputeClassCatalog) -> Iterator[Finding]:
    qos = pod.labels.get(catalog.labels.qos)
    if qos is None:
        return
    place = pod.at("metadata", "labels", catalog.labels.qos)
    if qos not in catalog.qos:
        fix = f"write one of {', '.join(catalog.qos)}"
        yield Finding(Rule.KNOWN_QOS, Problem(place, str(qos), "is not a compute QoS", fix))
    elif qos not in compute_class.qos:
        message, fix = f"class {pod.name} does not offer it", f"write one of {', '.join(compute_class.qos)}"
        yield Finding(Rule.CLASS_QOS, Problem(place, str(qos), message, fix))


def _check_model(pod: _Pod, catalog: ComputeClassCatalog) -> Iterator[Finding]:
    model = _model(pod, catalog)
    place = pod.at("metadata", "labels", catalog.labels.model)
    if model is None:
        fix = f"name a GPU model there or in spec.nodeSelector, for example {next(iter(catalog.models), 'a series')}"
        yield Finding(Rule.GPU_MODEL, Problem(place, "absent", f"class {pod.name} needs a GPU model", fix))
    elif pod.compute_class is not None and pod.compute_class.tables and model not in catalog.models:
        fix = f"write one of {', '.join(catalog.models)}, or add the model to the catalog"
        yield Finding(Rule.KNOWN_MODEL, Problem(place, model, f"no table of catalog {catalog.version} has it", fix))


def _check_annotations(pod: _Pod, catalog: ComputeClassCatalog) -> Iterator[Finding]:
    for name in catalog.cpu_only_annotations:
        if name in pod.annotations:
            where, message = pod.at("metadata", "annotations", name), f"class {pod.name} does not take it"
            yield Finding(Rule.CPU_ANNOTATION, Problem(where, str(pod.annotations[name]), message, "leave it out"))


def _check_size(pod: _Pod, compute_class: ComputeClass, catalog: ComputeClassCatalog) -> Iterator[Finding]:
    try:
        cost = price(pod.spec)
    except Unreadable:
        return  # Refused as a gang, with its own message.
    size = maximum(cost.requests, cost.limits)
    cards = sum(size.get(name, 0) for name in catalog.gpu_resources)
    place = pod.at("spec", "containers")
    if not compute_class.gpu:
        if cards:
            message, fix = f"class {pod.name} has no GPUs", f"write a GPU class in {catalog.labels.compute_class}"
            yield Finding(Rule.GPU_IN_CPU_CLASS, Problem(place, f"{quantity.render(cards)} GPUs", message, fix))
    else:
        yield from _check_guaranteed(pod)
    shapes = compute_class.shapes
    if compute_class.gpu and cards:
        tables = catalog.models.get(_model(pod, catalog) or "", {}) if compute_class.tables else {}
        counts = tuple(tables) or compute_class.gpu_counts
        if counts and cards not in [count * MILLI for count in counts]:
            message = f"class {pod.name} offers no such number of GPUs a pod"
            fix = f"ask one of {', '.join(map(str, counts))}"
            yield Finding(Rule.GPU_COUNT, Problem(place, f"{quantity.render(cards)} GPUs", message, fix))
            return
        shapes = tables.get(cards // MILLI)
    if shapes:
        yield from _check_shape(pod, shapes, size)


def _check_shape(pod: _Pod, shapes: Shapes, size: Mapping[str, int]) -> Iterator[Finding]:
    cpu, memory = Decimal(size.get("cpu", 0)) / MILLI, Decimal(size.get("memory", 0)) / _GIB
    if not cpu and not memory:
        return
    if memory in shapes.get(cpu, ()):
        return
    place, value = pod.at("spec", "containers"), f"{cpu:g} vCPU, {memory:g} GiB"
    larger = ((c, m) for c, sizes in shapes.items() if c >= cpu for m in sizes if m >= memory)
    best = next(larger, None)
    if best is None:
        largest = max(shapes)
        fix = f"ask at most {largest:g} vCPU, {shapes[largest][-1]:g} GiB a pod"
        yield Finding(Rule.SHAPE, Problem(place, value, f"class {pod.name} has no shape this large", fix))
        return
    message = f"is not a shape of class {pod.name}; the platform raises it to {best[0]:g} vCPU, {best[1]:g} GiB"
    changes = _grown(pod, size, int(best[0] * MILLI), int(best[1] * _GIB))
    yield Finding(
        Rule.SHAPE, Problem(place, value, message, "ask that size, so that quota counts what you get"), changes
    )


def _grown(pod: _Pod, size: Mapping[str, int], cpu: int, memory: int) -> Mapping[str, Any]:
    """Return the first container's resources with what is missing added, as the platform adds it."""
    containers = pod.spec.get("containers")
    if not isinstance(containers, list) or not containers or not isinstance(containers[0], dict):
        return {}
    resources = containers[0].get("resources") or {}
    limits = dict(resources.get("limits") or {})
    requests = {**limits, **(resources.get("requests") or {})}
    for name, wanted in (("cpu", cpu), ("memory", memory)):
        extra = wanted - size.get(name, 0)
        for side in (requests, limits):
            side[name] = quantity.render(quantity.parse(side.get(name, 0)) + extra, name)
    return {"/spec/containers/0/resources": {**resources, "requests": requests, "limits": limits}}


def _check_guaranteed(pod: _Pod) -> Iterator[Finding]:
    containers = pod.spec.get("containers")
    for index, container in enumerate(containers if isinstance(containers, list) else ()):
        resources = paths.find_mapping(container, ("resources",))
        limits = paths.find_mapping(resources, ("limits",))
        requests = paths.find_mapping(resources, ("requests",))
        differing = sorted(name for name in limits if name in requests and _differs(requests[name], limits[name]))
        if differing:
            where = pod.at("spec", f"containers[{index}]", "resources", "requests", differing[0])
            message = f"class {pod.name} runs Guaranteed: requests become limits ({limits[differing[0]]})"
            changed = {**resources, "requests": {**requests, **{name: limits[name] for name in differing}}}
            changes = {f"/spec/containers/{index}/resources": changed}
            value = str(requests[differing[0]])
            yield Finding(Rule.GUARANTEED, Problem(where, value, message, "write requests equal to limits"), changes)


def _differs(left: object, right: object) -> bool:
    return quantity.parse(left) != quantity.parse(right)


def _check_gang(pods: Sequence[_Pod], catalog: ComputeClassCatalog, has_pod_group: bool) -> Iterator[Finding]:
    classes = sorted({pod.name for pod in pods})
    place = pods[0].at("metadata", "labels", catalog.labels.compute_class)
    if len(classes) > 1:
        message, fix = "one gang mixes compute classes", "write the same class on every pod template"
        yield Finding(Rule.ONE_CLASS, Problem(place, ", ".join(classes), message, fix))
    if not has_pod_group:
        return
    priorities = sorted({str(pod.spec.get("priorityClassName") or "") for pod in pods})
    if len(priorities) > 1:
        message, fix = "pods of one PodGroup have different priorities", "write one priorityClassName"
        where = pods[0].at("spec", "priorityClassName")
        yield Finding(Rule.ONE_PRIORITY, Problem(where, ", ".join(map(repr, priorities)), message, fix))
    fit = [name for name, compute_class in catalog.classes.items() if compute_class.pod_group]
    for name in classes:
        compute_class = catalog.classes.get(name)
        if compute_class is not None and not compute_class.pod_group:
            message, fix = "this class does not schedule PodGroups", f"write one of {', '.join(fit)}"
            yield Finding(Rule.POD_GROUP_CLASS, Problem(place, name, message, fix))


def _model(pod: _Pod, catalog: ComputeClassCatalog) -> str | None:
    key = catalog.labels.model
    model = pod.labels.get(key) or paths.find(pod.spec, ("nodeSelector", key))
    return str(model) if model else None
