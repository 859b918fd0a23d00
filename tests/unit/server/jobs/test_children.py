"""Child objects run with their owner, and scale requests are judged by their parent."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import load, special
from tests.unit.server.reviews import (
    ALICE,
    JOBSET_CONTROLLER,
    Answered,
    ask,
    containers,
    job,
    reservation,
    review,
    view,
    with_ledger,
)
from webhook.cluster.view import View
from webhook.core.ledger.record import Ledger
from webhook.core.model.policy import LocalQueue
from webhook.core.notation import names
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.job import read
from webhook.server.handler import ReviewHandler

JOBSET = KINDS["JobSet.jobset.x-k8s.io"]
TRAINJOB = "TrainJob.trainer.kubeflow.org"
OWNER = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "name": "train",
    "uid": "set-1",
    "controller": True,
}


def jobset(*, queue: str | None = "research") -> dict[str, Any]:
    labels = {} if queue is None else {"tutti.dev/queue-name": queue}
    pods = {"spec": {"containers": containers(gpu="1")}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "team-a", "uid": "set-1", "labels": labels},
        "spec": {
            "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": pods}}}]
        },
    }


def known(seen: View, obj: dict[str, Any]) -> View:
    """Put a JobSet into the view as it is stored: marked and suspended when it is gated."""
    gated = bool(obj["metadata"]["labels"])
    seen.put_job(read(JOBSET, marked(JOBSET, obj) if gated else obj, ReadContext()))
    return seen


def child(*, suspend: bool, gang: str | None = names.GANG_PENDING, version: str | None = None) -> dict[str, Any]:
    obj = job("train-w-0", queue=None)
    obj["metadata"] |= {"uid": "child-1", "ownerReferences": [OWNER]}
    obj["spec"]["suspend"] = suspend
    if gang is not None:
        obj["spec"]["template"]["metadata"] = {"labels": {names.GANG_LABEL: gang, names.POD_SET_LABEL: "w"}}
    if version is not None:
        obj["spec"]["template"]["metadata"]["annotations"] = {names.LEDGER_VERSION: version}
    return obj


async def create(seen: View, obj: dict[str, Any], user: str = JOBSET_CONTROLLER) -> Answered:
    return await ask(ReviewHandler(seen), "/validate/jobs", review(obj, user=user))


async def update(seen: View, old: dict[str, Any], new: dict[str, Any], user: str = JOBSET_CONTROLLER) -> Answered:
    return await ask(ReviewHandler(seen), "/validate/jobs", review(new, old=old, operation="UPDATE", user=user))


async def test_a_suspended_child_is_written_by_its_owners_controller() -> None:
    assert (await create(known(view(), jobset()), child(suspend=True))).allowed


async def test_a_running_child_of_a_waiting_owner_is_refused() -> None:
    answer = await create(known(view(), jobset()), child(suspend=False))
    assert not answer.allowed
    assert "JobSet train is not admitted" in answer.message


async def test_a_running_child_of_an_admitted_owner_passes() -> None:
    seen = with_ledger(known(view(), jobset()), reservation("set-1"))
    assert (await create(seen, child(suspend=False, gang="set-1", version="1.1"))).allowed


async def test_a_running_child_of_an_owner_being_stopped_is_refused() -> None:
    seen = with_ledger(known(view(), jobset()), reservation("set-1", stopping="Preempted"))
    assert "is being stopped" in (await create(seen, child(suspend=False, gang="set-1"))).message


async def test_children_of_an_owner_that_is_not_gated_run_freely() -> None:
    assert (await create(known(view(), jobset(queue=None)), child(suspend=False, gang=None))).allowed


async def test_an_unmarked_child_of_an_owner_not_seen_yet_runs_freely() -> None:
    assert (await create(view(), child(suspend=False, gang=None))).allowed


async def test_a_marked_child_of_an_owner_not_seen_yet_does_not() -> None:
    assert not (await create(view(), child(suspend=False))).allowed


async def test_its_start_waits_for_the_ledger_that_admitted_it() -> None:
    seen = known(view(), jobset())
    handler = ReviewHandler(seen)
    body = review(child(suspend=False, gang="set-1", version="1.7"), user=JOBSET_CONTROLLER)
    import asyncio

    asked = asyncio.create_task(ask(handler, "/validate/jobs", body))
    await asyncio.sleep(0)
    assert not asked.done()
    seen.set_ledger(Ledger(1, 7, {"set-1": reservation("set-1")}))
    assert (await asked).allowed


@pytest.mark.virtual_time
async def test_a_ledger_that_stays_behind_is_a_retryable_refusal() -> None:
    answer = await create(known(view(), jobset()), child(suspend=False, gang="set-1", version="1.7"))
    assert answer.code == 503
    assert "1.7" in answer.message


async def test_a_user_does_not_start_a_child() -> None:
    seen = with_ledger(known(view(), jobset()), reservation("set-1"))
    answer = await update(seen, child(suspend=True), child(suspend=False), user=ALICE)
    assert not answer.allowed
    assert "controller starts it" in answer.message


async def test_a_user_does_not_relabel_a_child() -> None:
    seen = known(view(), jobset())
    assert not (await update(seen, child(suspend=True), child(suspend=True, gang="other"), user=ALICE)).allowed


async def test_a_user_changes_no_label_by_which_the_owners_controller_knows_a_child() -> None:
    """Without the number of attempts a JobSet's controller fails on the whole JobSet, and stops nothing of it."""
    seen, key = with_ledger(known(view(), jobset()), reservation("set-1")), "jobset.sigs.k8s.io/restart-attempt"

    def labelled(**labels: str) -> dict[str, Any]:
        made = child(suspend=False, gang="set-1")
        made["metadata"]["labels"] = labels
        return made

    old = labelled(**{key: "0", "app.kubernetes.io/name": "x"})
    for changed in ({}, {key: "1"}):
        answer = await update(seen, old, labelled(**changed), user=ALICE)
        assert f"label {key} of what belongs to the gang of JobSet train cannot change" in answer.message
    assert (await update(seen, old, labelled(**{key: "0", "team": "b"}), user=ALICE)).allowed
    assert (await update(seen, old, labelled(), user=JOBSET_CONTROLLER)).allowed


async def test_the_controller_may_resume_and_relabel_children_of_an_admitted_owner() -> None:
    seen = with_ledger(known(view(), jobset()), reservation("set-1"))
    assert (await update(seen, child(suspend=True), child(suspend=False, gang="set-1", version="1.1"))).allowed


async def test_the_controller_may_write_status_and_labels_of_a_waiting_child() -> None:
    new = child(suspend=True)
    new["metadata"]["labels"] = {"x": "y"}
    assert (await update(known(view(), jobset()), child(suspend=True), new)).allowed


# -- what its controller would make again


GATED = {names.GATED_NAMESPACE: "policy"}
COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
SHARED_ACCOUNT = "system:kube-controller-manager"
"""The collector's too, where controllers have no accounts of their own."""


def unmarked(*, labels: dict[str, str] | None = None, owned: bool = True) -> tuple[View, dict[str, Any]]:
    """Return what was running before Tutti came, a Job of a JobSet without any mark, and a view of its namespace."""
    seen, obj = view(), child(suspend=False, gang=None)
    if labels is None:
        seen.policy = replace(seen.policy, local_queues={("team-a", "q"): LocalQueue("team-a", "q", "research")})
    else:
        seen.namespaces["team-a"] = labels
    if not owned:
        del obj["metadata"]["ownerReferences"]
    return seen, obj


async def delete(seen: View, obj: dict[str, Any], **asked: Any) -> Answered:
    options = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"} | asked
    return await ask(ReviewHandler(seen), "/validate/jobs", review(None, old=obj, operation="DELETE", options=options))


@pytest.mark.parametrize("labels", [None, GATED], ids=["beside queues", "where all jobs wait"])
@pytest.mark.parametrize("asked", [{}, {"propagationPolicy": "Orphan"}, {"orphanDependents": True}], ids=str)
async def test_a_child_is_not_deleted_from_above_its_pods(asked: dict[str, Any], labels: dict[str, str] | None) -> None:
    """Its controller would make it again: four pods would run of a set that is charged for two."""
    answer = await delete(*unmarked(labels=labels), **asked)
    assert not answer.allowed
    assert "it belongs to JobSet train, whose controller would make it again" in answer.message


@pytest.mark.parametrize("asked", [{"propagationPolicy": "Background"}, {"propagationPolicy": "Foreground"}], ids=str)
async def test_a_child_is_deleted_with_its_pods_freely(asked: dict[str, Any]) -> None:
    assert (await delete(*unmarked(), **asked)).allowed


async def test_where_nothing_waits_and_of_jobs_of_their_own_anything_is_deleted() -> None:
    assert (await delete(*unmarked(labels={}))).allowed
    assert (await delete(*unmarked(labels={names.GATED_NAMESPACE: "false"}))).allowed
    assert (await delete(*unmarked(owned=False))).allowed


async def test_other_kinds_are_orphaned_by_who_says_so_or_by_their_finalizer() -> None:
    seen, made = unmarked()[0], load("jobset")
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "train", "uid": "train-1"}
    made["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    assert (await delete(seen, made)).allowed
    made["metadata"]["finalizers"] = ["orphan"]
    assert not (await delete(seen, made)).allowed
    assert (await delete(seen, made, propagationPolicy="Background")).allowed


async def test_a_replica_that_has_just_started_does_not_know_yet_whether_there_are_queues() -> None:
    seen, obj = unmarked()
    seen.unsynced.add("localqueues")
    assert (await delete(seen, obj)).code == 503


@pytest.mark.parametrize("labels", [None, GATED], ids=["beside queues", "where all jobs wait"])
@pytest.mark.parametrize(
    "left", [[], [OWNER | {"controller": False}], [OWNER | {"uid": "another"}], [OWNER | {"kind": "Another"}]], ids=str
)
async def test_nobody_takes_a_child_from_its_owner(left: list[dict[str, Any]], labels: dict[str, str] | None) -> None:
    """Nor makes it look like another's: nobody would know it for a child then."""
    seen, old = unmarked(labels=labels)
    new = copy.deepcopy(old)
    new["metadata"]["ownerReferences"] = left
    answer = await update(seen, old, new, ALICE)
    assert not answer.allowed
    assert "its controller would make it again" in answer.message.replace("whose", "its")
    assert (await update(unmarked(labels={})[0], old, new, ALICE)).allowed
    assert (await update(seen, old, new, COLLECTOR)).allowed
    assert (await update(seen, old, new, SHARED_ACCOUNT)).allowed


# -- scale


def scale(replicas: Any) -> dict[str, Any]:
    metadata = {"name": "train", "namespace": "team-a", "uid": "set-1"}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}


async def rescale(seen: View, old: int, new: Any) -> Answered:
    request = {"resource": {"group": "jobset.x-k8s.io", "version": "v1alpha2", "resource": "jobsets"}}
    body = review(scale(new), old=scale(old), operation="UPDATE", subresource="scale")
    import orjson

    document = orjson.loads(body)
    document["request"] |= request
    return await ask(ReviewHandler(seen), "/validate/jobs", orjson.dumps(document))


async def test_an_admitted_gang_is_not_scaled_up() -> None:
    seen = with_ledger(known(view(), jobset()), reservation("set-1"))
    answer = await rescale(seen, 2, 3)
    assert not answer.allowed
    assert "from 2 to 3 replicas" in answer.message


async def test_it_is_scaled_down_freely() -> None:
    seen = with_ledger(known(view(), jobset()), reservation("set-1"))
    assert (await rescale(seen, 2, 1)).allowed


async def test_a_waiting_gang_is_scaled_freely() -> None:
    assert (await rescale(known(view(), jobset()), 2, 9)).allowed


async def test_what_waits_for_nobody_is_scaled_freely() -> None:
    """Of such an object no record is kept: only that it was read."""
    seen = view()
    seen.put_controller("set-1", "team-a", "")
    assert (await rescale(seen, 2, 9)).allowed


async def test_what_was_made_for_an_admitted_gang_is_not_scaled_up() -> None:
    seen = with_ledger(view(), reservation("train-1", kind=TRAINJOB))
    seen.put_controller("set-1", "team-a", "train-1")
    assert "runs as a gang with a reservation" in (await rescale(seen, 2, 3)).message


async def test_an_orphan_that_is_stopped_is_scaled_freely_though_its_gang_holds_its_room() -> None:
    seen = with_ledger(known(view(), jobset()), reservation("train-1", kind=TRAINJOB))
    seen.put_controller("set-1", "team-a", "", made_for="train-1")
    assert (await rescale(seen, 2, 3)).allowed


async def test_the_scale_of_an_unknown_parent_is_a_retryable_refusal() -> None:
    """A job of that name which was read before it may have waited for nobody."""
    seen = view()
    assert (await rescale(seen, 2, 3)).code == 503
    seen.put_controller("set-0", "team-a", "")
    seen.job_names[JOBSET.key, "team-a", "train"] = "set-0"
    assert (await rescale(seen, 2, 3)).code == 503


@pytest.mark.parametrize("replicas", ["3", -1, True, 1.5])
async def test_a_scale_that_is_no_number_is_malformed(replicas: Any) -> None:
    assert (await rescale(view(), 2, replicas)).code == 422


def test_builders_do_not_share_state() -> None:
    first = child(suspend=True)
    assert first is not child(suspend=True)
    assert copy.deepcopy(first) == child(suspend=True)


# -- an owner that is only claimed


@pytest.mark.parametrize("user", [ALICE, "system:serviceaccount:default:jobset-controller-manager"])
@pytest.mark.parametrize("queue", ["research", None], ids=["in a queue", "in a gated namespace"])
async def test_who_only_claims_an_owner_is_refused_and_told_what_an_operator_lacks(
    user: str, queue: str | None
) -> None:
    """It was stored suspended, started by nobody, and said nowhere why: an operator installed elsewhere stood still."""
    seen = view()
    seen.namespaces["team-a"] = {names.GATED_NAMESPACE: "true"}
    handler = ReviewHandler(known(seen, jobset()))
    claimed = job("train-w-0", queue=queue)
    claimed["metadata"]["ownerReferences"] = [OWNER]
    stored = (await ask(handler, "/mutate/jobs", review(claimed, user=user))).applied(claimed)
    answer = await ask(handler, "/validate/jobs", review(stored, user=user))
    assert not answer.allowed
    assert f"it names JobSet train as its controller, and {user} is not known" in answer.message
    assert "controllerUsers of JobSet.jobset.x-k8s.io" in answer.message


@pytest.mark.parametrize(
    "controller",
    [
        ("batch/v1", "CronJob"),
        ("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication"),
        ("keda.sh/v1alpha1", "ScaledJob"),
        ("kubeflow.org/v1beta1", "Trial"),
        ("argoproj.io/v1alpha1", "Workflow"),
        ("argoproj.io/v1alpha1", "CronWorkflow"),
    ],
    ids=lambda each: each[1],
)
@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_whatever_else_controls_a_job_leaves_it_a_gang_of_its_own(kind: str, controller: tuple[str, str]) -> None:
    version, name = controller
    special_ones = {"Job.batch.volcano.sh": "volcanojob", "Workflow.argoproj.io": "workflow", TRAINJOB: "trainjob"}
    made = special(special_ones[kind]) if kind in special_ones else load(KINDS[kind].kind.lower())
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": version, "kind": name, "name": "nightly", "uid": "cron-1", "controller": True}
    ]
    assert read(KINDS[kind], made, ReadContext()).is_ours
