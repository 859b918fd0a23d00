"""An object of each kind that Tutti reads, as an API server hands it out, and metadata as anybody may write it."""

from typing import Any, Final

import yaml
from hypothesis import strategies as st

from tests.unit.jobs.objects_of_kinds import DIRECTORY, special
from webhook.core.notation import names
from webhook.dialects.registry import COMPILED

_SPECIAL: Final = ("trainjob", "volcanojob", "workflow")
REAL: Final = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(DIRECTORY.glob("*.yaml"))} | {
    name: special(name) for name in _SPECIAL
}
"""One of each job kind."""
_POD_SPEC: Final = {
    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
}
_KUEUE: Final = "kueue.x-k8s.io/v1beta2"


def _of(version: str, kind: str, name: str, body: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


POLICY: Final = (
    _of(
        _KUEUE,
        "ClusterQueue",
        "q",
        {
            "spec": {
                "cohortName": "c",
                "namespaceSelector": {"matchLabels": {"a": "b"}},
                "preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "Never"}},
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
                    }
                ],
            }
        },
    ),
    _of(_KUEUE, "Cohort", "c", {"spec": {"parentName": "d"}}),
    _of(_KUEUE, "LocalQueue", "lq", {"spec": {"clusterQueue": "q"}}, "team-a"),
    _of(
        _KUEUE,
        "ResourceFlavor",
        "f",
        {
            "spec": {
                "nodeLabels": {"a": "b"},
                "nodeTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "topologyName": "racks",
            }
        },
    ),
    _of(_KUEUE, "Topology", "racks", {"spec": {"levels": [{"nodeLabel": "row"}, {"nodeLabel": "rack"}]}}),
    _of(_KUEUE, "WorkloadPriorityClass", "high", {"value": 100}),
    _of(
        "scheduling.sigs.k8s.io/v1beta1",
        "ElasticQuotaTree",
        "tree",
        {
            "spec": {
                "root": {
                    "name": "root",
                    "min": {"cpu": 4},
                    "max": {"cpu": 4},
                    "children": [{"name": "leaf", "namespaces": ["team-a"], "min": {"cpu": 1}, "max": {"cpu": 4}}],
                }
            }
        },
        "kube-system",
    ),
    _of(
        "scheduling.volcano.sh/v1beta1",
        "Queue",
        "vq",
        {"spec": {"weight": 1, "capability": {"cpu": 4}, "parent": "root"}},
    ),
    _of(
        "topology.volcano.sh/v1alpha1",
        "HyperNode",
        "s0",
        {
            "spec": {
                "tier": 1,
                "tierName": "rack",
                "members": [
                    {"type": "Node", "selector": {"regexMatch": {"pattern": "^(gpu-[0-9]+)+$"}}},
                    {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "r"}}}},
                    {"type": "HyperNode", "selector": {"exactMatch": {"name": "s1"}}},
                ],
            }
        },
    ),
)
PROPAGATION: Final = _of(
    "policy.karmada.io/v1alpha1",
    "PropagationPolicy",
    "p",
    {
        "spec": {
            "resourceSelectors": [
                {"apiVersion": "batch/v1", "kind": "Job", "labelSelector": {"matchLabels": {"a": "b"}}}
            ],
            "placement": {"clusterAffinity": {"clusterNames": ["m1"], "exclude": ["m2"]}},
            "priority": 1,
            "suspension": {"dispatchingOnClusters": {"clusterNames": ["m3"]}},
            "failover": {"application": {"decisionConditions": {"tolerationSeconds": 10}}},
        }
    },
    "team-a",
)
OTHERS: Final[dict[str, dict[str, Any]]] = {
    "namespaces": _of("v1", "Namespace", "team-a", {}),
    "resourcequotas": _of(
        "v1",
        "ResourceQuota",
        "rq",
        {
            "spec": {
                "hard": {"requests.cpu": "4", "count/jobs.batch": "3"},
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
                },
            },
            "status": {"used": {"requests.cpu": "1"}},
        },
        "team-a",
    ),
    "ledger": _of("v1", "ConfigMap", "tutti-ledger", {"data": {"meta": "{}", "pages": "{}"}}, "tutti-system"),
    "ledger-pages": _of("v1", "ConfigMap", "page-1", {"data": {"meta": "{}", "uid-1": "{}"}}, "tutti-system"),
    "policy-config-map": _of("v1", "ConfigMap", "tutti-policy", {"data": {"a": "kind: Cohort"}}, "tutti-system"),
    "nodes": {
        "kind": "Node",
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": False},
        "status": {
            "allocatable": {"cpu": "4", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    },
    "daemonsets": {"kind": "DaemonSet", "spec": {"template": {"spec": _POD_SPEC}}},
    "podgroups": _of(
        "scheduling.x-k8s.io/v1alpha1",
        "PodGroup",
        "g",
        {"spec": {"minMember": 2, "minResources": {"cpu": "1"}, "queue": "q", "minTaskMember": {"a": 1}}},
        "team-a",
    ),
    "priorityclasses": _of(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        "high",
        {"value": 1, "globalDefault": True, "preemptionPolicy": "Never"},
    ),
    "limitranges": _of(
        "v1",
        "LimitRange",
        "lr",
        {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1m"}}]}},
        "team-a",
    ),
    "runtimeclasses": _of(
        "node.k8s.io/v1", "RuntimeClass", "kata", {"handler": "kata", "overhead": {"podFixed": {"cpu": "100m"}}}
    ),
    "trainingruntimes": _of(
        "trainer.kubeflow.org/v1alpha1",
        "TrainingRuntime",
        "torch",
        {
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
                "template": {
                    "spec": {
                        "replicatedJobs": [
                            {"name": "node", "replicas": 1, "template": {"spec": {"template": {"spec": _POD_SPEC}}}}
                        ]
                    }
                },
            }
        },
        "team-a",
    ),
    "endpointslices": _of(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "tutti-webhook-1",
        {
            "addressType": "IPv4",
            "ports": [{"port": 9443}],
            "endpoints": [
                {
                    "addresses": ["10.0.0.1"],
                    "conditions": {"serving": True},
                    "targetRef": {"kind": "Pod", "name": "tutti-webhook-a"},
                }
            ],
        },
        "tutti-system",
    ),
}
"""By the resource that a feed is named after."""
OTHERS["clustertrainingruntimes"] = OTHERS["trainingruntimes"]


_PLURALS: Final = {resource.kind: resource.plural for resource in COMPILED}


def own(feed: str) -> list[dict[str, Any]]:
    """Return objects of the kind that a feed is for."""
    plural = feed.partition(".")[0]
    policies = [each for each in POLICY if _PLURALS[each["kind"]] == plural]
    return [OTHERS[plural]] if plural in OTHERS else policies


# -- metadata: what its types let anybody write

NAMES: Final = sorted(
    {value for key, value in vars(names).items() if key.isupper() and isinstance(value, str) and "/" in value}
)
"""Labels and annotations that mean something to Tutti."""
_TEXTS: Final = (
    st.text(max_size=12)
    | st.sampled_from(
        ["", "0", "-1", "1" * 5_000, "true", "null", "pending", "2026-01-01T00:00:00Z", "9" * 30, "٣", "job-1", "lq"]
    )
    | st.sampled_from(["{}", "[]", '{"phase":"Granted","offer":"1.1"}', "[" * 9_000, '{"a":' * 900, '{"at":1e999}'])
)
"""Values of annotations: those of ours are JSON, numbers or times."""
_LABELS: Final = st.dictionaries(st.sampled_from(NAMES), _TEXTS, max_size=3)
_OWNERS: Final = st.lists(
    st.fixed_dictionaries(
        {
            "apiVersion": st.sampled_from(["batch/v1", "jobset.x-k8s.io/v1alpha2", "v1", "x/y/z", ""]),
            "kind": st.sampled_from(["Job", "JobSet", "ClusterQueue", ""]),
            "name": st.text(max_size=5),
            "uid": st.sampled_from(["job-1", "sane", "", "nobody"]),
        },
        optional={"controller": st.booleans()},
    ),
    max_size=3,
)
METADATA: Final = st.fixed_dictionaries(
    {},
    optional={
        "labels": _LABELS,
        "annotations": _LABELS,
        "ownerReferences": _OWNERS,
        "finalizers": st.lists(st.text(max_size=9) | st.sampled_from(NAMES), max_size=3),
        "generateName": st.text(max_size=9),
        "generation": st.integers(0, 2**63 - 1),
        "creationTimestamp": st.sampled_from(["2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", None]),
        "deletionTimestamp": st.sampled_from(["2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z"]),
        "deletionGracePeriodSeconds": st.integers(-1, 2**63 - 1),
        "managedFields": st.lists(st.fixed_dictionaries({"manager": st.text(max_size=3)}), max_size=2),
    },
)
