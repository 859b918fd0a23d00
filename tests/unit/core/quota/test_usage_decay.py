"""Usage-decay ordering: the local queue that used less lately goes first."""

import pytest

from tests.unit.core.worlds import World, gang, queue
from webhook.core.model.gang import Gang
from webhook.core.model.policy import LocalQueue, Strategy
from webhook.core.model.settings import EngineSettings, UsageDecay

RULE = UsageDecay(half_life_seconds=100, sampling_interval_seconds=10)


def shared(cpu: int, weight_millis: int = 1000, rule: UsageDecay = RULE, **settings: object) -> World:
    locals_ = {
        ("team", name): LocalQueue("team", name, "a", weight_millis=weight_millis if name == "red" else 1000)
        for name in ("red", "blue")
    }
    return World(
        queue("a", cpu, usage_based_ordering=True, **settings),
        settings=EngineSettings(usage_decay=rule),
        local_queues=locals_,
    )


def reds_and_blues(number: int = 3) -> list[Gang]:
    reds = [gang(f"red{i}", "red", priority=9, created=i) for i in range(number)]
    return [*reds, *(gang(f"blue{i}", "blue", created=10 + i) for i in range(number))]


def test_local_queues_take_turns_whatever_their_priorities() -> None:
    world = shared(4).submit(*reds_and_blues())
    assert world.cycle() == ["red0", "blue0", "red1", "blue1"]
    assert [g.name for g in world.engine.waiting("a")] == ["red2", "blue2"]


def test_a_weight_gives_more_turns() -> None:
    world = shared(4, weight_millis=3000).submit(*reds_and_blues())
    assert world.cycle() == ["red0", "blue0", "red1", "red2"]


def test_a_weightless_local_queue_goes_last() -> None:
    world = shared(4, weight_millis=0)
    world.now = 10
    world.submit(*reds_and_blues())
    assert world.cycle() == ["blue0", "blue1", "blue2", "red0"]


def test_what_ran_long_counts_until_it_is_forgotten() -> None:
    world = shared(2).submit(gang("red", "red", 2))
    world.cycle()
    world.now = 100
    world.cycle()
    world.end("red").submit(gang("r", "red", created=1), gang("b", "blue", created=2))
    assert world.engine.next_wake(100) == 110
    assert world.cycle() == ["b", "r"]
    consumed = world.engine.state.usage.decayed
    assert consumed is not None
    assert consumed.consumed["team", "red"]["cpu"] > consumed.consumed["team", "blue"]["cpu"]
    world.end("b", "r").now = 100_000
    world.cycle()
    assert consumed.consumed["team", "red"]["cpu"] == pytest.approx(0, abs=1e-9)


def test_a_strict_queue_gets_another_head_when_usage_changes() -> None:
    world = shared(2, strategy=Strategy.STRICT_FIFO).submit(gang("red0", "red", 2))
    world.cycle()
    world.submit(gang("red1", "red", 2, priority=9), gang("blue", "blue", 1))
    world.cycle()
    assert [g.name for g in world.engine.waiting("a")] == ["blue", "red1"]
    assert world.end("red0").cycle() == ["blue"]


def test_other_queues_keep_their_order() -> None:
    world = World(queue("a", 4), settings=EngineSettings(usage_decay=RULE))
    world.submit(gang("low", "a"), gang("high", "a", priority=1, created=1))
    assert world.cycle() == ["high", "low"]


def test_where_nothing_is_remembered_an_admission_costs_no_turn() -> None:
    world = shared(4, rule=UsageDecay(half_life_seconds=0, sampling_interval_seconds=10)).submit(*reds_and_blues())
    assert world.cycle() == ["red0", "red1", "red2", "blue0"]
