"""Refusals become the error that says what to do next."""

import json

import pytest

from webhook import errors
from webhook.kube.statuses import refusal


def status(reason: str = "Some", message: str = "text") -> bytes:
    return json.dumps({"kind": "Status", "code": 1, "reason": reason, "message": message}).encode()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, errors.Invalid),
        (401, errors.Forbidden),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, errors.Invalid),
        (408, errors.Unavailable),
        (409, errors.Conflict),
        (410, errors.Gone),
        (415, errors.Invalid),
        (422, errors.Invalid),
        (429, errors.Unavailable),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
        (504, errors.Unavailable),
        (302, errors.Invalid),
    ],
)
def test_each_status_has_its_class(code: int, expected: type[errors.ApiError]) -> None:
    error = refusal(code, status("AlreadyExists", "it is there"), is_write=True)
    assert type(error) is expected
    assert (error.status, error.reason, error.message) == (code, "AlreadyExists", "it is there")


def test_a_server_that_is_still_starting_is_unavailable_and_did_nothing() -> None:
    body = status("Forbidden", 'pods "x" is forbidden: not yet ready to handle request')
    error = refusal(403, body, is_write=True)
    assert isinstance(error, errors.Unavailable)
    assert not error.outcome_unknown


def test_only_a_write_that_met_a_server_error_has_an_unknown_outcome() -> None:
    assert refusal(500, status(), is_write=True).outcome_unknown
    assert not refusal(500, status(), is_write=False).outcome_unknown
    assert not refusal(429, status(), is_write=True).outcome_unknown
    assert not refusal(409, status(), is_write=True).outcome_unknown


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b'"text"', b"\xff\xfe", b'{"reason": 5}'])
def test_an_answer_that_is_no_status_is_still_an_error(body: bytes) -> None:
    error = refusal(502, body, is_write=False)
    assert isinstance(error, errors.Unavailable)
    assert str(error).startswith("502 BadGateway")
