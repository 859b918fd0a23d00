"""A pod that is resized in place counts what it holds until its node has done it."""

from typing import Any

import orjson
import pytest

from webhook.jobs.plain_pods.pod import decode

GIVEN = {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}


def held(requests: dict[str, str], status: dict[str, Any], **spec: Any) -> dict[str, int]:
    """Requests that a running pod of one container ``c`` is counted with."""
    containers = [{"name": "c", "resources": {"requests": requests}}]
    pod = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": containers, **spec},
        "status": {"phase": "Running", **status},
    }
    return dict(decode(orjson.dumps(pod)).price.requests)


def runs_with(resources: dict[str, Any] | None, allocated: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "c", "resources": resources, "allocatedResources": allocated}], **more}


def pending(reason: str) -> list[dict[str, str]]:
    return [{"type": "Ready", "status": "True"}, {"type": "PodResizePending", "status": "True", "reason": reason}]


@pytest.mark.parametrize(
    ("asked", "status", "cpu"),
    [
        ("1", runs_with({"requests": {"cpu": "4"}}), 4000),
        ("1", runs_with({"requests": {"cpu": "1"}}, {"cpu": "3"}), 3000),
        ("4", runs_with({"requests": {"cpu": "1"}}, {"cpu": "1"}), 4000),
        ("4", runs_with({"requests": {"cpu": "1"}}, {"cpu": "1"}, conditions=pending("Deferred")), 4000),
        ("4", runs_with({"requests": {"cpu": "1"}}, {"cpu": "2"}, conditions=pending("Infeasible")), 2000),
        ("4", runs_with(None, {"cpu": "8"}), 4000),
        ("4", {}, 4000),
    ],
)
def test_the_most_of_asked_granted_and_used_counts(asked: str, status: dict[str, Any], cpu: int) -> None:
    assert held({"cpu": asked}, status) == {"cpu": cpu}


def test_what_the_node_does_not_report_of_an_infeasible_resize_is_none_and_not_the_limit() -> None:
    status = runs_with({"limits": {"cpu": "2"}}, conditions=pending("Infeasible"))
    assert held({"cpu": "4"}, status) == {"cpu": 0}


def test_sidecars_are_resized_and_other_init_containers_are_not() -> None:
    inits = [{"name": name, "resources": {"requests": {"cpu": "1"}}} for name in ("proxy", "step")]
    inits[0]["restartPolicy"] = "Always"
    statuses = [{"name": name, "resources": {"requests": {"cpu": "5"}}} for name in ("proxy", "step")]
    assert held({"cpu": "2"}, {"initContainerStatuses": statuses}, initContainers=inits) == {"cpu": 7000}


def test_limits_count_as_they_are_until_they_are_lowered() -> None:
    containers = [{"name": "c", "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}}]
    status = {"containerStatuses": [{"name": "c", "resources": {**GIVEN, "limits": {"memory": "2Gi"}}}]}
    pod = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers}, "status": status}
    assert decode(orjson.dumps(pod)).price.limits == {"memory": 2 * 1024**3 * 1000}
