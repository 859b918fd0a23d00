"""Patches: JSON patch, JSON merge patch, and enough of strategic merge and server-side apply for plain manifests.

Strategic merge patch and apply are taken as a merge patch in which lists of objects are merged by the key that the
API declares for that field (containers by name, tolerations appended, conditions by type, and so on; see
``_MERGE_KEYS``). ``$patch: delete|replace`` and ``$retainKeys`` are honoured for list items and maps. Field ownership
is not tracked: apply never conflicts and never removes a field that the applied manifest no longer has.
"""

from typing import Any, Final

import jsonpatch
import orjson
import yaml

from webhook.kube.api import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from webhook.laboratory.simulated.requests.refusals import (
    Json,
    bad_request,
    unprocessable_patch,
    unsupported_media_type,
)

ACCEPTED: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)

_MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "schedulingGates": "name",
    "imagePullSecrets": "name",
    "conditions": "type",
    "ownerReferences": "uid",
    "volumeMounts": "mountPath",
    "topologySpreadConstraints": "topologyKey",
}
_SET_LISTS: Final = frozenset({"finalizers"})


def parse(content_type: str, body: bytes, *, custom: bool = False) -> Any:
    """Return the decoded patch. A custom resource takes no strategic merge patch. Raises Refused (400, 415)."""
    accepted = [kind for kind in ACCEPTED if not (custom and kind == STRATEGIC_PATCH)]
    media = content_type.partition(";")[0].strip()
    if media not in accepted:
        raise unsupported_media_type(", ".join(accepted))
    try:
        patch = yaml.safe_load(body) if media == APPLY_PATCH else orjson.loads(body)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"error decoding patch: {error}") from error
    if isinstance(patch, list) is not (media == JSON_PATCH):
        raise bad_request("error decoding patch: a JSON patch is a list of operations, any other patch an object")
    return patch


def apply(content_type: str, target: Json, patch: Any) -> Json:
    """Return ``target`` (which may be changed in place) with the decoded patch applied. Raises Refused (422)."""
    media = content_type.partition(";")[0].strip()
    if media == JSON_PATCH:
        return json_patch(target, patch)
    if media == MERGE_PATCH:
        merged: Json = merge(target, patch)
        return merged
    patched: Json = strategic(target, patch)
    return patched


def json_patch(target: Json, operations: list[Any]) -> Json:
    """Apply the operations of RFC 6902. Raises Refused (422) when one does not apply."""
    try:
        patched = jsonpatch.apply_patch(target, operations, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, KeyError, TypeError) as error:
        raise unprocessable_patch() from error
    if not isinstance(patched, dict):
        raise unprocessable_patch()
    return patched


def merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396), changing ``target`` in place."""
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any, field: str = "") -> Any:
    """Apply a strategic merge patch, changing ``target`` in place."""
    if isinstance(patch, list):
        return _strategic_list(target, patch, field)
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    result = target if isinstance(target, dict) and directive != "replace" else {}
    for key, value in patch.items():
        if key.startswith("$"):
            _directive(result, key, value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = strategic(result.get(key), value, key)
    return result


def _directive(result: Json, key: str, value: Any) -> None:
    if key == "$retainKeys":
        for known in [name for name in result if name not in value]:
            del result[known]
    elif key.startswith("$deleteFromPrimitiveList/"):
        field = key.partition("/")[2]
        result[field] = [item for item in result.get(field) or () if item not in value]


def _strategic_list(target: Any, patch: list[Any], field: str) -> list[Any]:
    current = list(target) if isinstance(target, list) else []
    if field in _SET_LISTS:
        return current + [item for item in patch if item not in current]
    key = _MERGE_KEYS.get(field)
    if key is None:
        return [_plain(item) for item in patch]
    for item in patch:
        if not isinstance(item, dict):
            return patch
        if item.get("$patch") == "replace":
            return [_plain(other) for other in patch if other is not item]
        at = next((i for i, known in enumerate(current) if known.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            current = [known for i, known in enumerate(current) if i != at]
        elif at is None:
            current.append(strategic({}, item))
        else:
            current[at] = strategic(current[at], item)
    return current


def _plain(item: Any) -> Any:
    return strategic({}, item) if isinstance(item, dict) else item
