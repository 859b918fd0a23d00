"""Paths to verbs: one HTTP-shaped request in, one answer or one watch out. Shared by ``api`` and ``http``."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from webhook.core.model.frozen import frozen
from webhook.core.notation.names import SYSTEM_NAMESPACE
from webhook.kube.api import APPLY_PATCH, MERGE_PATCH
from webhook.laboratory.simulated.objects.resources import Resource
from webhook.laboratory.simulated.objects.store import Stored
from webhook.laboratory.simulated.objects.watches import Selection, Watch, render
from webhook.laboratory.simulated.requests import discovery, patches, scale
from webhook.laboratory.simulated.requests.identity import ADMIN, Call, User
from webhook.laboratory.simulated.requests.refusals import (
    Json,
    Refused,
    bad_request,
    conflict,
    expired,
    forbidden,
    invalid,
    kind_missing,
    method_not_allowed,
    no_such_path,
    unsupported_media_type,
    version_required,
)
from webhook.laboratory.simulated.requests.selectors import everything, parse_fields, parse_labels
from webhook.laboratory.simulated.server import SimulatedServer

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
DEFAULT_WATCH_SECONDS: Final = 1800.0
_SNAPSHOTS: Final = 64
_PROTOBUF: Final = b"k8s\x00"
_OURS: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:"
_API_SERVICES: Final = ("apiregistration.k8s.io", "apiservices")


@frozen
class Request:
    """One request to the API server."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json"
    user: User = ADMIN


@dataclass(slots=True)
class Answer:
    """One answer."""

    status: int
    body: bytes
    warnings: list[str] = field(default_factory=list)


@frozen
class _Target:
    resource: Resource
    namespace: str | None
    name: str
    subresource: str


class Router:
    """Answers requests on behalf of one server."""

    def __init__(self, server: SimulatedServer) -> None:
        self.server = server
        self.unlistable: set[str] = set()
        """``plural.group`` of resources that nobody can list or watch, as with a dead conversion webhook."""
        self.shut: dict[str, int] = {}
        """``plural.group`` of what is refused since ``shut_off``, and the status by which it is."""
        self._watches: list[Watch] = []
        self._watches_most = 64
        """When there are so many, those that have ended are dropped."""
        self._targets: dict[str, _Target] = {}
        self._selections: dict[tuple[str | None, str, str, tuple[str, ...]], Selection] = {}
        self._snapshots: dict[str, tuple[int, list[Stored]]] = {}

    async def handle(self, request: Request) -> Answer:
        """Answer one request that is no watch; a refusal is an answer, too."""
        try:
            return await self._handle(request)
        except Refused as refused:
            return Answer(refused.code, orjson.dumps(refused.status))

    def watch(self, request: Request) -> Watch:
        """Open a watch. Raises Refused when it cannot start; a position that is too old is told in the stream."""
        target = self._target(request.path)
        query = request.query
        if target.subresource:
            raise method_not_allowed()
        if self.shut.get(f"{target.resource.plural}.{target.resource.group}") == 500:
            raise Refused(429, "TooManyRequests", "storage is (re)initializing")
        self._open(target.resource, request.user)
        self._convertible(target.resource)
        selection = self._selection(target, query)
        position = query.get("resourceVersion", "")
        try:
            revision = int(position or "0")
            timeout_seconds = float(query.get("timeoutSeconds") or DEFAULT_WATCH_SECONDS)
        except ValueError as error:
            raise invalid(target.resource, "", "resourceVersion", f"Invalid value: {position!r}") from error
        bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        opened = self.server.watch(target.resource, selection, bookmarks=bookmarks, timeout_seconds=timeout_seconds)
        streamed = query.get("sendInitialEvents") == "true"
        opened.start(revision, initial=streamed or revision == 0, marked=streamed)
        self._watches.append(opened)
        if len(self._watches) > self._watches_most:
            self._watches = [each for each in self._watches if not each.ended]
            self._watches_most = 2 * len(self._watches) + 64
        return opened

    def shut_off(self, resource: str, status: int) -> None:
        """Refuse every request about ``resource``, ``plural.group``, that was answered until now, and end its watches.

        500: nobody is answered, as with a conversion webhook that died, and watches are put off (429), since there is
        nothing to follow; 403: none of Tutti's accounts is.
        """
        self.shut[resource] = status
        for each in self._watches:
            if f"{each.resource.plural}.{each.resource.group}" == resource:
                each.end()

    def is_watch(self, request: Request) -> bool:
        """Return whether the request asks for a stream."""
        return request.method == "GET" and request.query.get("watch") in ("true", "1")

    # -- dispatch ---------------------------------------------------------------------------------------------------

    async def _handle(self, request: Request) -> Answer:
        if request.method == "GET" and request.path not in self._targets and "/namespaces/" not in request.path:
            known = discovery.document(self.server.registry, request.path, self._aggregated(), self.server.release)
            if known is not None:
                return Answer(200, known)
        if len(request.body) > MAX_BODY_BYTES:
            raise Refused(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY_BYTES}")
        target = self._target(request.path)
        call = Call(request.user, request.query.get("dryRun") == "All")
        answer = await self._verb(request, target, call)
        answer.warnings = list(dict.fromkeys(call.warnings))
        return answer

    async def _verb(self, request: Request, target: _Target, call: Call) -> Answer:
        self._open(target.resource, request.user)
        if target.subresource:
            return await self._subresource(request, target, call)
        match request.method, bool(target.name):
            case "GET", True:
                stored = self.server.get(target.resource, target.namespace or "", target.name)
                return _one(200, target.resource, stored)
            case "GET", False:
                return self._list(target, request.query)
            case "POST", False:
                return await self._create(request, target, call)
            case "PUT", True:
                return await self._replace(request, target, call)
            case "PATCH", True:
                return await self._patch(request, target, call)
            case "DELETE", True:
                return await self._delete(request, target, call)
            case "DELETE", False:
                selection = self._selection(target, request.query)
                options = _options(request)
                gone = await self.server.delete_collection(target.resource, selection, options, call)
                return self._list_answer(target.resource, gone, str(self.server.store.revision), {})
        raise method_not_allowed()

    def _aggregated(self) -> list[tuple[str, str]]:
        specs = [stored.object["spec"] for stored in self.server.store.items(_API_SERVICES, "")]
        return [(spec["group"], spec["version"]) for spec in specs if spec.get("service")]

    def _target(self, path: str) -> _Target:
        target = self._targets.get(path)
        if target is None:
            target = self._parse(path)
            if len(self._targets) > 4096:
                self._targets.clear()
            self._targets[path] = target
        return target

    def _parse(self, path: str) -> _Target:
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "v1"]:
            group, version, rest = "", "v1", parts[2:]
        elif parts[0] == "apis" and len(parts) >= 4:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise no_such_path()
        namespace: str | None = None
        if rest[:1] == ["namespaces"] and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        resource = self.server.registry.find(group, version, rest[0]) if rest else None
        if resource is None or len(rest) > 3 or (namespace is not None and not resource.namespaced):
            raise no_such_path()
        name = rest[1] if len(rest) > 1 else ""
        if name and resource.namespaced and namespace is None:
            raise no_such_path()
        return _Target(resource, namespace if resource.namespaced else None, name, rest[2] if len(rest) > 2 else "")

    def _selection(self, target: _Target, query: Mapping[str, str]) -> Selection:
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        key = (target.namespace, labels, fields, target.resource.selectable)
        selection = self._selections.get(key)
        if selection is None:
            if len(self._selections) > 4096:
                self._selections.clear()
            selection = self._selections[key] = Selection(
                target.namespace,
                parse_labels(labels) if labels else everything,
                parse_fields(fields, target.resource.selectable) if fields else None,
            )
        return selection

    # -- verbs ------------------------------------------------------------------------------------------------------

    async def _create(self, request: Request, target: _Target, call: Call) -> Answer:
        if target.resource.namespaced and target.namespace is None:
            raise method_not_allowed()
        body = _told(target.resource, _object(request.body))
        stored = await self.server.create(target.resource, target.namespace or "", body, call)
        return _one(201, target.resource, stored)

    async def _replace(self, request: Request, target: _Target, call: Call) -> Answer:
        body = _told(target.resource, _object(request.body))
        resource, metadata = target.resource, body.get("metadata") or {}
        text = orjson.dumps(body)

        def change(stored: Stored) -> Json:
            uid = metadata.get("uid")
            if uid and uid != stored.uid:
                raise conflict(resource, target.name, _uid_mismatch(resource, stored, uid))
            if resource.custom and not metadata.get("resourceVersion"):
                raise version_required(resource, target.name)
            fresh: Json = orjson.loads(text)
            return fresh

        stored = await self.server.update(
            resource, target.namespace or "", target.name, change, call, target.subresource
        )
        return _one(200, resource, stored)

    async def _patch(self, request: Request, target: _Target, call: Call) -> Answer:
        patch = patches.parse(request.content_type, request.body, custom=target.resource.custom)
        resource, namespace = target.resource, target.namespace or ""
        applied = request.content_type.startswith(APPLY_PATCH)
        if applied and self.server.store.get(resource.storage, namespace, target.name) is None:
            patch.setdefault("metadata", {})["name"] = target.name
            return _one(201, resource, await self.server.create(resource, namespace, patch, call))
        # Decoded once more for each attempt: a patch's values become part of the object.
        text = orjson.dumps(patch)

        def change(stored: Stored) -> Json:
            return patches.apply(request.content_type, stored.copy(), orjson.loads(text))

        stored = await self.server.update(resource, namespace, target.name, change, call, target.subresource)
        return _one(200, resource, stored)

    async def _delete(self, request: Request, target: _Target, call: Call) -> Answer:
        resource, options = target.resource, _options(request)
        call.dry_run = call.dry_run or bool(options.get("dryRun"))
        stored, gone = await self.server.delete(resource, target.namespace or "", target.name, options, call)
        if not gone or resource.plural == "pods":
            return _one(200, resource, stored)
        details = {"name": target.name, "group": resource.group, "kind": resource.plural, "uid": stored.uid}
        shown = {key: value for key, value in details.items() if value}
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": shown}
        return Answer(200, orjson.dumps(body))

    async def _subresource(self, request: Request, target: _Target, call: Call) -> Answer:
        resource, namespace = target.resource, target.namespace or ""
        if target.subresource == "status" and resource.status:
            match request.method:
                case "GET":
                    return _one(200, resource, self.server.get(resource, namespace, target.name))
                case "PUT":
                    return await self._replace(request, target, call)
                case "PATCH":
                    return await self._patch(request, target, call)
        if target.subresource == "scale" and resource.scale_path:
            return await self._scale(request, target, call)
        if target.subresource == "binding" and resource.plural == "pods" and request.method == "POST":
            node = (_object(request.body).get("target") or {}).get("name", "")
            await self.server.bind(namespace, target.name, node, call)
            return Answer(
                201,
                orjson.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
            )
        if target.subresource == "finalize" and resource.plural == "namespaces" and request.method == "PUT":
            return await self._replace(request, target, call)
        if target.subresource in ("ephemeralcontainers", "resize") and request.method in ("PUT", "PATCH"):
            return await (self._replace if request.method == "PUT" else self._patch)(request, target, call)
        raise no_such_path() if not target.name else method_not_allowed()

    async def _scale(self, request: Request, target: _Target, call: Call) -> Answer:
        resource, namespace = target.resource, target.namespace or ""
        if request.method == "GET":
            stored = self.server.get(resource, namespace, target.name)
            return Answer(200, orjson.dumps(scale.view(resource, stored.object)))
        if request.method == "PATCH":
            patch = orjson.dumps(patches.parse(request.content_type, request.body))
            content_type = request.content_type
        elif request.method == "PUT":
            patch, content_type = orjson.dumps(_object(request.body)), MERGE_PATCH
        else:
            raise method_not_allowed()
        stored = await scale.update(
            self.server,
            resource,
            namespace,
            target.name,
            lambda s: patches.apply(content_type, s, orjson.loads(patch)),
            call,
        )
        return Answer(200, orjson.dumps(scale.view(resource, stored.object)))

    def _convertible(self, resource: Resource) -> None:
        if f"{resource.plural}.{resource.group}" in self.unlistable:
            raise _unconverted(resource)

    def _open(self, resource: Resource, user: User) -> None:
        status = self.shut.get(f"{resource.plural}.{resource.group}") if self.shut else None
        if status == 500:
            raise _unconverted(resource)
        if status is not None and user.name.startswith(_OURS):
            raise forbidden(resource, "", f"User {user.name!r} cannot read or write it")

    # -- lists ------------------------------------------------------------------------------------------------------

    def _list(self, target: _Target, query: Mapping[str, str]) -> Answer:
        self._convertible(target.resource)
        limit, token = int(query.get("limit") or 0), query.get("continue", "")
        if token:
            revision, found = self._continued(token)
        else:
            revision, found = (
                self.server.store.revision,
                self.server.select(target.resource, self._selection(target, query)),
            )
        metadata: Json = {}
        if limit and len(found) > limit:
            metadata = {"continue": self._remember(revision, found[limit:]), "remainingItemCount": len(found) - limit}
            found = found[:limit]
        return self._list_answer(target.resource, found, str(revision), metadata)

    def _remember(self, revision: int, rest: list[Stored]) -> str:
        """Keep the rest of a paged list: later pages are of the same revision, as a real server's are."""
        token = base64.urlsafe_b64encode(orjson.dumps({"v": revision, "start": "/".join(rest[0].key)})).decode()
        self._snapshots[token] = (revision, rest)
        while len(self._snapshots) > _SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]
        return token

    def _continued(self, token: str) -> tuple[int, list[Stored]]:
        known = self._snapshots.get(token)
        if known is None:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
        return known

    def forget_pages(self) -> None:
        """Let every continue token expire."""
        self._snapshots.clear()

    def _list_answer(self, resource: Resource, found: list[Stored], version: str, metadata: Json) -> Answer:
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
        items = b",".join(_item(resource, stored) for stored in found)
        meta = orjson.dumps({"resourceVersion": version, **metadata})
        body = b'%b,"metadata":%b,"items":[%b]}' % (orjson.dumps(head)[:-1], meta, items)
        return Answer(200, body)


def _unconverted(resource: Resource) -> Refused:
    text = f"conversion webhook for {resource.group}/{resource.version}, Kind={resource.kind} failed"
    return Refused(500, "InternalError", text)


def _item(resource: Resource, stored: Stored) -> bytes:
    """Return a list item; those of built-in kinds do not repeat kind and apiVersion."""
    raw = render(resource, stored)
    if resource.custom:
        return raw
    return b"{" + raw[len(resource.head) :] if raw.startswith(resource.head) else raw


def _one(status: int, resource: Resource, stored: Stored) -> Answer:
    return Answer(status, render(resource, stored))


def _object(body: bytes) -> Json:
    if body.startswith(_PROTOBUF):
        raise unsupported_media_type("application/json")
    try:
        item = orjson.loads(body)
    except ValueError as error:
        raise bad_request(f"the object provided is unrecognized (must be of type JSON): {error}") from error
    if not isinstance(item, dict):
        raise bad_request("the object provided is not an object")
    return item


def _told(resource: Resource, body: Json) -> Json:
    """Return ``body``, which must name its kind where no Go type says it."""
    if resource.custom and not (body.get("kind") and body.get("apiVersion")):
        raise kind_missing(resource, orjson.dumps(body).decode()[:200])
    return body


def _uid_mismatch(resource: Resource, stored: Stored, uid: str) -> str:
    key = "/".join(filter(None, (resource.group if resource.custom else "", resource.plural, *stored.key)))
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.uid}"
    )


def _options(request: Request) -> Json:
    options = _object(request.body) if request.body else {}
    for key in ("propagationPolicy", "gracePeriodSeconds"):
        if key in request.query:
            value = request.query[key]
            options[key] = int(value) if key == "gracePeriodSeconds" else value
    return options
