"""Labels and annotations of ours on what does not wait for us: refused, wherever they stand and whoever writes them."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.server.jobs.test_children import OWNER, child, known
from tests.unit.server.reviews import (
    ACCOUNT,
    ALICE,
    JOB_CONTROLLER,
    JOBSET_CONTROLLER,
    Answered,
    ask,
    containers,
    job,
    reservation,
    review,
    stored,
    view,
    with_ledger,
)
from webhook.core.notation import names
from webhook.jobs.reading.ours import OURS, OWN_ANNOTATIONS, OWN_LABELS, Bearer, Form, Writer, own_marks
from webhook.server.handler import ReviewHandler

OWN = [(key, "labels") for key in sorted(OWN_LABELS)] + [(key, "annotations") for key in sorted(OWN_ANNOTATIONS)]
DEPLOYMENT_CONTROLLER = "system:serviceaccount:kube-system:deployment-controller"
each_mark = pytest.mark.parametrize(("key", "form"), OWN, ids=[key for key, _ in OWN])


def test_the_table_has_every_name_of_ours_and_each_once() -> None:
    ours = {value for value in vars(names).values() if isinstance(value, str) and value.startswith(names.DOMAIN + "/")}
    ours.remove(names.LEDGER_PAGES)
    ours |= {key for key in names.QUEUE_LABELS if key.startswith(names.DOMAIN + "/")}
    assert {row.key for row in OURS} == ours
    assert len({(row.key, row.form) for row in OURS}) == len(OURS)


def test_what_tutti_alone_writes_anywhere_is_written_by_others_nowhere() -> None:
    for row in OURS:
        by_tutti = [writer is Writer.TUTTI for writer in row.writers.values()]
        assert all(by_tutti) or not any(by_tutti), row.key
        assert not any(by_tutti) or row.form in (Form.LABEL, Form.ANNOTATION)
        assert Bearer.NAMESPACE not in row.writers or not any(by_tutti)


def with_mark(obj: dict[str, Any], place: tuple[str, ...], form: str, key: str, value: str = "job-1") -> dict[str, Any]:
    """Return a copy with a label or annotation of ours in the metadata at ``place``."""
    made = copy.deepcopy(obj)
    node = made
    for step in (*place, "metadata", form):
        node = node.setdefault(step, {})
    node[key] = value
    return made


async def update(handler: ReviewHandler, old: dict[str, Any], new: dict[str, Any], user: str = ALICE) -> Answered:
    return await ask(handler, "/validate/jobs", review(new, old=old, operation="UPDATE", user=user))


async def create(handler: ReviewHandler, obj: dict[str, Any], user: str = ALICE) -> Answered:
    return await ask(handler, "/validate/jobs", review(obj, user=user))


PLACES = {"job": (), "pod template": ("spec", "template"), "nowhere we look": ("spec", "x", "y")}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@each_mark
async def test_a_job_that_waits_for_nobody_bears_nothing_of_ours(key: str, form: str, place: tuple[str, ...]) -> None:
    handler, plain = ReviewHandler(with_ledger(view(), reservation())), job(queue=None)
    marked = with_mark(plain, place, form, key)
    for answer in (await create(handler, marked), await update(handler, plain, marked)):
        assert not answer.allowed
        assert key in answer.message
        assert "is written only by Tutti" in answer.message
    # What slipped in may be taken away; but a marked template may be one that was held where all jobs waited.
    was_held = key == names.GANG_LABEL and place == ("spec", "template")
    assert (await update(handler, marked, plain)).allowed is not was_held
    assert (await update(handler, plain, marked, user=ACCOUNT)).allowed


async def test_a_suspended_one_neither() -> None:
    """It could be started with the label later, and its pods would pass as another gang's."""
    handler, plain = ReviewHandler(with_ledger(view(), reservation())), job(queue=None)
    plain["spec"]["suspend"] = True
    assert not (await create(handler, with_mark(plain, ("spec", "template"), "labels", names.GANG_LABEL))).allowed


async def test_an_unreadable_one_neither() -> None:
    handler, broken = ReviewHandler(view()), job(queue=None, parallelism=-1)
    assert not (await create(handler, with_mark(broken, ("spec", "template"), "labels", names.GANG_LABEL))).allowed


async def test_a_waiting_job_is_not_marked_as_another_gangs() -> None:
    handler = ReviewHandler(with_ledger(view(), reservation("job-2")))
    forged = with_mark(stored(), ("spec", "template"), "labels", names.GANG_LABEL, "job-2")
    assert not (await create(handler, forged)).allowed
    other_set = with_mark(stored(), ("spec", "template"), "labels", names.POD_SET_LABEL, "other")
    assert not (await create(handler, other_set)).allowed


async def test_a_held_job_may_bear_copies_of_its_templates_labels() -> None:
    """The API server makes them of a Job that has no labels, when its owner takes the last one away too."""
    copied = stored(queue=None)
    copied["metadata"]["labels"] = dict(copied["spec"]["template"]["metadata"]["labels"])
    mapped = view()
    mapped.policy = replace(mapped.policy, namespace_queues={"team-a": "research"})
    assert (await update(ReviewHandler(mapped), stored(), copied)).allowed
    grouped = with_mark(copied, ("spec", "template"), "labels", names.POD_GROUP_LABELS[0], "crew")
    assert (await create(ReviewHandler(view()), grouped)).allowed


def deployment() -> dict[str, Any]:
    """Return a Deployment, which cannot wait."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team-a", "labels": {}},
        "spec": {"template": {"metadata": {"labels": {}}, "spec": {"containers": containers(gpu="1")}}},
    }


def cron_job() -> dict[str, Any]:
    """Return a CronJob: its Jobs' pods have their template two levels down."""
    template = {"spec": {"template": deployment()["spec"]["template"]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "team-a"},
        "spec": {"jobTemplate": template},
    }


@pytest.mark.parametrize(
    ("plain", "place"),
    [(deployment(), ("spec", "template")), (cron_job(), ("spec", "jobTemplate", "spec", "template"))],
    ids=["Deployment", "CronJob"],
)
@each_mark
async def test_what_cannot_wait_bears_nothing_of_ours(
    plain: dict[str, Any], place: tuple[str, ...], key: str, form: str
) -> None:
    handler = ReviewHandler(with_ledger(view(), reservation()))
    marked = with_mark(plain, place, form, key)
    for answer in (await create(handler, marked), await update(handler, plain, marked)):
        assert not answer.allowed
        assert key in answer.message
    assert (await update(handler, marked, copy.deepcopy(marked))).allowed
    assert (await update(handler, marked, plain)).allowed


async def test_what_a_gangs_controller_makes_of_a_wrapped_deployment_bears_its_marks() -> None:
    marked = with_mark(deployment(), ("spec", "template"), "labels", names.GANG_LABEL)
    wrapper = "system:serviceaccount:appwrapper-system:appwrapper-controller-manager"
    assert (await create(ReviewHandler(view()), marked, user=wrapper)).allowed
    assert (await create(ReviewHandler(view()), marked, user=DEPLOYMENT_CONTROLLER)).allowed


async def test_a_child_bears_its_owners_gang_and_no_other() -> None:
    seen = with_ledger(view(), reservation("set-1", kind="JobSet.jobset.x-k8s.io"), reservation("job-2"))
    handler = ReviewHandler(seen)
    assert (await create(handler, child(suspend=False, gang="set-1"), user=JOBSET_CONTROLLER)).allowed
    assert (await create(handler, child(suspend=True), user=JOBSET_CONTROLLER)).allowed
    for suspend in (False, True):
        forged = await create(handler, child(suspend=suspend, gang="job-2"), user=JOBSET_CONTROLLER)
        assert not forged.allowed
        assert "job-2" in forged.message


async def test_a_childs_child_runs_with_the_gang_at_the_top() -> None:
    """A TrainJob's JobSet is not kept in the view; its Jobs bear the TrainJob's gang."""
    held = reservation("train-1", kind="TrainJob.trainer.kubeflow.org")
    handler = ReviewHandler(with_ledger(view(), held))
    assert (await create(handler, child(suspend=False, gang="train-1"), user=JOBSET_CONTROLLER)).allowed
    stopping = reservation("train-1", kind="TrainJob.trainer.kubeflow.org", stopping="Preempted")
    refused = await create(
        ReviewHandler(with_ledger(view(), stopping)), child(suspend=False, gang="train-1"), JOBSET_CONTROLLER
    )
    assert "is being stopped" in refused.message


async def test_a_plain_job_does_not_become_a_child_by_its_owners_word() -> None:
    """Who writes the reference gets no label by it."""
    seen = with_ledger(known(view(), _jobset()), reservation("set-1", kind="JobSet.jobset.x-k8s.io"))
    handler, plain = ReviewHandler(seen), job(queue=None)
    plain["metadata"]["uid"] = "job-9"
    plain["spec"]["suspend"] = True
    owned = copy.deepcopy(plain)
    owned["metadata"]["ownerReferences"] = [OWNER]
    marked = with_mark(owned, ("spec", "template"), "labels", names.GANG_LABEL, "set-1")
    assert not (await update(handler, plain, marked)).allowed
    assert not (await update(handler, owned, marked)).allowed


def _jobset() -> dict[str, Any]:
    from tests.unit.server.jobs.test_children import jobset

    return jobset()


def test_marks_are_found_at_any_depth_and_told_apart_from_selectors() -> None:
    deep: dict[str, Any] = {"labels": {names.GANG_LABEL: "x"}}
    for _ in range(1500):
        deep = {"a": [deep]}
    assert list(own_marks(deep).values()) == ["x"]
    chosen = {"spec": {"affinity": {"labelSelector": {"matchLabels": {names.GANG_LABEL: "x"}}}}}
    assert own_marks(chosen) == {}
    assert own_marks({"labels": None, "annotations": [1], "metadata": {"labels": "x"}}) == {}


async def test_a_pod_that_claims_a_gang_is_judged_by_the_owner_it_has() -> None:
    from tests.unit.server.reviews import pod

    handler = ReviewHandler(with_ledger(view(), reservation()))
    mine = await ask(handler, "/validate/pods", review(pod(gang="job-1"), user=JOB_CONTROLLER))
    assert mine.allowed
    squatter = await ask(
        handler, "/validate/pods", review(pod(uid="p2", gang="job-1", owner="job-7"), user=JOB_CONTROLLER)
    )
    assert not squatter.allowed
    assert "Job train" in squatter.message
    assert "job-7" in squatter.message
