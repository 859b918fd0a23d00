"""Pods that have a node which does not start them: the owner reads the node's own words, and until when it may last."""

import signal
from typing import Any, Final

from tests.e2e.conftest import Team
from tests.e2e.controlplane.install import Installation
from tests.e2e.facts import told
from tests.e2e.kubectl import wait_until
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import QUEUE, give_queue

WORDS: Final = 'Back-off pulling image "registry.example/training:1"'


def unpulled() -> dict[str, Any]:
    """Return what a kubelet writes of a pod whose image it cannot pull."""
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": WORDS}}
    image = {"image": "registry.example/training:1", "imageID": ""}
    container = {"name": "main", "ready": False, "restartCount": 0, "state": waiting, **image}
    return {"status": {"containerStatuses": [container]}}


def test_an_image_that_cannot_be_pulled_is_told_in_the_nodes_words_with_the_moment_at_which_the_gang_is_stopped(
    breakable: Installation, team: Team
) -> None:
    """The nodes are frozen, for they would start any pod; the test writes what their kubelets would."""
    give_queue(team.admin, 2)
    nodes = breakable.cluster.components["kwok"]
    nodes.send(signal.SIGSTOP)
    try:
        team.owner.create(job("train", 2, pod_template(), QUEUE))
        wait_until(lambda: sum("nodeName" in each["spec"] for each in team.owner.pods()) == 2, what="they have nodes")
        for each in team.owner.pods():
            team.admin.patch("pod", each["metadata"]["name"], unpulled(), "--subresource=status")
        shown = wait_until(lambda: _of_starting(team), what="its workload says why it is not whole")
    finally:
        nodes.send(signal.SIGCONT)
    # The statuses are written one after another: for a moment Tutti has seen one.
    assert f"2 cannot start: ImagePullBackOff: {WORDS}" in shown
    assert "it is stopped at 20" in shown, "the moment, as people write it"
    assert "unless 2 of its pods run by then" in shown
    wait_until(lambda: len(team.owner.pods(phase="Running")) == 2, what="the nodes start them after all")
    assert told(team.owner, "train", "Evicted") == []


def _of_starting(team: Team) -> str:
    conditions = [each for item in team.owner.items("workloads") for each in item["status"]["conditions"]]
    said = [str(each["message"]) for each in conditions if each["type"] == "PodsReady" and each["status"] == "False"]
    return next((text for text in said if "2 cannot start" in text), "")
