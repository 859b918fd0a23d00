"""What a certificate must contain so that strict verifiers accept it."""

import ssl
from pathlib import Path

import pytest

from certs.authority import DAY_SECONDS, Pair, load_pair, new_authority, new_leaf, service_names

NOW = 1_800_000_000.0
NAMES = (*service_names("tutti-system"), "localhost", "127.0.0.1", "::1")


def handshake(leaf: Pair, trusted: list[Pair], hostname: str, folder: Path) -> None:
    """Shake hands in memory as a strict client that trusts ``trusted`` and calls ``hostname``.

    Raises ssl.SSLCertVerificationError when the client refuses.
    """
    (folder / "tls.crt").write_bytes(leaf.certificate_pem)
    (folder / "tls.key").write_bytes(leaf.key_pem)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    calling.verify_flags |= ssl.VERIFY_X509_STRICT
    calling.load_verify_locations(cadata=b"".join(pair.certificate_pem for pair in trusted).decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = calling.wrap_bio(to_client, to_server, server_hostname=hostname)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.getpeercert()


@pytest.fixture
def now(request: pytest.FixtureRequest) -> float:
    """The real time: OpenSSL asks no clock of ours."""
    import time

    return time.time()


def test_a_strict_client_accepts_the_leaf_for_each_of_its_names(now: float, tmp_path: Path) -> None:
    authority = new_authority(now)
    leaf = new_leaf(authority, NAMES, now)
    for name in NAMES:
        handshake(leaf, [authority], name, tmp_path)


def test_a_client_refuses_a_name_the_leaf_is_not_for(now: float, tmp_path: Path) -> None:
    authority = new_authority(now)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(new_leaf(authority, NAMES, now), [authority], "tutti-webhook.other.svc", tmp_path)


def test_a_client_refuses_the_leaf_of_another_authority(now: float, tmp_path: Path) -> None:
    leaf = new_leaf(new_authority(now), NAMES, now)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(leaf, [new_authority(now)], "localhost", tmp_path)


def test_a_client_that_trusts_both_authorities_accepts_leaves_of_either(now: float, tmp_path: Path) -> None:
    old, new = new_authority(now), new_authority(now)
    for authority in (old, new):
        handshake(new_leaf(authority, NAMES, now), [new, old], "localhost", tmp_path)


def test_a_client_whose_clock_is_four_minutes_behind_accepts_a_new_leaf(now: float, tmp_path: Path) -> None:
    authority = new_authority(now + 240)
    handshake(new_leaf(authority, NAMES, now + 240), [authority], "localhost", tmp_path)


def test_a_leaf_never_outlives_its_authority() -> None:
    authority = new_authority(NOW, lifetime_seconds=10 * DAY_SECONDS)
    leaf = new_leaf(authority, NAMES, NOW)
    assert leaf.ends_seconds == authority.ends_seconds


def test_a_pair_survives_being_written_and_read() -> None:
    leaf = new_leaf(new_authority(NOW), NAMES, NOW)
    read = load_pair(leaf.certificate_pem, leaf.key_pem)
    assert read.certificate == leaf.certificate
    assert read.names == NAMES
    assert read.issued_seconds == NOW


def test_a_certificate_beside_another_ones_key_is_refused() -> None:
    authority = new_authority(NOW)
    one, other = new_leaf(authority, NAMES, NOW), new_leaf(authority, NAMES, NOW)
    with pytest.raises(ValueError, match="do not belong together"):
        load_pair(one.certificate_pem, other.key_pem)
