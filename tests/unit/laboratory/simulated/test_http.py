"""The HTTP front end over real sockets: callers, streams, warnings."""

import ssl
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import aiohttp
import orjson
import pytest
import trustme

from tests.unit.laboratory.simulated.clients import config_map
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.base import Pace
from webhook.laboratory.simulated.http import HttpFrontEnd, serve
from webhook.laboratory.simulated.requests.identity import ADMIN, User

CONFIGMAPS = "/api/v1/namespaces/team-a/configmaps"
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
    from webhook.laboratory.simulated.admission.webhooks import registrations

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
