"""Room that is being made for jobs that share a PodGroup, as another leader finds it in the ledger."""

from dataclasses import replace

import pytest

from tests.unit.core.pod_group.test_ensemble_engine import LOWER, Shared, job
from tests.unit.core.worlds import gang, queue
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Ledger
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import NodeRecord
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.core.reasons.reasons import Code


def test_what_others_were_stopped_for_is_kept_for_an_ensemble_when_another_leads() -> None:
    world = Shared(queue("q", 4, preemption=LOWER))
    world.submit(gang("low", "q", pods=4))
    world.start()
    world.submit(job("a", created=1.0, priority=5), job("b", created=2.0, priority=5))
    assert [p.uid for p in world.plan().preempted] == ["low"]
    written = Ledger(1, 1, {"low": replace(world.ledger["low"], stopping="Preempted")}, world.engine.claims())
    ledger = ledger_text.decode(ledger_text.encode(written))
    world.engine = EnsembleEngine()
    world.set_policy(queue("q", 4, preemption=LOWER))
    world.engine.restore(ledger.entries["low"])
    world.engine.restore_claims(ledger.claims)
    world.submit(gang("later", "q", pods=3, priority=9), job("a", created=1.0, priority=5))
    assert world.start() == []
    world.submit(job("b", created=2.0, priority=5))
    assert world.gone("low").start() == ["a", "b"]


def test_the_room_is_kept_too_for_a_job_that_is_enough_by_itself_and_whose_job_is_read_last() -> None:
    world = Shared(queue("q", 4, preemption=LOWER))
    world.submit(gang("low", "q", pods=4))
    world.start()
    world.submit(job("a", 4, priority=5))
    assert [p.uid for p in world.plan().preempted] == ["low"]
    claims = world.engine.claims()
    world.engine = EnsembleEngine()
    world.set_policy(queue("q", 4, preemption=LOWER))
    world.engine.restore(replace(world.ledger["low"], stopping="Preempted"))
    world.engine.restore_claims(claims)
    world.submit(gang("later", "q", pods=3, priority=9), job("a", 4, priority=5))
    assert world.start() == []
    assert world.gone("low").start() == ["a"]


@pytest.mark.parametrize("first", ["jobs", "claims"])
def test_what_a_job_claims_by_itself_lapses_where_it_waits_with_others_when_another_leads(first: str) -> None:
    """Such as one that came while its group ran, which has ended since."""
    queues = (queue("q", 4, preemption=LOWER), queue("r", 2))
    world = Shared(*queues)
    world.submit(gang("low", "q", pods=4))
    world.start()
    world.submit(job("b", quorum=2, priority=5))
    assert [p.uid for p in world.plan().preempted] == ["low"]
    claims = world.engine.claims()
    assert [*claims] == ["b"]
    world.engine = EnsembleEngine()
    world.set_policy(*queues)
    world.engine.restore(replace(world.ledger["low"], stopping="Preempted"))
    together = [replace(job(name, 1, quorum=2), queue="r") for name in "ab"]
    if first == "claims":
        world.engine.restore_claims(claims)
    world.submit(*together)
    if first == "jobs":
        assert world.code("b") is Code.PENDING_EVALUATION
        world.engine.restore_claims(claims)
    assert world.start() == ["a", "b"]
    assert world.engine.claims() == {}


@pytest.mark.parametrize("first", ["jobs", "claims"])
def test_what_an_ensemble_claims_lapses_where_its_jobs_wait_by_themselves_when_another_leads(first: str) -> None:
    """Such as when its PodGroup needs fewer pods by then. Its room was kept twice, and others were stopped for that."""
    world = Shared(queue("q", 4, preemption=LOWER))
    world.submit(gang("low", "q", pods=2), gang("higher", "q", pods=2, priority=1))
    assert world.start() == ["higher", "low"]
    world.submit(*(job(name, 1, quorum=2, priority=5) for name in "ab"))
    assert [p.uid for p in world.plan().preempted] == ["low"]
    claims = world.engine.claims()
    world.engine = EnsembleEngine()
    world.set_policy(queue("q", 4, preemption=LOWER))
    world.engine.restore(replace(world.ledger["low"], stopping="Preempted"))
    world.engine.restore(world.ledger["higher"])
    if first == "claims":
        world.engine.restore_claims(claims)
    world.submit(*(job(name, 1, quorum=1, priority=5) for name in "ab"))
    if first == "jobs":
        assert world.code("a") is Code.WAITING_FOR_PREEMPTED
        world.engine.restore_claims(claims)
    assert world.plan().preempted == ()
    assert world.gone("low").start() + world.start() == ["a", "b"]


def test_a_job_that_has_left_its_ensemble_is_awaited_on_no_node_any_more() -> None:
    """It was until the last had left: if it started again, what it held then was taken for about to leave."""
    world, nodes = Shared(queue("q", 20, preemption=LOWER)), Capacity()
    for name, cpu in (("n1", 5), ("n2", 5), ("n3", 5), ("n4", 3)):
        nodes.put_node(NodeRecord(name, {"cpu": cpu * 1000}))
    world.engine.know_nodes(nodes)
    ring = (job("b", 1, quorum=2, cpu=3, created=1.0), job("a", 1, quorum=2, created=2.0))
    for each in ((gang("first", "q", cpu=3),), ring, (gang("x", "q", cpu=4, created=3.0),)):
        world.submit(*each)
        assert world.start()
    world.submit(gang("high", "q", cpu=4, pods=3, priority=10, created=5.0))
    assert {each.uid for each in world.plan().preempted} == {"a", "b", "x"}
    world.stop("a", "b", "x").gone("a").start()
    world.gone("b").start()
    world.gone("first").start()
    world.submit(*ring)
    assert set(world.start()) == {"a", "b"}
    world.submit(*(gang(f"small{number}", "q", created=9.0 + number) for number in range(4)))
    world.start()
    world.gone("x")
    assert world.start() == ["high"], "nobody else has come to where it is to go"
