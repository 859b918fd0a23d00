"""A member's kubeconfig names a server and proves who asks; what would do anything else is refused by name."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.unit.fleet.credentials.guard import nothing_opened_or_started
from webhook.errors import WrongInput
from webhook.fleet.credentials.kubeconfig import read

AUTHORITY = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n").decode()
KEY = base64.b64encode(b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n").decode()
Edit = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]


def good() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "m", "cluster": {"server": "https://m.example.org:6443", "certificate-authority-data": AUTHORITY}}
        ],
        "users": [{"name": "hub", "user": {"token": "abc.def"}}],
        "contexts": [{"name": "m", "context": {"cluster": "m", "user": "hub"}}],
        "current-context": "m",
    }


def edited(edit: Edit) -> str:
    document = good()
    edit(document, document["clusters"][0]["cluster"], document["users"][0]["user"])
    return yaml.safe_dump(document)


HOSTILE: dict[str, tuple[Edit, str]] = {
    "a command": (lambda d, c, u: u.update(exec={"command": "/bin/sh", "args": ["-c", "id"]}), "would run a command"),
    "a plug-in": (
        lambda d, c, u: u.update({"auth-provider": {"name": "gcp", "config": {"cmd-path": "sh"}}}),
        "plug-in",
    ),
    "a token in a file": (lambda d, c, u: u.update(tokenFile="/var/run/secrets/token"), "would read a file"),
    "a key in a file": (lambda d, c, u: u.update({"client-key": "/certs/tls.key"}), "would read a file"),
    "a certificate in a file": (lambda d, c, u: u.update({"client-certificate": "/certs/tls.crt"}), "read a file"),
    "an authority in a file": (lambda d, c, u: c.update({"certificate-authority": "/etc/shadow"}), "read a file"),
    "any certificate": (lambda d, c, u: c.update({"insecure-skip-tls-verify": True}), "would take any server"),
    "any certificate, in words": (lambda d, c, u: c.update({"insecure-skip-tls-verify": "yes"}), "take any server"),
    "plain http": (lambda d, c, u: c.update(server="http://m.example.org"), "is not https"),
    "a unix socket": (lambda d, c, u: c.update(server="unix:///run/m.sock"), "is not https"),
    "a file as server": (lambda d, c, u: c.update(server="file:///etc/passwd"), "is not https"),
    "a cloud's metadata": (lambda d, c, u: c.update(server="https://169.254.169.254/"), "link-local"),
    "credentials in the address": (lambda d, c, u: c.update(server="https://me:pw@m.example.org"), "not just"),
    "an empty part of a name": (lambda d, c, u: c.update(server="https://m..example.org"), "1 to 63 characters"),
    "a long part of a name": (lambda d, c, u: c.update(server=f"https://{64 * 'a'}.example.org"), "1 to 63 characters"),
    "a backslash": (lambda d, c, u: c.update(server="https://m\\example.org"), "not just"),
    "a server name that cannot be": (lambda d, c, u: c.update({"tls-server-name": ".m"}), "tls-server-name"),
    "a proxy": (lambda d, c, u: c.update({"proxy-url": "http://proxy:3128"}), "proxy"),
    "impersonation": (lambda d, c, u: u.update({"as": "system:admin"}), "impersonate"),
    "groups": (lambda d, c, u: u.update({"as-groups": ["system:masters"]}), "impersonate"),
    "a password": (lambda d, c, u: u.update(username="a", password="b"), "basic authentication"),
    "a header in the token": (lambda d, c, u: u.update(token="x\r\nImpersonate-User: admin"), "one line"),
    "a command of another user": (
        lambda d, c, u: d["users"].append({"name": "other", "user": {"exec": {"command": "id"}}}),
        "would run a command",
    ),
    "two users of one name": (
        lambda d, c, u: d["users"].append({"name": "hub", "user": {"token": "other"}}),
        "is 2 of the users",
    ),
    "what nobody knows": (lambda d, c, u: u.update({"plugin": "x"}), "not known to be harmless"),
    "nobody": (lambda d, c, u: u.clear(), "no credentials"),
    "half a key pair": (lambda d, c, u: u.update({"client-key-data": KEY}), "without its certificate"),
    "no context": (lambda d, c, u: d.pop("current-context"), "names nothing"),
}
LAUGHS = "".join(f"{x}: &{x} [{','.join(['*' + y] * 10)}]\n" for y, x in zip("abcdefg", "bcdefgh", strict=True))
TEXTS = {
    "no YAML": ("{[", "expected"),
    "a list": ("[1, 2]", "is no kubeconfig"),
    "a tag that builds objects": ("!!python/object/apply:os.system ['id']", "could not determine a constructor"),
    "laughs": ("a: &a [1,1,1,1,1,1,1,1,1,1]\n" + LAUGHS, "stands for more"),
    "too much": ("x: " + "a" * 300_000, "is too long"),
}


@pytest.fixture(autouse=True)
def _no_process_and_no_file() -> Iterator[None]:
    with nothing_opened_or_started():
        yield


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_kubeconfig_is_refused_and_said_why(case: str) -> None:
    edit, why = HOSTILE[case]
    text = edited(edit)
    with pytest.raises(WrongInput, match=why):
        read(text, "member m")


@pytest.mark.parametrize("case", TEXTS)
def test_a_text_that_is_no_kubeconfig_is_refused(case: str) -> None:
    text, why = TEXTS[case]
    with pytest.raises(WrongInput, match=why):
        read(text, "member m")


def test_a_kubeconfig_with_a_token_is_taken() -> None:
    account = read(edited(lambda d, c, u: None), "member m")
    assert (account.server, account.token) == ("https://m.example.org:6443", "abc.def")
    assert "CERTIFICATE" in account.authority


@pytest.mark.parametrize("host", ["m.example.org.", "[::1]", "10.0.0.1", "m_1", "bücher.example", 63 * "a"])
def test_a_host_that_may_be_is_taken(host: str) -> None:
    written = edited(lambda d, c, u: c.update({"server": f"https://{host}:6443", "tls-server-name": host.strip("[]")}))
    assert read(written, "member m").server == f"https://{host}:6443"


def test_a_kubeconfig_with_a_key_pair_is_taken() -> None:
    text = edited(lambda d, c, u: (u.clear(), u.update({"client-certificate-data": AUTHORITY, "client-key-data": KEY})))
    account = read(text, "member m")
    assert account.certificate
    assert account.key


SECRETS = {
    "a token of two words": edited(lambda d, c, u: u.update(token="hunter2 hunter2")),
    "a bare token": "hunter2.abc.def",
    "a list of tokens": "[hunter2]",
    "a password in an address": edited(lambda d, c, u: c.update(server="http://me:hunter2@m.example.org")),
    "a password as port": edited(lambda d, c, u: c.update(server="https://me:hunter2")),
    "a token as address": edited(lambda d, c, u: c.update(server="hunter2.abc.def")),
    "addresses in a map": edited(lambda d, c, u: c.update(server={"token": "hunter2"})),
    "a token as user": edited(lambda d, c, u: d["users"][0].update(user="hunter2")),
    "a token as context": edited(lambda d, c, u: d.update({"current-context": {"token": "hunter2"}})),
}


@pytest.mark.parametrize("case", SECRETS)
def test_no_secret_stands_in_what_is_said(case: str) -> None:
    with pytest.raises(WrongInput) as refused:
        read(SECRETS[case], "member m")
    assert "hunter2" not in str(refused.value)


def test_no_secret_stands_in_what_is_shown_of_an_account() -> None:
    assert "abc.def" not in repr(read(yaml.safe_dump(good()), "member m"))
