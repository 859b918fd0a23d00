"""Plain pods of a PodGroup at the door: they are stored behind our gate, and count before their gang is admitted."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from tests.unit.server.reviews import (
    ACCOUNT,
    ALICE,
    Answered,
    ask,
    pod,
    price,
    record,
    review,
    view,
    with_ledger,
    with_quota,
)
from webhook.core.ledger.record import Reservation, ReservedPodSet
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS, of_hub
from webhook.jobs.plain_pods import pod_group
from webhook.jobs.plain_pods.groups import POD_GROUP, gang_uid, role_of
from webhook.jobs.plain_pods.pod import decode
from webhook.jobs.pricing.context import NetworkTier
from webhook.jobs.pricing.pod_requests import price as price_of
from webhook.server.handler import ReviewHandler
from webhook.server.review.settings import ReviewSettings

UID = gang_uid("team-a", "ring")
GATES = [{"name": names.SCHEDULING_GATE}]
LABEL = "scheduling.x-k8s.io/pod-group"
VOLCANO = "system:serviceaccount:volcano-system:volcano-controllers"


def waiting(number: int = 0, *, gpu: str = "1", gang: str = UID, **spec: Any) -> dict[str, Any]:
    """Return a plain pod as our mutation leaves it."""
    obj = pod(f"ring-{number}", uid=f"pod-{number}", gang=gang, owner=None, gpu=gpu, schedulingGates=GATES, **spec)
    del obj["metadata"]["labels"][names.POD_SET_LABEL]
    obj["metadata"]["labels"][LABEL] = "ring"
    return obj


def admitted(pods: int) -> Reservation:
    obj = waiting()
    cost = price_of(obj["spec"])
    places = ReservedPodSet(role_of(cost, obj["spec"]), pods, cost)
    return Reservation(UID, POD_GROUP.key, "team-a", "ring", None, (places,), epoch=1, since_seconds=0.0)


async def create(handler: ReviewHandler, obj: dict[str, Any], user: str = ALICE) -> Answered:
    return await ask(handler, "/validate/pods", review(obj, user=user))


async def update(handler: ReviewHandler, old: dict[str, Any], new: dict[str, Any], user: str = ALICE) -> Answered:
    return await ask(handler, "/validate/pods", review(new, old=old, operation="UPDATE", user=user))


@pytest.fixture
def fenced() -> ReviewHandler:
    """Return a handler whose namespace has room for four pods."""
    seen = with_quota(view(), pods=4)
    seen.namespaces["team-a"] = {names.FENCED_NAMESPACE: "true"}
    return ReviewHandler(with_ledger(seen))


async def test_anybody_may_create_pods_that_wait_as_far_as_there_is_room(fenced: ReviewHandler) -> None:
    assert [(await create(fenced, waiting(n))).allowed for n in range(6)] == [True] * 4 + [False] * 2


async def test_they_do_not_take_what_is_reserved_for_others(fenced: ReviewHandler) -> None:
    other = Reservation("o", "Job.batch", "team-a", "train", None, (ReservedPodSet("main", 3, price(1)),), 1, 0.0)
    with_ledger(fenced.view, other)
    assert [(await create(fenced, waiting(n))).allowed for n in range(2)] == [True, False]


async def test_but_a_place_that_is_reserved_for_their_gang_is_theirs(fenced: ReviewHandler) -> None:
    with_ledger(fenced.view, admitted(4))
    assert [(await create(fenced, waiting(n))).allowed for n in range(6)] == [True] * 4 + [False] * 2


async def test_a_pod_that_asks_more_than_its_place_is_a_pod_like_any_other(fenced: ReviewHandler) -> None:
    with_ledger(fenced.view, admitted(4))
    assert not (await create(fenced, waiting(gpu="2"))).allowed


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tutti.dev/queue-name": "other"}, "queue other and priority 5"),
        ({names.PRIORITY_CLASS_LABEL: "urgent"}, "queue research and priority 5 (class urgent)"),
        ({"priority": 9}, "queue research and priority 9"),
    ],
)
async def test_who_contradicts_those_of_the_group_that_run_is_refused(
    fenced: ReviewHandler, changed: dict[str, Any], words: str
) -> None:
    def like(number: int) -> dict[str, Any]:
        obj = waiting(number, priority=5)
        obj["metadata"]["labels"]["tutti.dev/queue-name"] = "research"
        return obj

    stranger = like(1)
    stranger["spec"] |= {key: value for key, value in changed.items() if key == "priority"}
    stranger["metadata"]["labels"] |= {key: value for key, value in changed.items() if key != "priority"}
    fenced.view.fences.put_pod(decode(orjson.dumps(like(0))))
    assert (await create(fenced, stranger)).allowed, "one that waits can still be corrected"
    started = like(0)
    started["spec"]["schedulingGates"] = []
    fenced.view.fences.put_pod(decode(orjson.dumps(started)))
    refused = (await create(fenced, stranger)).message
    assert f"that run have queue research and priority 5, this one has {words}" in refused
    assert (await create(fenced, like(1))).allowed


async def test_where_nothing_is_fenced_they_just_wait() -> None:
    handler = ReviewHandler(view())
    handler.view.namespaces["team-a"] = {}
    assert all([(await create(handler, waiting(n))).allowed for n in range(9)])


@pytest.mark.parametrize("gang", ["another", names.GANG_PENDING, gang_uid("team-b", "ring")])
async def test_a_gang_label_that_does_not_follow_from_the_group_is_refused(fenced: ReviewHandler, gang: str) -> None:
    assert names.GANG_LABEL in (await create(fenced, waiting(gang=gang))).message


async def test_the_pods_of_a_job_held_by_gates_are_made_by_its_controller_alone(fenced: ReviewHandler) -> None:
    made = pod(gang=names.GANG_PENDING, pod_set="worker", schedulingGates=GATES)
    assert (await create(fenced, made, VOLCANO)).allowed
    assert not (await create(fenced, made)).allowed


async def test_a_pod_without_the_gate_is_no_member(fenced: ReviewHandler) -> None:
    with_ledger(fenced.view, admitted(4))
    bare = waiting()
    bare["spec"]["schedulingGates"] = []
    assert "only its controller creates its pods" in (await create(fenced, bare)).message


async def test_nobody_brings_a_place_in_the_queue_along(fenced: ReviewHandler) -> None:
    forged = waiting()
    forged["metadata"]["annotations"][names.REQUEUE] = "{}"
    assert names.REQUEUE in (await create(fenced, forged)).message


async def test_a_unfit_template_passes_by_the_gate_and_is_refused(fenced: ReviewHandler) -> None:
    preset = waiting(nodeName="node-7")
    preset["spec"]["schedulingGates"] = []
    assert "preset" in (await create(fenced, preset)).message


async def test_the_gate_is_lifted_by_our_account_alone(fenced: ReviewHandler) -> None:
    free = waiting()
    free["spec"]["schedulingGates"] = []
    assert names.SCHEDULING_GATE in (await update(fenced, waiting(), free)).message
    assert (await update(fenced, waiting(), free, ACCOUNT)).allowed


async def test_a_member_stays_in_its_group(fenced: ReviewHandler) -> None:
    moved = waiting()
    moved["metadata"]["labels"][LABEL] = "another"
    assert "PodGroup of a pod cannot change" in (await update(fenced, waiting(), moved)).message


async def test_its_queue_changes_only_while_it_waits(fenced: ReviewHandler) -> None:
    before, after = waiting(), waiting()
    after["metadata"]["labels"]["tutti.dev/queue-name"] = "other"
    assert (await update(fenced, before, after)).allowed
    for obj in (before, after):
        obj["spec"]["schedulingGates"] = []
    assert "queue label" in (await update(fenced, before, after)).message


async def test_a_waiting_pod_cannot_grow_past_the_fence(fenced: ReviewHandler) -> None:
    with_quota(fenced.view, gpu=2)
    with_ledger(fenced.view, admitted(1))
    fenced.view.fences.put_pod(record("pod-0"))
    body = review(waiting(gpu="9"), old=waiting(), operation="UPDATE", subresource="resize")
    assert not (await ask(fenced, "/validate/pods", body)).allowed


@pytest.mark.parametrize(("kinds", "told"), [(KINDS, False), (of_hub(KINDS), True)], ids=["elsewhere", "hub"])
async def test_in_a_hub_who_makes_a_plain_pod_of_a_group_is_told_that_no_member_gets_it(
    kinds: Mapping[str, JobKind], told: bool
) -> None:
    answer = await create(ReviewHandler(view(), kinds=kinds), waiting())
    assert answer.allowed
    assert any("a hub places no plain pods in a member" in each for each in answer.warnings) is told


async def test_an_opt_in_label_on_a_single_pod_is_warned_about_still(fenced: ReviewHandler) -> None:
    single = pod(owner=None)
    single["metadata"]["labels"] = {"tutti.dev/queue-name": "research"}
    answer = await create(fenced, single)
    assert answer.allowed
    assert any("single Pod" in warning for warning in answer.response["warnings"])


@pytest.mark.parametrize(
    ("spec", "tiers", "said"),
    [
        ({"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}, (), "spec.networkTopology of PodGroup ring"),
        (
            {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}},
            (NetworkTier(tier=2, nodeLabel="block"),),
            None,
        ),
        (
            {"subGroupPolicy": [{"name": "a"}]},
            (NetworkTier(tier=2, nodeLabel="block"),),
            "spec.subGroupPolicy of PodGroup ring",
        ),
    ],
    ids=["no label for its tier", "a label for its tier", "groups within the group"],
)
async def test_who_joins_a_pod_group_of_volcano_is_told_what_of_it_is_not_followed(
    fenced: ReviewHandler, spec: dict[str, Any], tiers: tuple[NetworkTier, ...], said: str | None
) -> None:
    handler = ReviewHandler(fenced.view, ReviewSettings(network_tiers=tiers))
    group = {"metadata": {"name": "ring", "namespace": "team-a", "uid": "u"}, "spec": {"minMember": 2, **spec}}
    handler.view.pod_groups["team-a", "ring"] = pod_group.read("scheduling.volcano.sh", group)
    answer = await create(handler, waiting())
    assert answer.allowed
    found = [each.partition(" is not followed")[0] for each in answer.response.get("warnings", ())]
    assert found == ([] if said is None else [said])


@pytest.mark.parametrize(("text", "number"), [("0", None), ("-1", None), ("two", None), ("", None), ("2", 2)])
async def test_a_lightweight_group_says_a_number_of_pods(fenced: ReviewHandler, text: str, number: int | None) -> None:
    light = waiting()
    light["metadata"]["labels"][names.MIN_AVAILABLE_LABEL] = text
    answer = await create(fenced, light)
    assert answer.allowed is (number is not None)
    assert number is not None or "is not a number of pods" in answer.message
