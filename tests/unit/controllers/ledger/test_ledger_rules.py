"""Ledger rules that only the whole reconciler can break: 2, 3, 5 and 8, whatever clocks say.

It runs in a simulated cluster over a connection that loses, delays or withholds what a test says. The test plays the
successor of a leader that does not notice: it takes the ledger over, writes the job so that late starts conflict, and
frees the entry.
"""

import asyncio

import pytest

from tests.unit.controllers.stage import JOB, PODS, Line, pod_group, stage, waiting_job, waiting_pod
from webhook.core.ledger.record import Ledger
from webhook.jobs.plain_pods.groups import gang_uid

pytestmark = pytest.mark.virtual_time


async def test_rule_2_nothing_starts_before_its_reservation_is_known_to_be_stored() -> None:
    async with stage() as play:
        play.line.ledger_writes_lost = True
        await play.take_over()
        await play.cluster.create(waiting_job())
        await play.leader_steps_down()
        assert await play.suspended()


async def test_rule_3_a_start_rests_on_what_was_read_before_its_reservation_was_written() -> None:
    async with stage() as play:
        play.line.after_reservation = play.depose
        await play.take_over()
        await play.cluster.create(waiting_job())
        await play.leader_steps_down()
        assert not (await play.ledger()).entries
        assert await play.suspended()


async def test_rule_3_a_gate_is_lifted_on_what_was_read_before_its_reservation_was_written() -> None:
    async with stage() as play:
        play.line.after_reservation = lambda: play.depose(f"{PODS}/train-0")
        await play.take_over()
        await play.cluster.create(pod_group())
        await play.cluster.create(waiting_pod())
        await play.leader_steps_down()
        assert not (await play.ledger()).entries
        assert await play.gated()


async def test_plain_pods_that_are_reserved_run_and_return_their_entry_when_they_are_gone() -> None:
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(waiting_pod())
        await asyncio.sleep(3)
        assert await play.gated(), "their PodGroup is waited for"
        await play.cluster.create(pod_group())
        await asyncio.sleep(5)
        assert await play.running_pods() == 1
        assert list((await play.ledger()).entries) == [gang_uid("team-a", "train")]
        await play.admin.request("DELETE", f"{PODS}/train-0")
        await asyncio.sleep(60)
        assert not (await play.ledger()).entries


async def test_rule_5_a_start_is_repeated_only_on_a_ledger_that_still_stands() -> None:
    async with stage() as play:
        play.line.instead_of_start = play.depose
        await play.take_over()
        play.line.withheld = "/configmaps"
        await play.cluster.create(waiting_job())
        await play.leader_steps_down()
        assert not (await play.ledger()).entries
        assert await play.suspended()


async def test_rule_5_nobody_leads_before_the_objects_were_read() -> None:
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(waiting_job())
        await asyncio.sleep(3)
        before = await play.ledger()
        assert len(before.entries) == 1
        assert play.leader is not None
        play.leader.cancel()
        play.line = Line(play.cluster.api())
        play.line.unanswered = ("/pods", "/jobs")
        play.lead()
        await asyncio.sleep(20)
        now = await play.ledger()
        assert (now.epoch, now.entries) == (before.epoch, before.entries)


async def test_rule_8_a_gang_is_not_free_because_no_pod_of_it_was_heard_of() -> None:
    async with stage() as play:
        await play.take_over()
        play.line.withheld = "/pods"
        await play.cluster.create(waiting_job())
        await asyncio.sleep(5)
        await play.admin.request("DELETE", JOB, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(10)
        assert await play.running_pods() == 2
        assert len((await play.ledger()).entries) == 1
        play.line.withheld = ""
        await play.admin.request("DELETE", PODS)
        await asyncio.sleep(60)
        assert not (await play.ledger()).entries


async def test_rule_2_what_one_plan_admits_and_stops_is_reserved_as_stopping_and_never_started() -> None:
    """It borrows what the owner of the quota, behind a larger gang of its queue, takes back at once."""
    async with stage() as play:
        await play.share("owners", "borrowers")
        for name, queue, pods in (("train", "borrowers", 3), ("large", "owners", 4), ("owner", "owners", 2)):
            await play.cluster.create(waiting_job(name, queue, pods))
            await asyncio.sleep(1)
        written: list[Ledger] = []

        async def read() -> None:
            written.append(await play.ledger())

        play.line.after_reservation = read
        play.lead()
        await asyncio.sleep(20)
        ((entry,),) = (ledger.entries.values() for ledger in written)
        assert (entry.name, entry.stopping) == ("train", "Preempted")
        assert play.line.started == [JOB.replace("train", "owner")]
        assert await play.suspended()
        assert [entry.name for entry in (await play.ledger()).entries.values()] == ["owner"]


async def test_what_a_gang_was_stopped_for_is_kept_for_that_when_another_leads() -> None:
    """One of higher priority comes meanwhile: a leader that knew of no claim would let it have the room."""
    async with stage() as play:
        await play.share("owners", "borrowers")
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        await play.cluster.create({**high, "value": 1000})
        await play.take_over()
        await play.cluster.create(waiting_job("stays", "borrowers"))
        await asyncio.sleep(5)
        await play.cluster.create(waiting_job("train", "borrowers"))
        await asyncio.sleep(5)
        play.line.withheld = "/pods"
        await play.cluster.create(waiting_job("owner", "owners"))
        await asyncio.sleep(5)
        later = waiting_job("later", "owners")
        later["spec"]["template"]["spec"]["priorityClassName"] = "high"
        await play.cluster.create(later)
        await asyncio.sleep(5)
        ledger = await play.ledger()
        assert [claim.planned.name for claim in ledger.claims.values()] == ["owner"]
        held = {entry.name: entry.stopping for entry in ledger.entries.values()}
        assert held == {"stays": None, "train": "Preempted"}
        await play.hand_over()
        await asyncio.sleep(20)
        ledger = await play.ledger()
        assert {entry.name for entry in ledger.entries.values()} == {"stays", "owner"}
        assert not ledger.claims


async def test_a_leader_that_nobody_deposes_starts_the_job() -> None:
    """The stage itself is in order."""
    async with stage() as play:
        await play.take_over()
        await play.cluster.create(waiting_job())
        await asyncio.sleep(3)
        assert not await play.suspended()
