"""Members in which jobs fail, and the policy by which they are then tried elsewhere."""

from typing import Any

import orjson

from tests.unit.fleet.clusters import NAMESPACE, Side
from webhook.core.fleet.dispatch import Dispatch
from webhook.fleet.policies.propagation import VERSIONS
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.controllers.nodes import FATE

TOLERATION = 30.0


def failover_policy(kind: str = "PyTorchJob", version: str = VERSIONS[0], **spec: Any) -> dict[str, Any]:
    """The seed's policy, with ``spec`` over it."""
    selected = {"apiVersion": "batch/v1" if kind == "Job" else "kubeflow.org/v1", "kind": kind}
    whole = {
        "propagateDeps": True,
        "failover": {
            "application": {
                "decisionConditions": {"tolerationSeconds": int(TOLERATION)},
                "purgeMode": "Immediately",
            }
        },
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}},
        "resourceSelectors": [selected],
    }
    metadata = {"name": f"for-{kind.lower()}", "namespace": NAMESPACE}
    return {"apiVersion": version, "kind": "PropagationPolicy", "metadata": metadata, "spec": whole | spec}


def failed_in(record: Dispatch) -> list[str]:
    """Return the members in which a gang has failed, as its record says."""
    return [each.member for each in record.failed]


def once(job: dict[str, Any]) -> dict[str, Any]:
    """A job that fails with its first pod."""
    if job["kind"] == "Job":
        job["spec"]["backoffLimit"] = 0
    for replicas in job["spec"].get("pytorchReplicaSpecs", {}).values():
        replicas["restartPolicy"] = "Never"
    return job


async def fail_all(side: Side) -> None:
    """Let every pod of a member fail."""
    change = orjson.dumps({"metadata": {"annotations": {FATE: "fails"}}})
    await side.admin.request("PATCH", f"/api/v1/nodes/node-{side.name}", body=change, content_type=MERGE_PATCH)
