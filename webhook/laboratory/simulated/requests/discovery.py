"""What a client asks before it asks for objects: versions, groups, resources, health, and just enough OpenAPI.

kubectl wants an OpenAPI document only to learn whether the server validates fields itself; ours says so for every
served kind and describes nothing else, so ``kubectl explain`` has nothing to show.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from webhook.laboratory.simulated.objects.resources import ALL_VERBS, RELEASE, Registry, Resource
from webhook.laboratory.simulated.requests.refusals import Json

VERSION: Final = {
    "major": "1",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "simulated",
}
_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})


def document(
    registry: Registry, path: str, aggregated: Sequence[tuple[str, str]] = (), release: int = RELEASE
) -> bytes | None:
    """Return the discovery document at ``path``, None when there is none.

    ``aggregated`` are (group, version) pairs that other servers serve behind this one; ``release`` is the minor release
    of Kubernetes to be.
    """
    if path in _HEALTH:
        return b"ok"
    parts = path.strip("/").split("/")
    if parts[0] == "openapi":
        return _openapi(registry, parts)
    found: Json | None = None
    if path == "/version":
        found = VERSION | {"minor": str(release), "gitVersion": f"v1.{release}.0+simulated"}
    elif path == "/api":
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
        found = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
    elif path == "/apis":
        found = {"kind": "APIGroupList", "apiVersion": "v1", "groups": _all_groups(registry, aggregated)}
    elif parts[0] == "apis" and len(parts) == 2:
        group = next((g for g in _all_groups(registry, aggregated) if g["name"] == parts[1]), None)
        found = None if group is None else {"kind": "APIGroup", "apiVersion": "v1", **group}
    elif parts == ["api", "v1"]:
        found = _resource_list(registry, "", "v1")
    elif parts[0] == "apis" and len(parts) == 3:
        found = _resource_list(registry, parts[1], parts[2])
    return None if found is None else orjson.dumps(found)


def _all_groups(registry: Registry, aggregated: Sequence[tuple[str, str]]) -> list[Json]:
    versions: dict[str, dict[str, None]] = {}
    served = [(resource.group, resource.version) for resource in registry if resource.group]
    for group, version in (*served, *aggregated):
        versions.setdefault(group, {})[version] = None
    return [_group(name, list(known)) for name, known in versions.items()]


def _group(name: str, versions: list[str]) -> Json:
    shown = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def _resource_list(registry: Registry, group: str, version: str) -> Json | None:
    served = [resource for resource in registry if (resource.group, resource.version) == (group, version)]
    if not served:
        return None
    entries = [entry for resource in served for entry in _entries(resource)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": served[0].api_version, "resources": entries}


def _entries(resource: Resource) -> Iterable[Json]:
    common: dict[str, Any] = {"namespaced": resource.namespaced, "kind": resource.kind}
    entry = {"name": resource.plural, "singularName": resource.kind.lower(), **common, "verbs": list(ALL_VERBS)}
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    if resource.status:
        yield {"name": f"{resource.plural}/status", "singularName": "", **common, "verbs": ["get", "patch", "update"]}
    if resource.scale_path:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale", "namespaced": resource.namespaced}
        yield {"name": f"{resource.plural}/scale", "singularName": "", **scale, "verbs": ["get", "patch", "update"]}
    for name in resource.subresources:
        yield {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            **common,
            "verbs": ["create", "get", "patch", "update"],
        }


def _openapi(registry: Registry, parts: list[str]) -> bytes | None:
    if parts == ["openapi", "v3"]:
        prefixes = dict.fromkeys(resource.path.lstrip("/") for resource in registry)
        paths = {prefix: {"serverRelativeURL": f"/openapi/v3/{prefix}?hash=simulated"} for prefix in prefixes}
        return orjson.dumps({"paths": paths})
    if parts[:2] == ["openapi", "v3"]:
        return _openapi_group(tuple(r for r in registry if r.path == "/" + "/".join(parts[2:])))
    return None


@lru_cache(maxsize=64)
def _openapi_group(served: tuple[Resource, ...]) -> bytes | None:
    if not served:
        return None
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    paths = {}
    for resource in served:
        gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        where = "/namespaces/{namespace}/" if resource.namespaced else "/"
        patch = {"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": gvk, "parameters": parameters}
        paths[f"{resource.path}{where}{resource.plural}/{{name}}"] = {"patch": patch}
    info = {"title": "Simulated Kubernetes", "version": "simulated"}
    return orjson.dumps({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}})
