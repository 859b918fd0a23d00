"""What the LimitRanger would refuse is known before a gang starts, and nothing else is held back."""

from typing import Any

import pytest

from webhook.jobs.pricing.limit_ranges import out_of_bounds, violations

HUGE = {"limits": {"cpu": "1", "hugepages-2Mi": "8Mi"}}


def bound(kind: str, **item: Any) -> dict[str, Any]:
    return {"spec": {"limits": [{"type": kind, **item}]}}


def pod(requests: dict[str, str], limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits or {}}}], **more}


@pytest.mark.parametrize(
    ("bounds", "spec", "says"),
    [
        (bound("Container", max={"cpu": "3"}), pod({"cpu": "4"}), "c: 4 cpu exceeds its limit"),
        (bound("Container", max={"cpu": "3"}), pod({"cpu": "1"}, {"cpu": "4"}), "c: 4 cpu is more than"),
        (bound("Container", min={"cpu": "3"}), pod({"cpu": "1"}, {"cpu": "4"}), "c: 1 cpu is less than"),
        (bound("Container", min={"cpu": "3"}), pod({"cpu": "0"}), "c: 0 cpu is less than"),
        (bound("Container", maxLimitRequestRatio={"cpu": "2"}), pod({"cpu": "1"}, {"cpu": "2500m"}), "at most 2 times"),
        (bound("Container", maxLimitRequestRatio={"cpu": "2"}), pod({"cpu": "1"}), "at most 2 times"),
        (bound("Pod", max={"cpu": "3"}), pod({"cpu": "1"}, {"cpu": "4"}), "pod: 4 cpu is more than"),
        (bound("Pod", max={"cpu": "3"}), pod({"cpu": "1"}), "pod: no limit of cpu is stated"),
        (bound("Pod", min={"cpu": "3"}), pod({"memory": "1Gi"}), "pod: no cpu is requested"),
        (bound("Pod", min={"cpu": "3"}), pod({"cpu": "0"}), "pod: 0 cpu is less than"),
        (bound("Pod", maxLimitRequestRatio={"memory": "1.5"}), pod({"memory": "2Gi"}, {"memory": "4Gi"}), "1.5 times"),
        (
            bound("Container", max={"memory": "1Gi"}),
            pod({}, {"memory": "1Gi"}, resources={"requests": {"cpu": "5"}, "limits": {"cpu": "4"}}),
            "pod: 5 cpu exceeds its limit",
        ),
        (bound("Pod", min={"cpu": "0"}), pod({"memory": "1Gi"}), "pod: no cpu is requested"),
        (
            bound("Container", defaultRequest={"memory": "1Gi"}),
            pod({}, resources={"requests": {"memory": "512Mi"}}),
            "pod: its containers request 1Gi memory, more than is requested for the whole pod (512Mi memory)",
        ),
        (
            bound("Pod"),
            pod({"cpu": "1"}, {"hugepages-2Mi": "16Mi"}, resources={**HUGE, "requests": {"hugepages-2Mi": "16Mi"}}),
            "pod: 16Mi hugepages-2Mi exceeds its limit",
        ),
        (
            bound("Container", default={"hugepages-2Mi": "6Mi"}),
            {**pod({"cpu": "1"}), "containers": [{"name": n} for n in "cd"], "resources": HUGE},
            "pod: its containers request 12Mi hugepages-2Mi, more than is requested for the whole pod",
        ),
        (
            bound("Container", default={"cpu": "3"}, defaultRequest={"cpu": "1"}),
            pod({}, resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
            "pod: container c has a limit of 3 cpu, above that of the whole pod (2 cpu)",
        ),
    ],
)
def test_a_pod_that_would_be_refused_is_told_why(bounds: dict[str, Any], spec: dict[str, Any], says: str) -> None:
    assert says in "; ".join(violations(spec, [bounds]))


@pytest.mark.parametrize(
    ("bounds", "spec"),
    [
        (bound("Container", max={"cpu": "3"}), pod({"memory": "1Gi"})),
        (bound("Container", min={"cpu": "3"}), pod({"memory": "1Gi"})),
        (bound("Container", maxLimitRequestRatio={"cpu": "2"}), pod({"cpu": "1"}, {"cpu": "2"})),
        (bound("Pod", max={"cpu": "3"}), pod({"cpu": "1"}, {"cpu": "3"})),
        (bound("Pod", max={"cpu": "3"}), pod({}, {"cpu": "3"}, overhead={"cpu": "250m"})),
        (bound("Pod", min={"cpu": "3"}), pod({"cpu": "1"}, {}, resources={"requests": {"cpu": "3"}})),
        (bound("Pod", max={"hugepages-2Mi": "4Mi"}), pod({}, {"hugepages-2Mi": "2Mi"}, resources=HUGE)),
        (bound("Pod", maxLimitRequestRatio={"cpu": "1"}), pod({}, resources={"limits": {"cpu": "2"}})),
        (bound("Container", defaultRequest={"cpu": "1"}), pod({}, resources={"limits": {"cpu": "2"}})),
        (bound("PersistentVolumeClaim", max={"storage": "1Gi"}), pod({"cpu": "1"})),
    ],
)
def test_a_pod_that_would_be_created_is_let_go(bounds: dict[str, Any], spec: dict[str, Any]) -> None:
    assert violations(spec, [bounds]) == []


def test_of_several_limit_ranges_the_narrowest_counts() -> None:
    ranges = [bound("Pod", max={"cpu": "3"}, maxLimitRequestRatio={"cpu": "9"}), bound("Pod", max={"cpu": "5"})]
    (found,) = violations(pod({"cpu": "1"}, {"cpu": "4"}), ranges)
    assert "more than a LimitRange allows (3 cpu)" in found
    assert violations(pod({"cpu": "1"}, {"cpu": "3"}), ranges) == []
    (found,) = violations(pod({"cpu": "1"}, {"cpu": "3"}), [*ranges, bound("Pod", maxLimitRequestRatio={"cpu": "2"})])
    assert "at most 2 times" in found


def test_every_rule_that_is_broken_is_told_at_once() -> None:
    """Who mends one of them would be told the next, one after the other."""
    ranges = [bound("Container", max={"cpu": "3"}, min={"memory": "1Gi"}), bound("Pod", max={"cpu": "2"})]
    leader = pod({"cpu": "1", "memory": "512Mi"}, {"cpu": "4"})
    worker = {"containers": [*leader["containers"], {"name": "side", "resources": {"limits": {"cpu": "5"}}}]}
    assert out_of_bounds([("leader", leader)], ranges) == (
        "pod set leader: container c: 4 cpu is more than a LimitRange allows (3 cpu); "
        "pod set leader: container c: 512Mi memory is less than a LimitRange demands (1Gi memory); "
        "pod set leader: pod: 4 cpu is more than a LimitRange allows (2 cpu)"
    )
    told = out_of_bounds([("leader", leader), ("worker", worker)], ranges)
    assert told.count("; pod set worker: container c: ") == 2
    assert told.endswith(" (1Gi memory) and 2 more")
    assert out_of_bounds([("leader", pod({"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}))], ranges) == ""
