"""Plain pods that join a PodGroup of Kubernetes's own, on a cluster whose API server has that API switched on."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import create_namespace
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import Installation
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import pod, pod_template
from tests.e2e.queues import QUEUE, give_queue, reserved, set_gpus
from tests.e2e.test_pod_groups import running, waiting

pytestmark = [pytest.mark.own_cluster, pytest.mark.since("1.36")]

FLAGS = ("--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true")


@pytest.fixture(scope="module")
def team() -> Iterator[Kubectl]:
    """A team's namespace on such a cluster, with Tutti. Its scheduler knows no gangs, as by default."""
    with Cluster(Shape(nodes=1, operators=False, api_server_flags=FLAGS)) as started:
        Installation(started, replicas=1).install()
        root = Kubectl(started.binaries["kubectl"], started.kubeconfig)
        create_namespace(root, "team-a")
        yield root.in_namespace("team-a")


def pod_group(name: str, least: int) -> dict[str, Any]:
    """Return a PodGroup of the native API."""
    policy = {"gang": {"minCount": least}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy},
    }


def member(name: str, group: str) -> dict[str, Any]:
    """Return a plain pod of one GPU that names its group in the native field."""
    made = pod(name, pod_template(labels={"tutti.dev/queue-name": QUEUE}))
    made["spec"]["schedulingGroup"] = {"podGroupName": group}
    return made


def test_plain_pods_of_a_native_pod_group_start_together_when_there_is_room_for_all(team: Kubectl) -> None:
    give_queue(team, 1)
    for number in range(2):
        team.create(member(f"crew-{number}", "crew"))
    stays(lambda: (running(team), waiting(team)) == (0, 2), 2, "they wait for their group")
    team.apply(pod_group("crew", 2))
    stays(lambda: (running(team), waiting(team)) == (0, 2), 2, "and for room for both")
    set_gpus(team, 2)
    wait_until(lambda: running(team) == 2, what="both run")
    assert reserved(team) == 2
