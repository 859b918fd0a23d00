"""``tutti status``: each thing that can be wrong is named, and one that fails hides no other."""

import copy
import datetime
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
import trustme
from cryptography import x509

from tests.unit.commands.test_views import Answers
from tests.unit.visibility.world import NOW, World
from webhook.commands.show.health import look
from webhook.controllers.ledger.quarantine import SINCE
from webhook.controllers.reporting.registration_faults import shipped
from webhook.core.ledger.record import Ledger
from webhook.core.ledger.text import encode
from webhook.core.model.policy import LocalQueue, StopPolicy
from webhook.core.notation import names
from webhook.core.notation.moments import time_text
from webhook.errors import ApiError, Forbidden, NotFound, Unavailable
from webhook.kube.election import LeaderRecord, render
from webhook.visibility.http.group import ROOT
from webhook.wire.times import micro_time_text

pytestmark = pytest.mark.virtual_time
ISSUER = trustme.CA(key_type=trustme.KeyType.ECDSA)
AUTHORITY = ISSUER.cert_pem.bytes()
STRANGER = trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert("webhook").cert_chain_pems[0].bytes()
EXPIRES = x509.load_pem_x509_certificate(AUTHORITY).not_valid_after_utc
DEPLOYMENTS = "/apis/apps/v1/namespaces/tutti-system/deployments"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tutti"
MUTATING = REGISTRATION.replace("validating", "mutating")
FLAVORS = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
SECRET = "/api/v1/namespaces/tutti-system/secrets/tutti-certs"
EVENTS = "/api/v1/namespaces/tutti-system/events"
LEDGER = f"/api/v1/namespaces/tutti-system/configmaps/{names.LEDGER_NAME}"


def serving(days: float) -> dict[str, Any]:
    """The Secret of a leaf that was issued now and lasts ``days``."""
    end = datetime.datetime.fromtimestamp(NOW, datetime.UTC) + datetime.timedelta(days=days)
    begin = datetime.datetime.fromtimestamp(NOW, datetime.UTC)
    leaf = ISSUER.issue_cert("webhook", not_before=begin, not_after=end, key_type=trustme.KeyType.ECDSA)
    return {"data": {"tls.crt": b64encode(leaf.cert_chain_pems[0].bytes()).decode()}}


async def answers(world: World, **changed: Any) -> Answers:
    """An API server on which all is well, but for what is ``changed``."""
    lease = LeaderRecord("reconciler-0", 6.0, "then", micro_time_text(NOW), 1)
    mutating, validating = copy.deepcopy(shipped())
    for hook in (*mutating["webhooks"], *validating["webhooks"]):
        hook["clientConfig"]["caBundle"] = b64encode(AUTHORITY).decode()
    well = {
        f"{DEPLOYMENTS}/tutti-webhook": {"spec": {"replicas": 2}, "status": {"readyReplicas": 2}},
        f"{DEPLOYMENTS}/tutti-reconciler": {"spec": {"replicas": 2}, "status": {"readyReplicas": 2}},
        REGISTRATION: validating,
        MUTATING: mutating,
        FLAVORS: {},
        SECRET: serving(90),
        LEDGER: {"metadata": {"annotations": {names.LEASE_ANNOTATION: render(lease)}}, "data": encode(Ledger())},
        f"{ROOT}/queues": {"items": await world.documents("queues")},
    }
    return Answers(**{**well, **changed})


async def wrong(changed: dict[str, Any], now: float = NOW, world: World | None = None) -> dict[str, str]:
    found = await look(await answers(world or World(), **changed), now)  # type: ignore[arg-type]
    assert {finding.what for finding in found} >= {"webhook", "reconciler", "certificates", "queues"}
    return {finding.what: finding.text for finding in found if not finding.well}


async def test_a_webhook_that_was_taken_out_of_a_registration_is_named() -> None:
    (_, validating) = shipped()
    fewer = {**validating, "webhooks": [each for each in validating["webhooks"] if each["name"] != "policy.tutti.dev"]}
    found = await wrong({REGISTRATION: fewer})
    assert "ValidatingWebhookConfiguration tutti: webhook policy.tutti.dev is missing" in found["registration"]


async def test_where_all_is_well_nothing_is_wrong() -> None:
    assert await wrong({}) == {}


@pytest.mark.parametrize(
    ("changed", "what", "text"),
    [
        ({f"{DEPLOYMENTS}/tutti-webhook": {"spec": {"replicas": 2}}}, "webhook", "0 of 2 replicas are ready"),
        ({f"{DEPLOYMENTS}/tutti-reconciler": {"spec": {"replicas": 0}}}, "reconciler", "0 of 0 replicas are ready"),
        ({MUTATING: {"webhooks": []}}, "answer", "mutatingwebhookconfigurations/tutti missing or empty"),
        ({REGISTRATION: shipped()[1]}, "certificates", "no readable caBundle"),
        (
            {LEDGER: Forbidden(403, "Forbidden", "not yours")},
            "ledger",
            "not yours; this needs an administrator's rights",
        ),
        (
            {FLAVORS: ApiError(500, "InternalError", "failed calling webhook: x509: certificate has expired")},
            "answer",
            "x509",
        ),
        ({f"{ROOT}/queues": Unavailable(503, "ServiceUnavailable", "down")}, "queues", "does not answer: down"),
    ],
)
async def test_what_is_wrong_is_named(changed: dict[str, Any], what: str, text: str) -> None:
    found = await wrong(changed)
    assert list(found) == [what]
    assert text in found[what]


async def test_an_api_server_that_does_not_answer_is_one_finding() -> None:
    class Nobody:
        async def request(self, method: str, path: str, **more: Any) -> bytes:
            raise Unavailable(0, "ConnectionFailed", "cannot connect to the API server at 127.0.0.1:1: refused")

    (found,) = await look(Nobody(), NOW)  # type: ignore[arg-type]
    assert (found.well, found.what) == (False, "API server")
    assert "cannot connect to the API server at 127.0.0.1:1: refused; check the context" in found.text


GONE = NotFound(404, "NotFound", "not found")
ELSEWHERE = {f"{DEPLOYMENTS}/tutti-webhook": GONE, f"{DEPLOYMENTS}/tutti-reconciler": GONE}
SERVED = {
    "webhooks": [
        {
            "clientConfig": {
                "caBundle": b64encode(AUTHORITY).decode(),
                "service": {"namespace": "tutti-system", "name": "tutti-webhook"},
            }
        }
    ]
}
SERVICE = "/api/v1/namespaces/tutti-system/services/tutti-webhook"


@pytest.mark.parametrize("registration", [GONE, {"webhooks": []}])
async def test_where_nothing_is_registered_no_answer_is_taken_for_one(registration: Any) -> None:
    found = await wrong({REGISTRATION: registration, MUTATING: registration})
    assert set(found) == {"answer", "certificates"}
    assert "jobs bypass their queues" in found["answer"]
    assert "nothing is registered" in found["certificates"]


async def test_without_deployments_registration_and_lease_say_whether_all_is_well() -> None:
    well = {**ELSEWHERE, REGISTRATION: SERVED, SERVICE: {"spec": {"type": "ExternalName"}}}
    of_pods = {"spec": {"type": "ClusterIP", "selector": {"app": "tutti-webhook"}}}
    found = await look(await answers(World(), **well), NOW)  # type: ignore[arg-type]
    texts = {finding.what: finding.text for finding in found if finding.well}
    assert "no Deployment tutti-webhook; registered at tutti-system/tutti-webhook" in texts["webhook"]
    assert "no Deployment tutti-reconciler; a reconciler elsewhere leads" in texts["reconciler"]
    assert "does not exist: jobs are refused" in (await wrong({**well, SERVICE: GONE}))["webhook"]
    assert "has no pods without that Deployment" in (await wrong({**well, SERVICE: of_pods}))["webhook"]
    assert "nothing is registered" in (await wrong({**well, REGISTRATION: {"webhooks": []}}))["webhook"]
    assert "no replica leads" in (await wrong(well, NOW + 60))["reconciler"]


async def test_a_lease_that_has_run_out_is_wrong() -> None:
    assert "lease of reconciler-0 expired 54s ago" in (await wrong({}, NOW + 60))["leader"]


async def test_an_authority_is_wrong_before_it_has_expired() -> None:
    soon = EXPIRES - datetime.timedelta(days=3)
    alone = {SECRET: GONE}
    assert "the authority lasts" in (await wrong(alone, soon.timestamp()))["certificates"]
    assert "the authority expired" in (await wrong(alone, EXPIRES.timestamp() + 60))["certificates"]


@pytest.mark.parametrize(
    ("issued", "days", "text"),
    [
        (90, 75, None),
        (90, 77, "the serving certificate lasts 13d"),
        (90, 91, "the serving certificate expired 24h ago"),
        (1, 0.8, None),
        (1, 0.95, "the serving certificate lasts 72m"),
    ],
)
async def test_what_pods_serve_with_is_wrong_before_it_has_expired(
    issued: float, days: float, text: str | None
) -> None:
    now = NOW + days * 86_400
    lease = LeaderRecord("reconciler-0", 6.0, "then", micro_time_text(now), 1)
    renewed = {"metadata": {"annotations": {names.LEASE_ANNOTATION: render(lease)}}, "data": encode(Ledger())}
    found = await wrong({SECRET: serving(issued), LEDGER: renewed}, now)
    assert found == ({} if text is None else {"certificates": text})


@pytest.mark.parametrize(
    ("secret", "well", "text"),
    [
        (Forbidden(403, "Forbidden", "you may not read secrets"), True, "not seen: you may not read secrets"),
        (NotFound(404, "NotFound", "not found"), True, "not seen: it is in no Secret tutti-certs"),
        ({"data": {"tls.crt": "c29tZXRoaW5n"}}, False, "no readable tls.crt"),
        ({"data": None}, False, "no readable tls.crt"),
        (
            {"data": {"tls.crt": b64encode(STRANGER).decode()}},
            False,
            "no registered authority issued the serving certificate",
        ),
    ],
)
async def test_who_may_not_read_the_serving_certificate_is_told_so(secret: Any, well: bool, text: str) -> None:
    found = await look(await answers(World(), **{SECRET: secret}), NOW)  # type: ignore[arg-type]
    assert [finding.well for finding in found if text in finding.text] == [well]


async def test_a_queue_that_admits_nothing_is_named_with_the_reason() -> None:
    from tests.unit.core.worlds import policy, queue

    stopped = queue("held", 4, dialect="volcano", stop_policy=StopPolicy.HOLD)
    found = await wrong({}, world=World(policy(stopped)))
    assert "held" in found["queue"]
    assert "admits nothing" in found["queue"]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (Forbidden(403, "Forbidden", "you may not create flavors"), "not seen: you may not create flavors"),
        (GONE, "not seen: the cluster does not serve kueue.x-k8s.io"),
    ],
)
async def test_what_keeps_the_webhook_from_being_asked_is_no_fault_of_it(said: Exception, text: str) -> None:
    found = await look(await answers(World(), **{FLAVORS: said}), NOW)  # type: ignore[arg-type]
    assert [finding.text for finding in found if finding.what == "answer" and finding.well] == [text]


async def test_a_ledger_that_was_broken_is_told_while_its_copy_is_kept() -> None:
    copy = {"metadata": {"annotations": {SINCE: time_text(int(NOW) - 90)}}}
    found = await look(await answers(World(), **{f"{LEDGER}-quarantine-1": copy}), NOW)  # type: ignore[arg-type]
    (told,) = [finding for finding in found if "broken" in finding.text]
    assert told.well
    assert "was broken 90s ago" in told.text
    assert "tutti-ledger-quarantine-1" in told.text


async def test_it_is_told_for_what_a_rebuild_of_the_ledger_waits() -> None:
    lease = LeaderRecord("reconciler-0", 6.0, "then", micro_time_text(NOW), 1)
    bare = {"metadata": {"annotations": {names.LEASE_ANNOTATION: render(lease)}}}
    events = {
        "items": [
            {"lastTimestamp": "2026-01-01T00:10:00Z", "message": "Tutti cannot read JobSet"},
            {"lastTimestamp": "2026-01-01T00:00:00Z", "message": "Tutti cannot read RayJob"},
        ]
    }
    waits = await look(await answers(World(), **{LEDGER: bare, EVENTS: events}), NOW)  # type: ignore[arg-type]
    assert [finding.text for finding in waits if "cannot read" in finding.text] == ["Tutti cannot read JobSet"]
    well = await look(await answers(World(), **{EVENTS: events}), NOW)  # type: ignore[arg-type]
    assert not [finding for finding in well if "cannot read" in finding.text], "that is over"


async def test_the_handles_on_a_queue_are_no_queues_of_their_own() -> None:
    from tests.unit.core.worlds import policy, queue

    one = policy(queue("vision", 4))
    handles = {("team", name): LocalQueue("team", name, "vision") for name in ("gpus", "more")}
    found = await look(await answers(World(replace(one, local_queues=handles))), NOW)  # type: ignore[arg-type]
    assert [finding.text for finding in found if finding.what == "queues"] == ["1 queue, 0 gangs waiting"]
