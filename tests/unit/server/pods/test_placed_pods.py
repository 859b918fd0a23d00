"""/mutate/pods for pods of gangs: each prefers the nodes that the ledger keeps for its pod set."""

from typing import Any

import pytest

from tests.unit.server.reviews import JOB_CONTROLLER, ask, pod, reservation, review, view, with_ledger
from webhook.core.ledger.record import with_places
from webhook.server.handler import ReviewHandler

MUTATE = "/mutate/pods"
WISH = {
    "weight": 100,
    "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]}]},
}
OWN = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def handler(**more: Any) -> ReviewHandler:
    """Job-1 is to stand on n1 and n2."""
    return ReviewHandler(with_ledger(view(), with_places(reservation(**more), {"main": {"n2": 1, "n1": 3}})))


async def wishes(of: dict[str, Any], at: ReviewHandler) -> Any:
    """Return the preferences that a pod has after the mutating phase."""
    answer = await ask(at, MUTATE, review(of, user=JOB_CONTROLLER))
    assert answer.allowed
    affinity = answer.applied(of)["spec"].get("affinity") or {}
    return (affinity.get("nodeAffinity") or {}).get(PREFERRED)


async def test_a_pod_of_a_gang_prefers_the_nodes_that_are_kept_for_it() -> None:
    assert await wishes(pod(gang="job-1"), handler()) == [WISH]


async def test_what_its_owner_prefers_stays_and_what_was_added_is_not_added_again() -> None:
    own = pod(gang="job-1", affinity={"nodeAffinity": {PREFERRED: [OWN]}, "podAffinity": {}})
    assert await wishes(own, handler()) == [OWN, WISH]
    assert await wishes(pod(gang="job-1", affinity={"nodeAffinity": {PREFERRED: [OWN, WISH]}}), handler()) == [
        OWN,
        WISH,
    ]


@pytest.mark.parametrize(
    "other",
    [
        pod(gang="job-2"),
        pod(gang="job-1", pod_set="other"),
        pod(gang="pending"),
        {
            **pod(),
            "metadata": {"name": "p", "labels": {"tutti.dev/gang": "x", "scheduling.x-k8s.io/pod-group": "crew"}},
        },
        pod(),
        {**pod(), "metadata": {"name": "p", "labels": {"tutti.dev/gang": ["job-1"]}}},
        {**pod(), "metadata": {"name": "p", "labels": "none"}},
    ],
    ids=["of an unknown gang", "of an unknown set", "not admitted", "forged", "loose", "a list", "no labels"],
)
async def test_any_other_pod_is_left_as_it_is(other: dict[str, Any]) -> None:
    answer = await ask(handler(), MUTATE, review(other, user=JOB_CONTROLLER))
    assert answer.patch == []


@pytest.mark.parametrize("affinity", [7, {"nodeAffinity": []}, {"nodeAffinity": {PREFERRED: {"a": 1}}}])
async def test_what_is_no_affinity_is_left_to_the_api_server_to_refuse(affinity: Any) -> None:
    answer = await ask(handler(), MUTATE, review(pod(gang="job-1", affinity=affinity), user=JOB_CONTROLLER))
    assert (answer.allowed, answer.patch) == (True, [])


async def test_a_gang_that_is_being_stopped_wishes_for_nothing() -> None:
    assert await wishes(pod(gang="job-1"), handler(stopping="Preempted")) is None


@pytest.mark.parametrize(
    ("rank", "node"),
    [
        ({"batch.kubernetes.io/job-completion-index": "0"}, "n2"),
        ({"batch.kubernetes.io/job-completion-index": "1"}, "n1"),
        ({"batch.kubernetes.io/job-completion-index": "3"}, "n1"),
        ({"batch.kubernetes.io/job-completion-index": "4"}, None),
        ({"batch.kubernetes.io/job-completion-index": "x"}, None),
        ({"batch.kubernetes.io/job-completion-index": 1}, None),
        ({"training.kubeflow.org/replica-index": "0"}, "n2"),
        (
            {
                "batch.kubernetes.io/job-completion-index": "0",
                "jobset.sigs.k8s.io/job-index": "1",
                "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
            },
            "n1",
        ),
    ],
)
async def test_a_pod_with_a_rank_prefers_the_node_of_its_rank_before_the_others(
    rank: dict[str, Any], node: str | None
) -> None:
    ranked = pod(gang="job-1")
    ranked["metadata"]["labels"] |= rank
    own = {"preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}}
    assert await wishes(ranked, handler()) == [WISH, *([] if node is None else [{"weight": 100, **own}])]
