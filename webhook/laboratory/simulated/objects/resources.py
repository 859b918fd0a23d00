"""The table of served resources: built-in kinds, custom kinds of gangs and quota dialects, and CRDs added later.

Nothing else in the simulated server knows a kind by name, except defaulting, validation and the controllers. Two
entries may share one store (``events`` of both groups, both versions of Kueue's kinds): what is stored through one is
read through the other with the version replaced and no other conversion.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson

RELEASE: Final = 36
"""The minor release of Kubernetes that a simulated cluster is, unless told otherwise."""

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Resource:
    """One served resource of one version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    status: bool = False
    """It has a status subresource: the main resource ignores changes of ``status`` and the other way round."""
    scale_path: tuple[str, ...] = ()
    """Where the scale subresource finds the number of replicas; empty when there is none."""
    generation: bool = False
    """``metadata.generation`` counts changes of what is neither metadata nor status."""
    custom: bool = False
    """A custom resource: list items carry their kind, a PUT must name a resourceVersion."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Selectable fields besides ``metadata.name`` and ``metadata.namespace``."""
    shares: tuple[str, str] | None = None
    """(group, plural) of the store it shares; its own by default."""
    subresources: tuple[str, ...] = ()
    """Further subresources, for discovery and admission."""

    @cached_property
    def api_version(self) -> str:
        """``group/version``, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """``plural.group`` as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def storage(self) -> tuple[str, str]:
        """Key of the store its objects live in."""
        return self.shares or (self.group, self.plural)

    @cached_property
    def head(self) -> bytes:
        """How the JSON of its objects begins."""
        return orjson.dumps({"kind": self.kind, "apiVersion": self.api_version})[:-1] + b","

    @property
    def path(self) -> str:
        """Path prefix of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def selectable(self) -> tuple[str, ...]:
        """Fields that a fieldSelector may name."""
        return ("metadata.name", "metadata.namespace", *self.fields)


def _core() -> Iterable[Resource]:
    involved = ("kind", "name", "namespace", "uid", "apiVersion", "fieldPath", "resourceVersion")
    event_fields = ("reason", "type", *(f"involvedObject.{field}" for field in involved))
    yield Resource("", "v1", "namespaces", "Namespace", False, True, short_names=("ns",), subresources=("finalize",))
    yield Resource(
        "", "v1", "pods", "Pod", True, True, generation=True, short_names=("po",), categories=("all",),
        fields=("spec.nodeName", "status.phase", "spec.schedulerName", "spec.restartPolicy", "spec.serviceAccountName"),
        subresources=("binding", "ephemeralcontainers", "resize", "eviction", "log", "exec"),
    )  # fmt: skip
    yield Resource("", "v1", "nodes", "Node", False, True, short_names=("no",), fields=("spec.unschedulable",))
    yield Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
    yield Resource("", "v1", "secrets", "Secret", fields=("type",))
    yield Resource("", "v1", "services", "Service", status=True, short_names=("svc",), categories=("all",))
    yield Resource("", "v1", "endpoints", "Endpoints", short_names=("ep",))
    yield Resource("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",))
    yield Resource("", "v1", "events", "Event", short_names=("ev",), fields=event_fields)
    yield Resource("", "v1", "resourcequotas", "ResourceQuota", status=True, short_names=("quota",))
    yield Resource("", "v1", "limitranges", "LimitRange", short_names=("limits",))
    yield Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", status=True, short_names=("pvc",))
    yield Resource("events.k8s.io", "v1", "events", "Event", short_names=("ev",), shares=("", "events"))
    yield Resource(
        "batch", "v1", "jobs", "Job", True, True, generation=True, categories=("all",), fields=("status.successful",)
    )
    yield Resource("batch", "v1", "cronjobs", "CronJob", True, True, generation=True, short_names=("cj",))
    for plural, kind, short in (
        ("deployments", "Deployment", "deploy"),
        ("replicasets", "ReplicaSet", "rs"),
        ("statefulsets", "StatefulSet", "sts"),
    ):
        yield Resource(
            "apps",
            "v1",
            plural,
            kind,
            True,
            True,
            ("spec", "replicas"),
            True,
            short_names=(short,),
            categories=("all",),
        )
    yield Resource("apps", "v1", "daemonsets", "DaemonSet", True, True, generation=True, short_names=("ds",))
    yield Resource(
        "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, generation=True, short_names=("pc",)
    )
    yield Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
    yield Resource("coordination.k8s.io", "v1", "leases", "Lease")
    yield Resource(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        status=True,
        generation=True,
        short_names=("pdb",),
    )
    yield Resource(
        "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", generation=True, short_names=("netpol",)
    )
    for plural, kind in (("roles", "Role"), ("rolebindings", "RoleBinding")):
        yield Resource("rbac.authorization.k8s.io", "v1", plural, kind)
    for plural, kind in (("clusterroles", "ClusterRole"), ("clusterrolebindings", "ClusterRoleBinding")):
        yield Resource("rbac.authorization.k8s.io", "v1", plural, kind, False)
    yield from _control()


def _control() -> Iterable[Resource]:
    for plural, kind in (
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
        ("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
        ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
    ):
        yield Resource("admissionregistration.k8s.io", "v1", plural, kind, False, generation=True)
    yield Resource(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, True,
        generation=True, short_names=("crd", "crds"),
    )  # fmt: skip
    yield Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", False, True, generation=True)


def _custom() -> Iterable[Resource]:
    def custom(group: str, version: str, plural: str, kind: str, namespaced: bool = True, **more: Any) -> Resource:
        return Resource(group, version, plural, kind, namespaced, True, generation=True, custom=True, **more)

    yield custom("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
    for plural, kind, key in (
        ("pytorchjobs", "PyTorchJob", "pytorchReplicaSpecs"),
        ("tfjobs", "TFJob", "tfReplicaSpecs"),
        ("xgboostjobs", "XGBoostJob", "xgbReplicaSpecs"),
        ("paddlejobs", "PaddleJob", "paddleReplicaSpecs"),
        ("jaxjobs", "JAXJob", "jaxReplicaSpecs"),
    ):
        yield custom("kubeflow.org", "v1", plural, kind, scale_path=("spec", key, "Worker", "replicas"))
    mpi = ("spec", "mpiReplicaSpecs", "Worker", "replicas")
    yield custom("kubeflow.org", "v1", "mpijobs", "MPIJob", scale_path=mpi)
    yield custom("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup", short_names=("pg",))
    yield custom("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", short_names=("pg", "pgs"))
    yield custom("scheduling.x-k8s.io", "v1alpha1", "queues", "Queue")
    yield custom(
        "scheduling.sigs.k8s.io", "v1beta1", "elasticquotatrees", "ElasticQuotaTree", short_names=("eqtree", "eqtrees")
    )
    yield custom("scheduling.volcano.sh", "v1beta1", "queues", "Queue", False, short_names=("q", "queue-v1beta1"))
    yield custom("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", short_names=("vg", "podgroup-v1beta1"))
    yield custom("topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", False, short_names=("hn",))
    yield custom("batch.volcano.sh", "v1alpha1", "jobs", "Job", short_names=("vcjob", "vj"))
    for plural, kind, namespaced, short in (
        ("clusterqueues", "ClusterQueue", False, ("cq",)),
        ("localqueues", "LocalQueue", True, ("queue", "lq")),
        ("resourceflavors", "ResourceFlavor", False, ("flavor", "flavors", "rf")),
        ("cohorts", "Cohort", False, ("co",)),
        ("workloadpriorityclasses", "WorkloadPriorityClass", False, ("wpc",)),
        ("admissionchecks", "AdmissionCheck", False, ("ac",)),
        ("multikueueconfigs", "MultiKueueConfig", False, ("mkconf",)),
        ("multikueueclusters", "MultiKueueCluster", False, ("mkc",)),
        ("topologies", "Topology", False, ("topo",)),
    ):
        for version in ("v1beta2", "v1beta1"):
            yield custom("kueue.x-k8s.io", version, plural, kind, namespaced, short_names=short)
    for group in ("policy.one.alibabacloud.com", "policy.karmada.io"):
        yield custom(group, "v1alpha1", "propagationpolicies", "PropagationPolicy")
        yield custom(group, "v1alpha1", "clusterpropagationpolicies", "ClusterPropagationPolicy", False)


class Registry:
    """What is served, by group, version and plural name."""

    def __init__(self, extra: Iterable[Resource] = ()) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        for resource in (*_core(), *_custom(), *extra):
            self.add(resource)

    def add(self, resource: Resource) -> None:
        """Serve one more resource, or replace it."""
        self._resources[(resource.group, resource.version, resource.plural)] = resource

    def remove(self, resource: Resource) -> None:
        """Serve it no more; its objects, if there are any, stay stored."""
        del self._resources[(resource.group, resource.version, resource.plural)]

    def add_definition(self, definition: Mapping[str, Any]) -> None:
        """Serve what a CustomResourceDefinition describes; a version that is served already is left alone."""
        spec = definition["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            key = (spec["group"], version["name"], names["plural"])
            if not version.get("served", True) or key in self._resources:
                continue
            subresources = version.get("subresources") or {}
            scale = (subresources.get("scale") or {}).get("specReplicasPath", "")
            self.add(
                Resource(
                    *key,
                    names["kind"],
                    spec.get("scope", "Namespaced") == "Namespaced",
                    "status" in subresources,
                    tuple(filter(None, scale.split("."))),
                    generation=True,
                    custom=True,
                    short_names=tuple(names.get("shortNames") or ()),
                    categories=tuple(names.get("categories") or ()),
                )
            )

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource served there."""
        return self._resources.get((group, version, plural))

    def of(self, plural: str, group: str = "") -> Resource:
        """Return the preferred version of a resource that is known to be served."""
        return next(r for r in self._resources.values() if r.plural == plural and r.group == group)

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource whose objects say so."""
        for resource in self._resources.values():
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        return None

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._resources.values())
