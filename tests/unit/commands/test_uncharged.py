"""What `tutti queues` says of devices that no queue is charged for."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from webhook.commands import terminal
from webhook.commands.show import queues
from webhook.commands.show.uncharged import PODS_MAX, uncharged
from webhook.errors import Forbidden
from webhook.visibility.http.group import JOB_UID_LABEL, ROOT

GPU = "nvidia.com/gpu"
JOBS = "/apis/batch/v1/namespaces/team-a/jobs/"


def pod(uid: str, gpus: int, owner: str = "") -> dict[str, Any]:
    """Return a pod that runs and is of no gang."""
    references = [controlled_by("Job", "batch/v1", owner)] if owner else []
    resources = {"limits": {GPU: str(gpus)} if gpus else {"cpu": "1"}}
    spec = {"containers": [{"name": "m", "resources": resources}]}
    metadata = {"name": uid, "namespace": "team-a", "uid": uid, "ownerReferences": references}
    return {"metadata": metadata, "spec": spec}


def controlled_by(kind: str, version: str, name: str) -> dict[str, Any]:
    return {"uid": name, "kind": kind, "apiVersion": version, "name": name, "controller": True}


def workload(kind: str, version: str, name: str) -> dict[str, Any]:
    references = [controlled_by(kind, version, name)]
    return {"metadata": {"namespace": "team-a", "labels": {JOB_UID_LABEL: name}, "ownerReferences": references}}


class Cluster:
    """An API server with one gang and pods in pages."""

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self.pages = pages
        self.asked: list[dict[str, str]] = []

    async def request(self, method: str, path: str, *, query: dict[str, str] | None = None, **more: Any) -> bytes:
        assert method == "GET"
        if path == f"{ROOT}/workloads":
            found = [workload("Job", "batch/v1", "adopted"), workload("JobSet", "jobset.x-k8s.io/v1alpha2", "set")]
            return json.dumps({"items": found}).encode()
        if path == f"{ROOT}/queues":
            return json.dumps({"items": []}).encode()
        if path.startswith(JOBS):
            references = {"child": [controlled_by("JobSet", "jobset.x-k8s.io/v1alpha2", "set")]}
            metadata = {"ownerReferences": references.get(path.removeprefix(JOBS), [])}
            return json.dumps({"metadata": metadata}).encode()
        assert path == "/api/v1/pods"
        query = query or {}
        self.asked.append(dict(query))
        number = int(query.get("continue") or "0")
        follows = str(number + 1) if number + 1 < len(self.pages) else ""
        return json.dumps({"items": self.pages[number], "metadata": {"continue": follows}}).encode()


async def told(*pages: list[dict[str, Any]]) -> str | None:
    return await uncharged(Cluster(*pages))


async def test_devices_of_pods_without_a_gang_are_added_up_by_who_made_them() -> None:
    first = [pod("a", 1, "job-1"), pod("b", 1, "job-1"), pod("cpu", 0, "job-9")]
    second = [pod("c", 3, "job-2"), pod("bare", 1)]
    assert await told(first, second) == f"outside Tutti: 6 {GPU} in 3 jobs of no queue"


async def test_a_gang_that_ran_before_tutti_is_not_outside() -> None:
    assert await told([pod("a", 4, "adopted")]) is None


async def test_nor_are_pods_of_the_jobs_of_a_job_set_that_ran_before_tutti() -> None:
    assert await told([pod("a", 4, "child"), pod("b", 4, "child")]) is None
    assert await told([pod("a", 4, "child"), pod("b", 2, "stranger")]) == f"outside Tutti: 2 {GPU} in 1 job of no queue"


async def test_nothing_outside_is_not_worth_a_line() -> None:
    assert await told([pod("cpu", 0)]) is None


async def test_more_pods_than_are_looked_at_are_said_to_be_more() -> None:
    pages = [[pod("a", 1, "job-1")] * 500] * (PODS_MAX // 500 + 1)
    assert await told(*pages) == f"outside Tutti: at least {PODS_MAX} {GPU} in 1 job of no queue"


async def test_pods_of_gangs_and_those_that_ended_are_left_to_the_api_server() -> None:
    cluster = Cluster([])
    await uncharged(cluster)
    assert cluster.asked[0]["labelSelector"] == "!tutti.dev/gang"
    assert cluster.asked[0]["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"


@pytest.mark.parametrize("path", [f"{ROOT}/workloads", "/api/v1/pods"])
async def test_who_may_not_see_it_is_not_told(path: str) -> None:
    class Closed(Cluster):
        async def request(self, method: str, asked: str, **more: Any) -> bytes:
            if asked == path:
                raise Forbidden(403, "Forbidden", "no")
            return await super().request(method, asked, **more)

    assert await uncharged(Closed([pod("a", 1)])) is None


@asynccontextmanager
async def a_cluster(kubeconfig: Path | None, user_agent: str = "") -> AsyncIterator[Cluster]:
    yield Cluster([pod("bare", 2)])


async def test_the_table_of_all_queues_ends_with_it_and_no_other_output_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "cluster", a_cluster)
    await queues.show(None)
    assert capsys.readouterr().out.splitlines()[-1].strip() == f"outside Tutti: 2 {GPU} in 1 job of no queue"
    await queues.show(None, output="json")
    assert json.loads(capsys.readouterr().out) == {"items": []}
