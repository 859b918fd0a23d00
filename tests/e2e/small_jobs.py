"""Jobs of one or two pods that ask for no GPU, for what is said of jobs whatever their size."""

from typing import Any

from tests.e2e import objects


def job(name: str, queue: str = "", labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Job of one pod; ``labels`` are its pods'."""
    return objects.job(name, 1, objects.pod_template(gpus=0, labels=labels), queue)


def jobset(name: str, queue: str = "", labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a JobSet of one pod."""
    return objects.jobset(name, 1, objects.pod_template(gpus=0, labels=labels), queue)


def pytorchjob(name: str, queue: str = "", labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a PyTorchJob of two pods, without a run policy."""
    template = objects.pod_template(gpus=0, container="pytorch", labels=labels)
    made = objects.pytorchjob(name, 1, template, queue)
    made["spec"].pop("runPolicy", None)
    return made


def pod(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a bare pod."""
    return objects.pod(name, objects.pod_template(gpus=0, labels=labels))
