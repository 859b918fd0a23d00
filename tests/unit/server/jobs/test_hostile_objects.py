"""Rows 25 to 39 of the forty-four bad inputs: odd objects, and callers who claim to be somebody else."""

import copy
from typing import Any

import orjson
import pytest

from tests.unit.server.http.test_hostile_inputs import document, judged, suspended
from tests.unit.server.reviews import (
    ACCOUNT,
    ALICE,
    GPU,
    JOB_CONTROLLER,
    job,
    pod,
    reservation,
    review,
    view,
    with_ledger,
)
from webhook.core.notation import names
from webhook.server.handler import ReviewHandler
from webhook.server.review.settings import ReviewSettings

SETTINGS = ReviewSettings()


@pytest.fixture
def handler() -> ReviewHandler:
    return ReviewHandler(with_ledger(view(), reservation()))


# -- 25 to 33: the object


async def test_25_mutation_is_idempotent(handler: ReviewHandler) -> None:
    first = await judged(handler, review(job()), "/mutate/jobs")
    assert (await judged(handler, review(job()), "/mutate/jobs")).patch == first.patch
    assert (await judged(handler, review(first.applied(job())), "/mutate/jobs")).patch == []


@pytest.mark.parametrize("labels", [None, {}, {"a/b~c": "d"}, "absent"])
@pytest.mark.parametrize("annotations", [None, {}, {"a/b~c": "d"}, "absent"])
async def test_26_maps_in_every_state(handler: ReviewHandler, labels: Any, annotations: Any) -> None:
    obj = job()
    template = {key: value for key, value in (("labels", labels), ("annotations", annotations)) if value != "absent"}
    obj["spec"]["template"]["metadata"] = template
    stored = (await judged(handler, review(obj), "/mutate/jobs")).applied(obj)
    assert stored["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] == names.GANG_PENDING
    assert (await judged(handler, review(stored))).allowed


async def test_27_our_patch_adds_only_what_always_fits(handler: ReviewHandler) -> None:
    """Labels of fixed, short value: neither the 256 KiB of annotations nor a label's 63 characters can be exceeded."""
    obj = job()
    obj["metadata"]["annotations"] = {"filler": "x" * (256 * 1024 - 7)}
    patch = (await judged(handler, review(obj), "/mutate/jobs")).patch
    assert not any("annotations" in operation["path"] for operation in patch)


@pytest.mark.parametrize(
    "containers_", [None, [], [None], [{}], "x", [{"name": "a", "resources": None}], [{"image": "x"}] * 10_000]
)
async def test_28_containers(handler: ReviewHandler, containers_: Any) -> None:
    obj = suspended()
    obj["spec"]["template"]["spec"]["containers"] = containers_
    assert (await judged(handler, review(obj))).code in (200, 422)
    bare = pod()
    bare["spec"]["containers"] = containers_
    assert (await judged(handler, review(bare), "/validate/pods")).code in (200, 422)


@pytest.mark.parametrize("amount", ["0", "9P"])
async def test_28_more_resource_names_than_a_reservation_holds(handler: ReviewHandler, amount: str) -> None:
    """Every gang's reservation stands in one ledger: such a job would take it all."""
    obj = suspended()
    limits = obj["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits |= {f"a.b/{number}": amount for number in range(460)}
    answer = await judged(handler, review(obj))
    assert answer.code == 422
    assert "resources of pod set main name 46" in answer.message
    assert "at most 64" in answer.message
    limits |= {f"a.b/{number}": amount for number in range(4600)}
    answer = await judged(handler, review(obj))
    assert answer.code == 422
    assert "are more than 1000" in answer.message


async def test_a_template_whose_pods_take_years_to_go(handler: ReviewHandler) -> None:
    obj = suspended()
    obj["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 3600
    assert (await judged(handler, review(obj))).allowed
    obj["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 10**9
    answer = await judged(handler, review(obj))
    assert answer.code == 422
    assert "terminationGracePeriodSeconds: 3600 or less" in answer.message


@pytest.mark.parametrize("value", ["", "-1", "0x10", "１", " 1", "1 ", None, True, {}, [], "1.5", "1500m", "NaN", 1.5])
async def test_29_a_gpu_count_is_a_whole_number(handler: ReviewHandler, value: Any) -> None:
    obj = suspended()
    obj["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][GPU] = value
    assert (await judged(handler, review(obj))).code == 422


@pytest.mark.parametrize("value", ["1", "1k", "1e3", "2e0", "2000m", 1])
async def test_29_however_it_is_written(handler: ReviewHandler, value: Any) -> None:
    obj = suspended()
    obj["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][GPU] = value
    assert (await judged(handler, review(obj))).allowed


@pytest.mark.parametrize(
    "spec",
    [
        {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "gpu"}]},
        {"containers": [{"name": "a", "resources": {"claims": [{"name": "a"}]}}]},
        {"futureResources": {"requests": {GPU: "1"}}},
    ],
    ids=["claims of the pod", "claims of a container", "a field of the future"],
)
async def test_30_what_cannot_be_priced_is_refused_by_name(handler: ReviewHandler, spec: dict[str, Any]) -> None:
    obj = suspended()
    obj["spec"]["template"]["spec"] |= spec
    answer = await judged(handler, review(obj))
    assert answer.code == 422
    assert "cannot be counted" in answer.message


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {GPU: "1"}},
        {"requests": {GPU: "1"}},
        {"limits": {"nvidia.com/mig-1g.5gb": "1"}},
        {"limits": {"amd.com/gpu": "1"}},
        {"limits": {"deviceclass.resource.kubernetes.io/x": "1"}},
    ],
)
async def test_30_what_can_be_is_held_to_its_place(handler: ReviewHandler, resources: dict[str, Any]) -> None:
    obj = pod(gang="job-1", version="1.1")
    obj["spec"]["containers"] = [{"name": "a", "resources": resources}, {"name": "b", "resources": resources}]
    answer = await judged(handler, review(obj, user=JOB_CONTROLLER), "/validate/pods")
    assert not answer.allowed


@pytest.mark.parametrize(
    ("parallelism", "code"), [(None, 200), (0, 200), (-1, 422), (2**31, 422), ("4", 422), (1.5, 422)]
)
async def test_31_parallelism(handler: ReviewHandler, parallelism: Any, code: int) -> None:
    obj = suspended()
    obj["spec"] |= {"parallelism": parallelism, "completions": None}
    assert (await judged(handler, review(obj))).code == code


@pytest.mark.parametrize("suspend", [None, False, "absent"])
async def test_32_a_queued_job_is_born_suspended(handler: ReviewHandler, suspend: Any) -> None:
    obj = suspended()
    obj["spec"]["suspend"] = suspend
    if suspend == "absent":
        del obj["spec"]["suspend"]
    assert (await judged(handler, review(obj))).code == 403


async def test_32_our_account_alone_flips_it() -> None:
    handler = ReviewHandler(view())
    started = {**suspended(), "spec": suspended()["spec"] | {"suspend": False}}
    for user, allowed in ((ALICE, False), (JOB_CONTROLLER, False), (ACCOUNT, True), (ACCOUNT.upper(), False)):
        body = review(started, old=suspended(), operation="UPDATE", user=user)
        assert (await judged(handler, body)).allowed is allowed


async def test_33_a_reserved_gang_keeps_size_queue_and_annotations(handler: ReviewHandler) -> None:
    larger, moved, forged = suspended(gpu="8"), suspended(queue="other"), suspended()
    forged["metadata"]["annotations"] = {names.ADMISSION: "{}"}
    for new in (larger, moved, forged):
        assert not (await judged(handler, review(new, old=suspended(), operation="UPDATE"))).allowed


# -- 34 to 39: who and what it claims to be


async def test_34_owners_are_believed_by_uid_and_requester_only(handler: ReviewHandler) -> None:
    many = pod(gang="job-1", version="1.1")
    many["metadata"]["ownerReferences"] = [
        {"kind": "Job", "apiVersion": "batch/v1", "uid": f"u{n}", "name": "x"} for n in range(1000)
    ]
    assert not (await judged(handler, review(many, user=JOB_CONTROLLER), "/validate/pods")).allowed
    forged = pod(gang="job-1", version="1.1")
    assert not (await judged(handler, review(forged, user=ALICE), "/validate/pods")).allowed
    twice = pod(gang="job-1", version="1.1")
    twice["metadata"]["ownerReferences"] *= 2
    assert (await judged(handler, review(twice, user=JOB_CONTROLLER), "/validate/pods")).code == 422


@pytest.mark.parametrize("user_info", [None, {}, {"username": ""}, {"username": None}])
async def test_35_nobody_is_unprivileged(handler: ReviewHandler, user_info: Any) -> None:
    started = {**suspended(), "spec": suspended()["spec"] | {"suspend": False}}
    body = orjson.loads(review(started, old=suspended(), operation="UPDATE"))
    body["request"]["userInfo"] = user_info
    assert not (await judged(handler, orjson.dumps(body))).allowed


async def test_36_finalizers_of_a_deleted_object_are_never_held(handler: ReviewHandler) -> None:
    old = suspended()
    old["metadata"] |= {"finalizers": ["a"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    new = copy.deepcopy(old)
    del new["metadata"]["finalizers"]
    assert (await judged(handler, review(new, old=old, operation="UPDATE"))).allowed


async def test_37_huge_and_unknown_fields_are_ignored(handler: ReviewHandler) -> None:
    obj = suspended()
    obj["metadata"]["managedFields"] = [{"fieldsV1": {"f:x": {}}, "manager": "x" * 2**20}]
    obj["spec"]["newField"] = {"a": [1, 2, {"b": None}]}
    obj["futureTopLevel"] = True
    found = document(object=obj, newRequestField={"a": 1})
    assert (await judged(handler, orjson.dumps(found | {"newEnvelopeField": []}))).allowed


async def test_38_a_unfit_template_is_for_the_scheduler_and_for_mirror_pods() -> None:
    handler = ReviewHandler(view())
    preset = pod(nodeName="node-7")
    assert not (await judged(handler, review(preset), "/validate/pods")).allowed
    assert (await judged(handler, review(preset), "/mutate/pods")).patch == []
    preset["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
    assert (await judged(handler, review(preset, user="system:node:node-7"), "/validate/pods")).allowed


@pytest.mark.parametrize("name", ["tr\u0430in", "\u202enimda", 'a"b', "a\nb", "x" * 5000, "a\x00b", "\u200bx"])
async def test_39_names_do_not_reach_messages_raw(handler: ReviewHandler, name: str) -> None:
    obj = suspended(queue=name)
    obj["metadata"]["name"] = name
    for text in [
        *(await judged(handler, review(obj))).warnings,
        (await judged(handler, review(job(name=name)))).message,
    ]:
        assert text.isprintable()
        assert len(text) <= 1024
