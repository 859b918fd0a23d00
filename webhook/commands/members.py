"""The members of the fleet whose hub is read, and the kubeconfigs that the hub has of them."""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

import orjson

from webhook.core.notation import names
from webhook.errors import Forbidden, NotFound, TuttiError
from webhook.fleet.credentials import kubeconfig as credentials
from webhook.fleet.jobs.events import MEMBERS
from webhook.fleet.policies import multikueue
from webhook.fleet.policies.multikueue import Named
from webhook.kube.api import Api
from webhook.untyped import paths
from webhook.untyped.values import text

_SECRET: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/secrets/{MEMBERS}"


async def kubeconfigs(api: Api) -> tuple[dict[str, str], dict[str, str]]:
    """Return by name the members' kubeconfigs that are harmless (``kubeconfig``), and why each other one is of no use.

    Raises ApiError, TuttiError.
    """
    usable, unusable = dict[str, str](), dict[str, str]()
    for name, each in (await written(api)).items():
        try:
            usable[name] = harmless(name, *each)
        except TuttiError as error:
            unusable[name] = str(error)
    return usable, unusable


async def written(api: Api) -> dict[str, tuple[str, object]]:
    """Return each member with the Secret that its kubeconfig is in, and what is there. Raises ApiError, TuttiError."""
    clusters, found = await _clusters(api), dict[str, tuple[str, object]]()
    for cluster in clusters:
        if not cluster.problem:
            secret = cluster.names[0]
            path = f"/api/v1/namespaces/{multikueue.NAMESPACE}/secrets/{secret}"
            try:
                encoded = (await _data(api, path)).get(multikueue.KEY)
            except NotFound:
                encoded = None
            found[cluster.name] = secret, encoded
    try:
        listed = await _data(api, _SECRET)
    except NotFound as error:
        if not clusters:
            raise TuttiError(f"{error}; is this the hub? docs/fleet.md says how its members are set up") from error
        listed = {}
    return found | {name: (MEMBERS, encoded) for name, encoded in listed.items()}


async def _clusters(api: Api) -> list[Named]:
    """Return MultiKueue's clusters of the hub, where it has that kind and they may be listed."""
    path = f"/apis/{multikueue.GROUP}/{multikueue.VERSIONS[0]}/multikueueclusters"
    try:
        return [multikueue.cluster(each) for each in orjson.loads(await api.request("GET", path))["items"]]
    except (Forbidden, NotFound):
        return []


async def _data(api: Api, path: str) -> Mapping[str, object]:
    try:
        return paths.find_mapping(orjson.loads(await api.request("GET", path)), ("data",))
    except Forbidden as error:
        raise TuttiError(f"{error}; this takes the right to get this Secret in the hub") from error


def harmless(name: str, secret: str, encoded: object) -> str:
    """Return a member's kubeconfig, as its Secret has it ``encoded``. Raises TuttiError where it is none to use."""
    if encoded is None:
        raise TuttiError(f"there is no Secret {secret} with a kubeconfig")
    try:
        kubeconfig = base64.b64decode(text(encoded), validate=True).decode()
    except (binascii.Error, ValueError):
        raise TuttiError(f"Secret {secret}: {name} is not text") from None
    # kubectl would run and read whatever a kubeconfig says.
    credentials.read(kubeconfig, "kubeconfig")
    return kubeconfig
