"""What an owner does to a job by ``tutti hold``, ``release`` and ``cancel``, with a reconciler at work."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import queued_cluster, waiting_job
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.commands.owner_verbs import Verb, cancel, each, every_kind, hold, release, selected, top
from webhook.config import Config
from webhook.core.fleet.dispatch import NOWHERE, Dispatch
from webhook.core.fleet.text import encode
from webhook.core.notation import names
from webhook.errors import Conflict, NotFound, WrongName
from webhook.jobs.kinds.registry import KINDS, by_name
from webhook.kube.api import MERGE_PATCH, Api

pytestmark = pytest.mark.virtual_time
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"


@asynccontextmanager
async def cluster() -> AsyncIterator[Api]:
    """Yield the connection of somebody in a cluster of four cpu with a leader and no webhook."""
    async with queued_cluster() as simulated:
        parts = reconciler(simulated.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(2)
        yield simulated.api()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def create(api: Api, job: dict[str, Any]) -> None:
    await api.request("POST", JOBS, body=orjson.dumps(job))


async def stored(api: Api, name: str = "train") -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(await api.request("GET", f"{JOBS}/{name}"))
    return found


class Busy:
    """A connection to a cluster in which somebody writes to a job each time after it was read."""

    def __init__(self, api: Api, times: int = 2) -> None:
        self._api, self._left = api, times

    async def request(self, method: str, path: str, **more: Any) -> bytes:  # type: ignore[override]
        found = await self._api.request(method, path, **more)
        if method == "GET" and path.endswith("/train") and self._left:
            self._left -= 1
            note = orjson.dumps({"metadata": {"annotations": {"written": str(self._left)}}})
            await self._api.request("PATCH", path, body=note, content_type=MERGE_PATCH)
        return found

    def watch(self, path: str, **more: Any) -> Any:  # type: ignore[override]
        return self._api.watch(path, **more)


async def test_a_waiting_job_that_is_held_does_not_start_until_it_is_released() -> None:
    async with cluster() as api:
        await create(api, waiting_job("first", pods=3))
        await asyncio.sleep(3)
        await create(api, waiting_job(pods=3))
        await asyncio.sleep(3)
        assert "does not start until" in await hold(api, "job/train", "team-a", KINDS)
        assert "is already held" in await hold(api, "job/train", "team-a", KINDS)
        with pytest.raises(WrongName, match="with --selector only KIND"):
            await hold(api, "train", "team-a", KINDS)
        assert "is deleted" in await cancel(api, "job/first", "team-a", KINDS)
        await asyncio.sleep(60)
        assert (await stored(api))["spec"]["suspend"]
        assert "waits for its turn again" in await release(api, "job/train", "team-a", KINDS)
        await asyncio.sleep(5)
        job = await stored(api)
        assert not job["spec"]["suspend"]
        assert names.ADMISSION_GATES not in job["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("verb", "done"),
    [(hold, "does not start until"), (release, "waits for"), (top, "is the first")],
)
async def test_a_change_is_made_to_a_job_that_was_written_to_meanwhile(verb: Verb, done: str) -> None:
    async with cluster() as api:
        await create(api, waiting_job("first", pods=3))
        await create(api, waiting_job(pods=3))
        await asyncio.sleep(3)
        if verb is release:
            await hold(api, "job/train", "team-a", KINDS)
        assert done in await verb(Busy(api), "job/train", "team-a", KINDS)


async def test_a_job_that_is_always_written_to_ends_in_the_conflict() -> None:
    async with cluster() as api:
        await create(api, waiting_job("first", pods=3))
        await create(api, waiting_job(pods=3))
        await asyncio.sleep(3)
        with pytest.raises(Conflict):
            await hold(Busy(api, times=100), "job/train", "team-a", KINDS)


def reached(monkeypatch: pytest.MonkeyPatch, api: Api) -> None:
    """Let a command that connects by itself reach ``api``."""

    @asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[Api]:
        yield api

    monkeypatch.setattr("webhook.kube.connecting.connected", connected)


async def test_a_job_that_has_gone_keeps_no_other_from_being_cancelled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster() as api:
        reached(monkeypatch, api)
        await create(api, waiting_job("one"))
        await create(api, waiting_job("two"))
        with pytest.raises(WrongName, match="no Job 'gone'"):
            await each(cancel, ["job/one", "job/gone", "job/two", "job/never"], None, "team-a", None)
        said = capsys.readouterr()
        assert re.findall(r"^job/\w+: is deleted", said.out, re.MULTILINE) == [
            "job/one: is deleted",
            "job/two: is deleted",
        ]
        assert "no Job 'never'" in said.err


async def test_jobs_may_be_named_after_their_kind_as_kubectl_takes_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster() as api:
        reached(monkeypatch, api)
        await create(api, waiting_job("one"))
        await create(api, waiting_job("two"))
        await each(cancel, ["job", "one", "two"], None, "team-a", None)
        told = re.findall(r"^job/\w+: is deleted", capsys.readouterr().out, re.MULTILINE)
        assert told == ["job/one: is deleted", "job/two: is deleted"]


async def test_a_word_that_names_no_job_keeps_the_verb_from_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster() as api:
        reached(monkeypatch, api)
        await create(api, waiting_job("one"))
        with pytest.raises(WrongName, match="'two' names no job"):
            await each(cancel, ["job/one", "two"], None, "team-a", None)
        assert "is deleted" not in capsys.readouterr().out
        assert await stored(api, "one")


async def test_a_running_job_that_is_held_stops_whole() -> None:
    async with cluster() as api:
        await create(api, waiting_job(pods=3))
        await asyncio.sleep(5)
        assert not (await stored(api))["spec"]["suspend"]
        assert "all its pods stop at once" in await hold(api, "job/train", "team-a", KINDS)
        await asyncio.sleep(60)
        assert (await stored(api))["spec"]["suspend"]
        assert names.HOLD in (await stored(api))["metadata"]["annotations"]


async def test_what_cannot_be_stopped_is_paused_and_goes_on_when_it_is_released() -> None:
    kind = KINDS["Workflow.argoproj.io"]
    admission = '{"uid":"u","epoch":1,"seq":1,"queue":"jobs","counts":{"main":3},"since":1.0}'
    made = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "flow", "uid": "u", "resourceVersion": "1", "annotations": {names.ADMISSION: admission}},
        "spec": {"suspend": False},
    }

    class Changed(One):
        async def request(self, method: str, path: str, **more: Any) -> bytes:
            if method == "PATCH":
                made["spec"] = orjson.loads(more["body"])["spec"]
            return orjson.dumps(made)

    api: Api = Changed(made)  # type: ignore[assignment]
    said = await hold(api, "workflow/flow", "team-a", {kind.key: kind})
    assert "starts no more pods until it is released; those that run go on, and it keeps its room" in said
    assert made["spec"] == {"suspend": True}
    assert "is already held" in await hold(api, "workflow/flow", "team-a", {kind.key: kind})
    assert "goes on" in await release(api, "workflow/flow", "team-a", {kind.key: kind})
    assert made["spec"] == {"suspend": False}


async def test_what_a_hub_places_is_not_said_to_be_gone_before_its_member_says_so() -> None:
    async with cluster() as api:
        job = waiting_job(pods=3)
        job["spec"] |= {"managedBy": names.HUB_MANAGER, "suspend": False}
        del job["metadata"]["labels"]
        await create(api, job)
        assert "as soon as the member that has it hears of it" in await hold(api, "job/train", "team-a", KINDS)
        assert "once nothing of it is left in a member" in await cancel(api, "job/train", "team-a", KINDS)


class One:
    """A connection to a cluster with one job, which takes no change."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        assert method == "GET"
        return orjson.dumps(self._job)


def in_a_hub(dispatch: Dispatch, **metadata: Any) -> Api:
    job = waiting_job(pods=3)
    admission = '{"uid":"u","epoch":1,"seq":1,"queue":"jobs","counts":{"main":3},"since":1.0}'
    notes = {names.DISPATCH: encode(dispatch), names.ADMISSION: admission}
    job["metadata"] |= {"uid": "u", "annotations": notes, **metadata}
    job["spec"] |= {"managedBy": names.HUB_MANAGER, "suspend": False}
    return One(job)  # type: ignore[return-value]


async def test_of_what_a_member_has_stopped_release_says_who_did() -> None:
    granted = NOWHERE.offered(1, "left", "c").granted("copy", "1")
    held = replace(granted, waits="has stopped it (OnHold: it was suspended)")
    said = await release(in_a_hub(held), "job/train", "team-a", KINDS)
    assert said == "job/train: is not held here; left has stopped it (OnHold: it was suspended)"
    assert await release(in_a_hub(granted), "job/train", "team-a", KINDS) == "job/train: is not held"


async def test_what_waits_for_a_member_has_no_place_in_a_queue_of_the_hub_any_more() -> None:
    offered = NOWHERE.offered(1, "left", "c")
    with pytest.raises(WrongName, match="has its quota here, and waits for a member"):
        await top(in_a_hub(offered), "job/train", "team-a", KINDS)
    with pytest.raises(WrongName, match="is not waiting"):
        await top(in_a_hub(offered.granted("copy", "1")), "job/train", "team-a", KINDS)


async def test_what_is_being_deleted_is_not_held() -> None:
    leaving = in_a_hub(NOWHERE, deletionTimestamp="2026-01-01T00:00:00Z")
    with pytest.raises(WrongName, match="is being deleted: there is nothing to hold"):
        await hold(leaving, "job/train", "team-a", KINDS)


async def test_the_gates_of_others_stay_when_a_job_is_held_and_released() -> None:
    async with cluster() as api:
        job = waiting_job(pods=3)
        job["metadata"]["annotations"] = {names.ADMISSION_GATES: "acme.com/budget"}
        await create(api, job)
        for verb, left in ((hold, "acme.com/budget,tutti.dev/owner"), (release, "acme.com/budget")):
            await verb(api, "jobs/train", "team-a", KINDS)
            assert (await stored(api))["metadata"]["annotations"][names.ADMISSION_GATES] == left
        assert "is not held" in await release(api, "job/train", "team-a", KINDS)


async def test_a_job_that_is_not_there_is_named() -> None:
    async with cluster() as api:
        for job, part in (("job/nope", "no Job 'nope'"), ("gizmo/nope", "not a job kind"), ("nope", "write KIND/NAME")):
            with pytest.raises(WrongName, match=part):
                await hold(api, job, "team-a", KINDS)
        await create(api, waiting_job())
        await cancel(api, "job/train", "team-a", KINDS)
        await asyncio.sleep(30)
        with pytest.raises(NotFound):
            await stored(api)


async def test_all_jobs_of_a_sweep_are_chosen_by_their_labels() -> None:
    async with cluster() as api:
        for name, sweep in (("two", "3"), ("one", "3"), ("other", "4")):
            job = waiting_job(name)
            job["metadata"]["labels"]["sweep"] = sweep
            await create(api, job)
            await asyncio.sleep(2)
        kinds = await every_kind(api)
        assert await selected(api, ["jobs"], "sweep=3", "team-a", kinds) == ["jobs/two", "jobs/one"]
        with pytest.raises(WrongName, match="has no jobs with the labels 'sweep=5'"):
            await selected(api, ["jobs"], "sweep=5", "team-a", kinds)
        with pytest.raises(WrongName, match="with --selector only KIND"):
            await selected(api, ["jobs/one"], "sweep=3", "team-a", kinds)


async def test_kinds_that_the_installation_adds_are_known_from_its_configuration() -> None:
    page = (Path(__file__).parents[3] / "docs" / "job-kinds.md").read_text()
    written = re.search(r"In the ConfigMap `tutti-config`:\n\n```yaml\n(kinds:\n.*?)```", page, re.DOTALL)
    assert written is not None
    async with cluster() as api:
        assert by_name("sweep", await every_kind(api)) is None
        config = {"metadata": {"name": "tutti-config"}, "data": {"config.yaml": written[1]}}
        await api.request("POST", "/api/v1/namespaces/tutti-system/configmaps", body=orjson.dumps(config))
        kinds = await every_kind(api)
        sweep = by_name("sweep", kinds)
        assert sweep is not None
        with pytest.raises(WrongName, match="there is no Sweep 'grid'"):
            await hold(api, "sweep/grid", "team-a", kinds)


async def test_a_waiting_job_that_is_moved_to_the_top_starts_before_an_older_one() -> None:
    async with cluster() as api:
        for name in ("runs", "older", "younger"):
            await create(api, waiting_job(name, pods=3))
            await asyncio.sleep(3)
        assert "first of its priority" in await top(api, "job/younger", "team-a", KINDS)
        with pytest.raises(WrongName, match="is not waiting"):
            await top(api, "job/runs", "team-a", KINDS)
        await asyncio.sleep(2)
        await cancel(api, "job/runs", "team-a", KINDS)
        await asyncio.sleep(60)
        assert not (await stored(api, "younger"))["spec"]["suspend"]
        assert (await stored(api, "older"))["spec"]["suspend"]
