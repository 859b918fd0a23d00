"""A gang's pods stay within its reservation, loose pods within what reservations leave."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest

from tests.unit.server.reviews import (
    ACCOUNT,
    ALICE,
    GPU,
    JOB_CONTROLLER,
    Answered,
    ask,
    containers,
    job,
    pod,
    record,
    reservation,
    review,
    stored,
    view,
    with_ledger,
    with_quota,
)
from webhook.cluster.view import View
from webhook.core.ledger.record import Ledger
from webhook.core.model.gang import PodPrice
from webhook.core.notation import names
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked
from webhook.jobs.plain_pods.groups import gang_uid
from webhook.jobs.plain_pods.pod import decode
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.job import read
from webhook.server.handler import ReviewHandler
from webhook.untyped.values import seconds

SCHEDULER = "system:kube-scheduler"


def gang_pod(number: int = 0, *, version: str | None = "1.1", **more: Any) -> dict[str, Any]:
    return pod(f"train-{number}", uid=f"pod-{number}", gang="job-1", version=version, **more)


async def create(handler: ReviewHandler, obj: dict[str, Any], user: str = JOB_CONTROLLER, **request: Any) -> Answered:
    return await ask(handler, "/validate/pods", review(obj, user=user, **request))


async def update(
    handler: ReviewHandler, old: dict[str, Any], new: dict[str, Any], user: str = ALICE, subresource: str = ""
) -> Answered:
    body = review(new, old=old, operation="UPDATE", user=user, subresource=subresource)
    return await ask(handler, "/validate/pods", body)


@pytest.fixture
def admitted() -> ReviewHandler:
    """Return a handler whose ledger reserves 4 pods of 1 GPU for job-1."""
    return ReviewHandler(with_ledger(view(), reservation()))


# -- a gang's pods


async def test_as_many_pods_pass_as_are_reserved_and_not_one_more(admitted: ReviewHandler) -> None:
    assert [(await create(admitted, gang_pod(n))).allowed for n in range(6)] == [True] * 4 + [False] * 2


async def test_pods_that_were_seen_count_once(admitted: ReviewHandler) -> None:
    for number in range(3):
        assert (await create(admitted, gang_pod(number))).allowed
        admitted.view.fences.put_pod(record(f"pod-{number}", gang="job-1"))
    assert (await create(admitted, gang_pod(3))).allowed
    refused = await create(admitted, gang_pod(4))
    assert refused.code == 429
    assert "4 pods of set main and 4 exist" in refused.message


async def test_a_pod_reviewed_twice_counts_once(admitted: ReviewHandler) -> None:
    assert [(await create(admitted, gang_pod(0))).allowed for _ in range(9)] == [True] * 9


async def test_a_pod_that_has_ended_is_replaced(admitted: ReviewHandler) -> None:
    for number in range(4):
        admitted.view.fences.put_pod(record(f"pod-{number}", gang="job-1", phase="Failed" if number else "Running"))
    assert (await create(admitted, gang_pod(7))).allowed


async def test_a_dry_run_takes_no_place(admitted: ReviewHandler) -> None:
    for number in range(9):
        assert (await create(admitted, gang_pod(number), dryRun=True)).allowed


@pytest.mark.virtual_time
async def test_a_pod_that_was_let_pass_and_never_stored_is_forgotten_in_seconds(admitted: ReviewHandler) -> None:
    for number in range(4):
        assert (await create(admitted, gang_pod(number))).allowed
    assert not (await create(admitted, gang_pod(9))).allowed
    await asyncio.sleep(6)
    assert not (await create(admitted, gang_pod(9))).allowed, "the watch may be behind"
    await asyncio.sleep(10)
    assert (await create(admitted, gang_pod(9))).allowed


async def test_a_pod_of_a_gang_that_is_not_admitted_is_refused(admitted: ReviewHandler) -> None:
    pending = await create(admitted, pod(gang=names.GANG_PENDING))
    assert "Job train is not admitted yet" in pending.message
    unknown = await create(admitted, pod(gang="job-9", version="1.1"))
    assert "no reservation in the ledger" in unknown.message


async def test_a_pod_of_a_child_that_its_owners_controller_left_behind_is_told_what_to_upgrade(
    admitted: ReviewHandler,
) -> None:
    refused = await create(admitted, pod(gang=names.GANG_PENDING, owner="launcher-1"))
    assert "upgrade it (the MPI operator to 0.8" in refused.message
    held = marked(KINDS["Job.batch"], job())
    held["metadata"]["uid"] = "job-1"
    admitted.view.put_job(read(KINDS["Job.batch"], held, ReadContext()))
    assert "upgrade" not in (await create(admitted, pod(gang=names.GANG_PENDING))).message


async def test_a_gated_pod_of_a_waiting_gang_may_exist(admitted: ReviewHandler) -> None:
    handlers = [{"name": names.SCHEDULING_GATE}]
    assert (await create(admitted, pod(gang=names.GANG_PENDING, schedulingGates=handlers))).allowed


async def test_a_place_in_another_namespace_is_no_place() -> None:
    handler = ReviewHandler(with_ledger(view(), reservation(namespace="team-b")))
    assert not (await create(handler, gang_pod())).allowed


async def test_a_gang_that_is_being_stopped_starts_no_pods() -> None:
    handler = ReviewHandler(with_ledger(view(), reservation(stopping="Preempted")))
    assert "is being stopped (Preempted)" in (await create(handler, gang_pod())).message


async def test_a_job_that_is_deleted_starts_no_pods_though_its_reservation_is_held_for_those_that_run() -> None:
    handler = ReviewHandler(with_ledger(view(), reservation()))
    handler.view.put_controller("job-1", "team-a", "")
    assert (await create(handler, gang_pod(0))).allowed
    handler.view.drop_controller("job-1")
    assert "was deleted" in (await create(handler, gang_pod(1))).message


async def test_a_job_that_is_being_deleted_starts_no_pods_either() -> None:
    handler = ReviewHandler(with_ledger(view(), reservation()))
    leaving = stored(suspend=False)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    handler.view.put_job(read(KINDS["Job.batch"], leaving, ReadContext()))
    assert "was deleted" in (await create(handler, gang_pod(0))).message


async def test_an_unknown_pod_set_is_refused(admitted: ReviewHandler) -> None:
    answer = await create(admitted, gang_pod(pod_set="other"))
    assert "'other' is not part of the reservation" in answer.message


async def test_a_pod_that_asks_more_than_its_place_is_refused(admitted: ReviewHandler) -> None:
    answer = await create(admitted, gang_pod(gpu="2"))
    assert "2 nvidia.com/gpu" in answer.message
    assert "holds 1" in answer.message


async def test_a_resource_that_neither_queue_nor_fence_counts_may_be_defaulted_higher(admitted: ReviewHandler) -> None:
    asks_cpu = gang_pod()
    asks_cpu["spec"]["containers"] = containers(gpu="1", cpu="1")
    assert (await create(admitted, asks_cpu)).allowed
    with_quota(admitted.view, **{"requests.cpu": 4})
    asks_cpu["metadata"]["uid"] = "pod-9"
    assert not (await create(admitted, asks_cpu)).allowed


async def test_a_limit_on_what_the_queue_counts_is_no_request() -> None:
    seen = with_ledger(view(), reservation())
    reserved = seen.ledger.entries["job-1"].pod_sets[0]
    held = replace(reserved, price=PodPrice({GPU: 1000, "cpu": 1000}, {GPU: 1000}), flavors={"cpu": "any"})
    handler = ReviewHandler(with_ledger(seen, replace(reservation(), pod_sets=(held,))))
    injected = gang_pod()
    limited = {"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}}
    injected["spec"]["initContainers"] = [{"name": "init-pytorch", "image": "alpine:3", "resources": limited}]
    assert (await create(handler, injected)).allowed
    with_quota(seen, **{"limits.cpu": 4})
    injected["metadata"]["uid"] = "pod-9"
    assert "limits 100m cpu" in (await create(handler, injected)).message


@pytest.mark.parametrize("user", [ALICE, "", ACCOUNT, "system:serviceaccount:team-a:default"])
async def test_only_the_kinds_controller_creates_a_gangs_pods(admitted: ReviewHandler, user: str) -> None:
    answer = await create(admitted, gang_pod(), user=user)
    assert not answer.allowed
    assert "only its controller creates its pods" in answer.message


@pytest.mark.parametrize(
    ("kind", "allowed"), [("AppWrapper.workload.codeflare.dev", True), ("JobSet.jobset.x-k8s.io", False)]
)
async def test_a_deployment_that_an_app_wrapper_wraps_gets_its_pods(kind: str, allowed: bool) -> None:
    handler = ReviewHandler(with_ledger(view(), replace(reservation(), kind=kind)))
    answer = await create(handler, gang_pod(), user="system:serviceaccount:kube-system:replicaset-controller")
    assert answer.allowed is allowed


async def test_a_gang_pod_without_a_controller_owner_is_refused(admitted: ReviewHandler) -> None:
    assert "no controller owner" in (await create(admitted, gang_pod(owner=None))).message


async def test_two_controllers_are_refused(admitted: ReviewHandler) -> None:
    twice = gang_pod()
    twice["metadata"]["ownerReferences"] *= 2
    assert (await create(admitted, twice)).code == 422


@pytest.mark.parametrize("where", ["gang", "fenced"])
async def test_a_node_is_chosen_by_the_scheduler(admitted: ReviewHandler, where: str) -> None:
    obj = gang_pod() if where == "gang" else pod()
    obj["spec"]["nodeName"] = "node-7"
    assert "node-7" in (await create(admitted, obj)).message
    assert (await create(admitted, pod(nodeName="node-7"), user=SCHEDULER)).allowed


async def test_a_mirror_pod_of_a_node_passes(admitted: ReviewHandler) -> None:
    mirror = pod(nodeName="node-7")
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
    assert (await create(admitted, mirror, user="system:node:node-7")).allowed
    for other in (ALICE, "system:node:node-8", "system:serviceaccount:team-a:system:node:node-7"):
        assert not (await create(admitted, mirror, user=other)).allowed
    stranger = {"username": "system:node:node-7", "groups": ["system:authenticated"]}
    assert not (await ask(admitted, "/validate/pods", review(mirror, userInfo=stranger))).allowed


@pytest.mark.parametrize("amount", ["9E", "9223372036854776", "1e200", "9223372036854775807"])
@pytest.mark.parametrize("gated", [False, True], ids=["loose", "grouped"])
async def test_an_amount_beyond_any_pods_is_refused_with_field_value_and_fix(amount: str, gated: bool) -> None:
    obj = pod(owner=None)
    if gated:
        obj["metadata"]["labels"] |= {names.POD_GROUP_LABELS[0]: "crew", names.GANG_LABEL: gang_uid("team-a", "crew")}
        obj["spec"]["schedulingGates"] = [{"name": names.SCHEDULING_GATE}]
    obj["spec"]["containers"] = containers(memory=amount)
    answer = await create(ReviewHandler(view()), obj, user=ALICE)
    assert answer.code == 422
    assert "spec.containers[0].resources.limits.memory" in answer.message
    assert amount in answer.message
    assert "write at most 9223372036854775" in answer.message


async def test_amounts_of_many_containers_are_bounded_together() -> None:
    obj = pod(owner=None)
    obj["spec"]["containers"] = 3 * containers(memory="9223372036854775")
    answer = await create(ReviewHandler(view()), obj, user=ALICE)
    assert answer.code == 422
    assert "more than any pod can ask" in answer.message


async def test_a_resource_that_cannot_be_priced_is_refused_by_name(admitted: ReviewHandler) -> None:
    answer = await create(admitted, gang_pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "x"}]))
    assert answer.code == 422
    assert "resourceClaims" in answer.message


# -- the ledger


async def test_a_replica_whose_ledger_is_older_waits_for_it() -> None:
    seen = with_ledger(view())
    asked = asyncio.create_task(create(ReviewHandler(seen), gang_pod(version="1.2")))
    await asyncio.sleep(0)
    assert not asked.done()
    seen.set_ledger(Ledger(1, 2, {"job-1": reservation()}))
    assert (await asked).allowed


@pytest.mark.virtual_time
async def test_it_waits_half_a_second_and_refuses_retryably() -> None:
    started = asyncio.get_running_loop().time()
    answer = await create(ReviewHandler(with_ledger(view())), gang_pod(version="2.5"))
    assert asyncio.get_running_loop().time() - started == pytest.approx(0.5)
    assert answer.code == 503
    assert "admitted by ledger 2.5, this replica has seen 1.1" in answer.message


@pytest.mark.virtual_time
async def test_nobody_but_a_controller_makes_it_wait() -> None:
    started = asyncio.get_running_loop().time()
    assert not (await create(ReviewHandler(with_ledger(view())), gang_pod(version="99.99"), user=ALICE)).allowed
    assert asyncio.get_running_loop().time() == started


async def test_without_a_ledger_what_was_known_stands_and_nothing_else_starts(admitted: ReviewHandler) -> None:
    admitted.view.set_ledger(None)
    assert (await create(admitted, gang_pod())).allowed
    answer = await create(admitted, pod(gang="job-2", version="1.1"))
    assert answer.code == 503
    assert "cannot be read now" in answer.message


# -- loose pods


async def test_a_loose_pod_that_would_eat_a_reservation_is_refused_with_the_gangs_name() -> None:
    handler = ReviewHandler(with_ledger(with_quota(view(), gpu=4), reservation(count=4)))
    answer = await create(handler, pod(), user=ALICE)
    assert not answer.allowed
    assert "team-a/train" in answer.message
    assert "asks for 1" in answer.message


async def test_loose_pods_take_what_is_left_and_not_more() -> None:
    handler = ReviewHandler(with_ledger(with_quota(view(), gpu=6), reservation(count=4)))
    answers = [await create(handler, pod(uid=f"loose-{n}"), user=ALICE) for n in range(4)]
    assert [answer.allowed for answer in answers] == [True, True, False, False]


async def test_where_nothing_is_fenced_loose_pods_pass() -> None:
    handler = ReviewHandler(with_quota(view(fenced=False), gpu=0))
    assert (await create(handler, pod(), user=ALICE)).allowed


async def test_a_queue_label_on_a_bare_pod_is_warned_about() -> None:
    obj = pod()
    obj["metadata"]["labels"]["tutti.dev/queue-name"] = "research"
    answer = await create(ReviewHandler(view()), obj, user=ALICE)
    assert answer.allowed
    assert "does not wait in a queue" in answer.warnings[0]


# -- change


async def test_the_gang_label_of_a_pod_is_changed_by_our_account_alone(admitted: ReviewHandler) -> None:
    answer = await update(admitted, pod(), gang_pod())
    assert names.GANG_LABEL in answer.message
    assert not (await update(admitted, gang_pod(), pod())).allowed
    assert (await update(admitted, gang_pod(), pod(), user=ACCOUNT)).allowed


async def test_our_gate_is_removed_by_our_account_alone(admitted: ReviewHandler) -> None:
    held = pod(schedulingGates=[{"name": names.SCHEDULING_GATE}, {"name": "other"}])
    assert names.SCHEDULING_GATE in (await update(admitted, held, pod())).message
    assert (await update(admitted, held, pod(), user=ACCOUNT)).allowed
    one_left = pod(schedulingGates=[{"name": names.SCHEDULING_GATE}])
    assert (await update(admitted, held, one_left)).allowed


async def test_a_gang_pod_is_not_given_to_another_controller(admitted: ReviewHandler) -> None:
    assert not (await update(admitted, gang_pod(), gang_pod(owner="job-7"))).allowed
    assert not (await update(admitted, gang_pod(), gang_pod(owner=None))).allowed
    collector = "system:serviceaccount:kube-system:generic-garbage-collector"
    assert (await update(admitted, gang_pod(), gang_pod(owner=None), user=collector)).allowed


async def test_a_pod_that_is_being_deleted_loses_its_finalizers_freely_and_nothing_of_ours(
    admitted: ReviewHandler,
) -> None:
    """It may run on for as long as its owner chose. Who could take it out of its gang would have the room twice."""
    old, freed, relabelled, given = gang_pod(), gang_pod(), pod(), gang_pod(owner="job-7")
    old["metadata"]["finalizers"] = ["example.org/accounting"]
    for each in (old, freed, relabelled, given):
        each["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (await update(admitted, old, freed)).allowed
    assert names.GANG_LABEL in (await update(admitted, old, relabelled)).message
    assert not (await update(admitted, old, given)).allowed


async def test_ephemeral_containers_pass(admitted: ReviewHandler) -> None:
    debugged = gang_pod(ephemeralContainers=[{"name": "debug", "image": "busybox"}])
    assert (await update(admitted, gang_pod(), debugged, subresource="ephemeralcontainers")).allowed


async def test_a_gang_pod_is_not_resized_past_its_place() -> None:
    handler = ReviewHandler(with_ledger(with_quota(view(), **{"requests.cpu": 64}), reservation()))
    larger = gang_pod()
    larger["spec"]["containers"] = containers(gpu="1", cpu="2")
    assert not (await update(handler, gang_pod(), larger, subresource="resize")).allowed
    assert (await update(handler, larger, gang_pod(), subresource="resize")).allowed


async def test_a_loose_pod_is_resized_within_what_is_left() -> None:
    seen: View = with_quota(view(), **{"requests.cpu": 4, "pods": 1})
    small, large = pod(), pod()
    small["spec"]["containers"], large["spec"]["containers"] = containers(cpu="1"), containers(cpu="4")
    handler = ReviewHandler(seen)
    seen.fences.put_pod(record("pod-1"))
    assert (await update(handler, small, large, subresource="resize")).allowed
    large["spec"]["containers"] = containers(cpu="6")
    assert not (await update(handler, small, large, subresource="resize")).allowed


async def test_a_pod_that_has_not_shrunk_yet_may_be_resized_to_what_it_still_holds() -> None:
    seen: View = with_quota(view(), **{"requests.cpu": 4})
    shrinking, halfway, beyond = pod(), pod(), pod()
    for obj, cpu in ((shrinking, "1"), (halfway, "3"), (beyond, "5")):
        obj["spec"]["containers"] = containers(cpu=cpu)
        name = obj["spec"]["containers"][0]["name"]
        obj["status"] = {"containerStatuses": [{"name": name, "resources": {"requests": {"cpu": "4"}}}]}
    seen.fences.put_pod(decode(orjson.dumps(shrinking)))
    handler = ReviewHandler(seen)
    assert (await update(handler, shrinking, halfway, subresource="resize")).allowed
    assert not (await update(handler, shrinking, beyond, subresource="resize")).allowed


async def test_an_unknown_subresource_is_refused(admitted: ReviewHandler) -> None:
    assert (await update(admitted, pod(), pod(), subresource="newthing")).code == 400


async def test_deletion_passes(admitted: ReviewHandler) -> None:
    assert (await ask(admitted, "/validate/pods", review(None, old=gang_pod(), operation="DELETE"))).allowed


@dataclass
class At:
    """A clock that stands."""

    seconds: float

    def now(self) -> float:
        return self.seconds


GRACE_OVER = "2026-01-01T00:30:00Z"


@pytest.mark.parametrize("where", ["gone", "on a node that does not answer", "never on a node"])
async def test_a_pod_that_is_being_deleted_has_its_place_until_it_is_gone_or_its_grace_period_is_over(
    where: str,
) -> None:
    """Else whoever deletes pods and their replacements again and again runs one more each time."""
    clock = At(seconds(GRACE_OVER) - 1)
    handler = ReviewHandler(with_ledger(view(), reservation(count=4)), clock=clock)
    for number in range(4):
        assert (await create(handler, gang_pod(number))).allowed
        handler.view.fences.put_pod(decode(orjson.dumps(leaving(number))))
    answer = await create(handler, gang_pod(4))
    assert answer.code == 429
    assert "0 exist or are being created, and 4 more are being deleted and may still run" in answer.message
    if where == "gone":
        handler.view.fences.drop_pod("team-a", "pod-0")
    elif where == "never on a node":
        handler.view.fences.put_pod(decode(orjson.dumps(leaving(0, node=""))))
    else:
        clock.seconds += 1
    assert (await create(handler, gang_pod(4))).allowed


def leaving(number: int, node: str = "node-1") -> dict[str, Any]:
    pod = gang_pod(number)
    pod["metadata"]["deletionTimestamp"] = GRACE_OVER
    pod["spec"]["nodeName"] = node
    return pod
