"""Finding the API server: by kubeconfig (tokens, credential plugins, certificates) or by the account of the pod."""

import base64
import datetime
import json
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web

from webhook.errors import Unavailable, WrongInput
from webhook.kube.connecting import connect


class SecureServer:
    """A TLS server that reports the Authorization header and the client certificate it was shown."""

    def __init__(self, authority: trustme.CA, directory: Path) -> None:
        self.ca_file = directory / "ca.crt"
        authority.cert_pem.write_to_path(self.ca_file)
        self.port = 0
        self.seen: list[dict[str, str]] = []

    async def handle(self, request: web.Request) -> web.Response:
        certificate: Any = request.get_extra_info("peercert") or {}
        subject = dict(pair for relative in certificate.get("subject", ()) for pair in relative)
        seen = {"authorization": request.headers.get("Authorization", ""), "cn": subject.get("commonName", "")}
        self.seen.append(seen)
        return web.Response(body=json.dumps(seen).encode())

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def server(authority: trustme.CA, tmp_path: Path) -> AsyncIterator[SecureServer]:
    server = SecureServer(authority, tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


def kubeconfig(path: Path, server: SecureServer, user: dict[str, Any], **cluster: Any) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": server.url, "certificate-authority": str(server.ca_file), **cluster}}
        ],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def ask(path: str | None) -> dict[str, str]:
    api = await connect(path)
    try:
        answer: dict[str, str] = json.loads(await api.request("GET", "/version"))
        return answer
    finally:
        await api.close()


async def test_a_token(server: SecureServer, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", server, {"token": "secret"})
    assert (await ask(path))["authorization"] == "Bearer secret"


async def test_a_client_certificate(server: SecureServer, authority: trustme.CA, tmp_path: Path) -> None:
    issued = authority.issue_cert(common_name="system:tutti")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    user = {"client-certificate": str(tmp_path / "cert.pem"), "client-key": str(tmp_path / "key.pem")}
    seen = await ask(kubeconfig(tmp_path / "config", server, user))
    assert seen == {"authorization": "", "cn": "system:tutti"}


async def test_a_key_inside_the_kubeconfig_leaves_no_file_behind(
    server: SecureServer, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    issued = authority.issue_cert(common_name="system:tutti")
    user = {
        "client-certificate-data": base64.b64encode(issued.cert_chain_pems[0].bytes()).decode(),
        "client-key-data": base64.b64encode(issued.private_key_pem.bytes()).decode(),
    }
    path = kubeconfig(tmp_path / "config", server, user)
    for _ in range(2):
        api = await connect(path)
        assert list(folder.iterdir()) == []
        assert json.loads(await api.request("GET", "/version"))["cn"] == "system:tutti"
        await api.close()


async def test_a_credential_plugin(server: SecureServer, tmp_path: Path) -> None:
    expiry = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    api_version = "client.authentication.k8s.io/v1"
    status = {"token": "from-plugin", "expirationTimestamp": expiry}
    reply = json.dumps({"apiVersion": api_version, "kind": "ExecCredential", "status": status})
    user = {"exec": {"apiVersion": api_version, "command": sys.executable, "args": ["-c", f"print('''{reply}''')"]}}
    assert (await ask(kubeconfig(tmp_path / "config", server, user)))["authorization"] == "Bearer from-plugin"


async def test_connecting_loads_no_class_for_each_type_of_the_api(server: SecureServer, tmp_path: Path) -> None:
    await ask(kubeconfig(tmp_path / "config", server, {"token": "secret"}))
    assert not [name for name in sys.modules if name.startswith("kubernetes_asyncio.client.models")]


async def test_the_environment_names_the_kubeconfig(
    server: SecureServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "config", server, {"token": "environment"}))
    assert (await ask(None))["authorization"] == "Bearer environment"


async def test_the_service_account_of_the_pod(
    server: SecureServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes_asyncio.config import incluster_config

    (tmp_path / "token").write_text("mounted\n")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(server.ca_file))
    assert (await ask(None))["authorization"] == "Bearer mounted"


async def test_a_server_of_another_authority_is_not_trusted(server: SecureServer, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", server, {"token": "secret"})
    trustme.CA().cert_pem.write_to_path(server.ca_file)
    with pytest.raises(Unavailable, match="certificate"):
        await ask(path)
    assert not server.seen


async def test_verification_can_be_switched_off_by_the_kubeconfig(server: SecureServer, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", server, {"token": "secret"}, **{"insecure-skip-tls-verify": True})
    trustme.CA().cert_pem.write_to_path(server.ca_file)
    assert (await ask(path))["authorization"] == "Bearer secret"


@pytest.mark.parametrize("content", [None, "", "[]", "current-context: gone\n", "{"])
async def test_an_unusable_kubeconfig_says_which_and_what_to_do(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(WrongInput) as caught:
        await connect(str(path))
    (problem,) = caught.value.problems
    assert str(path) in problem.value
    assert problem.fix


async def test_an_unknown_context_is_named(server: SecureServer, tmp_path: Path) -> None:
    path = tmp_path / "config"
    kubeconfig(path, server, {"token": "secret"})
    path.write_text(path.read_text().replace("current-context: here", "current-context: elsewhere"))
    with pytest.raises(WrongInput, match="elsewhere"):
        await connect(path)
