"""What loses its owner while it runs, and names a queue that it does not wait in, waits there from then on.

It would be adopted above the queue's quota. What a gang made that ran before Tutti came stays with that gang.
"""

import copy
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import special
from tests.unit.server.jobs.test_children import COLLECTOR, JOBSET, OWNER, child, jobset, known, update
from tests.unit.server.reviews import ALICE, Answered, ask, job, reservation, review, view, with_ledger
from webhook.cluster.view import View
from webhook.core.model.policy import LocalQueue, Policy, Queue
from webhook.core.notation import names
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.job import bystander, read
from webhook.server.handler import ReviewHandler

IN_QUEUE = {names.QUEUE_LABELS[0]: "research"}
SUSPENDED = [("/spec/suspend", True)]


def labelled() -> dict[str, Any]:
    """Return a running Job of a JobSet, without any mark, which names a queue."""
    obj = child(suspend=False, gang=None)
    obj["metadata"]["labels"] = dict(IN_QUEUE)
    return obj


def open_queue() -> View:
    """Return a view in which the label names a queue."""
    seen = view()
    local = LocalQueue("team-a", "research", "research")
    seen.policy = Policy(queues={"research": Queue("research", "kueue")}, local_queues={("team-a", "research"): local})
    return seen


def owned(obj: dict[str, Any], kind: str, api_version: str, name: str, uid: str) -> dict[str, Any]:
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}}


async def let_go(seen: View, old: dict[str, Any], left: list[dict[str, Any]] | None = None) -> Answered:
    """Return what becomes of a child that its owner is taken off; the collector is not refused."""
    new = copy.deepcopy(old)
    new["metadata"]["ownerReferences"] = left or []
    handler, said = ReviewHandler(seen), {"operation": "UPDATE", "user": COLLECTOR}
    answer = await ask(handler, "/mutate/jobs", review(new, old=old, **said))
    validated = await ask(handler, "/validate/jobs", review(answer.applied(new), old=old, **said))
    assert validated.allowed, validated.message
    return answer


def changes(answer: Answered) -> list[tuple[str, object]]:
    return [(each["path"], each["value"]) for each in answer.patch]


async def test_it_waits_like_any_other_job_if_it_asks_for_a_queue() -> None:
    answer = await let_go(open_queue(), labelled())
    assert changes(answer) == SUSPENDED
    assert "lost its owner" in answer.warnings[0]
    another = OWNER | {"uid": "another"}
    assert (await let_go(open_queue(), labelled(), [another])).patch == []
    assert (await let_go(open_queue(), child(suspend=False, gang=None))).patch == []
    assert (await let_go(open_queue(), labelled() | {"spec": {**labelled()["spec"], "suspend": True}})).patch == []


async def test_what_tutti_started_runs_on() -> None:
    marked = child(suspend=False)
    marked["metadata"]["labels"] = dict(IN_QUEUE)
    assert (await let_go(open_queue(), marked)).patch == []


async def test_a_mark_that_anybody_may_have_planted_proves_nothing() -> None:
    """Tutti writes it on templates. On the Job itself the JobSet's author may have had it written, with any value."""
    wrapper = reservation("set-1", kind=JOBSET.key)
    for seen in (open_queue(), with_ledger(open_queue(), wrapper)):
        for gang in ("x", "set-1", names.GANG_PENDING):
            planted = labelled()
            planted["metadata"]["labels"][names.GANG_LABEL] = gang
            assert changes(await let_go(seen, planted)) == SUSPENDED


async def test_nobody_plants_a_mark_on_what_a_job_in_no_queue_made() -> None:
    planted = labelled()
    planted["metadata"]["labels"] |= {names.GANG_LABEL: "x"}
    answer = await update(open_queue(), labelled(), planted, ALICE)
    assert not answer.allowed
    assert f"label {names.GANG_LABEL} at metadata.labels is written only by Tutti" in answer.message
    assert (await update(open_queue(), planted, planted | {"status": {"active": 2}}, ALICE)).allowed


@pytest.mark.parametrize("seen", [True, False], ids=["its adoption is read", "its adoption is not read yet"])
async def test_what_an_adopted_gang_made_runs_on(*, seen: bool) -> None:
    watched = open_queue()
    watched.put_job(read(JOBSET, {**jobset(), "spec": {**jobset()["spec"], "suspend": False}}, ReadContext()))
    if seen:
        with_ledger(watched, reservation("set-1", kind=JOBSET.key, adopted=True))
    assert (await let_go(watched, labelled())).patch == []


async def test_what_a_part_of_an_adopted_gang_made_runs_on() -> None:
    seen = open_queue()
    seen.put_controller("set-1", "team-a", "train-1")
    seen.put_controller("child-1", "team-a", "set-1")
    with_ledger(seen, reservation("train-1", kind="TrainJob.trainer.kubeflow.org", adopted=True))
    assert (await let_go(seen, labelled())).patch == []


async def test_what_an_adopted_gang_made_runs_on_whatever_its_queue_is_now() -> None:
    for queues in ({}, {"other": Queue("other", "kueue")}):
        seen = open_queue()
        seen.put_job(read(JOBSET, {**jobset(), "spec": {**jobset()["spec"], "suspend": False}}, ReadContext()))
        with_ledger(seen, reservation("set-1", kind=JOBSET.key, adopted=True))
        local = {("team-a", "research"): LocalQueue("team-a", "research", "other")} if queues else {}
        seen.policy = Policy(queues=seen.policy.queues | queues, local_queues=local)
        assert (await let_go(seen, labelled())).patch == []


async def test_what_an_adopted_gang_made_and_that_joins_a_pod_group_runs_on_if_it_was_in_no_queue() -> None:
    """By its PodGroup it is a gang of its own then, in no queue: it would take its pods out of the one they are in."""
    old = labelled()
    del old["metadata"]["labels"]
    old["spec"]["template"]["metadata"] = {"labels": {names.POD_GROUP_LABELS[0]: "train"}}
    for queue, patched in ((None, []), ("research", SUSPENDED)):
        seen = with_ledger(open_queue(), reservation("set-1", kind=JOBSET.key, queue=queue, adopted=True))
        assert changes(await let_go(seen, old)) == patched


@pytest.mark.parametrize("queue", ["research", None], ids=["in a queue", "in no queue"])
async def test_what_an_adopted_gang_made_leaves_its_queue_for_none_that_does_not_exist(queue: str | None) -> None:
    """It would run on in no queue, and another gang in its room. What names no queue asks for none."""
    seen = with_ledger(open_queue(), reservation("set-1", kind=JOBSET.key, queue=queue, adopted=True))
    seen.namespaces["team-a"] = {names.GATED_NAMESPACE: "true"}
    unknown, unnamed = labelled(), labelled()
    unknown["metadata"]["labels"] = {names.QUEUE_LABELS[0]: "unknown"}
    unnamed["metadata"]["labels"] = {}
    assert changes(await let_go(seen, unknown)) == ([] if queue is None else SUSPENDED)
    assert changes(await let_go(seen, unnamed)) == []


async def test_the_gang_of_another_namespace_gives_none_of_its_queue() -> None:
    """Owners are of the same namespace: its author wrote that reference."""
    seen = open_queue()
    there = {("team-b", "research"): LocalQueue("team-b", "research", "research")}
    seen.policy = Policy(queues=seen.policy.queues, local_queues=seen.policy.local_queues | there)
    with_ledger(seen, reservation("set-1", kind=JOBSET.key, namespace="team-b", adopted=True))
    assert changes(await let_go(seen, labelled())) == SUSPENDED
    elsewhere = jobset() | {"spec": {**jobset()["spec"], "suspend": False}}
    elsewhere["metadata"]["namespace"] = "team-b"
    unread = open_queue()
    unread.put_job(read(JOBSET, elsewhere, ReadContext()))
    assert changes(await let_go(unread, labelled())) == SUSPENDED


async def test_what_was_made_after_a_gang_was_adopted_is_none_of_it() -> None:
    """Its author may have written that its owner is of that gang."""
    seen, old = with_ledger(open_queue(), reservation("set-1", kind=JOBSET.key, adopted=True)), labelled()
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert changes(await let_go(seen, old)) == SUSPENDED


async def test_the_name_of_an_adopted_gang_on_a_label_proves_nothing() -> None:
    seen, wrapper = open_queue(), "AppWrapper.workload.codeflare.dev"
    with_ledger(seen, reservation("old-1", kind=wrapper, name="old", adopted=True))
    mine = jobset(queue=None)
    mine["metadata"]["labels"] = {"workload.codeflare.dev/appwrapper": "old"}
    claims = bystander(JOBSET, mine)
    seen.put_controller(claims.uid, claims.namespace, "", made_for=claims.made_for)
    seen.note_made(claims.uid, claims.named, running=True)
    seen.put_controller("child-1", "team-a", "set-1")
    assert changes(await let_go(seen, labelled())) == SUSPENDED


async def test_what_tutti_started_runs_on_though_it_cannot_be_read_now() -> None:
    """Its templates bear the mark of the gang above it; on the object itself, or of another gang, it is anybody's."""

    def unread(*, on_templates: str | None, on_itself: str | None) -> dict[str, Any]:
        made = special("trainjob")
        own = {} if on_itself is None else {names.GANG_LABEL: on_itself}
        made["metadata"] |= {"namespace": "team-a", "uid": "child-1", "labels": IN_QUEUE | own}
        template = {"metadata": {"labels": {} if on_templates is None else {names.GANG_LABEL: on_templates}}}
        replicated = [{"name": "node", "template": {"spec": {"template": template}}}]
        patched = {
            "manager": "tutti.dev/tutti",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}},
        }
        made["spec"] |= {
            "runtimeRef": {"name": "gone", "kind": "TrainingRuntime"},
            "suspend": False,
            "runtimePatches": [patched],
        }
        return owned(made, "AppWrapper", "workload.codeflare.dev/v1beta2", "w", "wrapper-1")

    seen = with_ledger(open_queue(), reservation("wrapper-1", kind="AppWrapper.workload.codeflare.dev"))
    assert (await let_go(seen, unread(on_templates="wrapper-1", on_itself=None))).patch == []
    for on_templates, on_itself in (("x", None), (None, "wrapper-1"), (None, None)):
        answer = await let_go(seen, unread(on_templates=on_templates, on_itself=on_itself))
        assert changes(answer) == SUSPENDED


async def test_an_adopted_gang_of_no_queue_or_another_gives_none_of_this_queue() -> None:
    for queue in (None, "another"):
        seen = with_ledger(open_queue(), reservation("set-1", kind=JOBSET.key, queue=queue, adopted=True))
        assert changes(await let_go(seen, labelled())) == SUSPENDED


@pytest.mark.parametrize("admitted", [False, True], ids=["that waits", "that was admitted"])
async def test_a_gang_of_tuttis_is_no_owner_of_what_bears_no_mark(*, admitted: bool) -> None:
    """Its author wrote that reference, or the gang's kind lets templates be hidden from us."""
    seen = known(open_queue(), jobset())
    if admitted:
        with_ledger(seen, reservation("set-1", kind=JOBSET.key))
    assert changes(await let_go(seen, labelled())) == SUSPENDED


async def test_a_maker_that_was_made_to_wait_after_its_jobs_had_started_is_no_owner_either() -> None:
    seen, waiting = open_queue(), jobset()
    waiting["spec"]["suspend"] = True
    seen.put_job(read(JOBSET, waiting, ReadContext()))
    assert changes(await let_go(seen, labelled())) == SUSPENDED


async def test_nobody_names_a_queue_on_what_belongs_to_a_gang() -> None:
    for seen in (known(view(), jobset()), with_ledger(view(), reservation("set-1", kind=JOBSET.key, adopted=True))):
        running = job("mine", queue=None)
        running["metadata"] |= {"uid": "child-1", "ownerReferences": [OWNER]}
        answer = await update(
            seen, running, {**running, "metadata": {**running["metadata"], "labels": IN_QUEUE}}, ALICE
        )
        assert not answer.allowed


async def test_it_waits_though_it_cannot_be_read_now() -> None:
    """Its runtime is gone, and may be there again."""
    made = special("trainjob")
    made["metadata"] |= {"namespace": "team-a", "uid": "child-1", "labels": dict(IN_QUEUE)}
    made["spec"] = {"runtimeRef": {"name": "mine", "kind": "TrainingRuntime"}, "suspend": False}
    made = owned(made, "AppWrapper", "workload.codeflare.dev/v1beta2", "w", "wrapper-1")
    assert changes(await let_go(open_queue(), made)) == SUSPENDED


async def test_the_collector_lets_go_of_what_is_no_well_formed_gang() -> None:
    """Refused, it would try for ever, and its owner would never be gone."""
    made = jobset()
    (first,) = made["spec"]["replicatedJobs"]
    second = copy.deepcopy(first) | {"name": "driver"}
    second["template"]["spec"]["template"]["spec"]["priorityClassName"] = "high"
    made["spec"] |= {"replicatedJobs": [first, second], "suspend": False}
    made = owned(made, "TrainJob", "trainer.kubeflow.org/v1alpha1", "train", "train-1")
    assert changes(await let_go(open_queue(), made)) == SUSPENDED


async def test_a_replica_that_has_just_started_does_not_know_yet_whose_it_was() -> None:
    seen, old = open_queue(), labelled()
    seen.unsynced.add("ledger")
    new = copy.deepcopy(old)
    new["metadata"]["ownerReferences"] = []
    answer = await ask(ReviewHandler(seen), "/mutate/jobs", review(new, old=old, operation="UPDATE", user=COLLECTOR))
    assert answer.code == 503
    assert answer.patch == []
