"""MultiKueue's set-up in a hub: which clusters a queue places its jobs in, and what its objects say of themselves.

A ClusterQueue names an AdmissionCheck, that a MultiKueueConfig, and that MultiKueueClusters, each with a Secret in
``kueue-system`` whose key ``kubeconfig`` says how to reach it. Both API versions are read, in either's spelling. The
reasons and messages of conditions are those that Kueue's own set-up page shows. Pure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from webhook.dialects.field import is_subdomain
from webhook.dialects.kueue.checks import CONTROLLER
from webhook.untyped import paths
from webhook.untyped.values import integer, items, text
from webhook.wire.watch import version_number

GROUP: Final = "kueue.x-k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
NAMESPACE: Final = "kueue-system"
"""Where the Secrets of MultiKueueClusters are."""
KEY: Final = "kubeconfig"
CLUSTERS_MAX: Final = 20
"""Of a MultiKueueConfig, as in Kueue."""
ACTIVE: Final = "Active"
NOT_NAMED: Final = "is not a cluster of its queue's MultiKueueConfig"


class Condition(NamedTuple):
    """What an object's condition ``Active`` says."""

    status: str
    reason: str
    message: str


CONNECTED: Final = Condition("True", ACTIVE, "Connected")
_CHECK_ACTIVE: Final = Condition("True", ACTIVE, "The admission check is active")


def bad_kubeconfig(why: str) -> Condition:
    """Return the condition of a cluster whose credentials cannot be used."""
    return Condition("False", "BadKubeConfig", why)


def not_connected(why: str) -> Condition:
    """Return the condition of a cluster that does not answer, or not as a member."""
    return Condition("False", "ClientConnectionFailed", why)


@dataclass(frozen=True, slots=True)
class Named:
    """One object of the set-up, as far as it is read: its name, what it names, and its condition as it is stored."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    generation: int
    names: tuple[str, ...] = ()
    """Of a queue its checks, of a check its config, of a config its clusters, of a cluster its Secret."""
    problem: str = ""
    """Why what it names cannot be used."""
    stored: Condition | None = None
    since: str = ""
    """When that was last another status, as it is stored."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Of a cluster, by which a PropagationPolicy may select it."""


def cluster_queue(obj: Mapping[str, Any]) -> Named:
    """Return a ClusterQueue: it names checks."""
    stated = items(paths.find(obj, ("spec", "admissionChecksStrategy", "admissionChecks")))
    listed = [each.get("name") for each in stated if isinstance(each, Mapping)]
    return _named(obj, [*listed, *items(paths.find(obj, ("spec", "admissionChecks")))])


def local_queue(obj: Mapping[str, Any]) -> Named:
    """Return a LocalQueue: it names its ClusterQueue."""
    return _named(obj, [paths.find(obj, ("spec", "clusterQueue"))])


def admission_check(obj: Mapping[str, Any]) -> Named | None:
    """Return an AdmissionCheck: it names its config; None for another controller's."""
    if paths.find(obj, ("spec", "controllerName")) != CONTROLLER:
        return None
    parameters = paths.find_mapping(obj, ("spec", "parameters"))
    problem = ""
    if (parameters.get("apiGroup"), parameters.get("kind")) != (GROUP, "MultiKueueConfig"):
        problem = f"it names no MultiKueueConfig of {GROUP}"
    return _named(obj, [parameters.get("name")], problem)


def config(obj: Mapping[str, Any]) -> Named:
    """Return a MultiKueueConfig: it names clusters."""
    return _named(obj, items(paths.find(obj, ("spec", "clusters")))[:CLUSTERS_MAX])


def cluster(obj: Mapping[str, Any]) -> Named:
    """Return a MultiKueueCluster: it names its Secret."""
    source = paths.find_mapping(obj, ("spec", "clusterSource")) or paths.find_mapping(obj, ("spec",))
    secret, problem = paths.find_mapping(source, ("kubeConfig",)), ""
    if source.get("clusterProfileRef") is not None:
        problem = "a ClusterProfile is not read: give a Secret with a kubeconfig"
    elif secret.get("locationType", "Secret") != "Secret":
        problem = f"locationType {secret.get('locationType')} would read a file of the hub: give a Secret"
    elif not is_subdomain(text(secret.get("location"))):
        # It becomes part of the path of a request.
        problem = f"it names no Secret of {NAMESPACE}"
    labels = paths.find_mapping(obj, ("metadata", "labels"))
    held = {key: value for key, value in labels.items() if isinstance(value, str)}
    return replace(_named(obj, [secret.get("location")], problem), labels=held)


def _named(obj: Mapping[str, Any], names: Iterable[object], problem: str = "") -> Named:
    metadata, stored, since = paths.find_mapping(obj, ("metadata",)), None, ""
    for each in items(paths.find(obj, ("status", "conditions"))):
        if isinstance(each, Mapping) and each.get("type") == ACTIVE:
            stored = Condition(*(text(each.get(key)) for key in ("status", "reason", "message")))
            since = text(each.get("lastTransitionTime"))
    return Named(
        text(metadata.get("namespace")),
        text(metadata.get("name")),
        text(metadata.get("uid")),
        version_number(text(metadata.get("resourceVersion"))),
        integer(metadata.get("generation")),
        tuple(name for name in names if isinstance(name, str) and name),
        problem,
        stored,
        since,
    )


READERS: Final = {
    "clusterqueues": cluster_queue,
    "localqueues": local_queue,
    "admissionchecks": admission_check,
    "multikueueconfigs": config,
    "multikueueclusters": cluster,
}
"""By the plural of what they read."""


@dataclass(frozen=True, slots=True)
class SetUp:
    """All objects together."""

    queues: Mapping[str, Named] = field(default_factory=dict)
    local_queues: Mapping[str, Mapping[str, Named]] = field(default_factory=dict)
    """By namespace, then by name: each look at a job asks whether its namespace has any."""
    checks: Mapping[str, Named] = field(default_factory=dict)
    configs: Mapping[str, Named] = field(default_factory=dict)
    clusters: Mapping[str, Named] = field(default_factory=dict)

    def members_of(self, namespace: str, local_queue: str) -> frozenset[str] | None:
        """Return the members that jobs of a LocalQueue may be placed in; None: its queue does not say."""
        queue = self._queue_of(namespace, local_queue)
        if queue is None and self.has_queues(namespace):
            # Deleted while it had given a job its slot: what it said is not known any more.
            return frozenset()
        if queue is None or not queue.names:
            return None
        checks = [self.checks[name] for name in queue.names if name in self.checks]
        return frozenset(name for check in checks for name in self._clusters_of(check))

    def left_out(self, namespace: str, local_queue: str, members: Collection[str]) -> dict[str, str]:
        """Return, each with why, those of ``members`` in which jobs of a LocalQueue may not be placed."""
        if not local_queue or (allowed := self.members_of(namespace, local_queue)) is None:
            return {}
        gone = self._queue_of(namespace, local_queue) is None
        why = f"is not asked: queue {local_queue} has no ClusterQueue now" if gone else NOT_NAMED
        return dict.fromkeys(set(members) - allowed, why)

    def labels_of(self, member: str) -> Mapping[str, str] | None:
        """Return the labels of the MultiKueueCluster of a member's name; None: there is none."""
        found = self.clusters.get(member)
        return None if found is None else found.labels

    def _queue_of(self, namespace: str, local_queue: str) -> Named | None:
        local = self.local_queues.get(namespace, {}).get(local_queue)
        return self.queues.get(local.names[0]) if local is not None and local.names else None

    def has_queues(self, namespace: str) -> bool:
        """Return whether the hub counts the jobs of a namespace, of those that name a queue."""
        return namespace in self.local_queues

    def condition_of_check(self, check: Named, active: Collection[str]) -> Condition:
        """Return what a check says of itself while these clusters are active."""
        if check.problem or not check.names or check.names[0] not in self.configs:
            why = check.problem or f"there is no MultiKueueConfig {', '.join(check.names) or 'named'}"
            return Condition("False", "BadConfig", f"Cannot load the AdmissionChecks parameters: {why}")
        wanted = self._clusters_of(check)
        missing = [name for name in wanted if name not in self.clusters]
        inactive = [name for name in wanted if name in self.clusters and name not in active]
        parts = [
            f"{what} clusters: [{' '.join(names)}]"
            for what, names in (("Missing", missing), ("Inactive", inactive))
            if names
        ]
        if wanted and not parts:
            return _CHECK_ACTIVE
        if len(missing) + len(inactive) < len(wanted):
            return Condition("True", "SomeActiveClusters", ", ".join(parts))
        return Condition("False", "NoUsableClusters", ", ".join(parts) or "it names no cluster")

    def _clusters_of(self, check: Named) -> tuple[str, ...]:
        config = self.configs.get(check.names[0]) if check.names and not check.problem else None
        return () if config is None else config.names


NOTHING_SET_UP: Final = SetUp()
