"""Simulated nodes: KWOK plays the kubelets, and a pod runs until it is deleted or for the time it asks for."""

from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.controlplane import modules

RUNTIME_ANNOTATION: Final = "tutti.dev/simulated-runtime"
"""On a pod: how long it runs before it succeeds, such as ``5s``; without it, until it is deleted."""

SILENT_ANNOTATION: Final = "tutti.dev/simulated-silent"
"""On a node: KWOK leaves what its kubelet has reported as it is; without it, a node that is not ready is so at once."""

LOG_LINE: Final = "a simulated pod runs nothing"
"""What ``kubectl logs`` prints of each pod."""

SHIPPED_STAGES: Final = (
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
    "pod/fast/pod-delete",
)


def kwok_configuration() -> str:
    """Return KWOK's configuration file: its own stages, and two of ours.

    KWOK's shipped ``pod-complete`` ends every pod of a Job at once; ours waits for what the annotation says, and takes
    pods of any owner. Its ``node-initialize`` makes every node ready; ours, those that do not say otherwise.
    """
    initialize = yaml.safe_load(modules.kwok_stage("node/fast/node-initialize"))
    silent = {"key": f'.metadata.annotations["{SILENT_ANNOTATION}"]', "operator": "DoesNotExist"}
    initialize["spec"]["selector"]["matchExpressions"].append(silent)
    complete = yaml.safe_load(modules.kwok_stage("pod/fast/pod-complete"))
    complete["spec"]["selector"]["matchExpressions"] = [
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Running"]},
        {"key": f'.metadata.annotations["{RUNTIME_ANNOTATION}"]', "operator": "Exists"},
    ]
    complete["spec"]["delay"] = {"durationFrom": {"expressionFrom": f'.metadata.annotations["{RUNTIME_ANNOTATION}"]'}}
    options = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            "podPlayStageParallelism": 16,
            "nodePlayStageParallelism": 4,
            "nodeLeaseParallelism": 4,
            "podsOnNodeSyncParallelism": 4,
            "enablePodsOnNodeSyncStreamWatch": True,
            "enableDebuggingHandlers": True,
        },
    }
    shipped = [modules.kwok_stage(name) for name in SHIPPED_STAGES]
    return "\n---\n".join([yaml.safe_dump(options), *shipped, *map(yaml.safe_dump, (initialize, complete))])


def write_configuration(path: Path) -> Path:
    """Write KWOK's configuration file, and beside it the log that it shows of each pod."""
    log = path.with_name("pods.log")
    log.write_text(f"2026-01-01T00:00:00Z stdout F {LOG_LINE}\n")
    shown = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterLogs",
        "metadata": {"name": "pods"},
        "spec": {"logs": [{"logsFile": str(log)}]},
    }
    path.write_text(f"{kwok_configuration()}\n---\n{yaml.safe_dump(shown)}")
    return path


def node(name: str, gpus: int) -> dict[str, Any]:
    """Return a Node object with its capacity: GPUs, 64 cores, 512 GiB, a disk and 256 pods."""
    capacity = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "256", "nvidia.com/gpu": str(gpus)}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "simulated",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": capacity, "allocatable": capacity},
    }
