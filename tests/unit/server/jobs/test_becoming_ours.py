"""A change that makes an object ours is judged as its creation is: it is suspended, or refused."""

import copy
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import NAMES, kind_of, load
from tests.unit.server.reviews import ALICE, Answered, ask, job, reservation, review, stored, view, with_ledger
from webhook.cluster.view import View
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS, of_hub
from webhook.jobs.patches.marking import marked
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.annotations import encode_requeue
from webhook.jobs.reading.job import read
from webhook.jobs.reading.record import Requeue
from webhook.server.handler import ReviewHandler
from webhook.untyped import editing, paths

MANAGED = [name for name in NAMES if kind_of(load(name)).managed_by is not None]
FOREIGN = "kueue.x-k8s.io/multikueue"
GROUP = {names.POD_GROUP_LABELS[0]: "crew"}


def gated_namespace() -> View:
    """Return a view whose namespace team-a is gated by hand."""
    seen = view()
    seen.namespaces["team-a"] = {names.GATED_NAMESPACE: "true"}
    return seen


def example(name: str) -> tuple[JobKind, dict[str, Any]]:
    """Return an object of a kind, in a queue and in our namespace, as its owner writes it."""
    obj = load(name)
    obj["metadata"]["namespace"] = "team-a"
    return kind_of(obj), obj


def managed(kind: JobKind, obj: Any, manager: str | None, *, suspend: bool) -> Any:
    """Return ``obj`` with a controller named, or none, and suspended or not."""
    assert kind.suspend is not None
    made = editing.put(obj, kind.suspend, suspend)
    return editing.drop(made, kind.placed_by) if manager is None else editing.put(made, kind.placed_by, manager)


async def update(handler: ReviewHandler, old: Any, new: Any, user: str = ALICE, **more: Any) -> Answered:
    return await ask(handler, "/validate/jobs", review(new, old=old, operation="UPDATE", user=user, **more))


@pytest.mark.parametrize("name", MANAGED)
async def test_what_another_controller_managed_is_ours_only_when_it_is_suspended(name: str) -> None:
    kind, obj = example(name)
    handler = ReviewHandler(view())
    foreign = managed(kind, obj, FOREIGN, suspend=False)
    plural = {"resource": kind.plural}
    assert (await ask(handler, "/validate/jobs", review(foreign, **plural))).allowed
    for ours in (None, *kind.managers):
        flipped = await update(handler, foreign, managed(kind, obj, ours, suspend=False), **plural)
        assert not flipped.allowed
        assert "would have to wait for Tutti, but it is already running" in flipped.message
        late = await update(handler, foreign, managed(kind, obj, ours, suspend=True), **plural)
        assert not late.allowed, "its pods may be about"
    held = managed(kind, obj, FOREIGN, suspend=True)
    assert (await update(handler, held, managed(kind, obj, None, suspend=True), **plural)).allowed
    assert not (await update(handler, held, managed(kind, obj, None, suspend=False), **plural)).allowed


@pytest.mark.parametrize("admitted", [False, True], ids=["waiting", "admitted"])
@pytest.mark.parametrize("name", MANAGED)
async def test_what_is_ours_is_not_given_to_another_controller(name: str, admitted: bool) -> None:
    kind, obj = example(name)
    stays = dict(marked(kind, obj))
    uid = obj["metadata"]["uid"]
    handler = ReviewHandler(with_ledger(view(), *([reservation(uid, kind=kind.key)] if admitted else [])))
    if admitted:
        stays = managed(kind, stays, None, suspend=False)
    given = managed(kind, stays, FOREIGN, suspend=not admitted)
    unlabelled = copy.deepcopy(given)
    unlabelled["metadata"]["labels"] = {}
    for changed in (given, unlabelled):
        refused = await update(handler, stays, changed, resource=kind.plural)
        assert not refused.allowed
        assert "cannot be set to another controller" in refused.message


@pytest.mark.parametrize("admitted", [False, True], ids=["waiting", "placed"])
@pytest.mark.parametrize("name", [name for name in NAMES if kind_of(load(name)).dispatchable])
async def test_a_hub_gives_a_job_to_its_fleet_at_creation_and_for_good(name: str, admitted: bool) -> None:
    plain, obj = example(name)
    kinds = of_hub(KINDS)
    kind = kinds[plain.key]
    made = marked(kind, obj)
    assert paths.find(made, kind.placed_by) == FOREIGN
    uid = obj["metadata"]["uid"]
    handler = ReviewHandler(with_ledger(view(), *([reservation(uid, kind=kind.key)] if admitted else [])), kinds=kinds)
    stays = managed(kind, made, FOREIGN, suspend=not admitted)
    for other in (None, *plain.managers, "example.org/other"):
        refused = await update(handler, stays, managed(kind, stays, other, suspend=not admitted), resource=kind.plural)
        assert not refused.allowed
        assert "is immutable" in refused.message
    labelled = editing.put(stays, ("metadata", "labels", "mine"), "x")
    assert (await update(handler, stays, labelled, resource=kind.plural)).allowed


async def test_a_job_of_a_kind_without_managed_by_is_given_to_a_hub_by_nobody_but_its_webhook() -> None:
    kind, obj = example("sparkapplication")
    in_hub, elsewhere = (ReviewHandler(view(), kinds=kinds) for kinds in (of_hub(KINDS), KINDS))
    made = marked(of_hub(KINDS)[kind.key], obj)
    born = {"resource": kind.plural}
    assert (await ask(in_hub, "/validate/jobs", review(made, **born))).allowed
    unqueued = editing.drop(made, ("metadata", "labels"))
    for handler, written in ((in_hub, unqueued), (elsewhere, made), (elsewhere, unqueued)):
        refused = await ask(handler, "/validate/jobs", review(written, **born))
        assert f"annotation {names.MANAGED_BY} is written only by Tutti" in refused.message
    taken_off = await ask(elsewhere, "/mutate/jobs", review(made, **born))
    assert names.MANAGED_BY not in taken_off.applied(made)["metadata"]["annotations"]
    before = marked(kind, obj)
    later = await update(in_hub, before, editing.put(before, kind.placed_by, FOREIGN), **born)
    assert f"annotation {names.MANAGED_BY} is written only by Tutti" in later.message, "it was stored before"


async def test_a_running_training_job_does_not_join_a_pod_group() -> None:
    kind, obj = example("pytorchjob")
    obj["metadata"]["labels"] = {}
    runs = managed(kind, obj, None, suspend=False)
    joining = copy.deepcopy(runs)
    joining["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = {"labels": GROUP}
    refused = await update(ReviewHandler(view()), runs, joining)
    assert "would have to wait for Tutti, but it is already running" in refused.message


async def test_a_kind_without_a_suspend_field_becomes_ours_at_creation_alone() -> None:
    metadata = {"name": "v", "namespace": "team-a", "labels": {}}
    template = {"spec": {"containers": [{"name": "m", "image": "i"}]}}
    spec = {"tasks": [{"name": "t", "replicas": 1, "template": template}]}
    plain = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}
    labelled = copy.deepcopy(plain)
    labelled["metadata"]["labels"] = {"tutti.dev/queue-name": "research"}
    assert not (await update(ReviewHandler(view()), plain, labelled)).allowed


# -- the queue label in a namespace where all jobs wait


@pytest.mark.parametrize("left", [None, ""], ids=["removed", "emptied"])
async def test_where_all_jobs_wait_a_job_changes_its_queue_but_does_not_leave_it(left: str | None) -> None:
    handler = ReviewHandler(gated_namespace())
    refused = await update(handler, stored(), stored(queue=left))
    assert not refused.allowed
    assert "may change its queue (it is research), but not leave it" in refused.message
    assert (await update(handler, stored(), stored(queue="other"))).allowed


@pytest.mark.parametrize("left", [None, ""], ids=["removed", "emptied"])
async def test_nowhere_does_a_waiting_job_leave_its_queue_for_none(left: str | None) -> None:
    """So a marked job that nothing gates is one whose namespace was un-gated: it may start without a queue."""
    refused = await update(ReviewHandler(view()), stored(), stored(queue=left))
    assert "waits in queue research: it may name another queue, but not none" in refused.message
    assert (await update(ReviewHandler(view()), stored(), stored(queue="other"))).allowed


async def test_a_waiting_job_does_not_leave_its_pod_group_for_nothing() -> None:
    joined, alone = stored(queue=None), stored(queue=None)
    joined["spec"]["template"]["metadata"]["labels"] |= GROUP
    assert "joins a PodGroup" in (await update(ReviewHandler(view()), joined, alone)).message
    assert (await update(ReviewHandler(view()), joined, stored())).allowed


async def test_an_adopted_job_that_was_stopped_does_not_leave_its_queue_either() -> None:
    """Its templates bear no mark: what is written on the job itself tells that it is held."""
    noted = {"annotations": {names.REQUEUE: encode_requeue(Requeue("Preempted", 1.0), "job-1")}}
    old, new = job(queue="research"), job(queue=None)
    for each in (old, new):
        each["metadata"] |= {"uid": "job-1"} | noted
        each["spec"]["suspend"] = True
    assert "but not none" in (await update(ReviewHandler(view()), old, new)).message
    started = copy.deepcopy(new)
    started["spec"]["suspend"] = False
    assert "only Tutti un-suspends it" in (await update(ReviewHandler(view()), new, started)).message


async def test_where_the_namespace_itself_has_a_queue_the_label_may_go() -> None:
    from webhook.core.model.policy import Policy

    seen = gated_namespace()
    seen.policy = Policy(namespace_queues={"team-a": "research"})
    assert (await update(ReviewHandler(seen), stored(), stored(queue=None))).allowed


# -- a child by its owner's word


def owned(obj: dict[str, Any], kind: str, api_version: str, uid: str) -> dict[str, Any]:
    """Return ``obj`` with a controller reference that anybody may write."""
    made = copy.deepcopy(obj)
    reference = {"apiVersion": api_version, "kind": kind, "name": "ring", "uid": uid, "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return made


@pytest.mark.parametrize("manager", [FOREIGN, None], ids=["foreign-managed", "ours"])
@pytest.mark.parametrize("admitted", [True, False], ids=["admitted", "not admitted"])
async def test_a_job_that_claims_an_owner_is_neither_stripped_nor_started_by_its_editor(
    manager: str | None, admitted: bool
) -> None:
    """The MPIJob was admitted and is another controller's now, or was so from the start; its controller made no Job."""
    kind, obj = example("mpijob")
    uid = obj["metadata"]["uid"]
    seen = with_ledger(gated_namespace(), *([reservation(uid, kind=kind.key)] if admitted else []))
    if admitted or manager is None:
        seen.put_job(read(kind, managed(kind, marked(kind, obj), manager, suspend=not admitted), ReadContext()))
    handler = ReviewHandler(seen)
    held = owned(stored(uid="job-9"), "MPIJob", kind.api_version, uid)
    stripped = copy.deepcopy(held)
    stripped["spec"]["template"]["metadata"]["labels"] = {}
    assert not (await update(handler, held, stripped)).allowed
    for before in (held, stripped):
        started = copy.deepcopy(before)
        started["spec"]["suspend"] = False
        assert not (await update(handler, before, started)).allowed
        free = copy.deepcopy(started)
        free["metadata"]["ownerReferences"] = []
        assert not (await update(handler, before, free)).allowed


async def test_a_job_of_a_namespace_that_is_not_gated_may_claim_any_owner_and_run() -> None:
    plain = owned(job(queue=None), "MPIJob", "kubeflow.org/v2beta1", "mpi-1")
    larger = copy.deepcopy(plain)
    larger["spec"]["parallelism"] = 9
    assert (await update(ReviewHandler(view()), plain, larger)).allowed


async def test_a_hubs_job_that_is_being_deleted_keeps_what_says_that_a_member_may_have_it() -> None:
    plain, obj = example("sparkapplication")
    kind = of_hub(KINDS)[plain.key]
    placed = managed(kind, marked(kind, obj), FOREIGN, suspend=True)
    going = editing.put(placed, ("metadata", "deletionTimestamp"), "2026-01-01T00:00:00Z")
    bare = editing.drop(going, ("metadata", "annotations", names.MANAGED_BY))
    handler = ReviewHandler(with_ledger(view()), kinds=of_hub(KINDS))
    assert not (await update(handler, going, bare, resource=kind.plural)).allowed
    assert (await update(handler, placed, going, resource=kind.plural)).allowed
