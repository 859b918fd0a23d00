"""Each kind that a hub places, in whichever of its versions a cluster serves."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, fleet, plain_job, template
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.controllers.training import FRAMEWORKS, Framework
from webhook.laboratory.simulated.requests.identity import User

pytestmark = pytest.mark.virtual_time
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda each: each.kind)
async def test_it_runs_whole_in_one_member_and_its_end_is_shown(framework: Framework) -> None:
    roles = (*framework.leaders[:1], "Worker")
    async with fleet("a", "b") as world:
        for side in world.members.values():
            await side.admin.request("PATCH", QUEUE, body=orjson.dumps(covers_all()), content_type=MERGE_PATCH)
            await side.cluster.add_node("with-a-disk", **{"ephemeral-storage": "20Gi"})
        await asyncio.sleep(1)
        await world.hub.cluster.create(
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": framework.kind,
                "metadata": {"name": "train", "namespace": NAMESPACE, "labels": {names.QUEUE_LABELS[0]: "research"}},
                "spec": {
                    "runPolicy": {"managedBy": names.HUB_MANAGER, "cleanPodPolicy": "All"},
                    framework.replicas: {role: {"replicas": 1, "template": template("10s")} for role in roles},
                },
            }
        )
        await world.until(lambda: world.places(framework.kind, "train"))
        granted = dispatch_of(await world.hub.get(framework.kind, "train") or {})
        assert (granted.phase, granted.member) == (DispatchPhase.GRANTED, "a")
        await world.until(lambda: world.over(framework.kind, "train"))
        await world.until(lambda: world.empty(framework.kind))


async def test_what_a_controller_makes_of_a_copy_with_its_labels_and_annotations_is_not_swept() -> None:
    """KubeRay makes the RayCluster of a RayJob so; here it is the launcher of an MPIJob that has them all."""
    async with fleet("a") as world:
        side = world.members["a"]
        await side.admin.request("PATCH", QUEUE, body=orjson.dumps(covers_all()), content_type=MERGE_PATCH)
        await side.cluster.add_node("with-a-disk", **{"ephemeral-storage": "20Gi"})
        await asyncio.sleep(1)
        replicas = {role: {"replicas": 1, "template": template("600s")} for role in ("Launcher", "Worker")}
        metadata = {"name": "train", "namespace": NAMESPACE, "labels": {names.QUEUE_LABELS[0]: "research"}}
        spec = {"runPolicy": {"managedBy": names.HUB_MANAGER}, "mpiReplicaSpecs": replicas}
        await world.hub.cluster.create(
            {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": metadata, "spec": spec}
        )
        await world.until(lambda: world.places("MPIJob", "train"))
        made_of = (await side.get("MPIJob", "train") or {})["metadata"]
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "train", "uid": made_of["uid"]}
        child = plain_job("train-launcher")
        del child["spec"]["managedBy"]
        child["metadata"] |= {key: made_of[key] for key in ("labels", "annotations")}
        child["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        operator = side.cluster.api(User.service_account("kubeflow", "training-operator"))
        jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        await operator.request("POST", jobs, body=orjson.dumps(child))
        await asyncio.sleep(60)
        assert await side.get("Job", "train-launcher") is not None
        assert await world.places("MPIJob", "train") == ["a"]


def covers_all() -> dict[str, Any]:
    """The queue of the members, with what the training operator adds to the launcher of an MPIJob."""
    asked = {"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10Gi"}
    resources = [{"name": name, "nominalQuota": quantity} for name, quantity in asked.items()]
    group = {"coveredResources": [*asked], "flavors": [{"name": "any", "resources": resources}]}
    return {"spec": {"resourceGroups": [group]}}


async def test_a_hub_follows_every_version_of_every_kind_that_it_places() -> None:
    async with fleet() as world:
        placed = [each for kind in KINDS.values() if kind.dispatchable for each in kind.every_version]
        assert {(each.key, each.version) for each in world.running_hub.kinds.values()} == {
            (each.key, each.version) for each in placed
        }
