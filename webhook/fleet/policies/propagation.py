"""PropagationPolicy and ClusterPropagationPolicy of ACK One and Karmada: in which members, and what after a failure.

Both groups have the same fields. A gang is placed whole whatever a policy says of dividing it. Besides
``resourceSelectors``, Tutti honours ``placement.clusterAffinity`` by names, ``suspension`` as a whole or by names, and
``failover.application``. Of several policies that select a job one applies: that of its namespace before one of the
cluster, the higher ``priority``, the narrower selector, the name that comes first. Pure, and total: a policy that
cannot be read selects what it can be read to select, and says what is wrong.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from webhook.core.model.policy import LabelSelector
from webhook.core.notation.problem import Problem
from webhook.dialects.field import Field
from webhook.dialects.selector import label_selector
from webhook.untyped import paths
from webhook.untyped.values import text
from webhook.wire.watch import version_number

VERSIONS: Final = ("policy.one.alibabacloud.com/v1alpha1", "policy.karmada.io/v1alpha1")
PLURALS: Final = ("propagationpolicies", "clusterpropagationpolicies")
TOLERATION_SECONDS: Final = 300
"""Karmada's, where a policy asks for another try and does not say after how long."""
BYTES_MAX: Final = 64 * 1024
"""Of a policy: a longer one selects nothing."""
SELECTORS_MAX: Final = 32
POLICIES_MAX: Final = 100
"""Of a namespace, or of the cluster, that are looked at, by their names."""
_NOT_GANG: Final = ("Duplicated",)
_NAMED_MAX: Final = 10
_SPEC: Final = frozenset({"resourceSelectors", "placement", "priority", "suspension", "failover", "propagateDeps"})
_PLACEMENT: Final = frozenset({"clusterAffinity", "replicaScheduling", "customSchedulingType", "replicaSchedulingType"})
_AFFINITY: Final = frozenset({"clusterNames", "exclude"})
_SUSPENSION: Final = frozenset({"dispatching", "dispatchingOnClusters", "scheduling"})
_FAILOVER: Final = frozenset({"application"})
_APPLICATION: Final = frozenset({"decisionConditions", "purgeMode"})


@dataclass(frozen=True, slots=True)
class Selector:
    """What a policy applies to; empty texts and no labels select everything."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    labels: LabelSelector | None = None

    def matches(self, job: Mapping[str, Any]) -> int:
        """Return how narrowly it selects a job, the higher the narrower; 0 where it does not."""
        metadata = paths.find_mapping(job, ("metadata",))
        if (job.get("apiVersion"), job.get("kind")) != (self.api_version, self.kind):
            return 0
        if self.namespace not in ("", metadata.get("namespace")):
            return 0
        if self.name:
            return 3 if self.name == metadata.get("name") else 0
        if self.labels is None:
            return 1
        held = {
            key: value for key, value in paths.find_mapping(metadata, ("labels",)).items() if isinstance(value, str)
        }
        return 2 if self.labels.matches(held) else 0


@dataclass(frozen=True, slots=True)
class Propagation:
    """One policy."""

    namespace: str
    """Empty: of the whole cluster."""
    name: str
    selectors: tuple[Selector, ...] = ()
    priority: int = 0
    only: frozenset[str] | None = None
    """Members that may be asked; None: all."""
    exclude: frozenset[str] = frozenset()
    dispatches: bool = True
    """False: jobs are not offered."""
    toleration_seconds: float | None = None
    """After which a job that failed is tried in another member; None: it has failed for good."""
    problems: tuple[Problem, ...] = ()
    uid: str = ""
    resource_version: int = 0

    @property
    def suspends(self) -> str:
        """Its own name where it suspends dispatching; else nothing."""
        return "" if self.dispatches else str(self)

    def why_not(self, member: str) -> str:
        """Return why a gang may not be offered to a member; nothing when it may."""
        if not self.dispatches:
            return f"is not asked: {self} suspends dispatching"
        if member in self.exclude or (self.only is not None and member not in self.only):
            return f"is left out by {self}"
        return ""

    def __str__(self) -> str:
        if self.namespace:
            return f"PropagationPolicy {self.namespace}/{self.name}"
        return f"ClusterPropagationPolicy {self.name}"


ANYWHERE: Final = Propagation("", "")
"""What holds for a job that no policy selects."""


def read(policy: Mapping[str, Any]) -> Propagation:
    """Return a policy as it is honoured."""
    problems: list[Problem] = []
    whole = Field(policy, "", problems)
    spec, metadata = whole["spec"], paths.find_mapping(policy, ("metadata",))
    placement, suspension, application = spec["placement"], spec["suspension"], spec["failover"]["application"]
    for scheduling in (placement["replicaScheduling"], placement):
        kind = scheduling["replicaSchedulingType"]
        if kind.text() in _NOT_GANG:
            kind.warn("is not supported: a gang runs in one member", "write Divided and customSchedulingType: Gang")
    names, excluded = placement["clusterAffinity"]["clusterNames"], placement["clusterAffinity"]["exclude"]
    suspended = suspension["dispatchingOnClusters"]["clusterNames"]
    for at, known in (
        (spec, _SPEC),
        (placement, _PLACEMENT),
        (placement["clusterAffinity"], _AFFINITY),
        (suspension, _SUSPENSION),
        (spec["failover"], _FAILOVER),
        (application, _APPLICATION),
    ):
        for key in sorted(at.mapping().keys() - known)[:_NAMED_MAX]:
            at[key].warn("is not honoured", f"known here: {', '.join(sorted(known))}")
    if spec["propagateDeps"].boolean(False):
        spec["propagateDeps"].warn("is not done", "create what jobs refer to in each member")
    tolerated = application["decisionConditions"]["tolerationSeconds"].integer(least=0)
    waits = TOLERATION_SECONDS if tolerated is None else tolerated
    return Propagation(
        text(metadata.get("namespace")),
        text(metadata.get("name")),
        tuple(
            _selector(each, text(metadata.get("namespace")))
            for each in islice(spec["resourceSelectors"].items(most=SELECTORS_MAX), SELECTORS_MAX)
        ),
        spec["priority"].integer() or 0,
        frozenset(each.text() for each in names.items()) if names.present else None,
        frozenset(each.text() for at in (excluded, suspended) for each in at.items()),
        not suspension["dispatching"].boolean(False),
        float(waits) if application.present else None,
        tuple(problems),
        text(metadata.get("uid")),
        version_number(text(metadata.get("resourceVersion"))),
    )


def by_namespace(policies: Iterable[Propagation]) -> dict[str, list[Propagation]]:
    """Return policies by their namespaces, those of the cluster under the empty name."""
    found: dict[str, list[Propagation]] = {}
    for policy in sorted(policies, key=lambda each: each.name):
        of = found.setdefault(policy.namespace, [])
        if len(of) < POLICIES_MAX:
            of.append(policy)
    return found


def applying(policies: Mapping[str, Iterable[Propagation]], job: Mapping[str, Any]) -> Propagation:
    """Return the policy that applies to a job of the hub, of those ``by_namespace``."""
    namespace, found = text(paths.find(job, ("metadata", "namespace"))), []
    for policy in (*policies.get(namespace, ()), *policies.get("", ())):
        narrow = max((each.matches(job) for each in policy.selectors), default=0)
        if narrow:
            found.append(((not policy.namespace, -policy.priority, -narrow, policy.name), policy))
    return min(found, key=lambda each: each[0])[1] if found else ANYWHERE


def _selector(at: Field, namespace: str) -> Selector:
    labels = label_selector(at["labelSelector"])
    version, kind, name = at["apiVersion"].text(), at["kind"].text(), at["name"].text()
    # A namespaced policy selects in its own namespace alone, whatever it names.
    return Selector(version, kind, namespace or at["namespace"].text(), name, labels)
