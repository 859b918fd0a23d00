"""Webhook configurations are followed as objects, and their Services called over TLS under their caBundle alone."""

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest
import trustme
from aiohttp import web

from webhook.laboratory.simulated.admission.remote_reviews import RemoteReviews
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.requests.refusals import Refused


@asynccontextmanager
async def reviewer(authority: trustme.CA, asked: list[str], allowed: bool) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        review = orjson.loads(await request.read())
        asked.append(f"{request.path}?{request.query_string}")
        status = {"code": 403, "message": "not today"}
        response = {"uid": review["request"]["uid"], "allowed": allowed, "status": status}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("gate.default.svc").configure_cert(tls)
    app = web.Application()
    app.router.add_post("/validate", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


SERVICE = ("default", "gate")


def configuration(authority: trustme.CA, name: str = "gate") -> dict[str, Any]:
    bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
    rule = {"apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"], "operations": ["CREATE"]}
    client = {"service": {"namespace": "default", "name": name, "path": "/validate"}, "caBundle": bundle}
    hook = {"name": "a.example", "clientConfig": client, "rules": [rule], "timeoutSeconds": 3}
    kind = "ValidatingWebhookConfiguration"
    metadata = {"name": "tutti"}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "webhooks": [hook]}


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


async def test_a_review_travels_to_the_service_with_its_time_out_and_its_refusal_comes_back() -> None:
    authority, asked = trustme.CA(), list[str]()
    async with SimulatedCluster(Random(1)) as cluster, reviewer(authority, asked, allowed=False) as url:
        reviews = RemoteReviews(cluster.server, {SERVICE: url})
        await cluster.create(configuration(authority))
        with pytest.raises(Refused, match="not today"):
            await cluster.create(config_map("refused"))
        assert asked == ["/validate?timeout=3s"]
        await reviews.close()


async def test_a_configuration_that_is_deleted_asks_nobody_any_more() -> None:
    authority, asked = trustme.CA(), list[str]()
    async with SimulatedCluster(Random(1)) as cluster, reviewer(authority, asked, allowed=False) as url:
        reviews = RemoteReviews(cluster.server, {SERVICE: url})
        await cluster.create(configuration(authority))
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tutti"
        await cluster.api().request("DELETE", path)
        await cluster.create(config_map("let-through"))
        assert asked == []
        await reviews.close()


async def test_a_webhook_of_another_authority_is_not_believed_and_fails_closed() -> None:
    asked = list[str]()
    async with SimulatedCluster(Random(1)) as cluster, reviewer(trustme.CA(), asked, allowed=True) as url:
        reviews = RemoteReviews(cluster.server, {SERVICE: url})
        await cluster.create(configuration(trustme.CA()))
        with pytest.raises(Refused, match="failed calling webhook"):
            await cluster.create(config_map("refused"))
        assert asked == []
        await reviews.close()


async def test_a_service_that_is_not_there_answers_nobody_and_fails_closed() -> None:
    authority, asked = trustme.CA(), list[str]()
    async with SimulatedCluster(Random(1)) as cluster, reviewer(authority, asked, allowed=True) as url:
        reviews = RemoteReviews(cluster.server, {SERVICE: url})
        await cluster.create(configuration(authority, "other"))
        with pytest.raises(Refused, match="failed calling webhook"):
            await cluster.create(config_map("refused"))
        assert asked == []
        await reviews.close()
