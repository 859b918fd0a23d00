"""A leader that has more to look at than it does in a row, such as a new one, decides and writes once it saw it all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.unit.controllers.stage import POLICY, queued_cluster, waiting_job
from tests.unit.jobs.records import waiting_job as waiting
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.cluster.view import View
from webhook.config import Config
from webhook.controllers.ledger import ledger_room
from webhook.controllers.loop import dirty_set, engine_feed
from webhook.core.ledger.record import Ledger
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.pods import PodRecord
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


async def test_many_gangs_are_looked_at_a_few_in_a_row_and_written_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirty_set, "TAKEN_MAX", 2)
    async with queued_cluster() as cluster:
        for number in range(9):
            job = waiting_job(f"train-{number}", pods=1)
            job["spec"]["template"]["metadata"]["annotations"] = {"tutti.dev/simulated-runtime": "20s"}
            await cluster.create(job)
        held: list[frozenset[str]] = []
        for leader in ("first", "second"):
            parts = reconciler(cluster.api(), Config(), identity=leader, clock=LoopClock(), rng=Random(1))

            def note(view: View = parts.view) -> None:
                names = frozenset(entry.name for entry in view.ledger.entries.values())
                if not held or names != held[-1]:
                    held.append(names)

            parts.reconciler.after_cycle = note
            running = asyncio.create_task(parts.run())
            await asyncio.sleep(10)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            # By the time that the second one leads all four have ended.
            await asyncio.sleep(20)
        first, second = held
        assert len(first) == len(second) == 4
        assert not first & second, "those that had ended left, and others came, in one write"


async def test_a_new_leader_starts_a_few_before_it_writes_what_gathered_while_nobody_led(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_room, "FIRST_MAX", 1)
    async with queued_cluster() as cluster:
        for number in range(9):
            await cluster.create(waiting_job(f"train-{number}", pods=1))
        parts = reconciler(cluster.api(), Config(), identity="new", clock=LoopClock(), rng=Random(1))
        held: dict[int, float] = {}

        def note() -> None:
            held.setdefault(len(parts.view.ledger.entries), asyncio.get_running_loop().time())

        parts.reconciler.after_cycle = note
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert list(held) == [1, 4], "all others that fit follow in one write"
    assert held[4] - held[1] < 0.5


@asynccontextmanager
async def a_standby(
    gangs: int, runtime: str = "1h"
) -> AsyncIterator[tuple[SimulatedCluster, "asyncio.Task[None]", ReconcilerParts]]:
    """Yield a cluster of a node on which gangs were admitted, who leads, and who follows and may take over."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        jobs = [waiting_job(f"train-{number}", pods=1) for number in range(gangs)]
        for job in jobs:
            job["spec"]["template"]["metadata"]["annotations"] = {"tutti.dev/simulated-runtime": runtime}
        for obj in (*POLICY, *jobs):
            await cluster.create(obj)
        first, second = (
            reconciler(cluster.api(), Config(), identity=name, clock=LoopClock(), rng=Random(1)) for name in ("a", "b")
        )
        leads = asyncio.create_task(first.run())
        await asyncio.sleep(5)
        follows = asyncio.create_task(second.run())
        await asyncio.sleep(5)
        try:
            yield cluster, leads, second
        finally:
            follows.cancel()
            await asyncio.gather(follows, return_exceptions=True)


async def test_who_takes_over_looks_at_no_places_again_that_it_settled_while_it_followed() -> None:
    async with a_standby(gangs=4) as (_, leads, second):
        nodes = second.view.nodes
        assert nodes is not None
        assert len(second.view.ledger.entries) == 4
        known = dict(second.view.ledger.entries)
        leads.cancel()
        await asyncio.gather(leads, return_exceptions=True)
        looked_at: list[int] = []
        while not second.reconciler.leading:
            await asyncio.sleep(0.001)
            looked_at.append(nodes.changes)
        assert not any(looked_at)
        assert all(second.view.ledger.entries[uid] is entry for uid, entry in known.items())


async def test_who_takes_over_decides_before_it_looks_again_at_what_runs_and_needs_nothing() -> None:
    """Twenty thousand that run took two seconds, in which nobody started."""
    async with a_standby(gangs=5) as (cluster, leads, second):
        ran = set(second.view.ledger.entries)
        leads.cancel()
        await asyncio.gather(leads, return_exceptions=True)
        ended = next(entry for entry in second.view.ledger.entries.values() if entry.name == "train-0")
        path, body = "/apis/batch/v1/namespaces/team-a/jobs/train-0", b'{"propagationPolicy": "Background"}'
        await cluster.api().request("DELETE", path, body=body)
        unseen: list[set[str]] = []
        second.reconciler.after_cycle = lambda: unseen.append(set(second.reconciler.dirty.quiet))
        await asyncio.sleep(30)
        assert second.view.ledger.entries.keys() - ran
        assert unseen[0] == ran - {ended.uid}, "what ended makes room before anybody is decided about"
        assert not second.reconciler.dirty.quiet, "then all that run are looked at"


async def test_who_takes_over_decides_before_it_looks_again_at_what_has_ended() -> None:
    """Of jobs that nobody deletes when they end there may be as many as run."""
    async with a_standby(gangs=4, runtime="3s") as (cluster, leads, second):
        ended = {job.uid for job in second.view.jobs.values() if job.finished is not None}
        assert len(ended) == 4
        leads.cancel()
        await asyncio.gather(leads, return_exceptions=True)
        await cluster.create(waiting_job("train-new", pods=1))
        unseen: list[set[str]] = []
        second.reconciler.after_cycle = lambda: unseen.append(set(second.reconciler.dirty.ended))
        await asyncio.sleep(30)
        assert [entry.name for entry in second.view.ledger.entries.values()] == ["train-new"]
        assert unseen[0] == ended
        assert not second.reconciler.dirty.ended, "then all that have ended are looked at"


async def test_a_new_process_settles_places_a_few_gangs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_feed, "SETTLED_MAX", 2)
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        for obj in (*POLICY, *(waiting_job(f"train-{number}", pods=1) for number in range(9))):
            await cluster.create(obj)
        for name in ("first", "second"):
            parts = reconciler(cluster.api(), Config(), identity=name, clock=LoopClock(), rng=Random(1))
            running = asyncio.create_task(parts.run())
            await asyncio.sleep(10)
            nodes = parts.view.nodes
            assert nodes is not None
            assert not nodes.changes
            assert len(parts.view.ledger.entries) == 4
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_crowd_that_changes_all_the_time_keeps_nobody_from_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may have thousands of jobs of one PodGroup, and change that again and again."""
    monkeypatch.setattr(dirty_set, "TAKEN_MAX", 2)
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        for obj in (*POLICY, *(waiting_job(f"crowd-{number}", pods=9) for number in range(9))):
            await cluster.create(obj)
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)
        crowd, marks = sorted(parts.view.jobs), parts.reconciler.dirty

        async def change() -> None:
            for _ in range(20_000):
                marks.add(*crowd)
                await asyncio.sleep(0 if marks.more else 0.05)
            raise AssertionError("one cycle had no end")

        changing = asyncio.create_task(change())
        await cluster.create(waiting_job("honest", pods=1))
        await asyncio.sleep(20)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["honest"]
        for task in (changing, running):
            task.cancel()
        await asyncio.gather(changing, running, return_exceptions=True)


def test_who_waits_for_a_look_gets_it_within_a_round_whoever_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirty_set, "TAKEN_MAX", 2)
    view = View()
    marks = dirty_set.DirtySet(view, EnsembleEngine(), lambda changes: None)
    marks.add("z")
    for _ in range(4):
        marks.add("a", "b", "c", "d")
        if "z" in marks.take():
            return
    raise AssertionError("it was never looked at")


def test_of_gangs_with_hundreds_of_pod_sets_fewer_are_looked_at_in_a_row() -> None:
    view = View()
    sets = tuple(PodSet(f"set-{number}", 1, PodPrice()) for number in range(400))
    for number in range(9):
        view.put_job(waiting(Gang(f"uid-{number}", "JobSet.jobset.x-k8s.io", "ns", f"wide-{number}", "q", sets)))
    marks = dirty_set.DirtySet(view, EnsembleEngine(), lambda changes: None)
    marks.add(*view.jobs, "narrow", "small")
    rounds, looked_at = marks.rounds, list[str]()
    for _ in range(rounds):
        taken = marks.take()
        looked_at += taken
        assert sum(uid in view.jobs for uid in taken) <= 2
        if not marks.more:
            break
    assert sorted(looked_at) == sorted([*view.jobs, "narrow", "small"]), f"all of them in {rounds} rounds"


def test_a_job_without_a_label_on_its_pods_is_looked_at_when_it_is_read_late_that_the_last_of_them_is_gone() -> None:
    """Its reservation may be released by then, as when an adopted job was stopped under another leader."""
    view = View()
    stopped = waiting(Gang("old", "Job.batch", "ns", "old", "q", (PodSet("main", 1, PodPrice()),)), marked=False)
    view.put_job(stopped)
    marks = dirty_set.DirtySet(view, EnsembleEngine(), lambda changes: None)
    marks.pod_changed(PodRecord("pod", "ns", "old-1", 1, PodPrice(), owner_uid="old"), None)
    assert marks.take() == ["old"]


def test_a_follower_forgets_pages_that_went_and_are_not_listed_and_keeps_those_that_are_for_a_term_to_come() -> None:
    view = View()
    marks = dirty_set.DirtySet(view, EnsembleEngine(), lambda changes: None)
    view.set_ledger(Ledger(7, 1, pages={"page-1": "uid-1"}))
    for name in ("page-0", "page-1"):
        marks.page_deleted(name)
    marks.ledger_changed()
    assert marks.pages_gone == {"page-1"}, "a take-over may have read it just before it went"
    view.set_ledger(Ledger(7, 2))
    marks.ledger_changed()
    assert marks.pages_gone == set()
    view.leads = True
    marks.page_deleted("page-2")
    marks.ledger_changed()
    assert marks.take_doubts() == (False, {"page-2"}, {}), "a leader asks of all that went since it asked last"
