"""The order and the shape in which webhooks are called, and what their answers do."""

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.unit.laboratory.simulated.clients import CONFIGMAPS, JOBS, PODS, Client, config_map, eventually, job
from webhook import errors
from webhook.laboratory.simulated.admission.webhooks import registrations
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.requests.identity import User

pytestmark = pytest.mark.virtual_time

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Webhook:
    """Answers every review by a function and remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, path: str, body: bytes) -> bytes:
        request = orjson.loads(body)["request"]
        self.asked.append({**request, "path": path})
        response = {"uid": request["uid"], "allowed": True, **self.answer(request)}
        return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def allow(request: dict[str, Any]) -> dict[str, Any]:
    return {}


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(operations)).decode()}


def register(cluster: SimulatedCluster, name: str, hook: Webhook, *, mutating: bool = False, **fields: Any) -> None:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["configmaps", "jobs", "pods"]}
    entry = {
        "name": f"{name}.example.com",
        "clientConfig": {"service": {"name": "x", "namespace": "y", "path": f"/{name}"}},
        "rules": [{**rule, **fields.pop("rule", {})}],
        **fields,
    }
    kind = "MutatingWebhookConfiguration" if mutating else "ValidatingWebhookConfiguration"
    configuration = {"kind": kind, "metadata": {"name": name}, "webhooks": [entry]}
    cluster.server.admission.register(*registrations(configuration, hook))


async def test_mutating_webhooks_run_by_name_before_validating_ones(cluster: SimulatedCluster, client: Client) -> None:
    order: list[str] = []

    def add(name: str) -> Answer:
        def answer(request: dict[str, Any]) -> dict[str, Any]:
            order.append(name)
            return patch({"op": "add", "path": f"/data/{name}", "value": "1"})

        return answer

    def look(request: dict[str, Any]) -> dict[str, Any]:
        order.append("validate")
        return {"allowed": request["object"]["data"] == {"x": "1", "a": "1", "b": "1"}}

    register(cluster, "b", Webhook(add("b")), mutating=True)
    register(cluster, "0-look", Webhook(look))
    register(cluster, "a", Webhook(add("a")), mutating=True)
    made = await client.post(CONFIGMAPS, config_map("c", x="1"))
    assert order == ["a", "b", "validate"]
    assert made["data"] == {"x": "1", "a": "1", "b": "1"}


async def test_the_mutating_phase_sees_no_uid_and_the_validating_phase_does(
    cluster: SimulatedCluster, client: Client
) -> None:
    mutate, validate = Webhook(allow), Webhook(allow)
    register(cluster, "m", mutate, mutating=True)
    register(cluster, "v", validate)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "log-", "uid": "mine"}}
    await client.post(CONFIGMAPS, body)
    (first,), (second,) = mutate.asked, validate.asked
    assert "uid" not in first["object"]["metadata"]
    assert "name" not in first["object"]["metadata"]
    assert "name" not in first
    assert len(second["object"]["metadata"]["uid"]) == 36
    assert second["name"].startswith("log-")
    assert first["uid"] != second["uid"]


async def test_a_review_names_operation_resource_user_and_both_objects(
    cluster: SimulatedCluster, client: Client
) -> None:
    hook = Webhook(allow)
    register(cluster, "v", hook)
    await client.post(CONFIGMAPS, config_map("a"))
    user = Client(cluster.api(User.service_account("team-a", "builder")))
    await user.merge(f"{CONFIGMAPS}/a", {"data": {"x": "1"}})
    await client.delete(f"{CONFIGMAPS}/a")
    create, update, delete = hook.asked
    assert create["oldObject"] is None
    assert create["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert create["kind"] == create["requestKind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert (update["operation"], update["object"]["data"], update["oldObject"]["data"]) == ("UPDATE", {"x": "1"}, {})
    assert update["userInfo"]["username"] == "system:serviceaccount:team-a:builder"
    assert "system:serviceaccounts:team-a" in update["userInfo"]["groups"]
    assert (delete["operation"], delete["object"], delete["oldObject"]["data"]) == ("DELETE", None, {"x": "1"})
    assert delete["path"] == "/v"
    assert delete["options"]["kind"] == "DeleteOptions"
    assert create["dryRun"] is False


async def test_a_denial_is_told_with_the_webhooks_name_and_code(cluster: SimulatedCluster, client: Client) -> None:
    answer = {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": "no room: 3 of 2 GPUs"}}
    register(cluster, "v", Webhook(lambda request: answer))
    with pytest.raises(errors.Invalid) as caught:
        await client.post(CONFIGMAPS, config_map("a"))
    assert caught.value.status == 422
    expected = 'admission webhook "v.example.com" denied the request: no room: 3 of 2 GPUs'
    assert caught.value.message == expected


async def test_selectors_of_namespace_and_object_decide_who_is_asked(cluster: SimulatedCluster, client: Client) -> None:
    by_namespace, by_object = Webhook(allow), Webhook(allow)
    wanted = {"matchLabels": {"kubernetes.io/metadata.name": "team-b"}}
    register(cluster, "n", by_namespace, namespaceSelector=wanted)
    register(cluster, "o", by_object, objectSelector={"matchLabels": {"queue": "x"}})
    await client.post(CONFIGMAPS, config_map("a"))
    await client.merge(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"queue": "x"}}})
    await client.merge(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"queue": None}}})
    await client.merge(f"{CONFIGMAPS}/a", {"data": {"x": "1"}})
    assert by_namespace.asked == []
    assert [request["operation"] for request in by_object.asked] == ["UPDATE", "UPDATE"]


async def test_subresources_are_asked_about_only_where_they_are_named(
    cluster: SimulatedCluster, client: Client
) -> None:
    main, scale = Webhook(allow), Webhook(allow)
    register(cluster, "m", main, rule={"resources": ["pytorchjobs"], "operations": ["UPDATE"]})
    register(cluster, "s", scale, rule={"resources": ["*/scale"]})
    path = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs"
    replicas = {"Worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": replicas}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "t"}, "spec": spec}
    await client.post(path, body)
    await client.merge(f"{path}/t/scale", {"spec": {"replicas": 3}})
    assert main.asked == []
    (review,) = scale.asked
    assert (review["subResource"], review["kind"]["kind"], review["resource"]["resource"]) == (
        "scale",
        "Scale",
        "pytorchjobs",
    )
    assert (review["oldObject"]["spec"], review["object"]["spec"]) == ({"replicas": 1}, {"replicas": 3})


async def broken(path: str, body: bytes) -> bytes:
    raise ConnectionError("connection refused")


async def silent(path: str, body: bytes) -> bytes:
    await asyncio.sleep(3600)
    return b""


@pytest.mark.parametrize("hook", [broken, silent])
async def test_a_webhook_that_does_not_answer_follows_its_failure_policy(
    cluster: SimulatedCluster, client: Client, hook: Any
) -> None:
    register(cluster, "open", hook, failurePolicy="Ignore", timeoutSeconds=2)
    await client.post(CONFIGMAPS, config_map("a"))
    register(cluster, "closed", hook, failurePolicy="Fail", timeoutSeconds=2)
    with pytest.raises(errors.Unavailable, match='failed calling webhook "closed'):
        await client.post(CONFIGMAPS, config_map("b"))
    assert await client.names(CONFIGMAPS) == ["a"]


async def test_a_patch_that_does_not_apply_fails_even_an_open_webhook(
    cluster: SimulatedCluster, client: Client
) -> None:
    answer = patch({"op": "remove", "path": "/data/nothing"})
    register(cluster, "m", Webhook(lambda request: answer), mutating=True, failurePolicy="Ignore")
    with pytest.raises(errors.Unavailable, match="Internal error occurred"):
        await client.post(CONFIGMAPS, config_map("a"))


@pytest.mark.parametrize(
    "answer",
    [{"uid": "other"}, {"patch": "W10="}, patch({"op": "add", "path": "/data/y", "value": "1"})],
    ids=["another uid", "patch without type", "patch while validating"],
)
async def test_answers_that_break_the_contract_count_as_failure(
    cluster: SimulatedCluster, client: Client, answer: dict[str, Any]
) -> None:
    register(cluster, "v", Webhook(lambda request: answer))
    with pytest.raises(errors.Unavailable, match="failed calling webhook"):
        await client.post(CONFIGMAPS, config_map("a"))


async def test_a_webhook_marked_for_it_is_called_again_when_a_later_one_changed_the_object(
    cluster: SimulatedCluster, client: Client
) -> None:
    first = Webhook(allow)
    register(cluster, "a", first, mutating=True, reinvocationPolicy="IfNeeded")
    change = patch({"op": "add", "path": "/data/b", "value": "1"})
    register(cluster, "b", Webhook(lambda request: change), mutating=True)
    await client.post(CONFIGMAPS, config_map("c", x="1"))
    assert [request["object"]["data"] for request in first.asked] == [{"x": "1"}, {"x": "1", "b": "1"}]


async def test_a_patch_on_a_hot_object_is_reviewed_again_and_loses_nothing(
    cluster: SimulatedCluster, client: Client
) -> None:
    async def slow(path: str, body: bytes) -> bytes:
        await asyncio.sleep(1)
        return await inner(path, body)

    inner = Webhook(allow)
    await client.post(CONFIGMAPS, config_map("a"))
    register(cluster, "v", slow)  # type: ignore[arg-type]
    writes = [client.merge(f"{CONFIGMAPS}/a", {"data": {name: "1"}}) for name in "xyz"]
    await asyncio.gather(*writes)
    assert (await client.get(f"{CONFIGMAPS}/a"))["data"] == {"x": "1", "y": "1", "z": "1"}
    assert len(inner.asked) > 3


async def test_pods_arrive_from_the_job_controllers_own_account(cluster: SimulatedCluster, client: Client) -> None:
    hook = Webhook(allow)
    register(cluster, "v", hook, rule={"resources": ["pods"], "operations": ["CREATE"]})
    await client.post(JOBS, job("a"))

    async def created() -> bool:
        return len(await client.names(PODS)) == 2

    await eventually(created)
    users = {request["userInfo"]["username"] for request in hook.asked}
    assert users == {"system:serviceaccount:kube-system:job-controller"}


async def test_a_job_whose_pods_are_denied_tries_again_with_a_back_off(
    cluster: SimulatedCluster, client: Client
) -> None:
    hook = Webhook(lambda request: {"allowed": False, "status": {"code": 403, "message": "not yet"}})
    register(cluster, "v", hook, rule={"resources": ["pods"], "operations": ["CREATE"]})
    await client.post(JOBS, job("a", pods=4))
    await asyncio.sleep(20)
    assert 3 <= len(hook.asked) <= 8
    hook.answer = allow

    async def created() -> bool:
        return len(await client.names(PODS)) == 4

    await eventually(created)
