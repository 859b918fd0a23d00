"""The kubeconfig by which a hub reaches a member: its server and authority, and a token of the account for hubs.

It is made from the kubeconfig of somebody who may ask for such a token there, and takes nothing else from it.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from webhook.core.notation import names
from webhook.core.notation.problem import Problem
from webhook.errors import NotFound, WrongInput, in_words
from webhook.fleet.credentials import kubeconfig
from webhook.kube.api import Api
from webhook.untyped import paths, yaml_text
from webhook.untyped.values import items, text

ACCOUNT: Final = "tutti-hub"
HOURS: Final = 720
"""For which a token is asked; the member's API server may give less."""
_TOKEN: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/serviceaccounts/{ACCOUNT}/token"


async def made(api: Api, own: Path) -> tuple[str, str]:
    """Return the kubeconfig, and until when its token is good; ``own`` is the one by which ``api`` was reached.

    Raises ApiError, and WrongInput where the account is missing or a hub would refuse what was made.
    """
    cluster = _cluster(own)
    spec = {"spec": {"expirationSeconds": HOURS * 3600}}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", **spec}
    try:
        given = orjson.loads(await api.request("POST", _TOKEN, body=orjson.dumps(asked)))
    except NotFound as error:
        fix = "kubectl apply --server-side -k manifests/overlays/fleet-member"
        raise WrongInput((Problem("service account", ACCOUNT, "is not in this member", fix),)) from error
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "member", "cluster": cluster}],
        "users": [{"name": ACCOUNT, "user": {"token": text(paths.find(given, ("status", "token")))}}],
        "contexts": [{"name": "member", "context": {"cluster": "member", "user": ACCOUNT}}],
        "current-context": "member",
    }
    written = yaml.safe_dump(document, sort_keys=False)
    kubeconfig.read(written, str(own))
    return written, text(paths.find(given, ("status", "expirationTimestamp")))


def _cluster(own: Path) -> dict[str, Any]:
    """Return how a kubeconfig's current context reaches its server, with the authority's certificate inside."""
    try:
        document = yaml_text.document(own.read_text())
    except (OSError, UnicodeDecodeError, yaml_text.UnreadableYaml) as error:
        why = str(error) if isinstance(error, yaml_text.UnreadableYaml) else in_words(error)
        raise WrongInput((Problem("kubeconfig", str(own), why, "name one file of one cluster"),)) from error
    context = _named(document, "contexts", paths.find(document, ("current-context",))).get("context")
    cluster = dict(_named(document, "clusters", paths.find(context, ("cluster",))).get("cluster") or {})
    authority = cluster.pop("certificate-authority", None)
    if isinstance(authority, str) and "certificate-authority-data" not in cluster:
        try:
            pem = (own.parent / authority).read_bytes()
        except OSError as error:
            problem = Problem("certificate-authority", authority, in_words(error), "name the authority's file")
            raise WrongInput((problem,)) from error
        cluster["certificate-authority-data"] = base64.b64encode(pem).decode()
    return cluster


def _named(document: object, part: str, name: object) -> Mapping[str, Any]:
    for each in items(paths.find(document, (part,))):
        if isinstance(each, dict) and name is not None and each.get("name") == name:
            return each
    raise WrongInput((Problem(f"kubeconfig.{part}", text(name), "is not there", "set current-context"),))
