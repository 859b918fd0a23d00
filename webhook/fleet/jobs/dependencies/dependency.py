"""What a job refers to, and how that is made and kept in a member: ConfigMaps, Secrets and ServiceAccounts. Pure.

What is made there is marked like a copy and belongs to the copies that need it, so the member's garbage collector takes
it away with the last of them. What has no such mark of this hub is the member's own.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from webhook.core.notation import names
from webhook.untyped import paths
from webhook.untyped.editing import Patch
from webhook.untyped.values import mappings, text

CONFIG_MAP: Final = "ConfigMap"
SECRET: Final = "Secret"  # noqa: S105 - a kind
SERVICE_ACCOUNT: Final = "ServiceAccount"
PLURALS: Final[Mapping[str, str]] = {CONFIG_MAP: "configmaps", SECRET: "secrets", SERVICE_ACCOUNT: "serviceaccounts"}
OWN_EVERYWHERE: Final = frozenset({(CONFIG_MAP, "kube-root-ca.crt"), (SERVICE_ACCOUNT, "default")})
"""Each namespace of any cluster has its own."""
TOKEN: Final = "kubernetes.io/service-account-token"  # noqa: S105 - a type
"""Type of Secrets that are of use in their own cluster alone. Creating one there is asking for a token."""
OWNERS_MAX: Final = 1000
"""Copies that one object may belong to at once: each is an entry of 200 bytes or so, and a policy reads all."""
_DATA: Final = ("data", "binaryData")
_CONTENT: Final[Mapping[str, tuple[str, ...]]] = {
    CONFIG_MAP: (*_DATA, "immutable"),
    SECRET: ("type", "data", "immutable"),
    SERVICE_ACCOUNT: ("imagePullSecrets", "automountServiceAccountToken"),
}
_MARKS: Final = (f"{names.DOMAIN}/", "kueue.x-k8s.io/", "kubectl.kubernetes.io/last-applied-configuration")


class Dependency(NamedTuple):
    """An object of a job's namespace that the job refers to by its name, which is a valid one."""

    kind: str
    name: str

    def path(self, namespace: str) -> str:
        """Return where it is read and changed."""
        return f"{self.collection(namespace)}/{self.name}"

    def collection(self, namespace: str) -> str:
        """Return where it is created."""
        return f"/api/v1/namespaces/{namespace}/{PLURALS[self.kind]}"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Change(NamedTuple):
    """What is to be written to an object that a hub has made."""

    patch: Patch
    """Empty where it is as it should be."""
    version: str
    """That it is bound to, if any."""
    differs: str
    """What stays different from the hub's, in words that follow its name."""


def owner_of_all(api_version: str, kind: str, name: str, uid: str) -> dict[str, str]:
    """Return the entry by which what a copy needs is collected with it; it keeps no deletion of the copy waiting."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}


def made(
    dependency: Dependency, found: Mapping[str, Any], namespace: str, hub: str, owner: Mapping[str, str]
) -> dict[str, Any]:
    """Return what a hub creates in a member, of what it has found at home."""
    metadata = paths.find_mapping(found, ("metadata",))
    labels, notes = (_carried(paths.find_mapping(metadata, (key,))) for key in ("labels", "annotations"))
    return {
        "apiVersion": "v1",
        "kind": dependency.kind,
        "metadata": {
            "name": dependency.name,
            "namespace": namespace,
            "labels": {**labels, names.ORIGIN_LABEL: hub},
            **({"annotations": notes} if notes else {}),
            "ownerReferences": [dict(owner)],
        },
        **{key: found[key] for key in _CONTENT[dependency.kind] if found.get(key) is not None},
    }


def is_from(hub: str, there: Mapping[str, Any]) -> bool:
    """Return whether an object of a member was made by this hub."""
    return paths.find_mapping(there, ("metadata", "labels")).get(names.ORIGIN_LABEL) == hub


def is_of_others(copy_uid: str, there: Mapping[str, Any]) -> bool:
    """Return whether an object of a member was brought by any hub and goes with other copies than this one.

    It may belong to this one already: brought before the hub's process ended, or its member refused something else.
    """
    owners = mappings(paths.find(there, ("metadata", "ownerReferences")))
    brought = bool(paths.find_mapping(there, ("metadata", "labels")).get(names.ORIGIN_LABEL))
    return brought and bool(owners) and all(each.get("uid") != copy_uid for each in owners)


def another_hub(hub: str, there: Mapping[str, Any]) -> bool:
    """Return whether an object of a member was made by a hub that is not this one."""
    return bool(paths.find_mapping(there, ("metadata", "labels")).get(names.ORIGIN_LABEL, hub) != hub)


def change(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> Change:
    """Return how an object that this hub has made becomes what was ``made``, and belongs to one more copy.

    An owner alone is added to whatever the object is by then, for many jobs may start with it at once; anything else is
    bound to the version that was read.
    """
    metadata = paths.find_mapping(there, ("metadata",))
    content, differs = _brought_up_to_date(there, wanted)
    content = [*content, *_marks_up_to_date(metadata, wanted["metadata"])]
    owners, (owner,) = mappings(metadata.get("ownerReferences")), wanted["metadata"]["ownerReferences"]
    owned = any(each.get("uid") == owner["uid"] for each in owners)
    if not content and owned:
        return Change([], "", differs)
    bound = bool(content) or not owners
    version = text(metadata.get("resourceVersion")) if bound else ""
    label = paths.pointer("metadata", "labels", names.ORIGIN_LABEL)
    patch: Patch = [
        {"op": "test", "path": "/metadata/uid", "value": metadata.get("uid")},
        {"op": "test", "path": label, "value": wanted["metadata"]["labels"][names.ORIGIN_LABEL]},
        *([{"op": "replace", "path": "/metadata/resourceVersion", "value": version}] if bound else ()),
        *content,
    ]
    if not owned:
        at, value = ("/metadata/ownerReferences/-", owner) if owners else ("/metadata/ownerReferences", [owner])
        patch.append({"op": "add", "path": at, "value": value})
    return Change(patch, version, differs)


def owners_of(there: Mapping[str, Any]) -> int:
    """Return how many copies it belongs to."""
    return len(mappings(paths.find(there, ("metadata", "ownerReferences"))))


def pull_secrets(account: Mapping[str, Any]) -> list[str]:
    """Return the names of the Secrets by which pods of a ServiceAccount get their images."""
    return [text(each.get("name")) for each in mappings(account.get("imagePullSecrets"))]


def _brought_up_to_date(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Patch, str]:
    if wanted["kind"] == SERVICE_ACCOUNT:
        return _account_up_to_date(there, wanted), ""
    if there.get("type") != wanted.get("type"):
        return [], "has another type there, which nobody can change: delete it there"
    patch = [_put(key, wanted.get(key)) for key in _DATA if (there.get(key) or {}) != (wanted.get(key) or {})]
    if there.get("immutable") is True:
        return [], "is immutable there, and differs from the hub's: delete it there" if patch else ""
    if wanted.get("immutable") is True:
        patch.append(_put("immutable", True))
    return patch, ""


def _account_up_to_date(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> Patch:
    """Return it without taking away what the member itself has added, as OpenShift does."""
    patch: Patch = []
    known, listed = pull_secrets(there), mappings(there.get("imagePullSecrets"))
    if missing := [name for name in pull_secrets(wanted) if name not in known]:
        patch.append(_put("imagePullSecrets", [*listed, *({"name": name} for name in missing)]))
    mounts = wanted.get("automountServiceAccountToken")
    if there.get("automountServiceAccountToken") != mounts:
        patch.append(_put("automountServiceAccountToken", mounts))
    return patch


def _marks_up_to_date(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> Patch:
    """Return it with the hub's labels and annotations: one of a ServiceAccount may say what its pods may do in a cloud.

    Those that it has besides stay: in a member others write there too.
    """
    changed: Patch = []
    for key in ("labels", "annotations"):
        held, listed = paths.find_mapping(there, (key,)), wanted.get(key, {})
        if any(held.get(name) != value for name, value in listed.items()):
            changed.append({"op": "add", "path": f"/metadata/{key}", "value": {**held, **listed}})
    return changed


def _put(key: str, value: Any) -> dict[str, Any]:
    return {"op": "remove", "path": f"/{key}"} if value is None else {"op": "add", "path": f"/{key}", "value": value}


def _carried(marks: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in marks.items() if not key.startswith(_MARKS)}
