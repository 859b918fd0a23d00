"""Only the front proxy is answered: real handshakes, with certificates of the right and of other authorities."""

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
import trustme

from tests.unit.server.http.test_tls import issue, takes_no_suite_in_cbc_mode
from tests.unit.visibility.world import World
from webhook.errors import Forbidden
from webhook.kube.client_certificate import common_name
from webhook.server.http.listener import ListeningApp, serve
from webhook.server.http.tls import ServingCertificate
from webhook.visibility.http.app import build_app
from webhook.visibility.http.front_proxy import FrontProxy, parse_trust
from webhook.visibility.http.group import ROOT

PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
EC = trustme.KeyType.ECDSA


class Cluster:
    """An API server that serves one ConfigMap."""

    def __init__(self, authority: trustme.CA, names: list[str]) -> None:
        self.refuses = False
        self.publish(authority, names)

    def publish(self, authority: trustme.CA, names: list[str]) -> None:
        self.data = {
            "requestheader-client-ca-file": authority.cert_pem.bytes().decode(),
            "requestheader-allowed-names": json.dumps(names),
        }

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        assert (method, path) == ("GET", PATH)
        if self.refuses:
            raise Forbidden(403, "Forbidden", "may not")
        return json.dumps({"data": self.data}).encode()


class Caller:
    """Who calls, with the certificate of an authority or without one."""

    def __init__(self, serving: trustme.CA, port: int) -> None:
        self._serving = serving
        self._port = port

    async def status(self, path: str, authority: trustme.CA | None = None, name: str = "front-proxy") -> int:
        trust = ssl.create_default_context()
        self._serving.configure_trust(trust)
        if authority is not None:
            authority.issue_cert(common_name=name, key_type=EC).configure_cert(trust)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://localhost:{self._port}{path}", ssl=trust) as answer,
        ):
            await answer.read()
            return answer.status


@pytest.fixture
def serving() -> trustme.CA:
    return trustme.CA(key_type=EC)


@pytest.fixture
def proxies() -> trustme.CA:
    return trustme.CA(key_type=EC)


@pytest.fixture
def cluster(proxies: trustme.CA) -> Cluster:
    return Cluster(proxies, ["front-proxy"])


@pytest.fixture
async def front(
    tmp_path: Path, serving: trustme.CA, cluster: Cluster
) -> AsyncIterator[tuple[FrontProxy, ListeningApp]]:
    issue(tmp_path, serving)
    certificate = ServingCertificate(tmp_path)
    proxy, world = FrontProxy(cluster, certificate.ask_clients), World()  # type: ignore[arg-type]
    app = build_app(world.cache, world.reporter, now=lambda: world.now, refusal=proxy.refusal)
    listener = await serve(app, "127.0.0.1", 0, tls=certificate.context)
    yield proxy, listener
    await listener.close()


async def test_who_offers_suites_in_cbc_mode_alone_gets_no_connection_to_the_read_api_either(
    front: tuple[FrontProxy, ListeningApp], serving: trustme.CA, proxies: trustme.CA
) -> None:
    proxy, listener = front
    trust = ssl.create_default_context()
    serving.configure_trust(trust)
    await takes_no_suite_in_cbc_mode(listener.port, trust)
    assert await proxy.reread(), "from now on callers are asked for a certificate"
    proxies.issue_cert(common_name="front-proxy", key_type=EC).configure_cert(trust)
    await takes_no_suite_in_cbc_mode(listener.port, trust)


async def test_only_the_front_proxys_certificate_opens_the_api(
    front: tuple[FrontProxy, ListeningApp], serving: trustme.CA, proxies: trustme.CA
) -> None:
    proxy, listener = front
    caller = Caller(serving, listener.port)
    assert await caller.status(ROOT, proxies) == 401, "nobody is believed before the authority is known"
    assert await proxy.reread()
    assert await caller.status(ROOT, proxies) == 200
    assert await caller.status(ROOT) == 401
    assert await caller.status(ROOT, proxies, name="somebody-else") == 401
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await caller.status(ROOT, trustme.CA(key_type=EC))
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await caller.status(ROOT, serving)


async def test_probes_need_no_certificate(front: tuple[FrontProxy, ListeningApp], serving: trustme.CA) -> None:
    proxy, listener = front
    assert await proxy.reread()
    assert await Caller(serving, listener.port).status("/healthz") == 200


async def test_a_new_authority_replaces_the_old_one(
    front: tuple[FrontProxy, ListeningApp], serving: trustme.CA, proxies: trustme.CA, cluster: Cluster
) -> None:
    proxy, listener = front
    await proxy.reread()
    successor = trustme.CA(key_type=EC)
    cluster.publish(successor, [])
    assert await proxy.reread()
    caller = Caller(serving, listener.port)
    assert await caller.status(ROOT, successor, name="any name is allowed") == 200
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await caller.status(ROOT, proxies)


async def test_what_is_known_stands_while_the_cluster_does_not_answer_or_is_misconfigured(
    front: tuple[FrontProxy, ListeningApp], serving: trustme.CA, proxies: trustme.CA, cluster: Cluster
) -> None:
    proxy, listener = front
    await proxy.reread()
    cluster.refuses = True
    assert not await proxy.reread()
    cluster.refuses = False
    for data in (
        {},
        {"requestheader-client-ca-file": "no certificate"},
        {**cluster.data, "requestheader-allowed-names": "{}"},
    ):
        cluster.data = data
        assert not await proxy.reread()
    assert await Caller(serving, listener.port).status(ROOT, proxies) == 200


def test_an_authority_without_names_allows_every_name() -> None:
    assert parse_trust({"data": {"requestheader-client-ca-file": "PEM"}}).names == ()
    with pytest.raises(ValueError, match="no front proxy"):
        parse_trust({"data": None})


def test_the_common_name_is_read_from_the_verified_certificate() -> None:
    assert common_name({"subject": ((("organizationName", "x"),), (("commonName", "front-proxy"),))}) == "front-proxy"
    assert common_name({"subject": ((("organizationName", "x"),),)}) == ""
    assert common_name({}) is None
    assert common_name(None) is None


async def test_a_cluster_that_names_no_front_proxy_is_complained_about_once(cluster: Cluster) -> None:
    proxy = FrontProxy(cluster, lambda authority: None)  # type: ignore[arg-type]
    cluster.refuses = True
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            assert not await proxy.reread()
        cluster.refuses, cluster.data = False, {}
        for _ in range(3):
            assert not await proxy.reread()
    assert [line["event"] for line in lines] == ["front_proxy.unknown", "front_proxy.unknown"]
    assert "may not" in lines[0]["error"]
    assert "no front proxy configured" in lines[1]["error"]
