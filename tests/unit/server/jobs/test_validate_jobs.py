"""What may be stored: at creation, and as a change of what waits or runs."""

import copy
from typing import Any

import pytest

from tests.unit.server.reviews import (
    ACCOUNT,
    ALICE,
    GPU,
    JOB_CONTROLLER,
    Answered,
    ask,
    containers,
    create,
    job,
    reservation,
    review,
    stored,
    view,
    with_ledger,
)
from webhook.cluster.view import View
from webhook.core.notation import names
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.annotations import encode_admission, encode_hold
from webhook.jobs.reading.job import read
from webhook.jobs.reading.ours import OWN_ANNOTATIONS
from webhook.jobs.reading.record import Admission
from webhook.server.handler import ReviewHandler
from webhook.server.review.settings import ReviewSettings

JOB = KINDS["Job.batch"]
HOLD = names.HOLD


def running(**more: Any) -> dict[str, Any]:
    """Return a Job that Tutti has started."""
    obj = stored(suspend=False, **more)
    template = obj["spec"]["template"]["metadata"]
    template["labels"][names.GANG_LABEL] = obj["metadata"]["uid"]
    template["annotations"] = {names.LEDGER_VERSION: "1.1"}
    return obj


async def update(handler: ReviewHandler, old: dict[str, Any], new: dict[str, Any], user: str = ALICE) -> Answered:
    return await ask(handler, "/validate/jobs", review(new, old=old, operation="UPDATE", user=user))


def changed(obj: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**copy.deepcopy(obj), "spec": {**copy.deepcopy(obj["spec"]), **spec}}


def admitted(pods: int = 4) -> ReviewHandler:
    """Return a handler whose ledger holds the Job's reservation: pods of 1 GPU, 4 CPUs, 16 GiB."""
    record = read(JOB, running(), ReadContext())
    assert record.gang is not None
    held = reservation()
    priced = held.pod_sets[0].__class__("main", pods, record.gang.pod_sets[0].price, {GPU: "default"})
    return ReviewHandler(with_ledger(view(), held.__class__(**{**_fields(held), "pod_sets": (priced,)})))


def _fields(held: Any) -> dict[str, Any]:
    return {name: getattr(held, name) for name in held.__slots__}


@pytest.fixture
def waiting() -> ReviewHandler:
    return ReviewHandler(view())


# -- creation


async def test_a_marked_and_suspended_job_is_stored(waiting: ReviewHandler) -> None:
    assert (await create(waiting, stored())).allowed


async def test_a_job_that_was_not_suspended_is_refused(waiting: ReviewHandler) -> None:
    answer = await create(waiting, stored(suspend=False))
    assert not answer.allowed
    assert "spec.suspend: true" in answer.message


async def test_a_job_whose_template_is_not_marked_is_refused(waiting: ReviewHandler) -> None:
    obj = stored()
    del obj["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL]
    assert names.GANG_LABEL in (await create(waiting, obj)).message


async def test_a_suspend_field_that_the_served_schema_lacks_is_named(waiting: ReviewHandler) -> None:
    obj = stored()
    del obj["spec"]["suspend"]
    message = (await create(waiting, obj)).message
    assert "the definition of Job batch/v1 that this cluster serves has no field spec.suspend" in message
    assert "has no field" not in (await create(waiting, stored(suspend=False))).message


async def test_a_train_job_of_a_trainer_without_runtime_patches_is_told_which_one_it_needs() -> None:
    runtime = {
        "metadata": {"name": "torch"},
        "spec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": _job_template()}]}}},
    }
    context = ReadContext(training_runtimes={("", "torch"): runtime})
    handler = ReviewHandler(view(), context=lambda: context)
    obj = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "t", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}},
        "spec": {"runtimeRef": {"name": "torch"}},
    }
    held: dict[str, Any] = copy.deepcopy(marked(KINDS["TrainJob.trainer.kubeflow.org"], obj, context))
    assert (await create(handler, held)).allowed
    del held["spec"]["runtimePatches"]
    answer = await create(handler, held)
    assert not answer.allowed
    assert (
        "has no field spec.runtimePatches, and the API server dropped it: install Kubeflow Trainer 2.2"
        in answer.message
    )


def _job_template() -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": containers(gpu="1")}}}}


async def test_a_job_with_a_forged_admission_is_refused(waiting: ReviewHandler) -> None:
    obj = stored()
    obj["metadata"]["annotations"] = {names.ADMISSION: "{}"}
    answer = await create(waiting, obj)
    assert answer.code == 403
    assert names.ADMISSION in answer.message


async def test_a_job_without_a_queue_may_run(waiting: ReviewHandler) -> None:
    assert (await create(waiting, job(queue=None))).allowed


@pytest.mark.parametrize("suspend", ["true", 1, {}])
async def test_a_suspend_field_of_another_type_is_malformed(waiting: ReviewHandler, suspend: Any) -> None:
    assert (await create(waiting, changed(stored(), suspend=suspend))).code == 422


async def test_a_quorum_above_the_pods_is_refused_with_both_numbers(waiting: ReviewHandler) -> None:
    obj = stored()
    obj["spec"]["template"]["metadata"]["labels"] |= {names.MIN_AVAILABLE_LABEL: "5"}
    answer = await create(waiting, obj)
    assert answer.code == 422
    assert "5" in answer.message
    assert "4" in answer.message


async def test_priorities_that_differ_within_a_gang_are_refused() -> None:
    def replicas(priority: str) -> dict[str, Any]:
        template = {"spec": {"priorityClassName": priority, "containers": containers(gpu="1")}}
        return {"replicas": 1, "template": template}

    obj = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "t", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}},
        "spec": {"pytorchReplicaSpecs": {"Master": replicas("high"), "Worker": replicas("low")}},
    }
    context = ReadContext(priority_classes={"high": 10, "low": 1})
    handler = ReviewHandler(view(), context=lambda: context)
    held = dict(marked(KINDS["PyTorchJob.kubeflow.org"], obj))
    answer = await create(handler, held)
    assert answer.code == 422
    assert "high, low" in answer.message


async def test_a_fraction_of_a_gpu_is_refused(waiting: ReviewHandler) -> None:
    answer = await create(waiting, stored(gpu="500m"))
    assert answer.code == 422
    assert "only whole ones" in answer.message


async def test_a_resource_claim_is_refused_by_name(waiting: ReviewHandler) -> None:
    obj = stored()
    obj["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "x"}]
    answer = await create(waiting, obj)
    assert answer.code == 422
    assert "resourceClaims" in answer.message


async def test_a_template_that_names_its_node_is_refused_since_its_pods_would_be(waiting: ReviewHandler) -> None:
    preset = stored()
    preset["spec"]["template"]["spec"]["nodeName"] = "node-7"
    told = "pod set main presets spec.nodeName to 'node-7'"
    assert told in (await create(waiting, preset)).message
    assert told in (await update(waiting, stored(), preset)).message


async def test_a_breach_of_the_compute_class_rules_is_refused(waiting: ReviewHandler) -> None:
    obj = stored()
    obj["spec"]["template"]["metadata"]["labels"]["alibabacloud.com/compute-class"] = "gpuu"
    answer = await create(waiting, obj)
    assert answer.code == 422
    assert "gpuu" in answer.message


# -- start and hold


async def test_nobody_but_our_account_un_suspends(waiting: ReviewHandler) -> None:
    answer = await update(waiting, stored(), stored(suspend=False))
    assert not answer.allowed
    assert "waits in queue research" in answer.message
    assert (await update(waiting, stored(), running(), user=ACCOUNT)).allowed


@pytest.mark.parametrize("user", ["", "system:serviceaccount:tutti-system:tutti-webhook", JOB_CONTROLLER])
async def test_other_accounts_do_not_un_suspend_either(waiting: ReviewHandler, user: str) -> None:
    assert not (await update(waiting, stored(), stored(suspend=False), user=user)).allowed


async def test_taking_the_label_off_and_starting_in_one_step_is_refused(waiting: ReviewHandler) -> None:
    free = stored(suspend=False, queue=None)
    assert not (await update(waiting, stored(), free)).allowed


async def test_an_owner_may_suspend_a_running_job() -> None:
    assert (await update(admitted(), running(), changed(running(), suspend=True))).allowed


async def test_a_hold_is_not_taken_off_without_un_suspending_by_others_either(waiting: ReviewHandler) -> None:
    old = stored()
    old["metadata"]["annotations"] = {HOLD: encode_hold("job-1")}
    # What the mutating phase leaves of an un-suspend: still suspended, the hold gone.
    assert (await update(waiting, old, stored())).allowed
    started = changed(old, suspend=False)
    assert not (await update(waiting, old, started)).allowed


# -- running


@pytest.mark.parametrize(
    ("grown", "told"),
    [
        ({"parallelism": 5, "completions": 5}, "5 pods, 4 are reserved"),
        ({"template": "gpu"}, "2 nvidia.com/gpu, 1 is reserved"),
    ],
)
async def test_a_running_gang_does_not_grow(grown: dict[str, Any], told: str) -> None:
    if grown.get("template") == "gpu":
        grown = {"template": running(gpu="2")["spec"]["template"]}
    answer = await update(admitted(), running(), changed(running(), **grown))
    assert not answer.allowed
    assert told in answer.message


async def test_a_running_gang_may_shrink_and_come_back() -> None:
    small = changed(running(), parallelism=2)
    assert (await update(admitted(), running(), small)).allowed
    assert (await update(admitted(), small, running())).allowed


async def test_a_running_gang_with_little_left_to_do_may_come_back_and_no_more_than_that() -> None:
    """What it was started with is for what was left of it, less than its parallelism."""
    handler = admitted(2)
    indexed = changed(running(), completionMode="Indexed", parallelism=6, completions=6)
    indexed["status"] = {"completedIndexes": "1-4", "succeeded": 4}
    smaller = changed(indexed, parallelism=1)
    assert (await update(handler, indexed, smaller)).allowed
    assert (await update(handler, smaller, indexed)).allowed
    answer = await update(handler, indexed, changed(indexed, parallelism=7, completions=7))
    assert "3 pods, 2 are reserved" in answer.message


async def test_a_running_job_without_a_reservation_does_not_grow_either() -> None:
    answer = await update(ReviewHandler(view()), running(), changed(running(), parallelism=9, completions=9))
    assert "9 pods, 4 are reserved" in answer.message


def workflow(gpus: int, *, suspend: bool = False, since: float | None = None) -> dict[str, Any]:
    """Return a Workflow; ``since`` is when it was admitted, as its note says."""
    metadata = {"name": "flow", "namespace": "team-a", "uid": "flow-1", "labels": {names.QUEUE_LABELS[0]: "gpu"}}
    metadata["annotations"] = {"kube-queue/min-resources": f"nvidia.com/gpu: {gpus}"}
    if since is not None:
        started = Admission("flow-1", 1, 1, "gpu", {"main": 1}, since_seconds=since)
        metadata["annotations"] |= {names.ADMISSION: encode_admission(started)}
    spec = {"suspend": suspend, "templates": []}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("since", "held", "fine"),
    [
        (0.0, {"evictable": False}, True),
        (None, {"evictable": False, "adopted": True}, True),
        (None, {"evictable": False}, False),
        (7.0, {"evictable": False}, False),
        (0.0, None, False),
        (0.0, {"evictable": False, "stopping": "Preempted"}, False),
        (0.0, {}, False),
    ],
    ids=["started", "adopted", "not started", "started before", "without room", "being stopped", "it can be stopped"],
)
async def test_what_cannot_be_stopped_is_resumed_by_its_owner_while_it_holds_its_room(
    since: float | None, held: dict[str, Any] | None, fine: bool
) -> None:
    """``argo suspend`` only pauses a Workflow: its pods go on, and ``argo resume`` was refused for ever."""
    entries = [] if held is None else [reservation("flow-1", name="flow", kind="Workflow.argoproj.io", **held)]
    paused, resumed = (workflow(2, suspend=suspend, since=since) for suspend in (True, False))
    handler = ReviewHandler(with_ledger(view(), *entries))
    assert (await update(handler, resumed, paused)).allowed
    assert (await update(handler, paused, resumed)).allowed is fine


async def test_what_a_running_workflow_says_it_asks_does_not_grow() -> None:
    """Its size is an annotation, from which a lost ledger would be rebuilt."""
    answer = await update(ReviewHandler(view()), workflow(2), workflow(3))
    assert "3 nvidia.com/gpu, 2 is reserved" in answer.message
    assert (await update(ReviewHandler(view()), workflow(2), workflow(1))).allowed


async def test_a_waiting_gang_may_change_its_size(waiting: ReviewHandler) -> None:
    assert (await update(waiting, stored(), stored(parallelism=16))).allowed


@pytest.mark.parametrize(("limit", "fine"), [("600", True), ("0", False), ("-5", False), ("1h", False)])
async def test_a_run_time_limit_is_seconds_whenever_it_is_written(
    waiting: ReviewHandler, limit: str, fine: bool
) -> None:
    new = stored()
    new["metadata"]["labels"][names.MAX_EXECUTION_LABEL] = limit
    for answer in (await create(waiting, new), await update(waiting, stored(), new)):
        assert answer.allowed is fine
        assert fine or "is not a run time" in answer.message
    renamed = copy.deepcopy(new)
    renamed["metadata"]["labels"]["mine"] = "1"
    assert (await update(waiting, new, renamed)).allowed, "what was stored so before stays editable"


async def test_a_suspended_gang_with_a_reservation_does_not_grow() -> None:
    """It may be un-suspended at any moment: the reservation was written for the size it had."""
    answer = await update(admitted(), stored(), stored(parallelism=16))
    assert "16 pods, 4 are reserved" in answer.message


@pytest.mark.parametrize("queue", ["other", None])
async def test_a_running_job_keeps_its_queue(queue: str | None) -> None:
    new = running()
    new["metadata"]["labels"] = {} if queue is None else {"kueue.x-k8s.io/queue-name": queue}
    answer = await update(admitted(), running(), new)
    assert not answer.allowed
    assert "queue research" in answer.message


async def test_a_waiting_job_may_change_its_queue(waiting: ReviewHandler) -> None:
    assert (await update(waiting, stored(), stored(queue="other"))).allowed


async def test_a_job_that_runs_outside_every_queue_is_not_labelled(waiting: ReviewHandler) -> None:
    answer = await update(waiting, job(queue=None), job())
    assert not answer.allowed
    assert "is already running unqueued" in answer.message


@pytest.mark.parametrize("key", sorted(OWN_ANNOTATIONS))
async def test_our_annotations_are_ours(key: str) -> None:
    new = running()
    new["metadata"]["annotations"] = {key: "x"}
    answer = await update(admitted(), running(), new)
    assert key in answer.message


async def test_the_gang_label_of_a_template_is_ours(waiting: ReviewHandler) -> None:
    new = stored()
    new["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] = "job-2"
    assert names.GANG_LABEL in (await update(waiting, stored(), new)).message


async def test_an_edit_that_makes_a_waiting_job_unreadable_is_told_what_is_wrong(waiting: ReviewHandler) -> None:
    old, new = stored(), stored()
    new["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "many"}
    answer = await update(waiting, old, new)
    assert answer.code == 422
    assert "job-min-parallelism" in answer.message
    assert "many" in answer.message


async def test_a_gang_is_not_given_to_another_owner(waiting: ReviewHandler) -> None:
    new = stored()
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "s", "controller": True}
    new["metadata"]["ownerReferences"] = [owner]
    answer = await update(waiting, stored(), new)
    assert not answer.allowed
    assert "ownerReference" in answer.message


async def test_status_finalizers_and_labels_of_a_running_job_change_freely() -> None:
    new = running()
    new["metadata"] |= {"finalizers": ["x"], "annotations": {"mine": "1"}}
    new["status"] = {"active": 4}
    assert (await update(admitted(), running(), new)).allowed
    body = review(new, old=running(), operation="UPDATE", subresource="status", user=JOB_CONTROLLER)
    assert (await ask(admitted(), "/validate/jobs", body)).allowed


@pytest.mark.parametrize("key", [names.MIN_PARALLELISM, names.COMPLETIONS_FOLLOW])
async def test_an_annotation_from_which_a_size_is_read_is_judged_where_nothing_else_changes(
    waiting: ReviewHandler, key: str
) -> None:
    new = stored()
    new["metadata"]["annotations"] = {"mine": "1", key: "many"}
    assert not (await update(waiting, stored(), new)).allowed


async def test_what_cannot_be_read_may_lose_its_finalizers_while_it_runs() -> None:
    new = running()
    new["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu"}]
    old = copy.deepcopy(new)
    old["metadata"]["finalizers"] = ["x"]
    assert (await update(admitted(), old, new)).allowed


async def test_a_suspend_field_of_another_type_is_malformed_when_nothing_changes_either(waiting: ReviewHandler) -> None:
    obj = changed(stored(), suspend="true")
    assert (await update(waiting, obj, copy.deepcopy(obj))).code == 422


async def test_deletion_is_never_hindered() -> None:
    assert (await ask(admitted(), "/validate/jobs", review(None, old=running(), operation="DELETE"))).allowed
    new = changed(running(), parallelism=99, completions=99)
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (await update(admitted(), running(), new)).allowed


# -- what is not gated


async def test_an_opt_in_on_a_deployment_is_warned_about(waiting: ReviewHandler) -> None:
    obj = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}},
        "spec": {"template": {"metadata": {}, "spec": {"containers": []}}},
    }
    answer = await create(waiting, obj)
    assert answer.allowed
    assert "Deployment" in answer.warnings[0]
    obj["metadata"]["labels"] = {}
    assert (await create(waiting, obj)).warnings == []


async def test_a_managed_job_of_another_controller_is_not_ours(waiting: ReviewHandler) -> None:
    assert (await create(waiting, changed(job(), managedBy="example.com/other"))).allowed


async def test_where_kueue_serves_its_label_is_left_to_it() -> None:
    handler = ReviewHandler(view(), ReviewSettings(left_to_kueue=True))
    assert (await create(handler, job())).allowed
    ours = job(queue=None)
    ours["metadata"]["labels"] = {"tutti.dev/queue-name": "research"}
    assert not (await create(handler, ours)).allowed


async def test_before_the_first_list_jobs_are_refused_retryably() -> None:
    seen: View = view()
    seen.unsynced = {"pods"}
    answer = await create(ReviewHandler(seen), stored())
    assert answer.code == 503
    assert "pods" in answer.message
