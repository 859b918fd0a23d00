"""Gangs exist whole or not at all, at every instant: each change of every pod is recorded and looked at afterwards."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.e2e.facts import CREATION_SECONDS, most_together, partly_created, uid_of
from tests.e2e.kubectl import Kubectl, condition, wait_until
from tests.e2e.objects import job, jobset, pod_template, pytorchjob, resource_quota
from tests.e2e.queues import QUEUE, give_queue
from tests.e2e.test_seed_acs_gang_podgroup import POD_GROUP_LABEL, pod_group
from tests.e2e.watching import Watch

pytestmark = pytest.mark.usefixtures("tutti")

Maker = Callable[[str], dict[str, Any]]
GANGS: dict[str, tuple[Maker, str]] = {
    "job": (lambda name: job(name, 8, pod_template(runtime="1s"), QUEUE), "Complete"),
    "jobset": (lambda name: jobset(name, 8, pod_template(runtime="1s"), QUEUE), "Completed"),
    "pytorchjob": (
        lambda name: pytorchjob(name, 7, pod_template(runtime="1s", container="pytorch"), QUEUE),
        "Succeeded",
    ),
}
"""A gang of eight single-GPU pods of each kind, and the condition that says that it has ended."""


def apply_together(owner: Kubectl, *manifests: dict[str, Any]) -> None:
    """Apply several objects in one go."""
    owner.apply(yaml.safe_dump_all(manifests))


def ends(owner: Kubectl, kind: str, name: str, end: str) -> None:
    """Wait until a job has ended well."""
    wait_until(lambda: condition(owner.get(kind, name), end) == "True", 60, f"{kind} {name} ends")


@pytest.mark.parametrize("kind", GANGS)
def test_two_gangs_of_eight_on_eight_gpus_run_one_after_the_other(owner: Kubectl, admin: Kubectl, kind: str) -> None:
    give_queue(admin, 8)
    make, end = GANGS[kind]
    with Watch(owner) as watch:
        apply_together(owner, make("one"), make("two"))
        ends(owner, kind, "one", end)
        ends(owner, kind, "two", end)
        watch.settle()
        uids = [uid_of(owner, kind, name) for name in ("one", "two")]
        live_at_once = [unfinished(pods) for _, pods in watch.live()]
        assert all(len(gangs) <= 1 for gangs in live_at_once), "never pods of both"
        assert set().union(*live_at_once) == set(uids), "both had their turn"
        assert max(partly_created(watch, dict.fromkeys(uids, 8)).values()) < CREATION_SECONDS


def unfinished(pods: dict[str, dict[str, Any]]) -> set[str]:
    """Return the gangs that have a pod that has not ended."""
    return {
        pod["metadata"]["labels"]["tutti.dev/gang"]
        for pod in pods.values()
        if pod["status"].get("phase") not in ("Succeeded", "Failed")
    }


def test_gangs_of_every_kind_and_size_share_eight_gpus_without_one_ever_being_partly_created(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 8)
    sizes = {"small": 3, "middle": 5, "large": 8}
    kinds = {f"{kind}-{size}": (kind, pods) for kind in GANGS for size, pods in sizes.items()}

    def make(name: str) -> dict[str, Any]:
        kind, pods = kinds[name]
        if kind == "pytorchjob":
            return pytorchjob(name, pods - 1, pod_template(runtime="500ms", container="pytorch"), QUEUE)
        return (job if kind == "job" else jobset)(name, pods, pod_template(runtime="500ms"), QUEUE)

    with Watch(owner) as watch:
        apply_together(owner, *map(make, kinds))
        for name, (kind, _) in kinds.items():
            ends(owner, kind, name, GANGS[kind][1])
        watch.settle()
        gangs = {uid_of(owner, kind, name): pods for name, (kind, pods) in kinds.items()}
        assert max(partly_created(watch, gangs).values()) < CREATION_SECONDS
        for _, pods in watch.live():
            busy = [pod for pod in pods.values() if pod["status"].get("phase") not in ("Succeeded", "Failed")]
            assert len(busy) <= 8, "never more than the quota"


def test_two_gangs_bound_by_a_resource_quota_alone_never_start_half_each(owner: Kubectl, admin: Kubectl) -> None:
    admin.apply(resource_quota("wall", **{"requests.nvidia.com/gpu": "8"}))
    owner.apply(pod_group("crew", 8))

    def make(name: str) -> dict[str, Any]:
        return job(name, 8, pod_template(runtime="1s", labels={POD_GROUP_LABEL: "crew"}))

    with Watch(owner) as watch:
        apply_together(owner, make("one"), make("two"))
        ends(owner, "job", "one", "Complete")
        ends(owner, "job", "two", "Complete")
        watch.settle()
        uids = [uid_of(owner, "job", name) for name in ("one", "two")]
        assert all(len(unfinished(pods)) <= 1 for _, pods in watch.live()), "never pods of both"
        assert max(partly_created(watch, dict.fromkeys(uids, 8)).values()) < CREATION_SECONDS
        assert most_together(watch, *uids) == [2, 16], "both ended with all of their pods"
