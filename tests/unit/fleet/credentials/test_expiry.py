"""Credentials say until when they are good, and are told of before that."""

import base64
import datetime

import orjson
import pytest
import trustme

from webhook.fleet.credentials.expiry import Validity, validity
from webhook.fleet.credentials.kubeconfig import Account

DAY = 24 * 3600.0


def token(**claims: object) -> str:
    body = base64.urlsafe_b64encode(orjson.dumps(claims)).decode().rstrip("=")
    return f"e30.{body}.signature"


def account(written: str, certificate: str = "") -> Account:
    return Account("https://m.example.org", token=written, certificate=certificate)


def test_a_token_is_good_from_its_issue_to_its_end() -> None:
    assert validity(account(token(iat=100, exp=4000))) == Validity(100.0, 4000.0)


@pytest.mark.parametrize(
    "odd",
    [
        "abc",
        "a.b.c",
        "e30.W10.x",
        "é.é.é",
        token(exp="soon"),
        token(iat=3),
        token(exp=-1e308),
        token(exp=-62_167_219_200),
        token(exp=2**63),
        "",
    ],
)
def test_credentials_that_say_nothing_have_no_end(odd: str) -> None:
    assert validity(account(odd)) is None


def test_of_token_and_certificate_the_first_to_end_counts() -> None:
    end = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    leaf = trustme.CA().issue_cert("hub.example.org", not_after=end).cert_chain_pems[0].bytes().decode()
    for until, first in ((end.timestamp() - 1, end.timestamp() - 1), (end.timestamp() + 9, end.timestamp())):
        found = validity(account(token(iat=0, exp=until), leaf))
        assert found is not None
        assert found.until == first


@pytest.mark.parametrize(
    ("lifetime", "told_before"), [(30 * DAY, 7 * DAY), (3 * DAY, DAY), (3600.0, 1200.0)], ids=["month", "days", "hour"]
)
def test_the_end_is_told_a_week_or_a_third_of_the_time_before(lifetime: float, told_before: float) -> None:
    it = Validity(1000.0, 1000.0 + lifetime)
    assert it.renew_from == it.until - told_before
