"""A hub and two members as real control planes: a Job goes whole to one that has room, and its status comes back."""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.e2e import objects, queues
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import Installation
from tests.e2e.kubectl import Kubectl, condition, wait_until
from webhook.core.model import names

pytestmark = pytest.mark.own_cluster
NAMESPACE = "team-a"
MEMBERS = ("left", "right")


@dataclass
class World:
    """Who is asked in each cluster."""

    hub: Kubectl
    members: dict[str, Kubectl]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A hub without nodes, members with a node and a Tutti each, and ``tutti hub``."""
    directory: Path = tmp_path_factory.mktemp("fleet")
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(Cluster(Shape(nodes=0, operators=False)))
        members = {}
        (directory / "members").mkdir()
        for name in MEMBERS:
            cluster = stack.enter_context(Cluster(Shape(nodes=1, operators=False)))
            Installation(cluster, replicas=1).install()
            shutil.copy(cluster.kubeconfig, directory / "members" / name)
            members[name] = namespace_of(cluster)
            queues.give_queue(members[name], gpus=4)
        config = directory / "hub.yaml"
        config.write_text(
            yaml.safe_dump({"kubeconfig": str(hub.kubeconfig), "fleet_members": str(directory / "members")})
        )
        hub.component("hub", "-m", "webhook", "hub", "--config", config, program=sys.executable).start()
        yield World(namespace_of(hub), members)


def namespace_of(cluster: Cluster) -> Kubectl:
    kubectl = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
    kubectl("create", "namespace", NAMESPACE)
    return kubectl.in_namespace(NAMESPACE)


def submit(world: World, name: str, pods: int, runtime: str = "30s") -> None:
    job = objects.job(name, pods, objects.pod_template(gpus=1, runtime=runtime), queues.QUEUE)
    world.hub.create(job | {"spec": job["spec"] | {"managedBy": names.HUB_MANAGER}})


def pods_of(world: World, name: str) -> dict[str, int]:
    """Return how many pods of a job there are in each member."""
    found = {member: len(kubectl.pods(f"job-name={name}")) for member, kubectl in world.members.items()}
    assert not world.hub.pods()
    return {member: count for member, count in found.items() if count}


def test_gangs_run_whole_in_one_member_each_and_end_on_the_hub(world: World) -> None:
    for name in ("one", "two"):
        submit(world, name, 4)
    where = {
        name: wait_until(lambda name=name: pods_of(world, name), 90, what=f"{name} runs") for name in ("one", "two")
    }
    assert [len(found) for found in where.values()] == [1, 1], "each in one member"
    assert {member for found in where.values() for member in found} == set(MEMBERS), "where there is room"
    for name in ("one", "two"):
        wait_until(
            lambda name=name: condition(world.hub.get("job", name), "Complete") == "True", 90, what=f"{name} ends"
        )
        wait_until(lambda name=name: not world.hub.get("job", name)["metadata"].get("finalizers"), 60, what="let go")
    for kubectl in world.members.values():
        assert not kubectl.items("jobs")
        assert not queues.entries(kubectl)


def test_a_job_that_is_deleted_in_the_hub_leaves_its_member(world: World) -> None:
    submit(world, "short", 2)
    wait_until(lambda: pods_of(world, "short"), 90, what="it runs")
    world.hub.delete("job", "short")
    wait_until(lambda: not pods_of(world, "short"), 60, what="its pods are gone")
    for kubectl in world.members.values():
        wait_until(lambda kubectl=kubectl: not queues.entries(kubectl), 60, what="its room is free")
