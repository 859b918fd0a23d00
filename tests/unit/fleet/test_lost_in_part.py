"""``tutti fleet lost`` while the hub's API server does not let something be read: all else is given up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job, pytorch_job
from webhook import logs
from webhook.clock import LoopClock
from webhook.commands import fleet as command
from webhook.commands import terminal
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.errors import ApiError, Forbidden, Unavailable, WrongName
from webhook.fleet import lost
from webhook.fleet.lost import NotAllGivenUp, give_up, noted
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import Api

pytestmark = pytest.mark.virtual_time
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")
SLOW = Unavailable(0, "Timeout", "no answer in 30 s")


def refuse(api: Any, ending: str, answer: ApiError, method: str = "") -> None:
    """Have an API server answer so to what is asked by such a path, by any method or by one."""
    honest = api.request

    async def request(used: str, path: str, **how: Any) -> bytes:
        if path.endswith(ending) and method in ("", used):
            raise answer
        return await honest(used, path, **how)

    api.request = request


@asynccontextmanager
async def with_two_gangs() -> AsyncIterator[tuple[Fleet, str]]:
    """Yield a fleet whose member is cut off and has a Job and a PyTorchJob, and that member's cluster."""
    async with fleet("a", "b", starts=False, watched=False) as world:
        world.away = {"b"}
        world.start()
        jobs = [plain_job(pods=1, runtime="6000s"), pytorch_job(workers=1, runtime="6000s")]
        for job in jobs:
            await world.hub.cluster.create(job)

        async def run() -> bool:
            return await world.members["a"].running() == 3

        await world.until(run)
        await asyncio.sleep(5)
        await world.stop()
        yield world, dispatch_of(await world.hub.get("Job", "train") or {}).cluster


async def given_up(world: Fleet, **how: Any) -> tuple[list[str], str]:
    """Return what is given up, and what is said of the rest."""
    gangs, left = list[str](), ""
    try:
        how = {"dry_run": False, "force": False, **how}
        async for gang in give_up(world.hub.admin, KINDS, "a", LoopClock(), **how):
            gangs.append(gang)
    except NotAllGivenUp as error:
        left = str(error)
    return gangs, left


async def phase(world: Fleet, kind: str, name: str) -> DispatchPhase:
    return dispatch_of(await world.hub.get(kind, name) or {}).phase


@pytest.mark.parametrize("answer", [BROKEN, SLOW, Forbidden(403, "Forbidden", "you cannot list pytorchjobs")])
async def test_gangs_of_a_kind_that_can_be_read_are_given_up_and_the_others_wait(answer: ApiError) -> None:
    async with with_two_gangs() as (world, cluster):
        honest = world.hub.admin.request
        refuse(world.hub.admin, "/v1/pytorchjobs", answer)
        gangs, left = await given_up(world, cluster=cluster)
        assert gangs == ["Job team-a/train"]
        assert left == (
            "gangs may be left in a, and these could not be read or written: "
            f"/apis/kubeflow.org/v1/pytorchjobs ({answer}). Run this again when that works"
        )
        assert "a" in await noted(world.hub.admin)
        world.hub.admin.request = honest  # type: ignore[method-assign]
        assert await phase(world, "Job", "train") is DispatchPhase.NOWHERE
        assert await phase(world, "PyTorchJob", "pytorch-test") is DispatchPhase.GRANTED
        assert await given_up(world, cluster=cluster) == (["PyTorchJob team-a/pytorch-test"], "")


async def test_a_gang_that_cannot_be_written_keeps_no_other_from_being_given_up() -> None:
    async with with_two_gangs() as (world, _):
        refuse(world.hub.admin, "/jobs/train", Forbidden(403, "Forbidden", "no writes on Thursdays"), "PATCH")
        gangs, left = await given_up(world)
        assert gangs == ["PyTorchJob team-a/pytorch-test"]
        assert "Job team-a/train (403 Forbidden: no writes on Thursdays)" in left


async def test_it_has_to_be_said_which_cluster_is_lost_where_what_cannot_be_read_may_be_in_another() -> None:
    """The name may have led to a cluster that is there: what runs in it would run twice."""
    async with with_two_gangs() as (world, cluster):
        refuse(world.hub.admin, "/v1/pytorchjobs", BROKEN)
        with pytest.raises(WrongName, match=f"1 gang in the cluster {cluster}, and these .*: say with --cluster"):
            await given_up(world)
        assert await noted(world.hub.admin) == {}


async def test_a_hub_that_does_not_answer_is_told_nothing() -> None:
    async with with_two_gangs() as (world, _):
        refuse(world.hub.admin, "", SLOW)
        with pytest.raises(Unavailable):
            await given_up(world)


async def test_the_command_says_what_it_did_and_ends_with_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with with_two_gangs() as (world, cluster):
        refuse(world.hub.admin, "/v1/pytorchjobs", BROKEN)

        @asynccontextmanager
        async def reached(kubeconfig: Path | None) -> AsyncIterator[Api]:
            yield world.hub.admin

        monkeypatch.setattr(terminal, "cluster", reached)
        monkeypatch.setattr(logs, "configure", lambda *level, **how: None)
        with pytest.raises(NotAllGivenUp):
            await command.lost("a", None, cluster=cluster, dry_run=False, force=False)
        said = capsys.readouterr().out
        assert "Job team-a/train is offered elsewhere" in said
        assert "1 gang was in a; it gets no more" in said


async def test_no_more_is_named_than_can_be_read() -> None:
    async with fleet("a", starts=False) as world:
        world.start()
        for kind in KINDS.values():
            refuse(world.hub.admin, f"/{kind.plural}", BROKEN)
        _, left = await given_up(world, force=True)
        assert left.count("InternalError") == lost.NAMED_MAX
        assert " more. Run this again" in left
