"""Jobs and queues that a shell proposes: those of the cluster, and none where it does not answer."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.unit.commands.test_mistakes import KUBECONFIG
from webhook.cli import app, main
from webhook.commands import completion_names
from webhook.commands.completion import proposals
from webhook.errors import WRONG
from webhook.visibility.http.group import ROOT

OWNERS = [
    ("batch/v1", "Job", "train"),
    ("batch/v1", "Job", "tune"),
    ("batch.volcano.sh/v1alpha1", "Job", "old"),
    ("example.org/v1", "Sweep", "grid"),
]
ANSWERS = {
    f"{ROOT}/namespaces/team-a/workloads": [
        {"metadata": {"ownerReferences": [{"apiVersion": version, "kind": kind, "name": name}]}}
        for version, kind, name in OWNERS
    ],
    f"{ROOT}/namespaces/team-b/workloads": [],
    f"{ROOT}/queues": [{"metadata": {"name": name}} for name in ("research", "robotics", "vision")],
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        items = ANSWERS.get(self.path.partition("?")[0])
        body = json.dumps({"items": items}).encode()
        self.send_response(200 if items is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


def configured(path: Path, server: str) -> str:
    text = KUBECONFIG.format(port=0).replace("https://127.0.0.1:0", server)
    path.write_text(text.replace("user: a}", "user: a, namespace: team-a}"))
    return str(path)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield configured(tmp_path_factory.mktemp("k") / "config", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def proposed(line: str) -> list[str]:
    return [value for value, _ in proposals(app, line.split(" "))]


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("explain ", ["job/train", "job/tune", "job.batch.volcano.sh/old", "sweep/grid"]),
        ("hold job/t", ["job/train", "job/tune"]),
        ("cancel job/train job/tu", ["job/tune"]),
        ("release -n team-b ", []),
        ("top -n team-c ", []),
        ("hold -l team=vision job", ["job", "jobset"]),
        ("queues r", ["research", "robotics"]),
    ],
)
def test_jobs_and_queues_of_the_cluster_are_proposed(
    typed: str, names: list[str], kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    assert proposed(typed) == names


def test_the_kubeconfig_that_was_typed_is_asked(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert proposed(f"queues --kubeconfig {kubeconfig} v") == ["vision"]


@pytest.mark.parametrize("broken", ["absent", "no YAML", "nobody listens", "never answers"])
def test_who_cannot_reach_a_cluster_is_proposed_nothing_and_told_nothing(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion_names, "PROPOSE_SECONDS", 0.2)
    with socket.socket() as silent, socket.socket() as closed:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        closed.bind(("127.0.0.1", 0))
        config = tmp_path / "config"
        if broken == "no YAML":
            config.write_text("a: [")
        elif broken != "absent":
            port = (silent if broken == "never answers" else closed).getsockname()[1]
            configured(config, f"http://127.0.0.1:{port}")
        monkeypatch.setenv("KUBECONFIG", str(config))
        assert proposed("queues ") == proposed("explain ") == []
    assert capsys.readouterr() == ("", "")


def test_who_names_a_job_that_is_not_there_ends_with_the_status_for_wrong_input(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tutti", "explain", "job/absent", "--kubeconfig", kubeconfig])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == WRONG
    assert "absent" in capsys.readouterr().err
