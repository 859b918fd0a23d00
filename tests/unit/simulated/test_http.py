"""The HTTP front end over real sockets: callers, streams, tables, warnings, aggregated APIs."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import aiohttp
import orjson
import pytest
import trustme
from aiohttp import web

from tests.unit.simulated.clients import JOBS, config_map, job
from webhook.simulated.aggregation import Aggregator
from webhook.simulated.cluster import SimulatedCluster
from webhook.simulated.controllers.base import Pace
from webhook.simulated.http import HttpFrontEnd, serve
from webhook.simulated.identity import ADMIN, User

CONFIGMAPS = "/api/v1/namespaces/team-a/configmaps"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
SPEEDY = Pace(0.001, 0.001, 0.001)


@pytest.fixture
async def running() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(Random(1), pace=SPEEDY, namespaces=["team-a"]) as cluster:
        await cluster.add_node("n1", gpu="8")
        yield cluster


@pytest.fixture
async def front(running: SimulatedCluster) -> AsyncIterator[HttpFrontEnd]:
    tokens = {"root": ADMIN, "ann": User.named("ann")}
    front = await serve(running.router, tokens)
    yield front
    await front.close()


@pytest.fixture
async def http(front: HttpFrontEnd) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(front.url, headers={"Authorization": "Bearer root"}) as session:
        yield session


async def test_a_caller_without_a_known_token_is_unauthorized(front: HttpFrontEnd) -> None:
    async with aiohttp.ClientSession(front.url) as session:
        for headers in ({}, {"Authorization": "Bearer guessed"}):
            async with session.get("/api/v1/pods", headers=headers) as answer:
                assert answer.status == 401
                assert (await answer.json())["reason"] == "Unauthorized"


async def test_objects_are_created_read_and_refused_over_http(http: aiohttp.ClientSession) -> None:
    async with http.post(CONFIGMAPS, json=config_map("a")) as answer:
        assert answer.status == 201
    async with http.post(CONFIGMAPS, json=config_map("a")) as answer:
        assert answer.status == 409
        assert (await answer.json())["details"] == {"name": "a", "kind": "configmaps"}
    async with http.get("/api/v1/nothing") as answer:
        assert answer.status == 404
    async with http.post(CONFIGMAPS, data=b"k8s\x00proto") as answer:
        assert answer.status == 415


async def test_a_watch_streams_lines_until_the_server_stops(http: aiohttp.ClientSession, front: HttpFrontEnd) -> None:
    async with http.get(CONFIGMAPS, params={"watch": "true"}) as stream:
        async with http.post(CONFIGMAPS, json=config_map("a")):
            pass
        event = orjson.loads(await stream.content.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        await front.close()
        assert await stream.content.readline() == b""


async def test_tables_have_the_columns_that_users_know(http: aiohttp.ClientSession) -> None:
    async with http.post(JOBS, json=job("a", suspend=True)):
        pass
    await asyncio.sleep(0.1)
    async with http.get(JOBS, headers=TABLE) as answer:
        table = await answer.json()
    assert table["kind"] == "Table"
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Status", "Completions", "Duration", "Age"]
    assert table["rows"][0]["cells"][:3] == ["a", "Suspended", "0/2"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_columns_of_a_definition_are_printed(http: aiohttp.ClientSession) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    version = {"name": "v1", "served": True, "storage": True, "additionalPrinterColumns": columns}
    names = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]}
    spec = {"group": "example.com", "names": names, "scope": "Cluster", "versions": [version]}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    definition = {**body, "metadata": {"name": "widgets.example.com"}, "spec": spec}
    async with http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=definition):
        pass
    ready = {"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]}
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}}
    async with http.post("/apis/example.com/v1/widgets", json={**widget, "status": ready}):
        pass
    async with http.get("/apis/example.com/v1/widgets", headers=TABLE) as answer:
        assert (await answer.json())["rows"][0]["cells"][:3] == ["w", 3, "True"]


async def test_administrators_may_act_as_somebody_else_and_others_may_not(
    running: SimulatedCluster, http: aiohttp.ClientSession
) -> None:
    async with http.get(CONFIGMAPS, headers={"Impersonate-User": "jane"}) as answer:
        assert answer.status == 200
    headers = {"Authorization": "Bearer ann", "Impersonate-User": "jane"}
    async with http.get(CONFIGMAPS, headers=headers) as answer:
        assert answer.status == 403


async def test_discovery_names_groups_resources_and_short_names(http: aiohttp.ClientSession) -> None:
    async with http.get("/apis") as answer:
        groups = {group["name"] for group in (await answer.json())["groups"]}
    assert {"batch", "kueue.x-k8s.io", "jobset.x-k8s.io"} <= groups
    async with http.get("/apis/kueue.x-k8s.io/v1beta2") as answer:
        resources = {entry["name"]: entry for entry in (await answer.json())["resources"]}
    assert resources["clusterqueues"]["shortNames"] == ["cq"]
    assert not resources["clusterqueues"]["namespaced"]
    async with http.get("/version") as answer:
        assert (await answer.json())["minor"] == "36"


async def test_an_aggregated_api_is_passed_on_with_the_callers_name(
    running: SimulatedCluster, aiohttp_free_port: int
) -> None:
    seen: list[tuple[str, str, list[str]]] = []

    async def answer(request: web.Request) -> web.Response:
        user, groups = request.headers["X-Remote-User"], request.headers.getall("X-Remote-Group")
        seen.append((request.path_qs, user, groups))
        return web.json_response({"kind": "WorkloadList"}, status=200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", aiohttp_free_port).start()
    aggregator = Aggregator(running.server.store, lambda service: f"http://127.0.0.1:{aiohttp_free_port}")
    front = await serve(running.router, {"ann": User.named("ann")}, aggregator=aggregator)
    service = {"name": "tutti-visibility", "namespace": "tutti-system", "port": 443}
    spec = {"group": "visibility.tutti.dev", "version": "v1alpha1", "service": service}
    body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "spec": spec}
    await running.create({**body, "metadata": {"name": "v1alpha1.visibility.tutti.dev"}})
    try:
        async with aiohttp.ClientSession(front.url, headers={"Authorization": "Bearer ann"}) as session:
            path = "/apis/visibility.tutti.dev/v1alpha1/namespaces/team-a/workloads?limit=5"
            async with session.get(path) as passed:
                assert (await passed.json()) == {"kind": "WorkloadList"}
            async with session.get("/apis") as listed:
                assert "visibility.tutti.dev" in {group["name"] for group in (await listed.json())["groups"]}
    finally:
        await front.close()
        await runner.cleanup()
    assert seen == [(path, "ann", ["system:authenticated"])]


async def test_it_serves_tls(running: SimulatedCluster) -> None:
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)
    front = await serve(running.router, {"root": ADMIN}, server_side)
    try:
        async with (
            aiohttp.ClientSession(headers={"Authorization": "Bearer root"}) as session,
            session.get(f"{front.url}/readyz", ssl=client_side) as answer,
        ):
            assert await answer.text() == "ok"
    finally:
        await front.close()


async def test_warnings_of_webhooks_travel_as_headers(running: SimulatedCluster, http: aiohttp.ClientSession) -> None:
    from webhook.simulated.admission import registrations

    async def review(path: str, body: bytes) -> bytes:
        uid = orjson.loads(body)["request"]["uid"]
        response = {"uid": uid, "allowed": True, "warnings": ['queue "x" is unknown', 'queue "x" is unknown']}
        return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    hook = {"name": "w.example.com", "clientConfig": {"url": "https://x/w"}, "rules": [rule]}
    configuration: dict[str, Any] = {
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [hook],
    }
    running.server.admission.register(*registrations(configuration, review))
    async with http.post(CONFIGMAPS, json=config_map("a")) as answer:
        assert answer.headers.getall("Warning") == ['299 - "queue \\"x\\" is unknown"']


@pytest.fixture
def aiohttp_free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
