"""Pods of Kueue's groups at the door: what Kueue refuses of them is refused, and nothing is got past by a label."""

from typing import Any

import orjson
import pytest

from tests.unit.server.reviews import ALICE, JOB_CONTROLLER, Answered, ask, pod, review, view, with_ledger, with_quota
from webhook.core.notation import names
from webhook.jobs.plain_pods.groups import gang_uid
from webhook.jobs.plain_pods.pod import decode
from webhook.server.handler import ReviewHandler
from webhook.server.review.settings import ReviewSettings

UID = gang_uid("team-a", "ring")
GATES = [{"name": names.SCHEDULING_GATE}]
GROUP, COUNT, QUEUE = names.KUEUE_POD_GROUP, names.KUEUE_POD_COUNT, names.QUEUE_LABELS[1]


def member(number: int = 0, *, size: str | None = "3", gated: bool = True, phase: str = "Pending") -> dict[str, Any]:
    """Return a pod of a group of Kueue's as our mutation leaves it."""
    obj = pod(f"ring-{number}", uid=f"pod-{number}", gang=UID, owner=None, schedulingGates=GATES if gated else [])
    del obj["metadata"]["labels"][names.POD_SET_LABEL]
    obj["metadata"]["labels"] |= {GROUP: "ring", QUEUE: "research"}
    obj["metadata"]["annotations"] |= {} if size is None else {COUNT: size}
    return obj | {"status": {"phase": phase}}


@pytest.fixture
def handler() -> ReviewHandler:
    """Return a handler of a fenced namespace with room for ten pods."""
    seen = with_quota(view(), pods=10)
    seen.namespaces["team-a"] = {names.FENCED_NAMESPACE: "true"}
    return ReviewHandler(with_ledger(seen))


def there(handler: ReviewHandler, *pods: dict[str, Any]) -> None:
    for obj in pods:
        handler.view.fences.put_pod(decode(orjson.dumps(obj)))


async def create(handler: ReviewHandler, obj: dict[str, Any], user: str = ALICE) -> Answered:
    return await ask(handler, "/validate/pods", review(obj, user=user))


async def update(handler: ReviewHandler, old: dict[str, Any], new: dict[str, Any]) -> Answered:
    return await ask(handler, "/validate/pods", review(new, old=old, operation="UPDATE"))


@pytest.mark.parametrize(
    ("size", "told"),
    [("3", None), (None, f"annotation {COUNT}: absent"), ("0", "0: is not a number of pods; write 1 or more")],
)
async def test_a_member_says_how_many_there_are(handler: ReviewHandler, size: str | None, told: str | None) -> None:
    answer = await create(handler, member(size=size))
    assert answer.allowed is (told is None)
    assert told is None or told in answer.message


async def test_a_count_without_a_group_is_refused_where_the_pod_has_a_queue(handler: ReviewHandler) -> None:
    single = pod(owner=None)
    single["metadata"]["annotations"] = {COUNT: "3"}
    assert (await create(handler, single)).allowed
    single["metadata"]["labels"] = {QUEUE: "research"}
    assert f"add label {GROUP}" in (await create(handler, single)).message


async def test_a_pod_in_two_gangs_is_refused(handler: ReviewHandler) -> None:
    both = member()
    both["metadata"]["labels"] |= {
        "scheduling.x-k8s.io/pod-group": "star",
        names.GANG_LABEL: gang_uid("team-a", "star"),
    }
    assert "ring: is a different gang from PodGroup 'star'" in (await create(handler, both)).message
    both["metadata"]["labels"] |= {"scheduling.x-k8s.io/pod-group": "ring", names.GANG_LABEL: UID}
    assert (await create(handler, both)).allowed


async def test_a_pod_too_many_is_refused_until_one_fails(handler: ReviewHandler) -> None:
    there(handler, member(0, gated=False, phase="Running"), member(1, gated=False, phase="Succeeded"), member(2))
    refused = (await create(handler, member(3))).message
    assert "group team-a/ring has all of its 3 pods" in refused
    there(handler, member(0, gated=False, phase="Failed"))
    assert (await create(handler, member(3))).allowed


async def test_a_group_that_has_succeeded_takes_in_nobody_until_its_pods_are_deleted(handler: ReviewHandler) -> None:
    there(handler, *(member(number, gated=False, phase="Succeeded") for number in range(3)))
    assert "those that have succeeded included" in (await create(handler, member(3))).message
    handler.view.fences.drop_pod("team-a", "pod-0")
    assert (await create(handler, member(3))).allowed


async def test_who_counts_differently_than_those_that_run_is_refused(handler: ReviewHandler) -> None:
    there(handler, member(0, gated=False, phase="Running"))
    refused = (await create(handler, member(1, size="4"))).message
    assert f"priority 0 and {COUNT} 3, this one has" in refused


async def test_without_a_queue_label_its_creator_is_told_that_nothing_waits(handler: ReviewHandler) -> None:
    loose = pod(owner=None)
    loose["metadata"] |= {"labels": {GROUP: "ring"}, "annotations": {COUNT: "3"}}
    answer = await create(handler, loose)
    assert answer.allowed
    assert f"{GROUP} has no effect without a queue label" in answer.response["warnings"][0]


async def test_where_kueue_serves_the_cluster_its_groups_are_its_own() -> None:
    handler = ReviewHandler(with_ledger(view()), settings=ReviewSettings(left_to_kueue=True))
    single = pod(owner=None)
    single["metadata"] |= {"labels": {QUEUE: "research"}, "annotations": {COUNT: "3"}}
    for labels in ({QUEUE: "research"}, {QUEUE: "research", GROUP: "ring"}):
        single["metadata"]["labels"] = labels
        answer = await create(handler, single)
        assert answer.allowed
        assert "warnings" not in answer.response


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({GROUP: "star"}, {}),
        ({GROUP: ""}, {}),
        ({QUEUE: ""}, {}),
        ({}, {GROUP: "star"}),
        ({"scheduling.x-k8s.io/pod-group": "star"}, {}),
    ],
)
@pytest.mark.parametrize("gated", [True, False])
async def test_a_member_stays_in_its_group(
    handler: ReviewHandler, labels: dict[str, str], annotations: dict[str, str], gated: bool
) -> None:
    moved = member(gated=gated)
    moved["metadata"]["labels"] |= labels
    moved["metadata"]["annotations"] |= annotations
    assert "PodGroup of a pod cannot change (it is ring" in (await update(handler, member(gated=gated), moved)).message


async def test_its_count_is_corrected_while_it_waits_and_not_once_it_was_admitted(handler: ReviewHandler) -> None:
    assert (await update(handler, member(), member(size="4"))).allowed
    assert "is not a number of pods" in (await update(handler, member(), member(size="many"))).message
    for size in ("4", "1", None):
        answer = await update(handler, member(gated=False), member(gated=False, size=size))
        assert f"annotation {COUNT} of an admitted pod cannot change" in answer.message


@pytest.mark.parametrize("labels", [{GROUP: "ring", QUEUE: "research"}, {GROUP: "ring", "tutti.dev/queue-name": "q"}])
async def test_a_jobs_pod_joins_no_group_by_a_label_that_is_put_on_it(
    handler: ReviewHandler, labels: dict[str, str]
) -> None:
    plain, labelled = pod(gang="job-1"), pod(gang="job-1")
    labelled["metadata"]["labels"] |= labels
    assert "PodGroup of a pod cannot change" in (await update(handler, plain, labelled)).message


async def test_the_labels_make_no_pod_without_our_gate_a_member(handler: ReviewHandler) -> None:
    refused = await create(handler, member(gated=False))
    assert not refused.allowed
    by_its_template = pod(gang=names.GANG_PENDING)
    by_its_template["metadata"]["labels"] |= {GROUP: "ring", QUEUE: "research"}
    assert "not admitted yet" in (await create(handler, by_its_template, JOB_CONTROLLER)).message
