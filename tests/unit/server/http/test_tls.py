"""Certificates are followed as they are renewed, on real sockets; what is broken never goes live."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from cryptography import x509
from prometheus_client import generate_latest

from tests.unit.samples import sample
from tests.unit.server.reviews import job, review, view
from tests.unit.server.wire_level import Served, post, served
from webhook.server.handler import ReviewHandler
from webhook.server.http.app import named_in_certificate
from webhook.server.http.tls import AUTHORITY, CERTIFICATE, KEY, BadCertificate, ServingCertificate, authority_in
from webhook.server.sharding.forward import Forwarder
from webhook.server.sharding.hop import HopKeys
from webhook.server.sharding.ownership import Ownership

EC, RSA = trustme.KeyType.ECDSA, trustme.KeyType.RSA
BODY = review(job(queue=None))


def issue(
    directory: Path,
    authority: trustme.CA,
    key_type: trustme.KeyType = EC,
    *,
    begins: datetime.datetime | None = None,
    expires: datetime.datetime | None = None,
) -> None:
    """Write a fresh pair the way a plain directory is written."""
    leaf = authority.issue_cert("localhost", "127.0.0.1", key_type=key_type, not_before=begins, not_after=expires)
    directory.mkdir(exist_ok=True)
    (directory / CERTIFICATE).write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    (directory / KEY).write_bytes(leaf.private_key_pem.bytes())
    (directory / AUTHORITY).write_bytes(authority.cert_pem.bytes())


def mount(directory: Path, version: str, authority: trustme.CA, key_type: trustme.KeyType = EC) -> None:
    """Write a fresh pair the way the kubelet does: a new directory, and ``..data`` moved onto it at once."""
    directory.mkdir(exist_ok=True)
    issue(directory / version, authority, key_type)
    link = directory / "..new"
    link.symlink_to(version)
    link.replace(directory / "..data")
    for name in (CERTIFICATE, KEY, AUTHORITY):
        if not (directory / name).exists():
            (directory / name).symlink_to(f"..data/{name}")


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA(key_type=EC)


@pytest.fixture
def trust(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
async def web(tmp_path: Path, authority: trustme.CA, trust: ssl.SSLContext) -> AsyncIterator[tuple[Served, Path]]:
    mount(tmp_path, "..1", authority)
    async with served(ReviewHandler(view()), tls=ServingCertificate(tmp_path).context, trust=trust) as server:
        yield server, tmp_path


async def serial(web: Served) -> int:
    """Return the serial number of the certificate that a new connection is shown."""
    wire = await web.connect()
    shown = wire.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    wire.close()
    return x509.load_der_x509_certificate(shown).serial_number


def stored_serial(directory: Path) -> int:
    return x509.load_pem_x509_certificates((directory / CERTIFICATE).read_bytes())[0].serial_number


async def test_a_renewed_certificate_is_shown_to_new_connections_and_open_ones_live_on(
    tmp_path: Path, authority: trustme.CA, trust: ssl.SSLContext
) -> None:
    mount(tmp_path, "..1", authority)
    certificate = ServingCertificate(tmp_path)
    async with served(ReviewHandler(view()), tls=certificate.context, trust=trust) as web:
        wire = await web.connect()
        for version, key_type in enumerate((EC, RSA, EC), start=2):
            mount(tmp_path, f"..{version}", authority, key_type)
            assert certificate.refresh()
            assert await serial(web) == stored_serial(tmp_path)
            await wire.send(post(BODY))
            assert (await wire.reply()).status == 200
        wire.close()


async def test_nothing_new_is_no_renewal(tmp_path: Path, authority: trustme.CA) -> None:
    mount(tmp_path, "..1", authority)
    certificate = ServingCertificate(tmp_path)
    called: list[str] = []
    certificate.on_change(lambda: called.append("changed"))
    assert not certificate.refresh()
    mount(tmp_path, "..2", authority)
    assert certificate.refresh()
    assert called == ["changed"]


@pytest.mark.parametrize("broken", ["mismatched", "truncated", "foreign", "expired", "missing"])
async def test_a_broken_pair_never_goes_live(
    tmp_path: Path, authority: trustme.CA, trust: ssl.SSLContext, broken: str
) -> None:
    issue(tmp_path, authority)
    certificate = ServingCertificate(tmp_path)
    async with served(ReviewHandler(view()), tls=certificate.context, trust=trust) as web:
        before, key = await serial(web), (tmp_path / KEY).read_bytes()
        expired = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) if broken == "expired" else None
        issue(tmp_path, authority, expires=expired)
        if broken == "mismatched":
            (tmp_path / KEY).write_bytes(key)
        elif broken == "truncated":
            (tmp_path / CERTIFICATE).write_bytes((tmp_path / CERTIFICATE).read_bytes()[:200])
        elif broken == "foreign":
            (tmp_path / AUTHORITY).write_bytes(trustme.CA(key_type=EC).cert_pem.bytes())
        elif broken == "missing":
            (tmp_path / KEY).unlink()
        assert not certificate.refresh()
        assert await serial(web) == before
        issue(tmp_path, authority)
        assert certificate.refresh()
        assert await serial(web) == stored_serial(tmp_path)


async def test_a_process_does_not_start_on_a_broken_pair(tmp_path: Path, authority: trustme.CA) -> None:
    issue(tmp_path, authority)
    (tmp_path / KEY).write_bytes(trustme.CA(key_type=EC).private_key_pem.bytes())
    with pytest.raises(BadCertificate, match="is not the key"):
        ServingCertificate(tmp_path)


async def test_the_end_of_the_live_certificate_is_known(tmp_path: Path, authority: trustme.CA) -> None:
    ends = datetime.datetime(2035, 1, 1, tzinfo=datetime.UTC)
    issue(tmp_path, authority, expires=ends)
    certificate = ServingCertificate(tmp_path)
    assert certificate.certificate_expiry() == ends.timestamp()
    assert b"tutti_certificate_expiry_seconds 2.0512" in generate_latest()
    issue(tmp_path, authority, expires=ends.replace(year=2036))
    assert certificate.refresh()
    assert b"tutti_certificate_expiry_seconds 2.0827" in generate_latest()


@pytest.mark.parametrize(("days", "early"), [(90, 14), (6, 1)])
async def test_when_it_should_have_been_renewed_is_scraped_for_a_short_one_as_a_part_of_its_life(
    tmp_path: Path, authority: trustme.CA, days: int, early: int
) -> None:
    ends = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(days=days - 0.5)
    issue(tmp_path, authority, expires=ends, begins=ends - datetime.timedelta(days=days))
    certificate = ServingCertificate(tmp_path)
    due = sample("tutti_certificate_due_seconds")
    assert due == (ends - datetime.timedelta(days=early)).timestamp()
    issue(tmp_path, authority, expires=ends + datetime.timedelta(days=1), begins=ends - datetime.timedelta(days=days))
    assert certificate.refresh()
    assert sample("tutti_certificate_due_seconds") > due


async def test_rotation_under_load_fails_no_handshake_and_no_request(
    tmp_path: Path, authority: trustme.CA, trust: ssl.SSLContext
) -> None:
    mount(tmp_path, "..0", authority)
    certificate = ServingCertificate(tmp_path)
    async with served(ReviewHandler(view()), tls=certificate.context, trust=trust) as web:
        done = asyncio.Event()

        async def call() -> int:
            calls = 0
            while not done.is_set():
                assert (await web.post(BODY)).status == 200
                calls += 1
            return calls

        callers = [asyncio.create_task(call()) for _ in range(4)]
        for version in range(1, 11):
            mount(tmp_path, f"..{version}", authority)
            assert certificate.refresh()
            await asyncio.sleep(0.01)
        done.set()
        assert all(calls > 0 for calls in await asyncio.gather(*callers))


async def test_http_2_is_not_offered(web: tuple[Served, Path], trust: ssl.SSLContext) -> None:
    trust.set_alpn_protocols(["h2", "http/1.1"])
    wire = await web[0].connect()
    assert wire.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    wire.close()


# -- row 44 of the hostile inputs


@pytest.mark.parametrize("name", [None, "wrong.example.com", "localhost"])
async def test_44_any_server_name_is_served(web: tuple[Served, Path], trust: ssl.SSLContext, name: str | None) -> None:
    trust.check_hostname = False
    port = web[0].listener.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=name or "127.0.0.1")
    writer.write(post(BODY))
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_44_old_protocols_are_refused(web: tuple[Served, Path], trust: ssl.SSLContext) -> None:
    trust.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        trust.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await web[0].connect()


async def test_44_plain_http_on_the_tls_port_is_closed(web: tuple[Served, Path]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", web[0].listener.port)
    writer.write(post(BODY))
    assert b"200" not in await reader.read()
    writer.close()


async def test_44_where_clients_show_certificates_only_the_named_of_the_authority_are_answered(
    tmp_path: Path, authority: trustme.CA
) -> None:
    mount(tmp_path, "..1", authority)
    callers = trustme.CA(key_type=EC)
    certificate = ServingCertificate(tmp_path)
    certificate.ask_clients(callers.cert_pem.bytes().decode())
    mount(tmp_path, "..2", authority)
    assert certificate.refresh()

    def trusting(leaf: trustme.LeafCert | None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        if leaf is not None:
            leaf.configure_cert(context)
        return context

    handler = ReviewHandler(view(), forwarder=Forwarder(Ownership("a"), dict))
    assert handler.forwarder is not None
    handler.forwarder.hop.renew(certificate.key)
    named = callers.issue_cert("a.example", common_name="kube-apiserver", key_type=EC)
    async with served(handler, tls=certificate.context, stranger=named_in_certificate(["kube-apiserver"])) as web:
        web.trust = trusting(named)
        assert (await web.post(BODY)).status == 200
        web.trust = trusting(callers.issue_cert("a.example", common_name="a-user", key_type=EC))
        assert (await web.post(BODY)).status == 401
        web.trust = trusting(trustme.CA(key_type=EC).issue_cert("a.example", common_name="kube-apiserver"))
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await web.post(BODY)
        web.trust = trusting(None)
        assert (await web.post(BODY)).status == 401
        assert (await web.post(BODY, Tutti_Hop="forged")).status == 403
        hop = HopKeys(certificate.key).header("/validate/jobs", BODY)
        assert (await web.post(BODY, Tutti_Hop=hop)).status == 200, "another replica"
        assert (await web.exchange(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).status == 200


def test_every_name_of_the_authority_is_believed_where_none_is_listed() -> None:
    def shown(name: str | None) -> Any:
        certificate = None if name is None else {"subject": ((("commonName", name),),)}
        return SimpleNamespace(get_extra_info=lambda _key: certificate)

    assert not named_in_certificate([])(shown("anybody"))
    assert named_in_certificate([])(shown(None))
    assert not named_in_certificate(["a"])(shown("a"))
    assert named_in_certificate(["a"])(shown("b"))


async def test_no_suite_leaves_anything_unauthenticated(tmp_path: Path, authority: trustme.CA) -> None:
    issue(tmp_path, authority)
    suites = ServingCertificate(tmp_path).context.get_ciphers()
    assert suites
    assert all(suite["aead"] for suite in suites)


CHAINED = "ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA384:ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA:AES128-SHA"
"""Suites in CBC mode, which clients of TLS 1.2 may offer beside others."""


async def takes_no_suite_in_cbc_mode(port: int, trust: ssl.SSLContext) -> None:
    """Fail unless a port of localhost chooses another suite, and refuses who has no other."""

    async def chosen(suites: str) -> str:
        trust.set_ciphers(f"{suites}:@SECLEVEL=0")
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="localhost")
        writer.close()
        return str(writer.get_extra_info("cipher")[0])

    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    assert await chosen(f"{CHAINED}:ECDHE-ECDSA-AES128-GCM-SHA256") == "ECDHE-ECDSA-AES128-GCM-SHA256"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await chosen(CHAINED)


async def test_who_offers_suites_in_cbc_mode_alone_gets_no_connection(
    web: tuple[Served, Path], trust: ssl.SSLContext
) -> None:
    await takes_no_suite_in_cbc_mode(web[0].listener.port, trust)


@pytest.mark.parametrize("written", [None, b"", b"no PEM", b"\xff"])
def test_a_file_that_does_not_say_who_signs_callers_is_named(tmp_path: Path, written: bytes | None) -> None:
    path = tmp_path / "ca.crt"
    if written is not None:
        path.write_bytes(written)
    with pytest.raises(BadCertificate, match=rf"{path}: .+; reviewers\.authority is a PEM file"):
        authority_in(path)
