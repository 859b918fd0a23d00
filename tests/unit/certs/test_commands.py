"""``python -m certs`` as people call it."""

import base64
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from certs.__main__ import app

runner = CliRunner()


def call(*arguments: str, expect: int = 0) -> str:
    result = runner.invoke(app, list(arguments))
    assert result.exit_code == expect, result.output
    return result.output


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "certs")


def test_issue_prints_the_bundle_that_it_wrote(out: str) -> None:
    printed = call("issue", "--out", out)
    assert base64.b64decode(printed) == (Path(out) / "ca.crt").read_bytes()


def test_issue_a_second_time_keeps_what_is_there(out: str) -> None:
    call("issue", "--out", out, "--name", "localhost")
    before = (Path(out) / "tls.crt").read_bytes()
    call("issue", "--out", out)
    assert (Path(out) / "tls.crt").read_bytes() == before


def test_issue_prints_a_secret_that_kubectl_understands(out: str) -> None:
    manifest = yaml.safe_load(call("issue", "--out", out, "--secret"))
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Secret", "tutti-certs")


def test_the_authority_is_kept_beside_the_directory_never_in_it(out: str) -> None:
    call("issue", "--out", out)
    assert sorted(path.name for path in Path(out).iterdir() if not path.name.startswith("..")) == [
        "ca.crt",
        "tls.crt",
        "tls.key",
    ]
    assert (Path(out + ".authority") / "authorities.pem").exists()


def test_status_names_the_hosts_and_says_that_nothing_is_due(out: str) -> None:
    call("issue", "--out", out, "--name", "localhost")
    told = call("status", "--out", out)
    assert "localhost" in told
    assert "due" not in told


def test_status_of_nothing_says_what_to_do(out: str) -> None:
    assert "python -m certs rotate" in call("status", "--out", out, expect=1)


def test_rotate_announces_a_new_authority_without_using_it_yet(out: str) -> None:
    call("issue", "--out", out)
    leaf = (Path(out) / "tls.crt").read_bytes()
    told = call("rotate", "--out", out, "--new-authority")
    assert told.count("authority  CN=tutti-ca-") == 2
    assert (Path(out) / "tls.crt").read_bytes() == leaf
    assert (Path(out) / "ca.crt").read_bytes().count(b"BEGIN CERTIFICATE") == 2
