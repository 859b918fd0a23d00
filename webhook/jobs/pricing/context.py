"""What reading a job needs from the rest of the cluster: classes and LimitRanges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from pydantic import Field

from webhook.jobs.pricing.injections import AddedContainer
from webhook.untyped.operator_files import Section

CONTEXT_PATHS: Final = {
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "limitranges": "/api/v1/limitranges",
    "runtimeclasses": "/apis/node.k8s.io/v1/runtimeclasses",
    "trainingruntimes": "/apis/trainer.kubeflow.org/v1alpha1/trainingruntimes",
    "clustertrainingruntimes": "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes",
}
"""What jobs are read with."""


class NetworkTier(Section):
    """A tier of Volcano's HyperNodes, and the node label that tells these apart."""

    tier: Annotated[int, Field(ge=1)]
    """1 is the narrowest."""
    node_label: Annotated[str, Field(pattern=r"^([a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62}$")] = (
        Field(alias="nodeLabel")
    )
    name: str = ""
    """What ``highestTierName`` calls it."""


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """What the API server adds to a pod that names this class, as the class says it."""

    overhead: Mapping[str, Any]
    """``overhead.podFixed``."""
    scheduling: Mapping[str, Any]
    """A node selector and tolerations."""


@dataclass(frozen=True, slots=True)
class ReadContext:
    """Cluster facts at one moment. Immutable: a change is a new context, and records read before it are read again."""

    priority_classes: Mapping[str, int] = field(default_factory=dict)
    """PriorityClass name to value."""
    default_priority_class: str = ""
    """The PriorityClass that is the global default, if there is one."""
    workload_priority_classes: Mapping[str, int] = field(default_factory=dict)
    """Kueue's WorkloadPriorityClass name to value."""
    limit_ranges: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Namespace to its LimitRanges: their names and what they say."""
    runtime_classes: Mapping[str, RuntimeClass] = field(default_factory=dict)
    """By name, those that add anything."""
    training_runtimes: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """(namespace, name) to the TrainingRuntime object a TrainJob may refer to; cluster-wide ones under ("", name)."""
    injections: tuple[AddedContainer, ...] = ()
    """Containers that others add to pods at their creation."""
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Namespace to those of its labels by which ``injections`` pick it."""
    network_tiers: tuple[NetworkTier, ...] = ()

    @property
    def default_priority(self) -> int:
        """Value of the global default PriorityClass, 0 without one."""
        return self.priority_classes.get(self.default_priority_class, 0)


_ADDS_NOTHING: Final = RuntimeClass({}, {})
NO_CONTEXT: Final = ReadContext()
"""Nothing known of the cluster: enough to find pod sets and templates, not to price or rank them."""


def context_from(
    *,
    priority_classes: Sequence[Mapping[str, Any]] = (),
    workload_priority_classes: Mapping[str, int] | None = None,
    limit_ranges: Sequence[Mapping[str, Any]] = (),
    runtime_classes: Sequence[Mapping[str, Any]] = (),
    training_runtimes: Sequence[Mapping[str, Any]] = (),
) -> ReadContext:
    """Return the context that these API objects make. Of several global defaults the lowest value wins, as in Kueue."""
    defaults = [item for item in priority_classes if item.get("globalDefault")]
    default = min(defaults, key=lambda item: (item.get("value", 0), item["metadata"]["name"]), default=None)
    ranges: dict[str, list[Mapping[str, Any]]] = {}
    for item in limit_ranges:
        # Without labels and annotations, which change nothing.
        place = {key: item["metadata"].get(key) for key in ("namespace", "name")}
        ranges.setdefault(place["namespace"], []).append({"metadata": place, "spec": item.get("spec")})
    return ReadContext(
        priority_classes={item["metadata"]["name"]: int(item.get("value", 0)) for item in priority_classes},
        default_priority_class="" if default is None else default["metadata"]["name"],
        workload_priority_classes=workload_priority_classes or {},
        limit_ranges=ranges,
        runtime_classes={
            item["metadata"]["name"]: found
            for item in runtime_classes
            if (found := _runtime_class(item)) != _ADDS_NOTHING
        },
        training_runtimes={
            (item["metadata"].get("namespace") or "", item["metadata"]["name"]): item for item in training_runtimes
        },
    )


def _runtime_class(item: Mapping[str, Any]) -> RuntimeClass:
    return RuntimeClass((item.get("overhead") or {}).get("podFixed") or {}, item.get("scheduling") or {})


def with_injections(
    context: ReadContext, injections: tuple[AddedContainer, ...], namespaces: Mapping[str, Mapping[str, str]]
) -> ReadContext:
    """Return the context in which others add containers to pods; ``namespaces`` are all of them, with their labels."""
    picking = {key for injection in injections for key in injection.namespace_labels}
    picked = {
        name: {key: labels[key] for key in sorted(picking & labels.keys())}
        for name, labels in namespaces.items()
        if not picking.isdisjoint(labels)
    }
    return replace(context, injections=injections, namespace_labels=picked) if injections else context
