"""The same random script against the simulated and the real API server: what is asked, and what must be answered alike.

A script is drawn from a seed and refers to objects by name; uids and resourceVersions are looked up on each side. An
answer is compared by status, reason, message and object; what only a real cluster knows (managed fields, times, more
defaults) is left out: every field that the simulated server shows, the real one must show too, with the same value.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import orjson

from webhook import errors
from webhook.kube.api import JSON, JSON_PATCH, MERGE_PATCH, METADATA, STRATEGIC_PATCH, Api

KINDS: Final = {
    "configmaps": "/api/v1/namespaces/{}/configmaps",
    "pods": "/api/v1/namespaces/{}/pods",
    "jobs": "/apis/batch/v1/namespaces/{}/jobs",
    "widgets": "/apis/agreement.example.com/v1/namespaces/{}/widgets",
}
HEADS: Final = {
    "configmaps": {"apiVersion": "v1", "kind": "ConfigMap"},
    "pods": {"apiVersion": "v1", "kind": "Pod"},
    "jobs": {"apiVersion": "batch/v1", "kind": "Job"},
    "widgets": {"apiVersion": "agreement.example.com/v1", "kind": "Widget"},
}
_VOLATILE: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp")
_EXACT_METADATA: Final = ("labels", "annotations", "finalizers", "generation", "ownerReferences")
_NUMBERS: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b\d{3,}\b")
_RECORD: Final = re.compile(r"in record \(\d+\)")
_SHOWN: Final = re.compile(r"Invalid value: .*: field is immutable", re.DOTALL)
NO_SUCH_UID: Final = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class Step:
    """One request. ``body`` may hold the placeholders ``$UID``, ``$VERSION`` and ``$STALE`` of its object."""

    method: str
    kind: str
    name: str = ""
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    query: tuple[tuple[str, str], ...] = ()
    whole: bool = False
    """A PUT: ``body`` is merged over what is stored."""


DEFINITION: Final = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.agreement.example.com"},
    "spec": {
        "group": "agreement.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
"""A custom kind that no controller looks after."""


def container() -> dict[str, Any]:
    """Return a container that passes Pod Security's ``restricted``."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    limits = {"nvidia.com/gpu": "1", "cpu": "1"}
    return {"name": "main", "image": "example.com/x", "resources": {"limits": limits}, "securityContext": security}


def new_object(kind: str, name: str, rng: Random) -> dict[str, Any]:
    """Return an object of one kind; now and then one that must be refused."""
    metadata: dict[str, Any] = {"name": name, "labels": {"app": rng.choice(["a", "b"])}}
    if rng.random() < 0.1:
        metadata["labels"]["bad"] = "not a label value!"
    if rng.random() < 0.2:
        metadata["finalizers"] = ["example.com/hold"]
    if kind == "configmaps":
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": str(rng.randrange(3))}}
    if kind == "widgets":
        spec: dict[str, Any] = {"minMember": rng.randrange(1, 4)}
        return {"apiVersion": "agreement.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec}
    if kind == "pods":
        spec = {"containers": [container()], "schedulingGates": [{"name": "example.com/hold"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    policy = "Never" if rng.random() < 0.9 else "Always"
    template = {"metadata": {"labels": {"t": "1"}}, "spec": {"restartPolicy": policy, "containers": [container()]}}
    spec = {"suspend": True, "parallelism": rng.choice([1, 2, -1, 3]), "completions": 3, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _patches(kind: str, rng: Random) -> Iterator[tuple[str, Any]]:
    yield MERGE_PATCH, {"metadata": {"labels": {"app": rng.choice(["a", "b", None])}}}
    yield MERGE_PATCH, {"metadata": {"annotations": {"note": rng.choice(["1", "2", None])}}}
    yield MERGE_PATCH, {"metadata": {"resourceVersion": "$STALE", "labels": {"stale": "1"}}}
    yield MERGE_PATCH, {"metadata": {"resourceVersion": "$VERSION", "labels": {"fresh": rng.choice(["1", "2"])}}}
    yield MERGE_PATCH, {"metadata": {"uid": rng.choice(["$UID", NO_SUCH_UID]), "labels": {"for": "uid"}}}
    yield MERGE_PATCH, {"metadata": {"finalizers": rng.choice([None, ["example.com/hold"], ["example.com/other"]])}}
    yield MERGE_PATCH, {"metadata": {"name": "renamed"}}
    yield (
        JSON_PATCH,
        [
            {"op": "test", "path": "/metadata/labels/app", "value": "a"},
            {"op": "remove", "path": "/metadata/labels/app"},
        ],
    )
    yield JSON_PATCH, [{"op": "add", "path": "/metadata/labels/j~1x", "value": "1"}]
    yield JSON_PATCH, [{"op": "remove", "path": "/metadata/labels/nothing"}]
    yield STRATEGIC_PATCH, {"metadata": {"labels": {"s": rng.choice(["1", None])}}}
    if kind == "configmaps":
        yield MERGE_PATCH, {"data": {"x": rng.choice(["0", "9", None]), "y": "1"}}
        conditional = {"resourceVersion": rng.choice(["$VERSION", "$STALE"]), "managedFields": [{}]}
        yield STRATEGIC_PATCH, {"metadata": conditional, "data": {"x": rng.choice(["0", None]), "y": "2", "z": None}}
    elif kind == "widgets":
        yield MERGE_PATCH, {"spec": {"minMember": rng.randrange(1, 4)}}
    elif kind == "pods":
        gates = rng.choice(
            [[{"name": "example.com/hold"}, {"name": "example.com/more"}], [{"name": "example.com/hold"}]]
        )
        yield MERGE_PATCH, {"spec": {"schedulingGates": gates}}
        yield MERGE_PATCH, {"spec": {"restartPolicy": "Never"}}
        yield MERGE_PATCH, {"spec": {"nodeSelector": {"a": "b"}}}
        yield MERGE_PATCH, {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}
    else:
        yield MERGE_PATCH, {"spec": {"parallelism": rng.randrange(0, 4)}}
        yield MERGE_PATCH, {"spec": {"completions": rng.randrange(1, 4)}}
        yield MERGE_PATCH, {"spec": {"template": {"spec": {"nodeSelector": {"pool": rng.choice(["a", "b"])}}}}}
        yield MERGE_PATCH, {"spec": {"template": {"metadata": {"labels": {"more": rng.choice(["1", "2"])}}}}}
        yield MERGE_PATCH, {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}}
        yield MERGE_PATCH, {"spec": {"backoffLimit": rng.randrange(0, 4)}}
        yield MERGE_PATCH, {"spec": {"completionMode": "Indexed"}}


def script(seed: int, length: int) -> Iterator[Step]:
    """Yield the steps of one script."""
    rng = Random(seed)
    for _ in range(length):
        kind = rng.choice(list(KINDS))
        name = f"{kind[0]}{rng.randrange(3)}"
        draw = rng.random()
        if draw < 0.3:
            query = (("dryRun", "All"),) if rng.random() < 0.15 else ()
            yield Step("POST", kind, body=new_object(kind, name, rng), query=query)
        elif draw < 0.4:
            yield Step("GET", kind, name)
        elif draw < 0.5:
            selector = rng.choice(["app=a", "app!=a", "app in (a,b)", "!app", "s"])
            yield Step("GET", kind, query=(("labelSelector", selector),))
        elif draw < 0.6:
            version = rng.choice(["$VERSION", "$STALE", None])
            uid = rng.choice(["$UID", "$UID", NO_SUCH_UID])
            yield Step(
                "PUT",
                kind,
                name,
                {"metadata": {"resourceVersion": version, "uid": uid, "labels": {"put": "1"}}},
                whole=True,
            )
        elif draw < 0.85:
            content_type, patch = rng.choice(list(_patches(kind, rng)))
            yield Step("PATCH", kind, name, patch, content_type, rng.choice([JSON, METADATA]))
        else:
            preconditions = rng.choice([{"uid": "$UID"}, {"uid": NO_SUCH_UID}, {"resourceVersion": "$STALE"}, None])
            options = {"propagationPolicy": rng.choice(["Background", "Foreground"])}
            yield Step("DELETE", kind, name, options | ({"preconditions": preconditions} if preconditions else {}))


@dataclass(slots=True)
class Side:
    """One of the two clusters."""

    api: Api
    namespace: str

    async def answer(self, step: Step) -> tuple[int, str, str, Any]:
        """Return status, reason, message and body of the answer to one step."""
        path = KINDS[step.kind].format(self.namespace)
        current = await self._read(f"{path}/{step.name}") if step.name else None
        body = _filled(step.body, current)
        if step.whole:
            body = _over(current or {**HEADS[step.kind], "metadata": {"name": step.name}}, body)
        raw = None if body is None else orjson.dumps(body)
        target = f"{path}/{step.name}" if step.name else path
        try:
            answer = await self.api.request(
                step.method,
                target,
                query=dict(step.query),
                body=raw,
                content_type=step.content_type,
                accept=step.accept,
            )
        except errors.ApiError as error:
            if step.method == "POST" and step.kind == "pods":
                await self._count_again()
            return error.status, error.reason, _worded(error.message, self.namespace), None
        said = orjson.loads(answer)
        if "items" in said:
            said["items"] = [item for item in said["items"] if item["metadata"]["name"] != "kube-root-ca.crt"]
        return 200, "", "", said

    async def create_quota(self, pods: int) -> None:
        """Limit the namespace and wait until the limit is in force."""
        hard = {"pods": str(pods), "requests.cpu": "50"}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas"
        await self.api.request("POST", path, body=orjson.dumps(quota))
        while not await self.quota_is_settled():
            await asyncio.sleep(0.05)

    async def _count_again(self) -> None:
        """Have the quota counted. What a creation that failed was charged stays charged until something changes."""
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas/q"
        quota = await self._read(path)
        cpu = {"50": "51", "51": "50"}[quota["spec"]["hard"]["requests.cpu"]]
        patch = {"spec": {"hard": {"requests.cpu": cpu}}}
        await self.api.request("PATCH", path, body=orjson.dumps(patch), content_type=MERGE_PATCH)

    async def quota_is_settled(self) -> bool:
        """Return whether the quota's status counts the pods that there are."""
        quota = await self._read(f"/api/v1/namespaces/{self.namespace}/resourcequotas/q")
        pods = await self._read(KINDS["pods"].format(self.namespace))
        used = (quota.get("status") or {}).get("used", {}).get("pods")
        return bool(used == str(len(pods["items"])))

    async def _read(self, path: str) -> Any:
        try:
            return orjson.loads(await self.api.request("GET", path))
        except errors.NotFound:
            return None


def _worded(message: str, namespace: str) -> str:
    """Return a message without what must differ: uids, versions, how Go prints a whole template."""
    message = _SHOWN.sub("Invalid value: ...: field is immutable", message.replace(namespace, "NS"))
    return _NUMBERS.sub("#", _RECORD.sub("in record (#)", message))


def same_words(simulated: str, real: str) -> bool:
    """Return whether two messages say the same.

    Of a 422 a real server lists every cause and the simulated one the first; a real one adds a diff of a pod.
    """
    if simulated == real.partition("\n@@")[0]:
        return True
    head, _, cause = simulated.partition(" is invalid: ")
    return bool(cause) and real.startswith(f"{head} is invalid: [") and cause in real


def _filled(body: Any, current: Any) -> Any:
    """Return ``body`` with its placeholders replaced."""
    if isinstance(body, dict):
        return {key: _filled(value, current) for key, value in body.items()}
    if isinstance(body, list):
        return [_filled(value, current) for value in body]
    metadata = (current or {}).get("metadata") or {}
    known = {"$UID": metadata.get("uid", NO_SUCH_UID), "$VERSION": metadata.get("resourceVersion", "1"), "$STALE": "1"}
    return known.get(body, body) if isinstance(body, str) else body


def _over(current: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    metadata = {**current["metadata"], **change["metadata"]}
    return {**current, "metadata": {key: value for key, value in metadata.items() if value is not None}}


def differences(simulated: Any, real: Any, where: str = "") -> Iterator[str]:
    """Yield where the real answer lacks or contradicts what the simulated one shows."""
    if isinstance(simulated, dict) and isinstance(real, dict):
        for key, value in simulated.items():
            if key in _VOLATILE or key == "status" or (key == "namespace" and where == ".metadata"):
                continue
            if key in real:
                yield from differences(value, real[key], f"{where}.{key}")
            elif value not in ({}, [], None, 0):
                yield f"{where}.{key} is {value!r} only in the simulated one"
        if where == ".metadata" or where.endswith("].metadata"):
            for key in _EXACT_METADATA:
                if key in real and key not in simulated:
                    yield f"{where}.{key} is {real[key]!r} only in the real one"
    elif isinstance(simulated, list) and isinstance(real, list):
        if len(simulated) != len(real):
            yield f"{where} has {len(simulated)} items in the simulated one and {len(real)} in the real one"
        for index, (mine, theirs) in enumerate(zip(simulated, real, strict=False)):
            yield from differences(mine, theirs, f"{where}[{index}]")
    elif _NUMBERS.sub("#", str(simulated)) != _NUMBERS.sub("#", str(real)):
        yield f"{where} is {simulated!r} in the simulated one and {real!r} in the real one"
