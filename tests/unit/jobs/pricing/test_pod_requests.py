"""Pods are priced as the API server prices them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.notation.problem import Unreadable
from webhook.core.notation.quantity import MILLI, parse
from webhook.jobs.pricing.pod_requests import (
    CONTAINER_FIELDS,
    POD_FIELDS,
    price,
    with_limit_range_defaults,
    with_pod_level_defaults,
)

GI = 1024**3 * MILLI
RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi")
lists_of_resources = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 9).map(str), max_size=3)
requirements = st.fixed_dictionaries({}, optional={"requests": lists_of_resources, "limits": lists_of_resources})
containers = st.fixed_dictionaries({}, optional={"resources": requirements})
init_containers = st.fixed_dictionaries(
    {}, optional={"resources": requirements, "restartPolicy": st.sampled_from(["Always", "Never"])}
)
pods = st.fixed_dictionaries(
    {"containers": st.lists(containers, min_size=1, max_size=3)},
    optional={
        "initContainers": st.lists(init_containers, max_size=4),
        "overhead": lists_of_resources,
        "resources": requirements,
    },
)


def asked(container, side, resource):
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    text = limits.get(resource) if side == "limits" else requests.get(resource, limits.get(resource))
    return None if text is None else parse(text)


def naive(pod, side, resource):
    """One resource of one side, by playing the pod's life: each init step in turn, then the app. None when unasked."""
    moments, sidecars = [], []
    for init in pod.get("initContainers", []):
        moments.append([*sidecars, init])
        if init.get("restartPolicy") == "Always":
            sidecars.append(init)
    moments.append([*sidecars, *pod["containers"]])
    present = [asked(c, side, resource) for moment in moments for c in moment]
    peak = max(sum(asked(c, side, resource) or 0 for c in moment) for moment in moments)
    result = None if all(amount is None for amount in present) else peak
    level = pod.get("resources") or {}
    if resource != "nvidia.com/gpu":
        stated = (level.get(side) or {}).get(resource)
        fallback = (level.get("limits") or {}).get(resource)
        if stated is not None:
            result = parse(stated)
        elif side == "requests" and fallback is not None and (result is None or resource.startswith("hugepages")):
            result = parse(fallback)
    extra = (pod.get("overhead") or {}).get(resource)
    if extra is not None and (side == "requests" or result):
        result = (result or 0) + parse(extra)
    return result or 0


@given(pods)
def test_requests_and_limits_agree_with_a_naive_walk_through_the_pods_life(pod):
    found = price(pod)
    for resource in RESOURCES:
        assert found.requests.get(resource, 0) == naive(pod, "requests", resource), resource
        assert found.limits.get(resource, 0) == naive(pod, "limits", resource), resource


@given(pods)
def test_best_effort_means_that_nobody_asks_cpu_or_memory(pod):
    levels = pod.get("resources") or {}
    compute = [r for r in RESOURCES if r in ("cpu", "memory")]
    if any(levels.get(side) for side in ("requests", "limits")):
        return
    everyone = [*pod["containers"], *pod.get("initContainers", [])]
    nobody = not any(asked(c, side, r) for c in everyone for side in ("requests", "limits") for r in compute)
    assert price(pod).best_effort == nobody


def test_a_gpu_only_in_an_init_container_counts():
    pod = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}],
    }
    assert price(pod).requests == {"cpu": MILLI, "nvidia.com/gpu": 2 * MILLI}


def test_a_sidecar_runs_beside_the_app_and_beside_later_init_steps():
    pod = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [
            {"resources": {"requests": {"cpu": "4"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}},
            {"resources": {"requests": {"cpu": "3"}}},
        ],
    }
    assert price(pod).requests == {"cpu": 5 * MILLI}


def test_overhead_of_the_pod_wins_over_that_of_its_runtime_class():
    pod = {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}
    assert price(pod, {"cpu": "250m", "memory": "1Gi"}).requests == {"cpu": 1250, "memory": GI}
    assert price(pod, {"cpu": "250m", "memory": "1Gi"}).limits == {"cpu": 1250}
    assert price({**pod, "overhead": {"cpu": "1"}}, {"cpu": "250m"}).requests == {"cpu": 2000}


def test_overhead_raises_no_limit_of_nothing():
    pod = {"containers": [{"resources": {"limits": {"cpu": "0", "memory": "1Gi"}}}], "overhead": {"cpu": "1"}}
    assert price(pod).limits == {"cpu": 0, "memory": GI}
    assert price(pod).requests == {"cpu": 1000, "memory": GI}


def test_pod_level_resources_alone_decide_whether_it_is_best_effort():
    asks = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    assert not price(asks).best_effort
    assert price({**asks, "resources": {}}).best_effort
    assert price({**asks, "resources": {"requests": {"memory": "0"}}}).best_effort
    assert not price({**asks, "resources": {"limits": {"memory": "0"}}}).best_effort
    pages = {"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"hugepages-2Mi": "4Mi"}}}]}
    assert not price({**pages, "resources": {"requests": {"memory": "0"}}}).best_effort


def test_once_the_pod_states_anything_its_containers_need_not():
    silent = {"containers": [{}]}
    everything = {"requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
    assert price(silent).unstated == everything
    assert price({**silent, "resources": {}}).unstated == everything
    assert price({**silent, "resources": {"requests": {"cpu": "1"}}}).unstated == frozenset()
    assert price({**silent, "resources": {"limits": {"hugepages-2Mi": "2Mi"}}}).unstated == frozenset()


def test_scopes_are_read_from_the_pod():
    found = price({"containers": [], "activeDeadlineSeconds": 0, "priorityClassName": "high"})
    assert found.has_deadline
    assert found.priority_class == "high"
    assert price({"containers": []}, default_priority_class="normal").priority_class == "normal"
    term = {"topologyKey": "zone", "namespaces": ["other"]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    assert price({"containers": [], "affinity": {"podAntiAffinity": preferred}}).cross_namespace_affinity
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    assert not price({"containers": [], "affinity": {"podAffinity": required}}).cross_namespace_affinity


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        ({"containers": [{"resources": {"claims": [{"name": "gpu"}]}}]}, "spec.containers[0].resources.claims"),
        ({"futureDevices": ["gpu"]}, "spec.futureDevices"),
        ({"harmless": {"requests": {"cpu": "1"}}}, "spec.harmless"),
        ({"containers": [{"burst": {"limits": {"cpu": "1"}}}]}, "spec.containers[0].burst"),
        ({"resources": {"elastic": {"cpu": 1}}}, "spec.resources.elastic"),
        ({"containers": [{"resources": {"limits": {"cpu": "lots"}}}]}, "spec.containers[0].resources.limits.cpu"),
        ({"containers": [{"resources": {"requests": {"cpu": "-1"}}}]}, "spec.containers[0].resources.requests.cpu"),
        ({"containers": {}}, "spec.containers"),
        ({"containers": [7]}, "spec.containers[0]"),
        ({"overhead": [1]}, "spec.overhead"),
        ({"resources": 5}, "spec.resources"),
    ],
)
def test_what_cannot_be_priced_is_refused_by_name(spec, path):
    with pytest.raises(Unreadable) as refusal:
        price(spec)
    assert refusal.value.problem.path == path
    assert refusal.value.problem.fix


def test_an_unknown_field_without_resources_is_let_be():
    assert price({"containers": [{"newProbe": {"seconds": 3}}], "newFlag": True, "empty": None}).requests == {}


def test_no_known_field_is_one_that_asks_by_claim():
    assert "resourceClaims" not in POD_FIELDS
    assert {"resources", "restartPolicy"} <= CONTAINER_FIELDS


def limit_range(name, **item):
    return {"metadata": {"name": name}, "spec": {"limits": [{"type": "Container", **item}]}}


def test_limit_range_defaults_fill_what_containers_leave_open():
    pod = {
        "containers": [{}, {"resources": {"limits": {"cpu": "4"}}}, {"resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{}],
    }
    ranges = [
        limit_range("b", default={"cpu": "9", "memory": "1Gi"}),
        limit_range("a", default={"cpu": "2"}, defaultRequest={"cpu": "500m"}),
        {"metadata": {"name": "c"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}},
    ]
    filled = with_limit_range_defaults(pod, ranges)
    found = [c["resources"] for c in filled["containers"]]
    assert found[0]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert found[0]["limits"] == {"cpu": "2", "memory": "1Gi"}
    assert found[1]["requests"]["cpu"] == "4"
    assert found[2]["requests"]["cpu"] == "1"
    assert found[2]["limits"]["cpu"] == "2"
    assert filled["initContainers"][0]["resources"]["limits"]["cpu"] == "2"
    assert "resources" not in pod["containers"][0]


def test_what_a_limit_range_gives_to_containers_changes_no_request_of_the_pod_as_a_whole():
    pod = {"containers": [{}, {}], "resources": {"limits": {"cpu": "3", "memory": "2Gi"}}}
    ranges = [limit_range("a", defaultRequest={"cpu": "100m"})]
    assert price(with_limit_range_defaults(pod, ranges)).requests == {"cpu": 3000, "memory": 2 * GI}
    asked = {**pod, "containers": [{"resources": {"requests": {"cpu": "2"}}}, {}]}
    assert price(with_limit_range_defaults(asked, ranges)).requests == {"cpu": 2000, "memory": 2 * GI}
    pages = {
        "containers": [{"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}],
        "resources": {"requests": {"cpu": "1"}},
    }
    assert with_pod_level_defaults(pages)["resources"] == {
        "requests": {"cpu": "1000m", "hugepages-2Mi": "4194304000m"},
        "limits": {"hugepages-2Mi": "4194304000m"},
    }
    unlimited = {**pod, "resources": {"requests": {"memory": "1Gi"}}}
    assert price(with_limit_range_defaults(unlimited, ranges)).requests == {"cpu": 200, "memory": GI}


def test_a_limit_range_maximum_is_the_default_limit_and_a_minimum_the_last_default_request():
    only_max = with_limit_range_defaults({"containers": [{}]}, [limit_range("a", max={"cpu": "3"}, min={"cpu": "1"})])
    assert only_max["containers"][0]["resources"] == {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
    only_min = with_limit_range_defaults({"containers": [{}]}, [limit_range("a", min={"cpu": "1"})])
    assert only_min["containers"][0]["resources"] == {"requests": {"cpu": "1"}, "limits": {}}


def test_an_unknown_field_is_looked_through_however_deep_it_is():
    deep = {"resources": 1}
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(Unreadable, match="may ask for resources"):
        price({"containers": [], "future": deep})


def test_a_field_that_nobody_knows_is_not_looked_through_to_its_end() -> None:
    """No field of a pod has so many values; 500 kB of them stopped a process for 140 ms."""
    small, large = ({"containers": [{"name": "m"}], "x": [{"a": 1}] * count} for count in (3_000, 6_000))
    price(small)
    with pytest.raises(Unreadable, match="may ask for resources"):
        price(large)


def test_thousands_of_fields_that_nobody_knows_are_not_looked_through() -> None:
    with pytest.raises(Unreadable, match="has more unknown fields than are looked through"):
        price({"containers": [{"name": "m"}], **dict.fromkeys(map(str, range(101)), 1)})
    price({"containers": [{"name": "m"}], **dict.fromkeys(map(str, range(100)), 1)})
