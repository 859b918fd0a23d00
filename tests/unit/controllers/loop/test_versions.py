"""A kind that other clusters serve in another version is held and started in the version that this one serves."""

import asyncio
from random import Random
from typing import Any

import orjson
import pytest

from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.notation import names
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.reading.gating import gated_by
from webhook.laboratory.simulated.cluster import SimulatedCluster

MPIJOB = "/apis/kubeflow.org/v1/namespaces/team-a/mpijobs/train"
KUEUE = "kueue.x-k8s.io/v1beta2"


def mpijob(**run_policy: Any) -> dict[str, Any]:
    """Return an MPIJob as the training operator serves it, held as the webhook stores it."""
    template = {"metadata": {"labels": {names.GANG_LABEL: "pending"}}, "spec": {"containers": [{"name": "main"}]}}
    replicas = {"Launcher": {"replicas": 1, "template": template}, "Worker": {"replicas": 2, "template": template}}
    metadata = {"name": "train", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}}
    spec = {"runPolicy": {"suspend": True, **run_policy}, "mpiReplicaSpecs": replicas}
    return {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": metadata, "spec": spec}


def queue() -> list[dict[str, Any]]:
    """Return a queue with room for everything."""
    quotas = [{"name": name, "nominalQuota": "1Ti"} for name in ("cpu", "memory", "ephemeral-storage")]
    group = {"coveredResources": [q["name"] for q in quotas], "flavors": [{"name": "any", "resources": quotas}]}
    all_of_it = {"namespaceSelector": {}, "resourceGroups": [group]}
    return [
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "research"}, "spec": all_of_it},
        {
            "apiVersion": KUEUE,
            "kind": "LocalQueue",
            "metadata": {"name": "research", "namespace": "team-a"},
            "spec": {"clusterQueue": "research"},
        },
    ]


@pytest.mark.virtual_time
async def test_an_mpijob_of_the_training_operator_is_started_where_its_version_alone_is_served() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        for document in (*queue(), mpijob()):
            await cluster.create(document)
        parts = reconciler(cluster.api(), Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(20)
        stored = orjson.loads(await cluster.api().request("GET", MPIJOB))
        assert stored["spec"]["runPolicy"]["suspend"] is False
        templates = [part["template"] for part in stored["spec"]["mpiReplicaSpecs"].values()]
        assert {t["metadata"]["labels"][names.GANG_LABEL] for t in templates} == {stored["metadata"]["uid"]}
        running.cancel()


@pytest.mark.parametrize("manager", ["kubeflow.org/mpi-operator", "kubeflow.org/training-operator"])
def test_an_mpijob_that_names_either_of_its_operators_waits_like_any_other(manager: str) -> None:
    assert gated_by(KINDS["MPIJob.kubeflow.org"], mpijob(managedBy=manager), {}, ()) is not None
    assert gated_by(KINDS["MPIJob.kubeflow.org"], mpijob(managedBy="kueue.x-k8s.io/multikueue"), {}, ()) is None
