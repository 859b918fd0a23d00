"""What the mutating phase makes of an object."""

from dataclasses import replace
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.server.reviews import (
    ACCOUNT,
    JOB_CONTROLLER,
    JOBSET_CONTROLLER,
    ask,
    containers,
    job,
    pod,
    review,
    stored,
    view,
)
from webhook.cluster.view import View
from webhook.core.model.policy import LocalQueue, Policy, Queue
from webhook.core.notation import names
from webhook.jobs.compute_class.catalog import Mode, Rule
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import mark, marked
from webhook.jobs.plain_pods.groups import gang_uid
from webhook.jobs.reading.annotations import encode_hold
from webhook.server.handler import ReviewHandler
from webhook.server.review.class_checks import shipped
from webhook.server.review.settings import ReviewSettings
from webhook.untyped.editing import diff

OWNER = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "train", "uid": "s", "controller": True}


@pytest.fixture
def handler() -> ReviewHandler:
    return ReviewHandler(view())


async def test_a_labelled_job_is_stored_suspended_and_marked(handler: ReviewHandler) -> None:
    stored = (await ask(handler, "/mutate/jobs", review(job()))).applied(job())
    assert stored["spec"]["suspend"] is True
    labels = stored["spec"]["template"]["metadata"]["labels"]
    assert labels == {names.GANG_LABEL: names.GANG_PENDING, names.POD_SET_LABEL: "main"}


async def test_run_on_its_own_output_it_patches_nothing(handler: ReviewHandler) -> None:
    stored = (await ask(handler, "/mutate/jobs", review(job()))).applied(job())
    assert (await ask(handler, "/mutate/jobs", review(stored))).patch == []


async def test_a_job_without_a_queue_is_left_alone(handler: ReviewHandler) -> None:
    assert (await ask(handler, "/mutate/jobs", review(job(queue=None)))).patch == []


async def test_in_a_gated_namespace_every_job_is_held() -> None:
    seen = view()
    seen.namespaces["team-a"] = {names.GATED_NAMESPACE: "true"}
    answer = await ask(ReviewHandler(seen), "/mutate/jobs", review(job(queue=None)))
    held = answer.applied(job(queue=None))
    assert held["spec"]["suspend"] is True
    assert held["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] == names.GANG_PENDING_IN_NAMESPACE
    assert (await ask(ReviewHandler(seen), "/mutate/jobs", review(held))).patch == []
    assert (await ask(ReviewHandler(seen), "/validate/jobs", review(held))).allowed


async def test_only_what_waits_by_its_namespace_alone_is_marked_so(handler: ReviewHandler) -> None:
    forged = stored()
    forged["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] = names.GANG_PENDING_IN_NAMESPACE
    mended = (await ask(handler, "/mutate/jobs", review(forged))).applied(forged)
    assert mended["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] == names.GANG_PENDING
    assert not (await ask(handler, "/validate/jobs", review(forged))).allowed


def with_a_default_queue(gated: str = "true") -> View:
    seen = view()
    seen.namespaces["team-a"] = {names.GATED_NAMESPACE: gated}
    queue = Queue("research", "kueue")
    local = {("team-a", "default"): LocalQueue("team-a", "default", "research")}
    seen.policy = Policy(queues={"research": queue}, local_queues=local)
    return seen


def queue_of(obj: Any) -> object:
    return obj["metadata"].get("labels", {}).get(names.QUEUE_LABELS[0])


async def test_in_a_gated_namespace_a_job_without_a_queue_waits_in_its_default_one() -> None:
    handler = ReviewHandler(with_a_default_queue())
    stored = (await ask(handler, "/mutate/jobs", review(job(queue=None)))).applied(job(queue=None))
    assert (queue_of(stored), stored["spec"]["suspend"]) == ("default", True)
    assert (await ask(handler, "/mutate/jobs", review(stored))).patch == []
    assert (await ask(handler, "/validate/jobs", review(stored))).allowed
    named = (await ask(handler, "/mutate/jobs", review(job()))).applied(job())
    assert queue_of(named) == queue_of(job())


async def test_nobody_is_put_into_a_default_queue_where_the_namespace_is_not_gated_by_hand() -> None:
    for gated in ("false", "policy"):
        answer = await ask(ReviewHandler(with_a_default_queue(gated)), "/mutate/jobs", review(job(queue=None)))
        assert queue_of(answer.applied(job(queue=None))) is None
    mapped = with_a_default_queue()
    mapped.policy = replace(mapped.policy, namespace_queues={"team-a": "root/a"})
    answer = await ask(ReviewHandler(mapped), "/mutate/jobs", review(job(queue=None)))
    assert queue_of(answer.applied(job(queue=None))) is None
    elsewhere = ReviewHandler(with_a_default_queue(), ReviewSettings(left_to_kueue=True))
    assert queue_of((await ask(elsewhere, "/mutate/jobs", review(job(queue=None)))).applied(job(queue=None))) is None


async def test_what_belongs_to_an_owner_of_a_known_kind_is_in_no_queue_of_its_own() -> None:
    child = job("train-workers-0", queue=None)
    child["metadata"]["ownerReferences"] = [OWNER]
    assert (
        await ask(ReviewHandler(with_a_default_queue()), "/mutate/jobs", review(child, user=JOBSET_CONTROLLER))
    ).patch == []


@pytest.mark.parametrize("metadata", [None, {}, {"labels": None}, {"labels": {}}, {"annotations": None}])
async def test_absent_and_null_template_maps_are_made(handler: ReviewHandler, metadata: Any) -> None:
    written = job()
    written["spec"]["template"]["metadata"] = metadata
    stored = (await ask(handler, "/mutate/jobs", review(written))).applied(written)
    assert stored["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] == names.GANG_PENDING


async def test_labels_with_slashes_and_tildes_survive(handler: ReviewHandler) -> None:
    written = job()
    written["spec"]["template"]["metadata"] = {"labels": {"a~b/c": "d"}}
    stored = (await ask(handler, "/mutate/jobs", review(written))).applied(written)
    assert stored["spec"]["template"]["metadata"]["labels"]["a~b/c"] == "d"


async def test_annotations_copied_from_another_job_are_taken_away(handler: ReviewHandler) -> None:
    written = job()
    written["metadata"]["annotations"] = {names.ADMISSION: "{}", "keep": "me"}
    stored = (await ask(handler, "/mutate/jobs", review(written))).applied(written)
    assert stored["metadata"]["annotations"] == {"keep": "me"}


def child_of_a_jobset() -> dict[str, Any]:
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "train",
        "uid": "s",
        "controller": True,
    }
    child = job("train-workers-0")
    child["metadata"]["ownerReferences"] = [owner]
    return child


async def test_a_child_written_by_its_owners_controller_is_left_alone(handler: ReviewHandler) -> None:
    child = child_of_a_jobset()
    assert (await ask(handler, "/mutate/jobs", review(child, user=JOBSET_CONTROLLER))).patch == []


async def test_a_user_who_claims_an_owner_is_held_like_everybody(handler: ReviewHandler) -> None:
    child = child_of_a_jobset()
    assert (await ask(handler, "/mutate/jobs", review(child))).applied(child)["spec"]["suspend"] is True


async def test_un_suspending_a_held_job_lifts_the_hold_and_leaves_it_suspended(handler: ReviewHandler) -> None:
    old = job()
    old["spec"]["suspend"] = True
    old["metadata"] |= {"uid": "job-1", "annotations": {names.HOLD: encode_hold("job-1"), "other": "x"}}
    new = old | {"spec": old["spec"] | {"suspend": False}}
    answer = await ask(handler, "/mutate/jobs", review(new, old=old, operation="UPDATE"))
    stored = answer.applied(new)
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["annotations"] == {"other": "x"}
    assert "hold is lifted" in answer.warnings[0]
    validated = await ask(handler, "/validate/jobs", review(stored, old=old, operation="UPDATE"))
    assert validated.allowed, validated.message


async def test_the_hold_of_another_job_lifts_nothing(handler: ReviewHandler) -> None:
    old = job()
    old["spec"]["suspend"] = True
    old["metadata"] |= {"uid": "job-1", "annotations": {names.HOLD: encode_hold("job-2")}}
    new = old | {"spec": old["spec"] | {"suspend": False}}
    assert (await ask(handler, "/mutate/jobs", review(new, old=old, operation="UPDATE"))).patch == []


async def test_our_own_un_suspend_is_never_patched_back(handler: ReviewHandler) -> None:
    old = job()
    old["spec"]["suspend"] = True
    old["metadata"] |= {"uid": "job-1", "annotations": {names.HOLD: encode_hold("job-1")}}
    new = old | {"spec": old["spec"] | {"suspend": False}}
    body = review(new, old=old, operation="UPDATE", user=ACCOUNT)
    assert (await ask(handler, "/mutate/jobs", body)).patch == []


async def test_kueues_label_is_left_to_kueue_where_it_serves() -> None:
    handler = ReviewHandler(view(), ReviewSettings(left_to_kueue=True))
    answer = await ask(handler, "/mutate/jobs", review(job()))
    assert answer.patch == []
    assert "Kueue serves" in answer.warnings[0]


async def test_exempt_namespaces_are_left_alone(handler: ReviewHandler) -> None:
    written = job()
    written["metadata"]["namespace"] = "kube-system"
    assert (await ask(handler, "/mutate/jobs", review(written, namespace="kube-system"))).patch == []


async def test_a_shape_the_platform_would_raise_is_corrected_when_the_table_says_so() -> None:
    table = shipped()
    policy = table.model_copy(update={"rules": {**table.rules, Rule.SHAPE: Mode.MUTATE}})
    corrected = ReviewHandler(view(), classes=policy)
    written = job(gpu="0")
    written["spec"]["template"] = {
        "metadata": {"labels": {"alibabacloud.com/compute-class": "general-purpose"}},
        "spec": {"restartPolicy": "Never", "containers": containers(cpu="3", memory="1Gi")},
    }
    stored = (await ask(corrected, "/mutate/jobs", review(written))).applied(written)
    assert stored["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] == "3Gi"
    assert (await ask(corrected, "/mutate/jobs", review(stored))).patch == []


async def test_a_plain_pod_of_a_pod_group_is_held_by_a_scheduling_gate(handler: ReviewHandler) -> None:
    written = pod()
    written["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "ring"}
    stored = (await ask(handler, "/mutate/pods", review(written))).applied(written)
    assert stored["spec"]["schedulingGates"] == [{"name": names.SCHEDULING_GATE}]
    assert stored["metadata"]["labels"][names.GANG_LABEL] == gang_uid("team-a", "ring")
    assert (await ask(handler, "/mutate/pods", review(pod()))).patch == []


@pytest.mark.parametrize(
    "joins",
    [
        {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "ring"}}},
        {"metadata": {"labels": {"pod-group.scheduling.sigs.k8s.io/name": "ring"}}},
        {"metadata": {"annotations": {"scheduling.volcano.sh/group-name": "ring"}}},
        {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "ring"}}},
        {"spec": {"schedulingGroup": {"podGroupName": "ring"}}},
        {"metadata": {"labels": {names.KUEUE_POD_GROUP: "ring", "kueue.x-k8s.io/queue-name": "research"}}},
        {"metadata": {"labels": {names.KUEUE_POD_GROUP: "ring", "tutti.dev/queue-name": "research"}}},
        {
            "metadata": {
                "labels": {"kueue.x-k8s.io/queue-name": "research"},
                "annotations": {names.KUEUE_POD_GROUP: "ring"},
            }
        },
    ],
)
async def test_a_plain_pod_joins_by_every_generations_word(handler: ReviewHandler, joins: dict[str, Any]) -> None:
    written = pod()
    for part, fields in joins.items():
        written[part] = {**written[part], **fields}
    stored = (await ask(handler, "/mutate/pods", review(written))).applied(written)
    assert stored["metadata"]["labels"][names.GANG_LABEL] == gang_uid("team-a", "ring")


async def test_a_group_of_kueues_without_a_queue_passes_as_in_kueue(handler: ReviewHandler) -> None:
    written = pod()
    written["metadata"]["labels"] = {names.KUEUE_POD_GROUP: "ring"}
    assert (await ask(handler, "/mutate/pods", review(written))).patch == []


async def test_what_kueue_itself_holds_is_never_touched(handler: ReviewHandler) -> None:
    written = pod(schedulingGates=[{"name": names.KUEUE_GATE}])
    written["metadata"]["labels"] = {names.KUEUE_POD_GROUP: "ring", "kueue.x-k8s.io/queue-name": "research"}
    answer = await ask(handler, "/mutate/pods", review(written))
    assert answer.patch == []
    assert names.KUEUE_GATE in answer.response["warnings"][0]
    written["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "ring"
    assert (await ask(handler, "/mutate/pods", review(written))).patch, "a PodGroup is a gang of its own right"


async def test_a_jobs_controller_makes_no_group_of_kueues_by_itself(handler: ReviewHandler) -> None:
    """A label on a job's template changes nothing about whose the job's pods are."""
    written = pod()
    written["metadata"]["labels"] = {names.KUEUE_POD_GROUP: "ring", "kueue.x-k8s.io/queue-name": "research"}
    assert (await ask(handler, "/mutate/pods", review(written, user=JOB_CONTROLLER))).patch == []


async def test_what_a_jobs_controller_makes_belongs_to_its_job(handler: ReviewHandler) -> None:
    written = pod()
    written["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "ring"}
    assert (await ask(handler, "/mutate/pods", review(written, user=JOB_CONTROLLER))).patch == []
    assert (
        await ask(
            handler, "/mutate/pods", review(written, user="system:serviceaccount:kube-system:replicaset-controller")
        )
    ).patch


MAPS = st.none() | st.dictionaries(st.sampled_from(["a", "b/c~d", names.ADMISSION]), st.text("xy", max_size=2))
PLAIN = st.fixed_dictionaries(
    {},
    optional={
        "labels": MAPS | st.just({names.GANG_LABEL: names.GANG_PENDING, names.POD_SET_LABEL: "main"}) | st.just("x"),
        "annotations": MAPS | st.just([]),
    },
)


@given(st.none() | PLAIN, PLAIN, st.sampled_from([True, False, None, "absent", "true"]), st.booleans())
def test_the_short_way_to_a_patch_leads_where_the_general_one_does(
    template: Any, own: Any, suspend: Any, no_template_metadata: bool
) -> None:
    obj = job()
    obj["metadata"] |= own
    obj["spec"]["suspend"] = suspend
    if suspend == "absent":
        del obj["spec"]["suspend"]
    obj["spec"]["template"]["metadata"] = template
    if no_template_metadata:
        del obj["spec"]["template"]["metadata"]
    kind = KINDS["Job.batch"]
    assert jsonpatch.apply_patch(obj, mark(kind, obj)) == marked(kind, obj)
    assert len(mark(kind, obj)) <= len(diff(obj, marked(kind, obj)))
