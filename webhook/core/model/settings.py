"""What the engine is told besides the policy: Kueue's Configuration, as far as decisions depend on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.core.model.policy import NodeFit


@dataclass(frozen=True, slots=True)
class Transformation:
    """Kueue's ``resources.transformations[]``: one requested resource charged as others."""

    resource: str
    outputs: Mapping[str, int] = field(default_factory=dict)
    """Charged resource to factor, in thousandths."""
    replace: bool = False
    """Strategy Replace: the input itself is not charged. Otherwise Retain."""
    multiply_by: str = ""
    """Another resource whose amount multiplies the output as well, where it is requested."""


@dataclass(frozen=True, slots=True)
class UsageDecay:
    """Kueue's ``admissionFairSharing``: local queues that used less lately go first."""

    half_life_seconds: float = 0.0
    """0: nothing is remembered, and every local queue counts as unused."""
    sampling_interval_seconds: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    """Absent resource: 1. Amounts are whole units (cores, bytes)."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Everything that changes decisions and is not policy. The default is plain Kueue."""

    fair_sharing: tuple[str, ...] = ()
    """Kueue's ``fairSharing.preemptionStrategies`` in order; empty: classical preemption and order."""
    excluded_prefixes: tuple[str, ...] = ()
    """Requested resources with such a prefix are not charged."""
    transformations: tuple[Transformation, ...] = ()
    ignore_undeclared: bool = False
    """Kueue's ``quotaCheckStrategy: IgnoreUndeclared``, for every queue."""
    usage_decay: UsageDecay | None = None
    node_fit: NodeFit = NodeFit.ENFORCE
    """For flavors that do not say it themselves."""

    @property
    def transformed(self) -> dict[str, frozenset[str]]:
        """What queues are charged for a resource under other names, by that resource."""
        found: dict[str, frozenset[str]] = {}
        for rule in self.transformations:
            for name in (rule.resource, rule.multiply_by) if rule.multiply_by else (rule.resource,):
                found[name] = found.get(name, frozenset()) | rule.outputs.keys()
        return found
