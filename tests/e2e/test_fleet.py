"""A hub and two members as real control planes: a Job goes whole to one that has room, and its status comes back."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import objects, queues
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import NAMESPACE as SYSTEM
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.kubectl import Kubectl, KubectlError, condition, wait_until
from webhook.core.model import names

pytestmark = pytest.mark.own_cluster
NAMESPACE = "team-a"
MEMBERS = ("left", "right")
ACCOUNT = "tutti-hub"
AS_HUB = f"--as=system:serviceaccount:{SYSTEM}:{ACCOUNT}"
REFUSED = (
    "get secrets",
    "list secrets -n tutti-system",
    "create pods",
    "delete pods",
    "create pods --subresource=exec",
    "create pods --subresource=eviction",
    "create configmaps -n tutti-system",
    "patch configmaps/tutti-ledger -n tutti-system",
    "get configmaps",
    "patch nodes",
    "list namespaces",
    "patch namespaces",
    "create serviceaccounts --subresource=token -n tutti-system",
    "impersonate users",
    "create clusterrolebindings",
    "patch jobs.batch --subresource=status",
    "deletecollection jobs.batch",
    "patch validatingadmissionpolicies",
)
"""What RBAC does not give a hub in a member; what a policy refuses it beside that is a test of its own."""


@dataclass
class World:
    """Who is asked in each cluster."""

    hub: Kubectl
    members: dict[str, Kubectl]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A hub without nodes, members with a node, a Tutti in each, and ``tutti hub`` with no more rights than shipped."""
    directory: Path = tmp_path_factory.mktemp("fleet")
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(Cluster(Shape(nodes=0, operators=False)))
        members = {}
        (directory / "members").mkdir()
        for name in MEMBERS:
            cluster = stack.enter_context(Cluster(Shape(nodes=1, operators=False)))
            Installation(cluster, replicas=1).install()
            members[name] = namespace_of(cluster)
            give_account(cluster, "fleet-member", directory / "members" / name)
            queues.give_queue(members[name], gpus=4)
        Installation(hub, replicas=1, overrides={"hub": True}).install()
        own = namespace_of(hub)
        queues.give_queue(own, gpus=8)
        give_account(hub, "fleet-hub", directory / "own")
        config = directory / "hub.yaml"
        health = hub.ports.take()
        places = {
            "kubeconfig": str(directory / "own"),
            "fleet_members": str(directory / "members"),
            "listen": {"health_port": health},
        }
        config.write_text(yaml.safe_dump(places))
        hub.component("hub", "-m", "webhook", "hub", "--config", config, program=sys.executable).start()
        ready = f"http://127.0.0.1:{health}/readyz"
        wait_until(lambda: hub.http_ok(ready), 60, what="tutti hub is ready")
        yield World(own, members)


def namespace_of(cluster: Cluster) -> Kubectl:
    kubectl = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
    kubectl("create", "namespace", NAMESPACE)
    return kubectl.in_namespace(NAMESPACE)


def give_account(cluster: Cluster, overlay: str, target: Path) -> None:
    """Apply what is shipped for a hub in a cluster, and write a kubeconfig of its account."""
    kubectl = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig).in_namespace(SYSTEM)
    kubectl("apply", "--server-side", "-k", str(ROOT / "manifests" / "overlays" / overlay))
    document = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    token = kubectl("create", "token", ACCOUNT).strip()
    document["users"] = [{"name": user["name"], "user": {"token": token}} for user in document["users"]]
    target.write_text(yaml.safe_dump(document))


def submit(world: World, name: str, pods: int, runtime: str = "30s") -> None:
    job = objects.job(name, pods, objects.pod_template(gpus=1, runtime=runtime), queues.QUEUE)
    world.hub.create(job)


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


def test_a_job_whose_copy_is_deleted_in_its_member_runs_again_and_ends_in_the_hub(world: World) -> None:
    submit(world, "again", 2, runtime="5s")
    (member,) = wait_until(lambda: pods_of(world, "again"), 90, what="it runs")
    wait_until(lambda: world.hub.get("job", "again").get("status", {}).get("startTime"), 30, what="the hub shows it")
    world.members[member].delete("job", "again")
    wait_until(lambda: condition(world.hub.get("job", "again"), "Complete") == "True", 90, what="it ends")
    wait_until(lambda: not world.hub.get("job", "again")["metadata"].get("finalizers"), 60, what="let go")
    world.hub.delete("job", "again")


def test_a_hub_gives_its_own_quota_to_one_job_after_another(world: World) -> None:
    queues.set_gpus(world.hub, 2)
    submit(world, "now", 2, runtime="600s")
    wait_until(lambda: pods_of(world, "now"), 90, what="the first runs")
    submit(world, "then", 2)
    spec = world.hub.get("job", "then")["spec"]
    assert (spec["suspend"], spec["managedBy"]) == (True, names.HUB_MANAGER)
    assert [entry.name for entry in queues.entries(world.hub)] == ["now"]
    assert not pods_of(world, "then")
    world.hub.delete("job", "now")
    wait_until(lambda: pods_of(world, "then"), 90, what="the second runs")
    world.hub.delete("job", "then")
    wait_until(lambda: not queues.entries(world.hub), 60, what="the hub's quota is free")
    queues.set_gpus(world.hub, 8)


@pytest.mark.parametrize("act", REFUSED)
def test_a_member_gives_a_hub_no_right_to(world: World, act: str) -> None:
    # It answers no by its exit status, and says so where it did not understand.
    with pytest.raises(KubectlError) as refused:
        world.members["left"]("auth", "can-i", *act.split(), AS_HUB)
    assert "error:" not in refused.value.stderr


def test_a_member_lets_a_hub_touch_its_copies_only(world: World) -> None:
    member = world.members["left"]
    plain = objects.job("theirs", 1, objects.pod_template(gpus=1, runtime="600s"), queues.QUEUE)
    copy = marked(plain, "kept")
    member.create(plain | {"spec": plain["spec"] | {"suspend": True}})
    wait_until(
        lambda: "copies only" in refused_create(member, plain | {"metadata": {"name": "own"}}), 20, what="policy"
    )
    for bad in (
        marked(plain, "permitted", {names.PERMIT: "x"}),
        plain | {"metadata": plain["metadata"] | {"name": "unmarked"}},
    ):
        assert "copies only" in refused_create(member, bad)
    member("create", "-f", "-", AS_HUB, stdin=yaml.safe_dump(copy))
    permit = f'--patch={{"metadata": {{"annotations": {{"{names.PERMIT}": "none"}}}}}}'
    for change in ('{"spec": {"parallelism": 2}}', '{"metadata": {"labels": {"other": "x"}}}'):
        refusal = member.refused("patch", "job", "kept", "--type=merge", f"--patch={change}", AS_HUB)
        assert "nothing of a copy but its permit" in refusal
    member("patch", "job", "kept", "--type=merge", permit, AS_HUB)
    for act in (("patch", "job", "theirs", "--type=merge", permit), ("delete", "job", "theirs", "--wait=false")):
        assert "copies only" in member.refused(*act, AS_HUB)
    member("delete", "job", "kept", "--wait=false", AS_HUB)
    member.delete("job", "theirs")


def test_a_tenant_of_the_hub_does_not_say_where_a_job_is(world: World) -> None:
    tenant = f"--as=system:serviceaccount:{NAMESPACE}:default"
    world.hub("create", "rolebinding", "edits", "--clusterrole=edit", f"--serviceaccount={NAMESPACE}:default")
    job = objects.job("elsewhere", 1, objects.pod_template(gpus=1, runtime="600s"), queues.QUEUE)
    job |= {"spec": job["spec"] | {"managedBy": names.HUB_MANAGER, "suspend": True}}
    record = {"annotations": {names.PLACEMENT: '{"phase":"nowhere","offer":"1.1"}'}}
    for lie in (record, {"finalizers": [names.PLACEMENT]}):
        bad = yaml.safe_dump(job | {"metadata": job["metadata"] | lie})
        wait_until(
            lambda bad=bad: (
                "by the fleet's hub alone"
                in world.hub.refused("create", "-f", "-", tenant, "--dry-run=server", stdin=bad)
            ),
            20,
            what="the policy is in force",
        )
    world.hub("create", "-f", "-", tenant, stdin=yaml.safe_dump(job))
    refusal = world.hub.refused("annotate", "job", "elsewhere", "--overwrite", f"{names.PLACEMENT}=gone", tenant)
    assert "by the fleet's hub alone" in refusal
    world.hub("label", "job", "elsewhere", "team=a", tenant)
    world.hub.delete("job", "elsewhere")


def refused_create(member: Kubectl, job: dict[str, Any]) -> str:
    return member.refused("create", "-f", "-", AS_HUB, "--dry-run=server", stdin=yaml.safe_dump(job))


def marked(job: dict[str, Any], name: str, notes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a job as a hub's copy; of a hub that nobody is."""
    metadata = {
        "name": name,
        "labels": {**job["metadata"].get("labels", {}), names.ORIGIN_LABEL: "no-hub"},
        "annotations": {names.OFFER: "no-job 1.1", **(notes or {})},
    }
    return job | {"metadata": metadata, "spec": job["spec"] | {"suspend": True}}
