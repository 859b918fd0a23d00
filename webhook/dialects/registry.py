"""Which policy resources there are to watch: group, served versions, kind, plural and scope."""

from dataclasses import dataclass, field
from typing import Final

from webhook.dialects import elastic_quota_tree, hyper_nodes, volcano
from webhook.dialects.kueue import checks as kueue_checks
from webhook.dialects.kueue import objects as kueue


@dataclass(frozen=True, slots=True)
class PolicyResource:
    """One API resource that quota is written in."""

    group: str
    versions: tuple[str, ...]
    """Versions that are read, preferred first; a cluster may serve any of them or none."""
    kind: str
    plural: str
    namespaced: bool
    feeds: tuple[str, ...] = field(init=False, compare=False)
    """What the feeds of its versions are called (``feed``)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "feeds", tuple(map(self.feed, self.versions)))

    @property
    def key(self) -> str:
        """``Kind.group``, or the kind alone in the core group."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def path(self, version: str) -> str:
        """Return the path that lists and watches the resource in all namespaces."""
        prefix = f"/apis/{self.group}" if self.group else "/api"
        return f"{prefix}/{version}/{self.plural}"

    def feed(self, version: str) -> str:
        """Return what the feed of the resource in one version is called, in logs and metrics too."""
        return f"{self.plural}.{version}.{self.group}"


_KUEUE_VERSIONS: Final = ("v1beta2", "v1beta1")
_TOPOLOGY_VERSIONS: Final = (*_KUEUE_VERSIONS, "v1alpha1")

COMPILED: Final[tuple[PolicyResource, ...]] = (
    PolicyResource(kueue.GROUP, _KUEUE_VERSIONS, "ClusterQueue", "clusterqueues", False),
    PolicyResource(kueue.GROUP, _KUEUE_VERSIONS, "Cohort", "cohorts", False),
    PolicyResource(kueue.GROUP, _KUEUE_VERSIONS, "LocalQueue", "localqueues", True),
    PolicyResource(kueue.GROUP, _KUEUE_VERSIONS, "ResourceFlavor", "resourceflavors", False),
    PolicyResource(kueue.GROUP, _TOPOLOGY_VERSIONS, "Topology", "topologies", False),
    PolicyResource(kueue.GROUP, _KUEUE_VERSIONS, "WorkloadPriorityClass", "workloadpriorityclasses", False),
    PolicyResource(elastic_quota_tree.GROUP, ("v1beta1",), elastic_quota_tree.KIND, "elasticquotatrees", True),
    PolicyResource(volcano.GROUP, ("v1beta1",), volcano.KIND, "queues", False),
    PolicyResource(hyper_nodes.GROUP, ("v1alpha1",), hyper_nodes.KIND, "hypernodes", False),
)
"""Those that are compiled into the Policy (``compiler.compile_policy``), wherever Tutti runs."""
CHECKS: Final = PolicyResource(kueue.GROUP, _KUEUE_VERSIONS, kueue_checks.KIND, "admissionchecks", False)
"""Compiled in a hub alone: only there is one of their controllers followed."""
RESOURCE_QUOTA: Final = PolicyResource("", ("v1",), "ResourceQuota", "resourcequotas", True)
"""Becomes a fence (``resource_quota``)."""
RESOURCES: Final = (*COMPILED, RESOURCE_QUOTA)


def compiled(*, hub: bool) -> tuple[PolicyResource, ...]:
    """Return the resources that a Policy is compiled of, in a hub or elsewhere."""
    return (*COMPILED, CHECKS) if hub else COMPILED


def resource_of(group: str, kind: str) -> PolicyResource | None:
    """Return the resource of a group and kind, if it is a policy resource."""
    return next((item for item in RESOURCES if (item.group, item.kind) == (group, kind)), None)
