"""Whatever is given wrongly is answered in a sentence or two, with a documented exit status and never a traceback."""

import shlex
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from certs.__main__ import main as certs_main
from tests.unit.commands.test_views import Answers
from webhook.cli import main
from webhook.commands import terminal
from webhook.visibility.http.group import ROOT

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: a, cluster: {{server: "https://127.0.0.1:{port}"}}}}]
users: [{{name: a, user: {{token: x}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
current-context: a
"""


@pytest.fixture
def tutti(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator["Tutti"]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    Path("folder").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        Path("nobody.kubeconfig").write_text(KUBECONFIG.format(port=probe.getsockname()[1]))
    before = structlog.get_config()
    yield Tutti(capsys, monkeypatch)
    structlog.reset_defaults()  # a process configures its log for its whole life
    structlog.configure(**before)


class Tutti:
    """Runs command lines and returns their exit status and everything that they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, line: str) -> tuple[int, str]:
        program, *words = shlex.split(line)
        self._monkeypatch.setattr(sys, "argv", [program, *words])
        with pytest.raises(SystemExit) as ended:
            (certs_main if program == "certs" else main)()
        printed = self._capsys.readouterr()
        code = ended.value.code
        return (code, printed.out + printed.err) if isinstance(code, int) else (1, str(code))


FILES = {
    "empty.yaml": b"",
    "broken.yaml": b"a: [1\nb: }\n",
    "list.yaml": b"- 1\n",
    "words.yaml": b"just words\n",
    "binary.yaml": b"\xff\xfe\x00",
    "widget.yaml": b"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n",
    "bare.yaml": b"kind: ClusterQueue\nmetadata: {name: q}\n",
    "nearly.yaml": b"apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueu\nmetadata: {name: x}\n",
    "late.yaml": b"lease: {lease_seconds: 3}\n",
    "sections.yaml": b"lease: 3\n",
    "dangling.yaml": (
        b"apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: a, namespace: b}\n"
        b"spec: {clusterQueue: c}\n"
    ),
    "misspelt.yaml": b"lease: {lease_secnds: 3}\n",
    "kinds.yaml": b"kinds: [{group: example.com, version: v1, kind: Sweep, plurall: sweeps}]\n",
}


@pytest.mark.parametrize(
    "command", ["try", "policy check", "simulate", "webhook --config", "queues --kubeconfig", "hold job/a --kubeconfig"]
)
@pytest.mark.parametrize("file", [*FILES, "absent.yaml", "folder"])
def test_no_file_brings_any_command_out_of_countenance(tutti: Tutti, command: str, file: str) -> None:
    status, said = tutti(f"tutti {command} {file}")
    assert status == EXPECTED.get((command, file), 2)
    assert "Traceback" not in said
    assert "Errno" not in said
    assert "<unicode string>" not in said
    assert "NoneType" not in said


EXPECTED = {(command, file): 0 for command in ("try", "policy check") for file in ("empty.yaml", "widget.yaml")} | {
    ("policy check", "dangling.yaml"): 0,  # a warning
    ("webhook --config", "empty.yaml"): 1,  # all defaults are fine; there is no certificate
}


@pytest.mark.parametrize(
    ("line", "status", "parts"),
    [
        ("tutti try empty.yaml", 0, ["nothing to decide"]),
        ("tutti policy check dangling.yaml", 0, ["there is no such ClusterQueue yet"]),
        ("tutti try broken.yaml", 2, ["broken.yaml", "line 2, column 2"]),
        ("tutti try binary.yaml", 2, ["binary.yaml", "is not text in UTF-8"]),
        ("tutti policy check widget.yaml", 0, ["passed over, being no policy: 1 Widget"]),
        ("tutti simulate empty.yaml", 2, ["the file is empty"]),
        ("tutti webhook --config misspelt.yaml", 2, ["misspelt.yaml#lease.lease_secnds", "perhaps lease_seconds"]),
        ("tutti webhook --config kinds.yaml", 2, ["kinds", "plurall"]),
        ("tutti webhook --config empty.yaml", 1, ["/certs/tls.crt: No such file", "certs/README.md"]),
        ("tutti webhook --config absent.yaml", 2, ["absent.yaml: No such file or directory; give a readable YAML"]),
        ("tutti queues --kubeconfig empty.yaml", 2, ["empty.yaml: is not a kubeconfig"]),
        ("tutti queues --kubeconfig absent.yaml", 2, ["absent.yaml: No such file"]),
        ("tutti queues", 2, [".kube/config: No such file", "name a readable kubeconfig"]),
        ("tutti queues --kubeconfig nobody.kubeconfig", 1, ["cannot connect to the API server at 127.0.0.1:"]),
        ("tutti ledger --kubeconfig nobody.kubeconfig", 1, ["cannot connect to the API server at 127.0.0.1:"]),
        ("tutti uninstall --kubeconfig nobody.kubeconfig", 1, ["cannot connect to the API server at 127.0.0.1:"]),
        ("tutti demo --kubeconfig nobody.kubeconfig", 1, ["cannot connect to the API server at 127.0.0.1:"]),
        ("tutti demo --kubeconfig absent.yaml", 2, ["absent.yaml: No such file"]),
        ("tutti demo --cluster fleet --kubeconfig absent.yaml", 2, ["--cluster: fleet", "--cluster or --kubeconfig"]),
        (
            "tutti queues --kubeconfig nobody.kubeconfig",
            1,
            ["; check the context, --kubeconfig and the way to the cluster"],
        ),
        ("tutti cancel job/a -n ../x --kubeconfig nobody.kubeconfig", 2, ["--namespace: ../x", "lower-case letters"]),
        ("tutti explain job/a -n ../x --kubeconfig nobody.kubeconfig", 2, ["--namespace: ../x", "lower-case letters"]),
        ("tutti cancel jobs -l '' --kubeconfig nobody.kubeconfig", 2, ["--selector: ''", "would choose every job"]),
        ("tutti hold jobs -l ' ' --kubeconfig nobody.kubeconfig", 2, ["--selector: ' '", "give a label"]),
        (
            "tutti explain job train --kubeconfig nobody.kubeconfig",
            1,
            ["cannot connect to the API server at 127.0.0.1:"],
        ),
        ("tutti policy check bare.yaml", 2, ["bare.yaml, document 1", "has no apiVersion", "kind ClusterQueue"]),
        ("tutti policy check nearly.yaml", 2, ["ClusterQueu x#/kind", "did you mean 'ClusterQueue'?"]),
        ("tutti webhook --config late.yaml", 2, ["late.yaml#lease", "more than renew_seconds"]),
        ("tutti explain train --kubeconfig nobody.kubeconfig", 2, ["write KIND/NAME"]),
        ("tutti demo --cluster mars", 2, ["'mars'", "'simulated', 'fleet', 'real'"]),
        ("tutti try --now yesterday empty.yaml", 2, ["--now", "yesterday", "2026-01-31T12:00:00Z"]),
        ("tutti try --now nan empty.yaml", 2, ["--now", "nan", "is no time from 1970 to 9999"]),
        ("tutti try --now 1e400 empty.yaml", 2, ["--now", "1e400", "is no time from 1970 to 9999"]),
        ("tutti try --now=-5 empty.yaml", 2, ["--now", "-5", "is no time from 1970 to 9999"]),
        ("tutti webhook --config sections.yaml", 2, ["sections.yaml#lease", "must be a map of keys to values"]),
        ("certs issue --name 'a b' --out new", 1, ["--name: 'a b'", "neither a host name nor an address"]),
        ("certs status --out absent", 1, ["there are no certificates in absent", "python -m certs rotate"]),
        ("certs patch-ca --out absent", 1, ["there is no absent/ca.crt; run python -m certs issue first"]),
        ("certs rotate --in-cluster --kubeconfig nobody.kubeconfig", 1, ["cannot connect to the API server"]),
    ],
)
def test_a_mistake_is_answered_with_what_where_and_what_to_do(
    tutti: Tutti, line: str, status: int, parts: list[str]
) -> None:
    ended, said = tutti(line)
    flat = " ".join(said.split())
    assert [part for part in parts if part not in flat] == []
    assert ended == status


EMPTY = {
    f"{ROOT}/namespaces/team-a/workloads": {"items": []},
    f"{ROOT}/queues": {"items": []},
    "/api/v1/namespaces/tutti-system/configmaps/tutti-config": {"data": {}},
}
"""A cluster with Tutti in which nothing was created."""


@pytest.mark.parametrize("command", ["explain", "hold", "release", "cancel", "top"])
@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("job/nope", "there is no Job 'nope' in namespace team-a"),
        ("jobset/nope", "there is no JobSet 'nope' in namespace team-a"),
        ("gizmo/nope", "'gizmo' is not a job kind"),
        ("nope", "write KIND/NAME"),
        ("job/../pods/a", "'../pods/a' is no name of an object"),
        ("job/A_/b", "'A_/b' is no name of an object"),
    ],
)
def test_a_name_that_matches_nothing_is_a_wrong_input(
    tutti: Tutti, monkeypatch: pytest.MonkeyPatch, command: str, named: str, why: str
) -> None:
    """A script tells it by the exit status from a cluster that did not answer, which is 1."""
    monkeypatch.setattr(terminal, "cluster", _empty_cluster)
    status, said = tutti(f"tutti {command} {named} -n team-a")
    assert why in " ".join(said.split())
    assert status == 2


@pytest.mark.parametrize("named", ["job nope", "pod/nope", "pg/nope"])
def test_explain_takes_more_names_and_those_that_match_nothing_are_a_wrong_input(
    tutti: Tutti, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setattr(terminal, "cluster", _empty_cluster)
    status, said = tutti(f"tutti explain {named} -n team-a")
    assert "'nope' in namespace team-a" in said
    assert status == 2


@asynccontextmanager
async def _empty_cluster(kubeconfig: Path | None, user_agent: str = "") -> AsyncIterator[Answers]:
    yield Answers(**EMPTY)
