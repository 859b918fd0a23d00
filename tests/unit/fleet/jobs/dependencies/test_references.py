"""What a job refers to is found by the shapes of pod specs, wherever they stand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.dialects.field import is_subdomain
from webhook.fleet.jobs.dependencies import references as module
from webhook.fleet.jobs.dependencies.dependency import OWN_EVERYWHERE, PLURALS, Dependency
from webhook.fleet.jobs.dependencies.references import REFERENCES_MAX, references

POD: dict[str, Any] = {
    "serviceAccountName": "account",
    "imagePullSecrets": [{"name": "pull"}],
    "volumes": [
        {"name": "a", "configMap": {"name": "volume", "optional": True}},
        {"name": "b", "secret": {"secretName": "volume"}},
        {
            "name": "c",
            "projected": {
                "sources": [
                    {"configMap": {"name": "projected"}},
                    {"secret": {"name": "projected"}},
                    {"serviceAccountToken": {"path": "token"}},
                ]
            },
        },
        {"name": "d", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "csi"}}},
        {"name": "e", "azureFile": {"secretName": "azure"}},
        {"name": "f", "cephfs": {"secretRef": {"name": "ceph"}}},
        {"name": "g", "configMap": {"name": "kube-root-ca.crt"}},
    ],
    "initContainers": [
        {"envFrom": [{"configMapRef": {"name": "all"}}, {"secretRef": {"name": "all", "optional": True}}]},
    ],
    "containers": [
        {
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "one", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
                {"name": "secretName", "value": "no"},
            ]
        }
    ],
}
FOUND = {
    "ServiceAccount account": False,
    "Secret pull": False,
    "ConfigMap volume": True,
    "Secret volume": False,
    "ConfigMap projected": False,
    "Secret projected": False,
    "Secret csi": False,
    "Secret azure": False,
    "Secret ceph": False,
    "ConfigMap all": False,
    "Secret all": True,
    "ConfigMap one": False,
    "Secret one": False,
}


def named(spec: object) -> dict[str, bool]:
    return {str(each): optional for each, optional in references(spec).items()}


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda pod: {"template": {"spec": pod}},
        lambda pod: {"pytorchReplicaSpecs": {"Master": {"template": {"spec": pod}}}},
        lambda pod: {"replicatedJobs": [{"template": {"spec": {"template": {"spec": pod}}}}]},
        lambda pod: {"rayClusterSpec": {"workerGroupSpecs": [{"template": {"spec": pod}}]}},
        lambda pod: {"components": [{"template": {"spec": {"template": {"spec": pod}}}}]},
    ],
    ids=["Job", "PyTorchJob", "JobSet", "RayJob", "AppWrapper"],
)
def test_references_are_found_in_the_order_in_which_they_stand_in_whatever_kind(wrapped: Any) -> None:
    assert [*named(wrapped(POD)).items()] == [*FOUND.items()]


def test_a_spark_application_says_it_in_its_own_way() -> None:
    spark = {
        "sparkConfigMap": "spark",
        "hadoopConfigMap": "hadoop",
        "imagePullSecrets": ["pull"],
        "driver": {"serviceAccount": "driver", "configMaps": [{"name": "map", "path": "/x"}]},
        "executor": {"secrets": [{"name": "secret", "path": "/x", "secretType": "Generic"}]},
    }
    assert [*named(spark)] == [
        "ConfigMap spark",
        "ConfigMap hadoop",
        "Secret pull",
        "ServiceAccount driver",
        "ConfigMap map",
        "Secret secret",
    ]


def test_what_one_pod_needs_is_needed() -> None:
    refs = [{"configMapRef": {"name": "m", "optional": optional}} for optional in (True, False, True)]
    assert named(refs) == {"ConfigMap m": False}
    assert named(refs[:1]) == {"ConfigMap m": True}


@pytest.mark.parametrize("name", ["default", "../secrets/x", "a/b", "A", "", "x" * 254, "x?y=1", 3, None, {}, []])
def test_what_each_namespace_has_and_what_is_no_name_is_no_reference(name: object) -> None:
    assert not references({"serviceAccountName": name})


def test_texts_with_keys_of_anybodys_choice_are_no_references() -> None:
    labels = {"serviceAccount": "builder", "configMap": "x"}
    marks = {"labels": labels, "annotations": {"serviceAccountName": "deployer"}}
    assert not references({"metadata": marks, "nodeSelector": labels, "sparkConf": {"serviceAccount": "x"}})


def test_secrets_by_which_spark_sets_variables_are_found() -> None:
    spec = {"driver": {"envSecretKeyRefs": {"PASSWORD": {"name": "database", "key": "password"}, "odd": 3}}}
    assert named(spec) == {"Secret database": False}


def test_no_more_are_looked_for_than_a_bound() -> None:
    many = [{"configMapRef": {"name": f"a{at}"}} for at in range(REFERENCES_MAX)]
    assert len(references([*many, {"serviceAccountName": "late"}])) == REFERENCES_MAX


def test_however_deep_it_is_nested_it_is_read() -> None:
    spec: Any = {"serviceAccountName": "deep"}
    for _ in range(100_000):
        spec = {"spec": [spec]}
    assert named(spec) == {"ServiceAccount deep": False}


KEYS = st.sampled_from([*module._SHAPES, "name", "secretName", "optional", "spec"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("some-name")
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))


@given(ANYTHING)
def test_whatever_stands_there_all_that_is_found_is_a_valid_name(spec: object) -> None:
    for found, optional in references(spec).items():
        assert isinstance(found, Dependency)
        assert isinstance(optional, bool)
        assert found.kind in PLURALS
        assert found not in OWN_EVERYWHERE
        assert is_subdomain(found.name)
