"""PropagationPolicy and ClusterPropagationPolicy of ACK One and Karmada: in which members, and what after a failure.

Both groups have the same fields. A gang is placed whole whatever a policy says of dividing it. Besides
``resourceSelectors``, Tutti honours ``placement.clusterAffinity`` and ``clusterAffinities``, ``suspension`` as a whole
or by names, ``propagateDeps`` and ``failover.application``; what else is written is warned of by name. Of several
policies that select a job one applies: that of its namespace before one of the cluster, the higher ``priority``, the
narrower selector, the name that comes first. Pure, and total: a policy that cannot be read selects what it can be read
to select, and says what is wrong.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final
from weakref import ref

import orjson

from webhook.core.model.policy import LabelSelector
from webhook.core.notation.problem import Problem
from webhook.dialects.field import Field
from webhook.dialects.selector import label_selector
from webhook.fleet.policies import affinity
from webhook.fleet.policies.affinity import Affinity, Labels, Place
from webhook.untyped import paths
from webhook.untyped.values import text
from webhook.wire.watch import version_number

VERSIONS: Final = ("policy.one.alibabacloud.com/v1alpha1", "policy.karmada.io/v1alpha1")
PLURALS: Final = ("propagationpolicies", "clusterpropagationpolicies")
TOLERATION_SECONDS: Final = 300
"""Karmada's, where a policy asks for another try and does not say after how long."""
BYTES_MAX: Final = 64 * 1024
"""Of a policy: a longer one selects nothing."""
SIZE_BYTES_MAX: Final = 32 * 1024
"""Of a policy's ``size_bytes``, likewise: names of three letters take twenty times as much memory as they are long."""
NAMESPACE_BYTES_MAX: Final = 512 * 1024
"""Of all policies of a namespace, or of the cluster, together."""
TEXT_BYTES: Final = 64
"""What each text and each object takes besides its characters."""
TOLD_MAX: Final = 20
"""Problems of a policy that are kept."""
SELECTORS_MAX: Final = 32
POLICIES_MAX: Final = 100
"""Of a namespace, or of the cluster."""
PLACES_MAX: Final = 1000
"""Members of which a policy remembers where they are among its groups; some of them may be members no longer."""
_NOT_GANG: Final = ("Duplicated",)
_NAMED_MAX: Final = 10
_PURGED: Final = ("Immediately", "Directly")
"""Karmada's two names for what Tutti does; with the others the old copy stays until the new one runs, or for good."""
_KNOWN: Final[Mapping[tuple[str, ...], frozenset[str]]] = {
    (): frozenset(
        {
            "resourceSelectors",
            "placement",
            "priority",
            "suspension",
            "failover",
            "propagateDeps",
            "preserveResourcesOnDeletion",
        }
    ),
    ("placement",): frozenset(
        {
            "clusterAffinity",
            "clusterAffinities",
            "spreadConstraints",
            "replicaScheduling",
            "customSchedulingType",
            "replicaSchedulingType",
        }
    ),
    ("placement", "replicaScheduling"): frozenset({"replicaSchedulingType", "customSchedulingType"}),
    ("suspension",): frozenset({"dispatching", "dispatchingOnClusters", "scheduling"}),
    ("suspension", "dispatchingOnClusters"): frozenset({"clusterNames"}),
    ("failover",): frozenset({"application"}),
    ("failover", "application"): frozenset({"decisionConditions", "purgeMode"}),
    ("failover", "application", "decisionConditions"): frozenset({"tolerationSeconds"}),
}
"""What is read of the objects of a spec."""
_SELECTOR: Final = frozenset({"apiVersion", "kind", "namespace", "name", "labelSelector"})
_SPREAD: Final = frozenset({"spreadByField", "spreadByLabel", "maxGroups", "minGroups"})


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


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Propagation:
    """One policy."""

    namespace: str
    """Empty: of the whole cluster."""
    name: str
    selectors: tuple[Selector, ...] = ()
    priority: int = 0
    groups: tuple[Affinity, ...] | None = None
    """Of members that may be asked, the preferred one first; None: all may be asked."""
    suspended_to: frozenset[str] = frozenset()
    """Members to which dispatching is suspended; of what is dispatched to the others this says nothing."""
    dispatches: bool = True
    """False: jobs are not offered."""
    toleration_seconds: float | None = None
    """After which a job that failed is tried in another member; None: it has failed for good."""
    brings: bool = False
    """What jobs refer to is brought into their member."""
    problems: tuple[Problem, ...] = ()
    uid: str = ""
    resource_version: int = 0
    size_bytes: int = 0
    """About what it takes in memory."""
    _places: dict[str, Place] = field(init=False, default_factory=dict, compare=False, repr=False)
    """By member, for each look at a job asks about all of them. One whose labels are others now is placed again."""

    @property
    def suspends(self) -> str:
        """Its own name where it suspends dispatching; else nothing."""
        return "" if self.dispatches else str(self)

    @property
    def resumed(self) -> "Propagation":
        """As it is once it no longer suspends dispatching, to whichever members."""
        suspends = self.suspended_to or not self.dispatches
        return replace(self, dispatches=True, suspended_to=frozenset()) if suspends else self

    def suspends_to(self, member: str) -> bool:
        """Return whether a member that it may allow gets nothing for as long as dispatching is suspended."""
        return not self.dispatches or member in self.suspended_to

    def narrowness(self, job: Mapping[str, Any]) -> int:
        """Return how narrowly it selects a job, the higher the narrower; 0 where it does not."""
        return max((each.matches(job) for each in self.selectors), default=0)

    def why_not(self, member: str, labels: Labels = None) -> str:
        """Return why a gang may not be offered to a member; nothing when it may."""
        if not self.dispatches:
            return f"is not asked: {self} suspends dispatching"
        if member in self.suspended_to:
            return f"is not asked: {self} suspends dispatching to it"
        if self.groups is None or (place := self._place(member, labels)).rank is not None:
            return ""
        return f"is left out by {self}: {place.why}" if place.why else f"is left out by {self}"

    def rank(self, member: str, labels: Labels = None) -> int:
        """Return after how many groups of others a member is asked."""
        return 0 if self.groups is None else self._place(member, labels).rank or 0

    def _place(self, member: str, labels: Labels) -> Place:
        found = self._places.get(member)
        # Labels are replaced, never changed; a comparison would cost as much as they are long.
        if found is None or found.labels is not labels:
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            found = self._places[member] = affinity.place(self.groups or (), member, labels)
        return found

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
    suspended = suspension["dispatchingOnClusters"]["clusterNames"]
    _warn(spec)
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
        affinity.groups(placement),
        frozenset(each.text() for each in suspended.items()),
        not suspension["dispatching"].boolean(False),
        float(waits) if application.present else None,
        spec["propagateDeps"].boolean(False),
        tuple(sorted(problems, key=lambda each: each.warning)[:TOLD_MAX]),
        text(metadata.get("uid")),
        version_number(text(metadata.get("resourceVersion"))),
        _size_bytes(spec.value),
    )


def by_namespace(policies: Iterable[Propagation]) -> dict[str, list[Propagation]]:
    """Return policies by their namespaces, those of the cluster under the empty name."""
    found: dict[str, list[Propagation]] = {}
    for policy in sorted(policies, key=lambda each: each.name):
        of = found.setdefault(policy.namespace, [])
        if len(of) < POLICIES_MAX:
            of.append(policy)
    return found


def applying(policies: Mapping[str, Sequence[Propagation]], job: Mapping[str, Any]) -> Propagation:
    """Return the policy that applies to a job of the hub, of those ``by_namespace``."""
    found = Applying()
    found.look(policies, job)
    return found.policy


class Applying:
    """Which policy applies to one job: each is compared with it again only when it, or the job's labels, have changed.

    A tenant who changes one policy all the time has no other one compared again.
    """

    def __init__(self) -> None:
        self.policy: Propagation = ANYWHERE
        self._among: tuple[ref[Propagation], ...] = ()
        """Those that were looked at: a job that rests keeps none that is gone."""
        self._narrow: tuple[int, ...] = ()
        """How narrowly each of them selects the job."""
        self._selected_by: tuple[object, ...] = ()

    def look(self, policies: Mapping[str, Sequence[Propagation]], job: Mapping[str, Any]) -> None:
        """Find the policy that applies now, of those ``by_namespace``."""
        metadata = paths.find_mapping(job, ("metadata",))
        labels = dict(paths.find_mapping(metadata, ("labels",)))
        by = (job.get("apiVersion"), job.get("kind"), metadata.get("namespace"), metadata.get("name"), labels)
        among = (*policies.get(text(metadata.get("namespace")), ()), *policies.get("", ()))
        if by != self._selected_by:
            self.policy, self._among, self._narrow, self._selected_by = ANYWHERE, (), (), by
        # A policy that has changed is another object.
        if len(among) == len(self._among) and all(
            known() is each for known, each in zip(self._among, among, strict=True)
        ):
            return
        before = zip(self._among, self._narrow, strict=True)
        known = {id(policy): narrow for each, narrow in before if (policy := each()) is not None}
        self._narrow = tuple(known[id(each)] if id(each) in known else each.narrowness(job) for each in among)
        self._among, self.policy = tuple(map(ref, among)), _first(zip(among, self._narrow, strict=True))


def _first(among: Iterable[tuple[Propagation, int]]) -> Propagation:
    found = [
        ((not policy.namespace, -policy.priority, -narrow, policy.name), policy) for policy, narrow in among if narrow
    ]
    return min(found, key=lambda each: each[0])[1] if found else ANYWHERE


def _size_bytes(spec: object) -> int:
    written = orjson.dumps(spec)
    return len(written) + TEXT_BYTES * (written.count(b'"') // 2 + written.count(b"{"))


def _selector(at: Field, namespace: str) -> Selector:
    _name_unknown(at, _SELECTOR)
    labels = label_selector(at["labelSelector"])
    version, kind, name = at["apiVersion"].text(), at["kind"].text(), at["name"].text()
    # A namespaced policy selects in its own namespace alone, whatever it names.
    return Selector(version, kind, namespace or at["namespace"].text(), name, labels)


def _warn(spec: Field) -> None:
    """Note what of a policy has no effect, or another one than in Karmada."""
    for path, known in _KNOWN.items():
        at = spec
        for key in path:
            at = at[key]
        _name_unknown(at, known)
    placement, application = spec["placement"], spec["failover"]["application"]
    for scheduling in (placement["replicaScheduling"], placement):
        kind = scheduling["replicaSchedulingType"]
        if kind.text() in _NOT_GANG:
            kind.warn("is not supported: a gang runs in one member", "write Divided and customSchedulingType: Gang")
    for each in placement["spreadConstraints"].items(most=SELECTORS_MAX):
        _name_unknown(each, _SPREAD)
        if each["maxGroups"].integer() != 1 or (each["minGroups"].integer() or 0) > 1:
            each.warn("is not honoured: a gang runs in one member", "write maxGroups: 1 and minGroups: 1, or remove it")
    if (mode := application["purgeMode"]).present and mode.text() not in _PURGED:
        what = "is not honoured: a gang is deleted and gone before it is tried elsewhere"
        mode.warn(what, "write Directly, or Immediately where the definition is older")
    if (kept := spec["preserveResourcesOnDeletion"]).boolean(False):
        what = (
            "is not honoured: the hub keeps a job and its quota until it is proven that nothing of it runs in a member"
        )
        kept.warn(what, "remove it, and delete a job in the hub only when it may stop")


def _name_unknown(at: Field, known: frozenset[str]) -> None:
    for key in sorted(at.mapping().keys() - known)[:_NAMED_MAX]:
        at[key].warn("is not honoured", f"known here: {', '.join(sorted(known))}")
