"""The HTTP surface: what kubectl and client-go ask, and what they are told when they ask wrongly."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer

from tests.unit.visibility.world import World
from webhook.server.http import listener
from webhook.visibility.http.app import build_app
from webhook.visibility.http.group import ROOT
from webhook.visibility.http.selecting import SELECTOR_BYTES_MAX, TERMS_MAX

TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
Client = TestClient[web.Request, web.Application]


def app_of(world: World, refusal: Callable[[web.Request], str | None] = lambda request: None) -> web.Application:
    return build_app(world.cache, world.reporter, now=lambda: world.now, refusal=refusal)


@pytest.fixture
def world() -> World:
    made = World()
    made.settle_seconds = 0.6
    made.admits(made.waits("first", cpu=3, pods=2))
    made.waits("late", cpu=3, pods=1, labels={"app": "late"})
    made.waits("other", team="speech")
    return made


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with TestClient(TestServer(app_of(world))) as made:
        yield made


async def get(client: Client, path: str, **query: str) -> Any:
    async with client.get(path, params=query) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


def jobs(answer: Any) -> list[str]:
    return [item["metadata"]["ownerReferences"][0]["name"] for item in answer["items"]]


async def test_discovery_names_both_resources(client: Client) -> None:
    resources = (await get(client, ROOT))["resources"]
    assert [(r["name"], r["singularName"], r["kind"], r["namespaced"]) for r in resources] == [
        ("workloads", "workload", "Workload", True),
        ("queues", "queue", "Queue", True),
    ]
    assert all(r["verbs"] == ["get", "list", "watch"] for r in resources)


async def test_aggregated_discovery_is_answered_to_who_accepts_it(client: Client) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    async with client.get("/apis", headers={"Accept": accept}) as answer:
        assert answer.headers["Content-Type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        version = (await answer.json())["items"][0]["versions"][0]
    assert [resource["singularResource"] for resource in version["resources"]] == ["workload", "queue"]


async def test_lists_are_of_one_namespace_or_of_all(client: Client) -> None:
    found = await get(client, f"{ROOT}/workloads")
    assert (found["kind"], sorted(jobs(found))) == ("WorkloadList", ["first", "late", "other"])
    assert jobs(await get(client, f"{ROOT}/namespaces/team-speech/workloads")) == ["other"]
    assert jobs(await get(client, f"{ROOT}/namespaces/nobody/workloads")) == []
    assert int(found["metadata"]["resourceVersion"]) >= max(
        int(item["metadata"]["resourceVersion"]) for item in found["items"]
    )


async def test_selectors_by_label_name_and_queue(client: Client) -> None:
    path = f"{ROOT}/workloads"
    assert jobs(await get(client, path, labelSelector="app=late")) == ["late"]
    assert jobs(await get(client, path, labelSelector="app in (early)")) == []
    name = (await get(client, path, labelSelector="app=late"))["items"][0]["metadata"]["name"]
    assert jobs(await get(client, path, fieldSelector=f"metadata.name={name}")) == ["late"]
    assert jobs(await get(client, path, fieldSelector="status.admission.clusterQueue=vision")) == ["first"]
    assert sorted(jobs(await get(client, path, fieldSelector="status.admission.clusterQueue!=vision"))) == [
        "late",
        "other",
    ]


async def test_get_returns_one_document_or_a_status(client: Client) -> None:
    listed = (await get(client, f"{ROOT}/namespaces/team-vision/workloads"))["items"][0]
    assert await get(client, f"{ROOT}/namespaces/team-vision/workloads/{listed['metadata']['name']}") == listed
    async with client.get(f"{ROOT}/namespaces/team-vision/workloads/nope") as answer:
        assert answer.status == 404
        status = await answer.json()
    assert (status["kind"], status["reason"]) == ("Status", "NotFound")
    assert status["message"] == 'workloads.visibility.tutti.dev "nope" not found'
    assert status["details"] == {"group": "visibility.tutti.dev", "kind": "workloads", "name": "nope"}


async def test_tables_are_made_for_who_asks_for_them(client: Client) -> None:
    path = f"{ROOT}/namespaces/team-vision/workloads"
    async with client.get(path, headers={"Accept": TABLE}) as answer:
        made = await answer.json()
    assert (made["kind"], made["apiVersion"], len(made["rows"])) == ("Table", "meta.k8s.io/v1", 2)
    name = made["rows"][0]["cells"][0]
    async with client.get(f"{path}/{name}", headers={"Accept": TABLE}, params={"includeObject": "Object"}) as answer:
        row = (await answer.json())["rows"][0]
    assert row["object"]["kind"] == "Workload"
    async with client.get(path, headers={"Accept": f"application/json,{TABLE}"}) as answer:
        assert (await answer.json())["kind"] == "WorkloadList"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_written(client: Client, method: str) -> None:
    async with client.request(method, f"{ROOT}/namespaces/team-vision/workloads", data=b"{}") as answer:
        status = await answer.json()
    assert (answer.status, status["kind"], status["reason"]) == (405, "Status", "MethodNotAllowed")


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ({"labelSelector": "a=(b"}, "a=(b"),
        ({"fieldSelector": "spec.nodeName=x"}, "field label not supported: spec.nodeName"),
        ({"fieldSelector": "metadata.name"}, "not a field selector"),
        ({"watch": "1", "resourceVersion": "abc"}, "resourceVersion"),
        ({"watch": "1", "timeoutSeconds": "soon"}, "timeoutSeconds"),
    ],
)
async def test_a_malformed_query_is_a_bad_request(client: Client, query: dict[str, str], part: str) -> None:
    async with client.get(f"{ROOT}/workloads", params=query) as answer:
        status = await answer.json()
    assert (answer.status, status["reason"]) == (400, "BadRequest")
    assert part in status["message"]


@pytest.mark.parametrize("parameter", ["labelSelector", "fieldSelector"])
async def test_a_selector_has_a_size_and_a_number_of_terms(client: Client, parameter: str) -> None:
    path = f"{ROOT}/workloads"
    term = "metadata.name!=a" if parameter == "fieldSelector" else "!a"
    most = ",".join([term] * TERMS_MAX)
    await get(client, path, **{parameter: most})
    for text, said in (
        (f"{most},{term}", f"{parameter}: Too many: has 65 terms; at most 64 are read"),
        ("," * (SELECTOR_BYTES_MAX + 1), f"{parameter}: Too long: has 4097 bytes; at most 4096 are read"),
    ):
        async with client.get(path, params={parameter: text}) as answer:
            status = await answer.json()
        assert (answer.status, status["reason"], status["message"]) == (400, "BadRequest", said)


async def test_an_unknown_path_is_a_status_too(client: Client) -> None:
    async with client.get(f"{ROOT}/gangs") as answer:
        assert (answer.status, (await answer.json())["kind"]) == (404, "Status")


async def test_a_watch_goes_on_from_a_list_and_is_followed_while_it_is_open(client: Client, world: World) -> None:
    listed = await get(client, f"{ROOT}/namespaces/team-vision/workloads")
    query = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"], "timeoutSeconds": "30"}
    async with client.get(f"{ROOT}/namespaces/team-vision/workloads", params=query) as answer:
        world.waits("new")
        await world.documents("workloads")
        event = json.loads(await answer.content.readline())
    assert (event["type"], event["object"]["metadata"]["ownerReferences"][0]["name"]) == ("ADDED", "new")


async def test_a_watch_outlives_the_time_that_a_new_connection_has_to_speak(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "REAP_SECONDS", 0.05)
    monkeypatch.setattr(listener, "HEADER_SECONDS", 0.1)
    connections = listener.Connections()
    app = build_app(
        world.cache,
        world.reporter,
        now=lambda: world.now,
        refusal=lambda request: None,
        close_after=connections.close_after,
    )
    served = await listener.serve(app, "127.0.0.1", 0, connections=connections)
    query = {"watch": "1", "resourceVersion": str(world.cache.version)}
    url = f"http://127.0.0.1:{served.port}{ROOT}/namespaces/team-vision/workloads"
    async with ClientSession() as session, session.get(url, params=query) as answer:
        await answer.content.readline()
        await asyncio.sleep(0.5)
        world.waits("new")
        await world.documents("workloads")
        while b"job-new" not in (line := await answer.content.readline()):
            assert line, "the connection was closed"
    await served.close()


async def test_a_watch_of_one_name_tells_of_nothing_else(client: Client, world: World) -> None:
    listed = await get(client, f"{ROOT}/namespaces/team-vision/workloads", labelSelector="app=late")
    name, version = listed["items"][0]["metadata"]["name"], listed["metadata"]["resourceVersion"]
    query = {"watch": "1", "resourceVersion": version}
    async with client.get(f"{ROOT}/namespaces/team-vision/workloads/{name}", params=query) as answer:
        world.waits("new")
        world.admits(world.view.jobs["late"])
        await world.documents("workloads")
        event = json.loads(await answer.content.readline())
    assert (event["type"], event["object"]["metadata"]["name"]) == ("MODIFIED", name)


async def test_a_watch_from_too_long_ago_is_gone(client: Client) -> None:
    async with client.get(f"{ROOT}/workloads", params={"watch": "1", "resourceVersion": "5"}) as answer:
        status = await answer.json()
    assert (answer.status, status["reason"]) == (410, "Expired")


async def test_openapi_describes_what_is_served(client: Client, world: World) -> None:
    index = await get(client, "/openapi/v3")
    path = index["paths"]["apis/visibility.tutti.dev/v1alpha1"]["serverRelativeURL"]
    document = await get(client, path)
    schemas = document["components"]["schemas"]
    properties = schemas["dev.tutti.visibility.v1alpha1.Workload"]["properties"]
    shown = (await world.documents("workloads"))[0]
    assert set(shown) <= set(properties)
    assert {"conditions", "reason", "admission", "position", "pods"} <= set(properties["status"]["properties"])


async def test_a_caller_that_is_not_the_front_proxy_is_told_so_and_probes_pass(world: World) -> None:
    app = app_of(world, refusal=lambda request: "only kube-apiserver may call here")
    async with TestClient(TestServer(app)) as client:
        for path in ("/apis", ROOT, f"{ROOT}/workloads", "/openapi/v3"):
            async with client.get(path, headers={"X-Remote-User": "admin"}) as answer:
                status = await answer.json()
            assert (answer.status, status["reason"]) == (401, "Unauthorized")
        async with client.get("/healthz") as answer:
            assert answer.status == 200


async def test_nothing_is_answered_before_the_cluster_was_read(world: World) -> None:
    app = build_app(world.cache, world.reporter, now=lambda: 0, refusal=lambda request: None, ready=lambda: False)
    async with TestClient(TestServer(app)) as client, client.get(f"{ROOT}/workloads") as answer:
        assert (answer.status, (await answer.json())["reason"]) == (503, "ServiceUnavailable")
