"""Which ports of its node a pod takes: those that kube-scheduler's NodePorts looks at."""

from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import load, record_of
from webhook.jobs.pricing.host_ports import PORTS_MAX, host_ports


def containers(*ports: object, **fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "ports": list(ports)}], **fields}


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        (containers({"containerPort": 80}), ()),
        (containers({"containerPort": 80, "hostPort": 8080}), ("TCP/8080",)),
        (containers({"containerPort": 80, "hostPort": 0}), ()),
        (containers({"containerPort": 53, "hostPort": 53, "protocol": "UDP"}), ("UDP/53",)),
        (containers({"containerPort": 80}, hostNetwork=True), ("TCP/80",)),
        (containers({"containerPort": 80, "hostPort": 80}, {"containerPort": 80, "hostPort": 80}), ("TCP/80",)),
        ({"initContainers": [{"ports": [{"containerPort": 1, "hostPort": 1}]}]}, ()),
        ({"initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 1}]}]}, ("TCP/1",)),
        # What only a custom resource can hold: its pods could not be created.
        (containers({"hostPort": "80"}, {"hostPort": True}, {"hostPort": 1 << 20}, None, "80"), ()),
        (containers({"hostPort": 80, "protocol": {"x": "y"}}), ("TCP/80",)),
        ({"containers": "none"}, ()),
        ({"containers": [None, {"ports": {"hostPort": 1}}]}, ()),
    ],
)
def test_a_pod_takes_the_ports_of_its_node_that_its_containers_name(
    spec: dict[str, Any], taken: tuple[str, ...]
) -> None:
    assert host_ports(spec) == taken


def test_no_more_ports_are_kept_of_a_pod_than_any_program_opens() -> None:
    assert len(host_ports(containers(*({"hostPort": number} for number in range(1, 9_999))))) == PORTS_MAX


def test_an_operators_own_port_is_taken_on_the_nodes_network_alone() -> None:
    job = load("pytorchjob")
    replicas = job["spec"]["pytorchReplicaSpecs"].values()
    assert taken_by(job) == {()}
    for each in replicas:
        each["template"]["spec"]["hostNetwork"] = True
    assert taken_by(job) == {("TCP/23456",)}
    for each in replicas:
        each["template"]["spec"]["containers"][0]["ports"] = [{"name": "pytorchjob-port", "containerPort": 29_500}]
    assert taken_by(job) == {("TCP/29500",)}


def taken_by(job: dict[str, Any]) -> set[tuple[str, ...]]:
    gang = record_of(job).gang
    assert gang is not None
    return {each.host_ports for each in gang.pod_sets}
