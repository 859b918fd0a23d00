"""Any review of anything is answered, at the cost that its size allows, and leaves little behind."""

import asyncio
import gc
import tracemalloc
from typing import Any, Final

import orjson
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.fuzz.costs import at_best, run
from tests.fuzz.objects import METADATA, OTHERS, POLICY, REAL
from tests.fuzz.strategies import JSON, SHORT, changed, json_bytes
from tests.unit.server.reviews import ACCOUNT, ALICE, JOB_CONTROLLER, reservation, view, with_ledger
from webhook.jobs.kinds.registry import KINDS
from webhook.server.handler import ReviewHandler
from webhook.server.http.worker_thread import OneThread
from webhook.server.review.answer import Refusal
from webhook.server.review.resources_table import ResourcesTable, Row
from webhook.wire.admission_review import BODY_BYTES_MAX


def reviewed(
    obj: bytes, old: bytes, operation: str, kind: str, resource: str, *, more: dict[str, Any] | None = None
) -> bytes:
    group, _, version = str(kind).partition("/")
    request: dict[str, Any] = {
        "uid": "review-1",
        "kind": {"group": group, "version": version, "kind": resource.rstrip("s")},
        "resource": {"group": group, "version": version, "resource": resource},
        "namespace": "team-a",
        "operation": operation,
        "userInfo": {"username": ALICE},
        "object": "OBJECT",
        "oldObject": "OLD",
    } | (more or {})
    body = orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    return body.replace(b'"OBJECT"', obj).replace(b'"OLD"', old)


# Calls are counted on one thread. Where the loop's time is looked at, the process's threads are there, too.
BESIDE: Final[dict[str, Any]] = {} if SHORT else {"beside": OneThread(), "counting": OneThread()}
GATE = ReviewHandler(with_ledger(view(), reservation()), **BESIDE)


@at_best
def judged(path: str, body: bytes) -> None:
    if len(body) > BODY_BYTES_MAX:
        # The server takes no longer one in.
        reject()
    status, answer = run(GATE.review(path, bytes(body), 1.0), len(body))
    assert status in (200, 400), (status, answer)
    assert Refusal.BROKEN.value not in answer.decode()
    assert b"failed to decide" not in answer
    assert len(answer) < 2_000 + 3 * len(body)


@st.composite
def named(draw: st.DrawFn, objects: Any) -> dict[str, Any]:
    """An object that bears such labels, annotations and owners as anybody may write."""
    obj: dict[str, Any] = draw(objects)
    metadata = obj.get("metadata")
    if draw(st.booleans()) and isinstance(metadata, dict):
        obj["metadata"] = {**metadata, **draw(METADATA)}
    return obj


@given(st.data(), st.sampled_from(["CREATE", "UPDATE"]), st.sampled_from(GATE.paths))
def test_a_review_of_any_object_is_answered(data: st.DataObject, operation: str, path: str) -> None:
    original = data.draw(st.sampled_from(list(REAL.values())))
    kind = KINDS[f"{original['kind']}.{original['apiVersion'].rpartition('/')[0]}"]
    obj, old = (data.draw(json_bytes(named(changed(st.just(original))))) for _ in range(2))
    judged(path, reviewed(obj, old, operation, f"{kind.group}/{kind.version}", kind.plural))


@given(st.data(), st.sampled_from(["CREATE", "UPDATE"]))
def test_a_review_of_any_pod_is_answered(data: st.DataObject, operation: str) -> None:
    spec = REAL["job"]["spec"]["template"]["spec"]
    labels = {"tutti.dev/gang": "job-1", "tutti.dev/pod-set": "main"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "p", "labels": labels}, "spec": spec}
    obj, old = (data.draw(json_bytes(named(changed(st.just(pod))))) for _ in range(2))
    judged(data.draw(st.sampled_from(["/validate/pods", "/mutate/pods"])), reviewed(obj, old, operation, "/v1", "pods"))


ROWS: Final = ResourcesTable((kind.group, kind.plural) for kind in KINDS.values()).rows()
SCALE: Final = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "train"}, "spec": {"replicas": 3}}
ANYTHING: Final = [*REAL.values(), *POLICY, *OTHERS.values(), SCALE]
GARBAGE_COLLECTOR: Final = "system:serviceaccount:kube-system:generic-garbage-collector"
OPERATIONS: Final = ["CREATE", "UPDATE", "DELETE", "CONNECT"]
USERS: Final = [
    ALICE,
    ACCOUNT,
    JOB_CONTROLLER,
    "system:node:n1",
    GARBAGE_COLLECTOR,
    "",
]


@given(st.data(), st.sampled_from(ROWS), st.sampled_from(OPERATIONS), st.sampled_from(USERS))
def test_a_review_of_any_resource_subresource_and_operation_is_answered(
    data: st.DataObject, row: Row, operation: str, user: str
) -> None:
    resource, _, subresource = row.resource.partition("/")
    of_kind = [each for each in ANYTHING if f"{str(each['kind']).lower()}s" == resource]
    objects = named(changed(st.sampled_from(of_kind or ANYTHING) | st.sampled_from(ANYTHING)))
    obj, old = (data.draw(st.just(b"null") | json_bytes(objects)) for _ in range(2))
    more = {"subResource": subresource, "userInfo": {"username": user, "groups": ["system:nodes"]}, "name": "train"}
    body = reviewed(obj, old, operation, f"{row.group}/v1", resource, more=more)
    judged(data.draw(st.sampled_from(GATE.paths)), body)


FIELDS: Final = [
    "uid",
    "kind",
    "resource",
    "subResource",
    "name",
    "namespace",
    "operation",
    "userInfo",
    "dryRun",
    "options",
]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3), st.sampled_from(GATE.paths))
def test_a_review_with_any_value_in_any_field_is_answered(fields: dict[str, Any], path: str) -> None:
    pod = orjson.dumps(REAL["job"])
    judged(path, reviewed(pod, b"null", "CREATE", "batch/v1", "jobs", more=fields))


@given(json_bytes(JSON) | st.binary(max_size=200), st.sampled_from(GATE.paths))
def test_any_bytes_are_answered(body: bytes, path: str) -> None:
    judged(path, body)


LEFT_BYTES_MAX = 1 << 20


@settings(max_examples=20 if SHORT else 100)
@given(st.data())
def test_memory_returns_whatever_reviews_came(data: st.DataObject) -> None:
    """Each review comes many times, of other pods and namespaces: what is kept of them is bounded."""
    pod = {"metadata": {"name": "p", "uid": "NAME"}, "spec": REAL["job"]["spec"]["template"]["spec"]}
    raw = data.draw(json_bytes(changed(st.just(pod), 2)))
    path = data.draw(st.sampled_from(["/validate/pods", "/mutate/pods"]))
    body = reviewed(raw, b"null", "CREATE", "/v1", "pods").replace(b"review-1", b"NAME" * 20)
    handler = ReviewHandler(with_ledger(view(), reservation()))

    async def flood(first: int) -> None:
        for number in range(first, first + 12):
            name = f"n{number}".encode()
            space = b"team-a" if number % 2 else name
            await handler.review(path, body.replace(b"NAME", name).replace(b"team-a", space), 1.0)

    asyncio.run(flood(0))
    gc.collect()
    tracemalloc.start()
    asyncio.run(flood(100))
    gc.collect()
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < LEFT_BYTES_MAX
