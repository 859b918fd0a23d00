"""``tutti fleet account`` writes what a hub accepts, and nothing of whoever asked for it."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.fleet.credentials.test_kubeconfig import AUTHORITY, good
from tests.unit.kube.fake_api import FakeApi
from webhook.errors import NotFound, WrongInput
from webhook.fleet.credentials.account import made
from webhook.fleet.credentials.kubeconfig import read


class Member(FakeApi):
    """Gives a token to whoever asks."""

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        self._arrived()
        assert (method, path) == ("POST", "/api/v1/namespaces/tutti-system/serviceaccounts/tutti-hub/token")
        status = {"token": "new.token", "expirationTimestamp": "2026-12-01T00:00:00Z"}
        return json.dumps({"status": status}).encode()


def own(folder: Path, **cluster: Any) -> Path:
    """Write an administrator's kubeconfig with two clusters."""
    document = good()
    document["users"][0]["user"] = {"token": "of.administrator"}
    document["clusters"].append({"name": "other", "cluster": {"server": "https://other.example.org"}})
    document["clusters"][0]["cluster"] |= cluster
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


async def test_it_has_the_server_and_a_token_of_the_account_alone(tmp_path: Path) -> None:
    written, until = await made(Member(), own(tmp_path))
    account = read(written, "it")
    assert (account.server, account.token) == ("https://m.example.org:6443", "new.token")
    assert "BEGIN CERTIFICATE" in account.authority
    assert until == "2026-12-01T00:00:00Z"
    assert "of.administrator" not in written
    assert "other" not in written


async def test_an_authority_in_a_file_is_written_inside(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(AUTHORITY))
    path = own(tmp_path)
    document = yaml.safe_load(path.read_text())
    cluster = document["clusters"][0]["cluster"]
    del cluster["certificate-authority-data"]
    cluster["certificate-authority"] = "ca.crt"
    path.write_text(yaml.safe_dump(document))
    written, _ = await made(Member(), path)
    assert "BEGIN CERTIFICATE" in read(written, "it").authority


async def test_what_a_hub_would_refuse_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="proxy"):
        await made(Member(), own(tmp_path, **{"proxy-url": "http://proxy:3128"}))


async def test_a_member_without_the_account_is_told_what_to_apply(tmp_path: Path) -> None:
    member = Member()
    member.faults.append(NotFound(404, "NotFound", "no such account"))
    with pytest.raises(WrongInput, match="overlays/fleet-member"):
        await made(member, own(tmp_path))


@pytest.mark.parametrize("text", ["", "[1, 2]", "current-context: x", "a: [", "contexts: 7"])
async def test_what_is_no_kubeconfig_is_refused_with_a_fix(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(WrongInput) as refused:
        await made(Member(), tmp_path / "kubeconfig")
    assert all(problem.fix for problem in refused.value.problems)
