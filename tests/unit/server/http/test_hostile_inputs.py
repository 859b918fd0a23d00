"""The forty-four bad inputs: what is sent, and what must come back. One section a row; the number is the row's.

Whatever is sent: anything with a readable uid is answered by a review with a denial, anything else by a 4xx; never a
redirect, never ``Retry-After``, never a 5xx for want of understanding, never a hang.
"""

import asyncio
import copy
import gzip
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from tests.unit.server.reviews import (
    GPU,
    JOB_CONTROLLER,
    Answered,
    ask,
    containers,
    job,
    pod,
    reservation,
    review,
    view,
    with_ledger,
)
from tests.unit.server.wire_level import Reply, Served, post, served
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked
from webhook.server.handler import ReviewHandler
from webhook.server.http.app import parse_timeout
from webhook.server.review.settings import ReviewSettings

SETTINGS = ReviewSettings()


@pytest.fixture
async def web() -> AsyncIterator[Served]:
    async with served(ReviewHandler(view())) as server:
        yield server


@pytest.fixture
def handler() -> ReviewHandler:
    return ReviewHandler(with_ledger(view(), reservation()))


def plain(reply: Reply) -> int:
    """Return the status of an answer after checking what no answer may carry."""
    assert not 300 <= reply.status < 400
    assert "retry-after" not in reply.headers
    assert b"Traceback" not in reply.body
    return reply.status


def document(**request: Any) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(review(job()))
    found["request"] |= request
    return found


def without(*path: str) -> bytes:
    found = document()
    node: Any = found
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    return orjson.dumps(found)


def suspended(**more: Any) -> dict[str, Any]:
    obj = copy.deepcopy(dict(marked(KINDS["Job.batch"], job(**more))))
    obj["metadata"]["uid"] = "job-1"
    return obj


async def judged(handler: ReviewHandler, body: bytes, path: str = "/validate/jobs") -> Answered:
    return await ask(handler, path, body)


# -- 1 to 7: transport


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "DELETE", "OPTIONS"])
async def test_01_other_methods_are_refused(web: Served, method: str) -> None:
    head = f"{method} /validate/jobs HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    wire = await web.connect()
    await wire.send(head)
    status_line = await wire.reader.readline()
    assert b" 405 " in status_line
    wire.close()


@pytest.mark.parametrize("path", ["/", "/validate/jobs/", "//validate/jobs", "/validate", "/validate/jobs/../pods"])
async def test_01_other_paths_are_unknown_and_never_redirected(web: Served, path: str) -> None:
    assert plain(await web.post(review(job()), path, "")) == 404


async def test_02_no_body(web: Served) -> None:
    assert plain(await web.post(b"")) == 400
    assert plain(await web.post(b"", Content_Length="")) == 400


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/yaml", "application/jsonx"])
async def test_03_other_content_types(web: Served, content_type: str) -> None:
    assert plain(await web.post(review(job()), Content_Type=content_type)) == 415


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
async def test_03_json_with_parameters_is_json(web: Served, content_type: str) -> None:
    assert plain(await web.post(review(job(queue=None)), Content_Type=content_type)) == 200


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "gzip, gzip"])
async def test_04_compressed_bodies_are_not_decompressed(web: Served, encoding: str) -> None:
    bomb = gzip.compress(bytes(2**20)) * 3
    assert plain(await web.post(bomb, Content_Encoding=encoding)) == 415


async def test_05_a_body_above_seven_mebibytes(web: Served) -> None:
    reply = await web.exchange(post(b"", Content_Length=str(7 * 2**20 + 1)))
    assert plain(reply) == 413
    assert reply.headers["connection"] == "close"


async def test_05_a_chunked_body_above_seven_mebibytes(web: Served) -> None:
    wire = await web.connect()
    await wire.send(post(b"", Content_Length="", Transfer_Encoding="chunked"))
    chunk = b"100000\r\n" + bytes(2**20) + b"\r\n"
    reply = asyncio.create_task(wire.reply())
    for _ in range(9):
        if reply.done():
            break
        wire.writer.write(chunk)
        await asyncio.sleep(0.01)
    assert plain(await reply) == 413
    wire.close()


@pytest.mark.parametrize(
    "data",
    [
        post(b"{}", Transfer_Encoding="chunked"),
        b"POST /validate/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /validate/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -2\r\n\r\n{}",
        post(b"{}", X_Long="x" * 9000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["length and chunked", "two lengths", "negative length", "long header", "h2 preface"],
)
async def test_05_ambiguous_framing_is_refused(web: Served, data: bytes) -> None:
    assert plain(await web.exchange(data)) == 400


async def test_05_expect_continue_is_answered(web: Served) -> None:
    wire = await web.connect()
    body = review(job(queue=None))
    await wire.send(post(b"", Content_Length=str(len(body)), Expect="100-continue"))
    assert b"100 Continue" in await wire.reader.readuntil(b"\r\n\r\n")
    await wire.send(body)
    assert (await wire.reply()).status == 200
    wire.close()


@pytest.mark.parametrize("mebibytes", [2, 6])
async def test_06_legal_large_reviews_are_handled(web: Served, mebibytes: int) -> None:
    large = job(queue=None)
    large["metadata"]["annotations"] = {"filler": "x" * (mebibytes * 2**20)}
    assert plain(await web.post(review(large))) == 200


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "data",
    [b"POST /validate/jobs HTTP/1.1\r\nHost: ", post(b"", Content_Length="100") + b'{"a":'],
    ids=["half a header", "half a body"],
)
async def test_07_slow_callers_are_let_go_and_hold_nobody_up(data: bytes) -> None:
    async with served(ReviewHandler(view()), port=443) as web:
        started = asyncio.get_running_loop().time()
        slow = await web.connect()
        await slow.send(data)
        assert (await web.post(review(job(queue=None)))).status == 200
        assert asyncio.get_running_loop().time() == started
        if data.endswith(b'{"a":'):
            assert (await slow.reply()).status == 408
        assert await slow.ended()
        assert asyncio.get_running_loop().time() - started <= 5


@pytest.mark.virtual_time
async def test_a_body_that_comes_late_is_answered_while_its_caller_still_waits() -> None:
    """An API server without processor time sends it long after the headers."""
    body = review(job(queue=None))
    async with served(ReviewHandler(view()), port=443) as web:
        wire = await web.connect()
        await wire.send(post(b"", Content_Length=str(len(body))))
        await asyncio.sleep(1.5)
        await wire.send(body)
        assert (await wire.reply()).status == 200
        wire.close()


# -- 8 to 15: is it a review


def embedded(text: bytes) -> bytes:
    return review(job()).replace(b'"train:1"', text, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b"\xef\xbb\xbf" + review(job()),
        review(job()) + b"x",
        embedded(b"NaN"),
        embedded(b"Infinity"),
        embedded(b"1e400"),
        embedded(b'"\\ud800"'),
        embedded(b'"\xff"'),
    ],
    ids=["text", "bom", "trailing", "nan", "infinity", "1e400", "lone surrogate", "invalid utf-8"],
)
async def test_08_what_is_not_json_is_no_review(handler: ReviewHandler, body: bytes) -> None:
    assert (await handler.review("/validate/jobs", body, 1.0))[0] == 400


@pytest.mark.parametrize("depth", [3000, 9000])
async def test_09_deep_nesting_is_judged_like_any_other(handler: ReviewHandler, depth: int) -> None:
    body = embedded(b"[" * depth + b"]" * depth)
    assert "spec.suspend: true" in (await judged(handler, body)).message


async def test_10_of_duplicate_keys_the_last_wins_and_case_matters(handler: ReviewHandler) -> None:
    obj = orjson.dumps(suspended())
    twice = obj.replace(b'"suspend":true', b'"suspend":true,"suspend":false').replace(b'"spec"', b'"Spec":{},"spec"', 1)
    body = review(suspended()).replace(obj, twice)
    answer = await judged(handler, body)
    assert "spec.suspend: true" in answer.message


@pytest.mark.parametrize("number", [b"9223372036854775808", b"99999999999999999999999999"])
async def test_11_integers_beyond_64_bits_are_refused(handler: ReviewHandler, number: bytes) -> None:
    body = review(suspended()).replace(b'"parallelism":4,"completions":4', b'"parallelism":' + number)
    assert (await judged(handler, body)).code == 422


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"1", b"null", b"{}", b"true"])
async def test_12_other_top_levels(handler: ReviewHandler, body: bytes) -> None:
    assert (await handler.review("/validate/jobs", body, 1.0))[0] == 400


@pytest.mark.parametrize(
    "change",
    [
        {"apiVersion": "admission.k8s.io/v1beta1"},
        {"apiVersion": "example.com/v1"},
        {"apiVersion": None},
        {"apiVersion": 1},
        {"kind": "Pod"},
        {"kind": None},
    ],
)
async def test_13_other_versions_and_kinds(handler: ReviewHandler, change: dict[str, Any]) -> None:
    assert (await handler.review("/validate/jobs", orjson.dumps(document() | change), 1.0))[0] == 400
    missing = document()
    del missing["apiVersion"]
    assert (await handler.review("/validate/jobs", orjson.dumps(missing), 1.0))[0] == 400


@pytest.mark.parametrize("request_", [None, [], "x", {}])
async def test_14_no_request(handler: ReviewHandler, request_: Any) -> None:
    body = orjson.dumps(document() | {"request": request_, "response": {"uid": "x", "allowed": True}})
    assert (await handler.review("/validate/jobs", body, 1.0))[0] == 400


@pytest.mark.parametrize("uid", ["x" * 10_000, 'a\u0001\n"b\\', "ü\u202e"])
async def test_15_a_uid_is_echoed_whatever_it_is(handler: ReviewHandler, uid: str) -> None:
    status, body = await handler.review("/validate/jobs", orjson.dumps(document(uid=uid)), 1.0)
    assert status == 200
    assert orjson.loads(body)["response"]["uid"] == uid


@pytest.mark.parametrize("uid", [None, "", 7, {}])
async def test_15_without_a_uid_there_is_nothing_to_answer(handler: ReviewHandler, uid: Any) -> None:
    assert (await handler.review("/validate/jobs", orjson.dumps(document(uid=uid)), 1.0))[0] == 400
    assert (await handler.review("/validate/jobs", without("request", "uid"), 1.0))[0] == 400


# -- 16 to 24: is the request coherent


@pytest.mark.parametrize("path", ["/validate/jobs", "/validate/pods"])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_16_no_object(handler: ReviewHandler, path: str, operation: str) -> None:
    shown = job() if path == "/validate/jobs" else pod()
    body = orjson.loads(review(shown, old=shown, operation=operation))
    body["request"]["object"] = None
    assert (await judged(handler, orjson.dumps(body), path)).code == 422


@pytest.mark.parametrize("obj", [[], "x", 1, True])
async def test_16_an_object_of_another_type(handler: ReviewHandler, obj: Any) -> None:
    assert (await judged(handler, orjson.dumps(document(object=obj)))).code == 422


async def test_17_no_old_object_on_update(handler: ReviewHandler) -> None:
    assert (await judged(handler, review(suspended(), operation="UPDATE"))).code == 422
    assert (await judged(handler, review(pod(), operation="UPDATE"), "/validate/pods")).code == 422


@pytest.mark.parametrize("path", ["/mutate/jobs", "/validate/jobs"])
async def test_18_a_normal_deletion(handler: ReviewHandler, path: str) -> None:
    answer = await judged(handler, review(None, old=job(), operation="DELETE"), path)
    assert answer.allowed
    assert answer.patch == []


@pytest.mark.parametrize("operation", ["CONNECT", "create", "PATCH", "", None])
async def test_19_other_operations(handler: ReviewHandler, operation: Any) -> None:
    answer = await judged(handler, orjson.dumps(document(operation=operation)))
    assert not answer.allowed
    assert answer.code == 400


async def test_20_resource_and_object_that_differ(handler: ReviewHandler) -> None:
    assert (await judged(handler, review(suspended(), resource="cronjobs"))).code == 403, "it bears our labels"
    assert (await judged(handler, review(suspended(), resource="widgets"))).code == 400
    other = suspended() | {"kind": "JobSet"}
    assert (await judged(handler, review(other, resource="jobs"))).code == 422
    assert (await judged(handler, review(suspended() | {"apiVersion": "v1"}))).code == 400
    converted = document(object=suspended(), requestKind={"group": "old", "version": "v1", "kind": "Job"})
    assert (await judged(handler, orjson.dumps(converted))).allowed


@pytest.mark.parametrize(
    ("path", "resource", "subresource", "allowed"),
    [
        ("/validate/jobs", "jobs", "status", True),
        ("/validate/jobs", "jobs", "unheard", False),
        ("/validate/pods", "pods", "binding", False),
        ("/validate/pods", "pods", "unheard", False),
        ("/validate/pods", "pods", "resize", True),
        ("/validate/pods", "pods", "ephemeralcontainers", True),
    ],
)
async def test_21_subresources_come_from_the_table(
    handler: ReviewHandler, path: str, resource: str, subresource: str, allowed: bool
) -> None:
    shown = suspended() if resource == "jobs" else pod()
    body = review(shown, old=shown, operation="UPDATE", resource=resource, subresource=subresource)
    assert (await judged(handler, body, path)).allowed is allowed


async def test_22_names(handler: ReviewHandler) -> None:
    obj = suspended()
    obj["metadata"] |= {"name": "", "generateName": "train-"}
    assert (await judged(handler, review(obj))).allowed
    assert (await judged(handler, review(obj), "/mutate/jobs")).allowed
    del obj["metadata"]["generateName"]
    assert (await judged(handler, review(obj))).code == 422
    nameless = pod()
    nameless["metadata"]["name"] = ""
    assert (await judged(handler, review(nameless), "/validate/pods")).code == 422


@pytest.mark.parametrize("namespace", ["", "team-b", "Team", "a" * 300, "../x", "%2e", "a/b", None])
async def test_23_namespaces(handler: ReviewHandler, namespace: Any) -> None:
    answer = await judged(handler, orjson.dumps(document(object=suspended(), namespace=namespace)))
    assert answer.code == 422


@pytest.mark.parametrize("dry_run", [True, False, None])
async def test_24_a_dry_run_is_decided_alike(handler: ReviewHandler, dry_run: Any) -> None:
    assert (await judged(handler, orjson.dumps(document(object=suspended(), dryRun=dry_run)))).allowed


@pytest.mark.parametrize("dry_run", ["true", 1, []])
async def test_24_a_dry_run_of_another_type(handler: ReviewHandler, dry_run: Any) -> None:
    assert (await judged(handler, orjson.dumps(document(dryRun=dry_run)))).code == 400


# -- 40 to 44: load, time, state, TLS


async def test_40_a_storm_is_answered_whole(web: Served) -> None:
    body = review(job(queue=None))
    replies = await asyncio.gather(*(web.post(body) for _ in range(200)))
    assert {plain(reply) for reply in replies} == {200}


@pytest.mark.virtual_time
async def test_40_what_would_wait_in_too_long_a_line_is_told_to_try_again() -> None:
    handler = ReviewHandler(with_ledger(view()), ReviewSettings(in_flight_max=10))
    waits = review(pod(gang="job-1", version="9.9"), user=JOB_CONTROLLER)
    answers = await asyncio.gather(*(judged(handler, waits, "/validate/pods") for _ in range(30)))
    assert sorted(answer.code for answer in answers) == [429] * 20 + [503] * 10


@pytest.mark.virtual_time
async def test_41_a_caller_that_left_is_forgotten() -> None:
    handler = ReviewHandler(with_ledger(view()))
    async with served(handler, port=443) as web:
        wire = await web.connect()
        waits = review(pod(gang="job-1", version="9.9"), user=JOB_CONTROLLER)
        await wire.send(post(waits, "/validate/pods?timeout=3s"))
        await asyncio.sleep(0.1)
        assert handler.waiting == 1
        wire.close()
        await asyncio.sleep(0.1)
        assert handler.waiting == 0


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("", 2.0),
        ("timeout=", 2.0),
        ("timeout=0", 0.5),
        ("timeout=0s", 0.5),
        ("timeout=1s", 1.0),
        ("timeout=1500ms", 1.5),
        ("timeout=30s", 10.0),
        ("timeout=1m", 10.0),
        ("timeout=abc", 2.0),
        ("timeout=-1s", 2.0),
        ("timeout=1e9", 2.0),
        ("timeout=999999999999999s", 2.0),
        ("a=b&timeout=3s", 3.0),
    ],
)
def test_42_the_callers_deadline_is_kept_with_a_margin(query: str, seconds: float) -> None:
    assert parse_timeout(query, SETTINGS) == pytest.approx(seconds * 0.9)


async def test_43_before_the_caches_are_filled_validation_says_try_again() -> None:
    seen = view()
    seen.unsynced = {"jobs"}
    handler = ReviewHandler(seen)
    for path, shown in (("/validate/jobs", suspended()), ("/validate/pods", pod())):
        assert (await judged(handler, review(shown), path)).code == 503
    assert (await judged(handler, review(job()), "/mutate/jobs")).patch
    assert (await judged(handler, review(None, old=pod(), operation="DELETE"), "/validate/pods")).allowed


@pytest.mark.virtual_time
async def test_43_without_a_ledger_nothing_new_starts_and_it_says_why() -> None:
    handler = ReviewHandler(view(trusted=False))
    answer = await judged(handler, review(pod(gang="job-1", version="1.1"), user=JOB_CONTROLLER), "/validate/pods")
    assert answer.code == 503
    assert "ledger" in answer.message


async def test_anything_that_breaks_is_still_answered_by_a_review() -> None:
    seen = view()
    seen.policy = None  # type: ignore[assignment]
    answer = await judged(ReviewHandler(seen), review(job()))
    assert answer.code == 500
    assert "NoneType" not in answer.message


def test_builders_price_what_they_say() -> None:
    assert containers(gpu="1")[0]["resources"]["limits"] == {GPU: "1"}
