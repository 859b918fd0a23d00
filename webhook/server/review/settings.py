"""The webhook's settings: who we are, who may do what, and the bounds that it keeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.core.notation import names
from webhook.jobs.pricing.context import NetworkTier


@dataclass(frozen=True, slots=True)
class ReviewSettings:
    """Constant for the life of the process."""

    account: str = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:tutti-reconciler"
    """The only user that may un-suspend gated jobs and write our labels and annotations."""
    exempt_namespaces: frozenset[str] = frozenset(
        {"kube-system", "kube-public", "kube-node-lease", names.SYSTEM_NAMESPACE}
    )
    """Left out by the registrations; allowed here too, should one be mis-registered."""
    left_to_kueue: bool = False
    """Kueue itself serves the cluster: objects whose only queue label is its own pass untouched."""
    scheduler_users: frozenset[str] = frozenset({"system:kube-scheduler", "system:volcano-scheduler"})
    """May create pods that name their node."""
    collector_users: frozenset[str] = frozenset(
        {"system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"}
    )
    """May take ownerReferences away. The second is the collector of clusters whose controllers share one account."""
    template_copiers: frozenset[str] = frozenset(
        {f"system:serviceaccount:kube-system:{kind}-controller" for kind in ("deployment", "cronjob")}
    )
    """Write objects whose pod templates are those of objects that were looked at before."""
    transformed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What queues are charged for a resource under other names, by that resource."""
    network_tiers: tuple[NetworkTier, ...] = ()
    """Which node labels Volcano's tiers mean."""
    in_flight_max: int = 256
    """Reviews that may wait (for the ledger or a peer) at the same time; more are answered "busy"."""
    policy_in_flight_max: int = 16
    """The same for reviews of policy, which are judged one after another."""
    ledger_wait_seconds: float = 0.5
    """Longest wait for a ledger as new as the pod says."""
    timeout_default_seconds: float = 2.0
    timeout_min_seconds: float = 0.5
    timeout_max_seconds: float = 10.0
    timeout_share: float = 0.9
    """Share of the caller's budget we use, so that an answer is never late."""
    forward_share: float = 0.4
    """Share of the budget that the owning replica may take before this one decides."""
    known_manifest_users: frozenset[str] = field(default=frozenset())
    """Further users that create pods for known kinds (an operator installed under another account)."""
