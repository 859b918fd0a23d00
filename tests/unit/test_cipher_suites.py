"""Whoever talks TLS with Tutti finds no suite that leaves anything unauthenticated, on either side."""

import ast
from pathlib import Path

import pytest

from webhook import cipher_suites

PRODUCT = Path(cipher_suites.__file__).parent
MADE_ELSEWHERE = {
    "server/http/tls.py": "of a server, and one that only reads certificates",
    "laboratory/simulated/admission/remote_reviews.py": "a simulated API server's",
}


def makes_contexts(path: Path) -> bool:
    """Return whether a module makes a context of its own."""
    calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    named = {call.attr for call in calls if isinstance(call, ast.Attribute)}
    return bool(named & {"SSLContext", "create_default_context"})


def test_no_client_offers_a_suite_in_cbc_mode() -> None:
    offered = cipher_suites.client_context().get_ciphers()
    assert offered
    assert [suite["name"] for suite in offered if not suite["aead"]] == []


def test_one_module_makes_what_clients_connect_with() -> None:
    making = {str(path.relative_to(PRODUCT)) for path in PRODUCT.rglob("*.py") if makes_contexts(path)}
    assert making == {"cipher_suites.py", *MADE_ELSEWHERE}


@pytest.mark.parametrize("module", ["kube/connecting.py", "fleet/credentials/connection.py", "server/http/tls.py"])
def test_the_api_server_members_and_peers_are_reached_by_it(module: str) -> None:
    assert "cipher_suites.client_context(" in (PRODUCT / module).read_text()
