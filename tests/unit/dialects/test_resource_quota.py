"""A ResourceQuota becomes a fence of what binds pods, or none."""

from typing import Any

import pytest

from webhook.core.model.gang import PodPrice, Requirement
from webhook.dialects.resource_quota import compile_object


def quota(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"namespace": "team", "name": "q"}, "spec": spec}


def test_keys_that_bind_pods_are_kept_in_thousandths() -> None:
    hard = {
        "pods": "2",
        "count/pods": "10",
        "cpu": "500m",
        "requests.memory": "1Gi",
        "limits.cpu": "4",
        "requests.nvidia.com/gpu": "4",
        "requests.ephemeral-storage": "1k",
        "hugepages-2Mi": "4Mi",
    }
    fence, problems = compile_object(quota({"hard": hard}))
    assert problems == ()
    assert fence is not None
    assert (fence.namespace, fence.name, fence.scopes) == ("team", "q", ())
    assert fence.hard == {
        "pods": 2000,
        "count/pods": 10_000,
        "cpu": 500,
        "requests.memory": 2**30 * 1000,
        "limits.cpu": 4000,
        "requests.nvidia.com/gpu": 4000,
        "requests.ephemeral-storage": 1_000_000,
        "requests.hugepages-2Mi": 2**22 * 1000,
    }


@pytest.mark.parametrize(
    "key",
    [
        "requests.storage",
        "persistentvolumeclaims",
        "services",
        "services.loadbalancers",
        "count/jobs.batch",
        "fast.storageclass.storage.k8s.io/requests.storage",
        "gpu.deviceclass.resource.k8s.io/devices",
        "limits.nvidia.com/gpu",
        "configmaps",
    ],
)
def test_keys_that_bind_no_pod_are_dropped(key: str) -> None:
    fence, problems = compile_object(quota({"hard": {key: "1", "pods": "2"}}))
    assert fence is not None
    assert (dict(fence.hard), problems) == ({"pods": 2000}, ())
    assert compile_object(quota({"hard": {key: "1"}})) == (None, ())


def test_a_bare_hugepages_key_and_its_requests_form_are_one_limit() -> None:
    fence, _ = compile_object(quota({"hard": {"hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "2Mi"}}))
    assert fence is not None
    assert fence.hard == {"requests.hugepages-2Mi": 2**21 * 1000}


def test_scopes_and_their_selector_must_all_match() -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    fence, _ = compile_object(quota({"hard": {"pods": 1}, "scopes": ["NotTerminating"], "scopeSelector": selector}))
    assert fence is not None
    assert fence.scopes == (Requirement("NotTerminating", "Exists"), Requirement("PriorityClass", "In", ("high",)))
    assert fence.matches(PodPrice(priority_class="high"))
    assert not fence.matches(PodPrice(priority_class="high", has_deadline=True))
    assert not fence.matches(PodPrice(priority_class="low"))


def test_a_scope_of_other_objects_binds_no_pod() -> None:
    selector = {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": "Exists"}]}
    assert compile_object(quota({"hard": {"pods": 1}, "scopeSelector": selector})) == (None, ())


def test_what_is_no_quantity_is_named() -> None:
    fence, problems = compile_object(quota({"hard": {"pods": "two", "cpu": "1"}}))
    assert fence is not None
    assert dict(fence.hard) == {"cpu": 1000}
    assert [(problem.path, problem.value) for problem in problems] == [("/spec/hard/pods", "two")]
