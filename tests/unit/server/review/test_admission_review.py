"""The wire form of reviews: what is decoded, and answers that the API server accepts."""

import json
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.server.reviews import Answered, job, review
from webhook.errors import RequestError
from webhook.wire.admission_review import FieldError, decode, encode_allowed, encode_denied, printable

TEXTS = st.text(st.characters(codec="utf-8"), max_size=400)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(TEXTS, st.integers(400, 599), TEXTS, st.lists(TEXTS, max_size=30))
def test_every_denial_passes_the_api_servers_checks(uid: str, code: int, message: str, warnings: list[str]) -> None:
    answer = Answered(200, encode_denied(uid, code, message, warnings), uid)
    assert answer.code == code
    assert len(answer.message) <= 1024
    assert sum(map(len, answer.warnings)) <= 4096


@given(TEXTS, st.lists(TEXTS, max_size=30), st.lists(st.just({"op": "add", "path": "/a", "value": 1}), max_size=2))
def test_every_permission_passes_them_too(uid: str, warnings: list[str], patch: list[dict[str, object]]) -> None:
    answer = Answered(200, encode_allowed(uid, warnings, patch), uid)
    assert answer.allowed
    assert answer.patch == patch


@given(TEXTS)
def test_texts_are_made_printable_and_stay_as_they_are_when_they_are(text: str) -> None:
    shown = printable(text, 256)
    assert len(shown) <= 256
    assert printable(shown, 256) == shown


ODD: tuple[Any, ...] = ([], "text", 7, False)
NESTED = st.recursive(
    st.integers(0, 1) | st.sampled_from([',"spec":{"a":1}}', '"}', "{"]),
    lambda inner: st.dictionaries(st.sampled_from(["a", "metadata", "spec", "status"]), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "metadata", "spec", "status"]), NESTED, max_size=4)


@given(OBJECTS, OBJECTS, OBJECTS)
def test_both_objects_of_a_change_are_read_whatever_they_have_in_common(now: Any, before: Any, both: Any) -> None:
    request = decode(_changed(now | both, before | both))
    assert (request.object, request.old_object) == (now | both, before | both)


def test_a_spec_that_did_not_change_is_one_value_in_both() -> None:
    before = job()
    now = before | {"metadata": before["metadata"] | {"annotations": {"a": ',"spec":{'}}}
    request = decode(_changed({"metadata": now.pop("metadata")} | now, {"metadata": before.pop("metadata")} | before))
    assert request.object is not None
    assert request.old_object is not None
    assert request.object["spec"] is request.old_object["spec"]
    assert request.object["metadata"] != request.old_object["metadata"]


@pytest.mark.parametrize("objects", [(value, job()) for value in ODD] + [(job(), value) for value in ODD])
def test_an_object_of_another_type_is_named(objects: tuple[Any, Any]) -> None:
    request = decode(_changed(*objects))
    with pytest.raises(FieldError, match=r"request\.(object|oldObject) must be an object"):
        assert (request.object, request.old_object) == objects


@given(st.binary(max_size=300))
def test_no_bytes_break_the_decoder(body: bytes) -> None:
    _decoded(body)


@given(st.integers(0, 200), st.integers(900, 5_000), st.sampled_from(["[", '{"a":']), st.integers(0, 9_000))
def test_what_opens_for_ever_and_never_closes_breaks_it_neither(before: int, after: int, opens: str, text: int) -> None:
    """Where nothing closes, brackets tell nothing of how deep a decoder will go."""
    request = f'{{"uid":"1","object":{"[" * before}"{"x" * text}",{opens * after}'
    _decoded(f'{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request}'.encode())


@given(JSON)
def test_no_json_breaks_the_decoder(document: object) -> None:
    _decoded(_dumps(document))


@given(st.sampled_from(["uid", "kind", "resource", "name", "namespace", "operation", "userInfo", "dryRun"]), JSON)
def test_no_field_of_another_type_breaks_it(field: str, value: object) -> None:
    document = orjson.loads(review(job()))
    document["request"][field] = value
    _decoded(_dumps(document))


def _changed(now: object, before: object) -> bytes:
    document = orjson.loads(review(job()))
    document["request"] |= {"object": now, "oldObject": before, "operation": "UPDATE"}
    return orjson.dumps(document)


def _dumps(document: object) -> bytes:
    return json.dumps(document).encode()


def _decoded(body: bytes) -> None:
    """Decode; anything but a request or one of the two expected errors fails the test."""
    with suppress(RequestError, FieldError):
        request = decode(body)
        assert request.uid
        assert request.object is None or isinstance(request.object, dict)
