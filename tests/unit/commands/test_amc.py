"""``kubectl amc`` finds the members by the hub's Secret, lets kubectl ask them, and makes one table of the answers."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.fleet.credentials.test_kubeconfig import good
from tests.unit.kube.fake_api import FakeApi
from webhook.commands import amc, members
from webhook.errors import Forbidden, NotFound, TuttiError, WrongName

KUBECTL = """#!/bin/sh
server=$(sed -n 's/.*server: https:..//p' "${1#--kubeconfig=}")
shift
echo "$server $*" >> "$0.asked"
if [ -e "$0.$server.fails" ]; then cat "$0.$server.fails" >&2; exit 1; fi
cat "$0.$server"
"""
PODS = {
    "left": "NAME                    READY   STATUS    RESTARTS   AGE\n"
    "pytorch-test-master-0   1/1     Running   0          7m16s\n",
    "right": "NAME       READY   STATUS    RESTARTS      AGE\nother-0    1/1     Running   2 (5m ago)    9m\n",
}
JOBS = {
    "left": "NAME           STATE     AGE     MULTIKUEUE-ORIGIN\npytorch-test   Running   6m23s   e3f1\n",
    "right": "NAME   STATE     AGE   MULTIKUEUE-ORIGIN\nown    Created   2m    \n",
}


CLUSTERS = "/apis/kueue.x-k8s.io/v1beta2/multikueueclusters"


class Hub(FakeApi):
    """Has the Secret with its members' kubeconfigs."""

    def __init__(self, members: dict[str, dict[str, Any]]) -> None:
        super().__init__()
        self.data = {name: base64.b64encode(yaml.safe_dump(each).encode()).decode() for name, each in members.items()}
        self.others: dict[str, Any] = {CLUSTERS: {"items": []}}

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        self._arrived()
        assert method == "GET"
        if path not in self.others:
            assert path == "/api/v1/namespaces/tutti-system/secrets/tutti-hub-members"
            return json.dumps({"data": self.data}).encode()
        if self.others[path] is None:
            raise NotFound(404, "NotFound", f"{path} not found")
        return json.dumps(self.others[path]).encode()


class Closed(FakeApi):
    """Lets its Secrets be read by nobody."""

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        raise Forbidden(403, "Forbidden", "you cannot get secrets")


def member(name: str, **user: Any) -> dict[str, Any]:
    document = good()
    document["clusters"][0]["cluster"]["server"] = f"https://{name}"
    document["users"][0]["user"] |= user
    return document


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a kubectl on the PATH that answers, for a server, with the file beside it of that server's name."""
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    reach(monkeypatch, Hub({"left": member("left"), "right": member("right")}))
    return program


def reach(monkeypatch: pytest.MonkeyPatch, api: FakeApi) -> None:
    @asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[FakeApi]:
        yield api

    monkeypatch.setattr("webhook.kube.connecting.connected", connected)


def answers(kubectl: Path, said: dict[str, str]) -> None:
    for server, text in said.items():
        Path(f"{kubectl}.{server}").write_text(text)


def fails(kubectl: Path, server: str, error: str) -> None:
    Path(f"{kubectl}.{server}.fails").write_text(error)


def asked_of(kubectl: Path) -> list[str]:
    """Return what kubectl was asked, each with the server."""
    asked = Path(f"{kubectl}.asked")
    return asked.read_text().splitlines() if asked.exists() else []


async def ask(words: str) -> int:
    return await amc.run(amc.parsed([*words.split(), "-n", "default"]))


async def test_pods_of_all_members_stand_in_one_table(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers(kubectl, PODS)
    assert await ask("get pod -M") == 0
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "NAME",
        "pytorch-test-master-0",
        "other-0",
    ]
    assert await ask("get po -M -l app=x") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NAME", "CLUSTER", "READY", "STATUS", "RESTARTS", "AGE"],
        ["pytorch-test-master-0", "left", "1/1", "Running", "0", "7m16s"],
        ["other-0", "right", "1/1", "Running", "2", "(5m", "ago)", "9m"],
    ]
    asked = asked_of(kubectl)
    assert "left get pod --namespace=default --request-timeout=10s" in asked
    assert "right get po -l app=x --namespace=default --request-timeout=10s" in asked


async def test_of_jobs_it_says_whether_the_fleet_placed_them(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers(kubectl, JOBS)
    assert await ask("get pytorchjob -M") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NAME", "CLUSTER", "STATE", "AGE", "ADOPTION"],
        ["pytorch-test", "left", "Running", "6m23s", "Y"],
        ["own", "right", "Created", "2m", "N"],
    ]
    assert await ask("get pytorchjob -m right") == 0
    assert "pytorch-test" not in capsys.readouterr().out


async def test_each_of_several_kinds_has_a_table_of_its_own(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = "NAME            STATUS    ORIGIN\njob.batch/one   Running   \n"
    pods = "NAME          READY   STATUS\npod/one-abcd   1/1     Running\n"
    answers(kubectl, {"left": f"{jobs}\n{pods}", "right": pods.replace("one", "two")})
    assert await ask("get jobs,pods -M") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NAME", "CLUSTER", "STATUS", "ORIGIN"],
        ["job.batch/one", "left", "Running"],
        [],
        ["NAME", "CLUSTER", "READY", "STATUS"],
        ["pod/one-abcd", "left", "1/1", "Running"],
        ["pod/two-abcd", "right", "1/1", "Running"],
    ]


async def test_one_member_answers_in_its_own_form(kubectl: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answers(kubectl, {"left": "kind: PyTorchJob\n"})
    assert await ask("get pytorchjob pytorch-test -m left -oyaml") == 0
    assert capfd.readouterr().out == "kind: PyTorchJob\n"
    assert asked_of(kubectl) == ["left get pytorchjob pytorch-test -oyaml --namespace=default"]


@pytest.mark.parametrize("verb", ["get", "describe", "logs"])
async def test_what_is_in_one_member_need_not_be_in_the_others(
    kubectl: Path, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    answers(kubectl, PODS)
    gone = 'Error from server (NotFound): pods "pytorch-test-master-0" not found'
    fails(kubectl, "right", gone)
    assert await ask(f"{verb} pod/pytorch-test-master-0 -M") == 0
    said = capfd.readouterr()
    assert "7m16s" in said.out
    assert not said.err
    fails(kubectl, "left", gone)
    assert await ask(f"{verb} pod/pytorch-test-master-0 -M") == 1
    assert f"left: {gone}\nright: {gone}\n" == capfd.readouterr().err


async def test_a_member_that_does_not_answer_hides_no_other(kubectl: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answers(kubectl, PODS)
    fails(kubectl, "right", "Unable to connect to the server: dial tcp: i/o timeout")
    assert await ask("get pod -M") == 1
    said = capfd.readouterr()
    assert "pytorch-test-master-0" in said.out
    assert said.err == "right: Unable to connect to the server: dial tcp: i/o timeout\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("delete pod x -M", "invalid choice: 'delete'"),
        ("get pod", "one of the arguments -M/--all-members -m/--member is required"),
        ("get pod -M -m left", "not allowed with"),
        ("get -M", "say what to get"),
        ("get pod -M -o yaml", "-o works with one member"),
        ("get pod -M -ojson", "-ojson works with one member"),
        ("get pod -M --watch", "--watch works with one member"),
    ],
)
def test_what_is_no_question_is_refused_with_what_to_do(
    capsys: pytest.CaptureFixture[str], words: str, why: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        amc.parsed(words.split())
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("wide", ["-o wide", "-owide", "-o=wide", "--output=wide"])
def test_a_wide_table_is_one_of_all_members_too(wide: str) -> None:
    assert amc.parsed(f"get pod -M {wide}".split()).words == ("pod", *wide.split())


async def test_a_member_that_the_hub_has_not_is_named_with_those_it_has(kubectl: Path) -> None:
    with pytest.raises(WrongName, match="'middle' is not a member; the hub has left, right"):
        await ask("get pod -m middle")


@pytest.mark.parametrize("verb", ["get pod", "logs other-0"])
async def test_no_program_starts_for_a_kubeconfig_that_would_run_one_and_it_hides_no_other(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    answers(kubectl, PODS)
    reach(monkeypatch, Hub({"left": member("left"), "right": member("right", exec={"command": "steal"})}))
    assert await ask(f"{verb} -M") == 1
    said = capfd.readouterr()
    assert "pytorch-test-master-0" in said.out
    assert said.err.startswith("right: kubeconfig: ")
    assert "would run a command" in said.err
    assert await ask(f"{verb} -m left") == 0
    assert not capfd.readouterr().err
    with pytest.raises(TuttiError, match=r"^right: kubeconfig: .*would run a command"):
        await ask(f"{verb} -m right")
    assert {line.split()[0] for line in asked_of(kubectl)} == {"left"}


async def test_where_no_member_has_a_kubeconfig_to_use_each_is_told(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reach(monkeypatch, Hub({"left": member("left", exec={}), "right": member("right", exec={})}))
    assert await ask("get pod -M") == 1
    assert [line.split(":")[0] for line in capfd.readouterr().err.splitlines()] == ["left", "right"]
    assert not asked_of(kubectl)


async def test_who_may_not_read_the_secret_is_told_which_right_it_takes(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(monkeypatch, Closed())
    with pytest.raises(TuttiError, match="the right to get this Secret"):
        await ask("get pod -M")


async def test_the_clusters_of_multikueue_are_members_too() -> None:
    hub = Hub({"left": member("left")})
    named = {"metadata": {"name": "worker1"}, "spec": {"kubeConfig": {"location": "worker1-secret"}}}
    refused = {"metadata": {"name": "worker2"}, "spec": {"kubeConfig": {"location": "x", "locationType": "Path"}}}
    hub.others[CLUSTERS] = {"items": [named, refused]}
    path = "/api/v1/namespaces/kueue-system/secrets/worker1-secret"
    given = yaml.safe_dump(member("right"))
    hub.others[path] = {"data": {"kubeconfig": base64.b64encode(given.encode()).decode()}}
    found, unusable = await members.kubeconfigs(hub)
    assert sorted(found) == ["left", "worker1"]
    assert found["worker1"] == given
    assert not unusable
    hub.others[path] = {
        "data": {"kubeconfig": base64.b64encode(yaml.safe_dump(member("r", exec={})).encode()).decode()}
    }
    found, unusable = await members.kubeconfigs(hub)
    assert sorted(found) == ["left"]
    assert "would run a command" in unusable["worker1"]


@pytest.mark.parametrize("stored", [None, {}, {"data": {"token": "eA=="}}])
async def test_a_cluster_of_multikueue_without_its_secret_hides_no_other(stored: dict[str, Any] | None) -> None:
    hub = Hub({"left": member("left")})
    hub.others[CLUSTERS] = {
        "items": [{"metadata": {"name": "worker1"}, "spec": {"kubeConfig": {"location": "worker1-secret"}}}]
    }
    hub.others["/api/v1/namespaces/kueue-system/secrets/worker1-secret"] = stored
    found, unusable = await members.kubeconfigs(hub)
    assert sorted(found) == ["left"]
    assert unusable == {"worker1": "there is no Secret worker1-secret with a kubeconfig"}
