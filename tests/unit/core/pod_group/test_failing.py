"""Where the engine fails on one gang, it says on which jobs."""

from typing import Any

import pytest

from tests.unit.core.pod_group.test_ensemble_engine import Shared, job
from tests.unit.core.worlds import gang, queue
from webhook.core.assignment.decision import Decision
from webhook.core.pending.pending_queue import EquivalenceClass
from webhook.core.scheduler.state import State


def test_a_failure_at_an_ensemble_is_one_at_each_of_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Shared(queue("q", 9))
    world.submit(gang("alone", "q"), job("a"), job("b"))
    assert world.engine.deciding() == ()
    genuine = State.decide

    def decide(state: State, eclass: EquivalenceClass, **more: Any) -> Decision:
        assert eclass.head.uid == "alone"
        return genuine(state, eclass, **more)

    with monkeypatch.context() as patched:
        patched.setattr(State, "decide", decide)
        with pytest.raises(AssertionError):
            world.plan()
    assert sorted(world.engine.deciding()) == ["a", "b"]
    world.engine.reset()
    assert world.engine.deciding() == ()


def test_what_fails_while_nothing_is_decided_about_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Shared(queue("q", 9))
    world.submit(gang("alone", "q"))
    assert world.start() == ["alone"]
    world.submit(gang("another", "q"))

    def settle(_: State, **__: Any) -> bool:
        raise AssertionError

    monkeypatch.setattr(State, "settle_bookings", settle)
    with pytest.raises(AssertionError):
        world.plan()
    assert world.engine.deciding() == ()
