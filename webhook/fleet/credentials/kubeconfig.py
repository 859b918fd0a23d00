"""A member's kubeconfig, read so that it can do nothing but name a server and prove who asks. Pure.

A kubeconfig is a program in disguise: it can name a command to run, files to send elsewhere, a proxy, a server without
TLS. What a member's may hold is a short list, and everything else in it is refused by name, before any library sees it.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from webhook.core.notation.problem import Problem, shown
from webhook.errors import WrongInput
from webhook.untyped import yaml_text
from webhook.untyped.values import items, mappings

BYTES_MAX: Final = 256 * 1024
_SELF_CONTAINED: Final = "write what it would fetch into the kubeconfig: kubectl config view --raw --flatten"
_PROOF: Final = "give the user a token (kubectl create token), or client-certificate-data and client-key-data"
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "exec": ("would run a command", _PROOF),
    "auth-provider": ("would run a plug-in", _PROOF),
    "tokenFile": ("would read a file of the hub", _PROOF),
    "client-certificate": ("would read a file of the hub", _SELF_CONTAINED),
    "client-key": ("would read a file of the hub", _SELF_CONTAINED),
    "certificate-authority": ("would read a file of the hub", _SELF_CONTAINED),
    "username": ("is basic authentication", _PROOF),
    "password": ("is basic authentication", _PROOF),
    "as": ("would impersonate somebody", "give an account with the rights of a member's account"),
    "as-uid": ("would impersonate somebody", "give an account with the rights of a member's account"),
    "as-groups": ("would impersonate somebody", "give an account with the rights of a member's account"),
    "as-user-extra": ("would impersonate somebody", "give an account with the rights of a member's account"),
    "proxy-url": ("would show everything to a proxy", "remove it"),
    "insecure-skip-tls-verify": ("would take any server for the member", "give certificate-authority-data"),
}
_CLUSTER: Final = frozenset({"server", "certificate-authority-data", "tls-server-name", "extensions"})
_USER: Final = frozenset({"token", "client-certificate-data", "client-key-data", "extensions"})


@dataclass(frozen=True, slots=True)
class Account:
    """How to reach a member, and as which identity."""

    server: str
    authority: str = ""
    """PEM; empty: the authorities that the system trusts."""
    server_name: str = ""
    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)


def read(text: str, where: str) -> Account:
    """Return the account of a kubeconfig's current context. Raises WrongInput with all that is wrong with it."""
    if len(text) > BYTES_MAX:
        raise WrongInput((Problem(where, f"{len(text)} characters", "is too long", f"at most {BYTES_MAX}"),))
    try:
        document = yaml_text.document(text)
    except yaml_text.UnreadableYaml as error:
        raise WrongInput((Problem(where, "", str(error), "give a kubeconfig"),)) from error
    if not isinstance(document, dict):
        # Who mistakes the one for the other stores a bare token.
        raise WrongInput((Problem(where, "", "is no kubeconfig", "give a kubeconfig"),))
    problems = list(_hostile(document))
    if problems:
        raise WrongInput(tuple(problem.within(f"{where}: ") for problem in problems))
    try:
        return _account(document)
    except _Wrong as wrong:
        raise WrongInput((wrong.problem.within(f"{where}: "),)) from wrong


class _Wrong(Exception):
    """``value`` is shown to whoever may read a status or a log: nothing that could hold a credential."""

    def __init__(self, path: str, value: object, why: str, fix: str) -> None:
        super().__init__(path)
        self.problem = Problem(path, "" if value is None else shown(value), why, fix)


def _hostile(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what may not stand anywhere in the file, be it of the current context or not."""
    for part, inner, allowed in (("clusters", "cluster", _CLUSTER), ("users", "user", _USER)):
        for number, entry in enumerate(items(document.get(part))):
            body = entry.get(inner) if isinstance(entry, dict) else None
            if not isinstance(body, dict):
                continue
            for key in body:
                path = f"{part}[{number}].{inner}.{key}"
                if key in _REFUSED:
                    # An explicit false changes nothing.
                    if key != "insecure-skip-tls-verify" or body[key] is not False:
                        yield Problem(path, "", *_REFUSED[key])
                elif key not in allowed:
                    yield Problem(path, "", "is not known to be harmless", "remove it")


def _account(document: Mapping[str, Any]) -> Account:
    context = _named(document, "contexts", "context", document.get("current-context"), "current-context")
    cluster = _named(document, "clusters", "cluster", context.get("cluster"), "context.cluster")
    user = _named(document, "users", "user", context.get("user"), "context.user")
    account = Account(
        server=_server(cluster.get("server")),
        authority=_pem(cluster, "certificate-authority-data", "CERTIFICATE"),
        server_name=_server_name(cluster),
        token=_line(user, "token"),
        certificate=_pem(user, "client-certificate-data", "CERTIFICATE"),
        key=_pem(user, "client-key-data", "PRIVATE KEY"),
    )
    if bool(account.certificate) != bool(account.key):
        raise _Wrong("user", None, "has a certificate without its key, or a key without its certificate", _PROOF)
    if not (account.token or account.certificate):
        raise _Wrong("user", None, "has no credentials", _PROOF)
    return account


def _named(document: Mapping[str, Any], part: str, inner: str, name: object, by: str) -> Mapping[str, Any]:
    if not isinstance(name, str) or not name:
        raise _Wrong(by, None, "names nothing", f"name one of the {part}")
    found = [each for each in mappings(document.get(part)) if each.get("name") == name]
    if len(found) != 1:
        raise _Wrong(by, name, f"is {len(found)} of the {part}", "name exactly one")
    body = found[0].get(inner)
    if not isinstance(body, dict):
        raise _Wrong(f"{part}.{name}.{inner}", None, "is no mapping", "give a kubeconfig")
    return body


def _server(written: object) -> str:
    where, fix = "cluster.server", "give the https address of the member's API server"
    if not isinstance(written, str):
        raise _Wrong(where, None, "is not an address", fix)
    try:
        parts = urlsplit(written)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise _Wrong(where, None, "is not an address", fix) from error
    if parts.username is not None or parts.query or parts.fragment or not written.isprintable() or "\\" in written:
        raise _Wrong(where, None, "is not just an address", fix)
    if parts.scheme != "https":
        seen = written if host else None
        raise _Wrong(where, seen, "is not https: anybody on the way could read the credentials", fix)
    if not host:
        raise _Wrong(where, None, "is not just an address", fix)
    if not _may_be_a_host(host):
        raise _Wrong(where, written, "names no host that can be: each part of a name has 1 to 63 characters", fix)
    if host.startswith(("169.254.", "fe80:")):
        raise _Wrong(where, written, "is a link-local address, which is a cloud's metadata service and no cluster", fix)
    return written.rstrip("/")


def _server_name(cluster: Mapping[str, Any]) -> str:
    name = _line(cluster, "tls-server-name")
    if not _may_be_a_host(name):
        raise _Wrong("cluster.tls-server-name", None, "cannot be a host's name", "give the name in its certificate")
    return name


def _may_be_a_host(name: str) -> bool:
    """Return whether a name can be looked up, or asked for by TLS: each of its parts has 1 to 63 characters."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def _line(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key, "")
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        raise _Wrong(key, None, "is not one line of text", "copy it again")
    return value


def _pem(body: Mapping[str, Any], key: str, what: str) -> str:
    value = body.get(key, "")
    if value == "":
        return ""
    try:
        text = base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, ValueError, TypeError) as error:
        raise _Wrong(key, None, "is not base64 of PEM", "copy it again") from error
    if "-----BEGIN" not in text or f"{what}-----" not in text:
        raise _Wrong(key, None, f"holds no {what} in PEM", "copy it again")
    return text
