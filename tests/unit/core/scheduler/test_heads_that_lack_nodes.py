"""What a head of a Backfill queue lacks, quota or nodes, is known of it, at little cost for those behind it."""

from collections import Counter
from typing import Any

import pytest

from tests.fuzz import costs
from tests.unit.core.scheduler.test_nodes import admitted, engine
from tests.unit.core.worlds import cohort, gang, queue
from webhook.core.backfill.timetable import Timetable
from webhook.core.model.policy import Strategy
from webhook.core.nodes.node import NodeRecord
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.state import State


def test_a_head_that_finds_nodes_has_room_booked_though_it_waits_for_another_head() -> None:
    queues = (queue(name, own, cohort="c", strategy=Strategy.BACKFILL) for name, own in (("q", 4), ("r", 0)))
    made, _ = engine(cohort("c", None, 8), *queues, queue("o", 2), nodes={"a": 4, "b": 4})
    made.submit(gang("runs", "q", cpu=4, max_run_seconds=1000), 0.0)
    made.submit(gang("last", "o", cpu=2), 0.0)
    assert set(admitted(made)) == {"runs", "last"}
    made.submit(gang("first", "q", pods=12, created=1.0, max_run_seconds=1000), 1.0)
    assert admitted(made, 2.0) == []
    made.submit(gang("second", "r", cpu=4, created=2.0, max_run_seconds=5000), 2.0)
    assert admitted(made, 3.0) == []
    assert made.bookings()["first"].at_seconds == 1001.0
    assert "second" not in made.bookings(), "it lacks nodes"
    made.release("last")
    assert admitted(made, 4.0) == []
    assert made.bookings()["second"].at_seconds == 2001.0


def passed(passers: int, of: int, **head: int) -> Engine:
    """A head waits for a gang without a limit, and others of its queue would pass it."""
    queues = (queue("q", 16, strategy=Strategy.BACKFILL), queue("o", 8))
    made, _ = engine(*queues, nodes={"a": 4, "b": 4, "c": 4, "small": 2})
    made.submit(gang("endless", "q", cpu=4), 0.0)
    made.submit(gang("last", "o", cpu=4, pods=2), 0.0)
    assert admitted(made) == ["endless", "last"]
    made.submit(gang("head", "q", created=1.0, max_run_seconds=1000, **head), 1.0)
    for number in range(passers):
        made.submit(gang(f"passer{number}", "q", of, created=2.0 + number, max_run_seconds=1000 + number), 1.0)
    return made


def counted(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> Counter[str]:
    calls, call = Counter[str](), getattr(of, name)

    def counts(*args: Any, **named: Any) -> Any:
        calls[name] += 1
        return call(*args, **named)

    monkeypatch.setattr(of, name, counts)
    return calls


def test_of_those_behind_a_head_each_is_decided_about_for_itself_when_nodes_become_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for passers in (10, 40):
        made = passed(passers, 4, pods=16)
        assert admitted(made, 2.0) == []
        made.release("last")
        calls = counted(monkeypatch, State, "decide")
        assert admitted(made, 3.0) == []
        found.append(calls["decide"])
    assert found[1] < 5 * found[0]


@pytest.mark.parametrize("name", ["__init__", "earliest"])
@pytest.mark.parametrize("head", [{"pods": 16}, {"cpu": 4, "pods": 3}])
def test_when_a_head_could_start_is_looked_for_once_for_all_that_would_pass_it(
    name: str, head: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of one which lacks nodes."""
    found = []
    for passers in (1, 20):
        made = passed(passers, 2, **head)
        calls = counted(monkeypatch, Timetable, name)
        assert admitted(made, 2.0) == []
        found.append(calls[name])
    assert found[0] == found[1]


def test_nothing_is_laid_out_anew_for_what_is_booked_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = (queue("q", 4, cohort="c", strategy=Strategy.BACKFILL), queue("r", 4, cohort="c"), queue("o", 8))
    made, _ = engine(*queues, nodes={"a": 4, "b": 4})
    made.submit(gang("runs", "q", cpu=4, max_run_seconds=1000), 0.0)
    made.submit(gang("last", "o", cpu=2), 0.0)
    assert set(admitted(made)) == {"runs", "last"}
    made.submit(gang("head", "q", cpu=4, created=1.0, pods=2, max_run_seconds=1000), 1.0)
    made.submit(gang("waits", "r", cpu=4, created=2.0, max_run_seconds=100), 1.0)
    assert admitted(made, 2.0) == []
    assert (list(made.state.booked), list(made.state.backfill.booked)) == (["waits"], ["head"])
    calls = counted(monkeypatch, Timetable, "__init__")
    for now in range(3, 10):
        assert admitted(made, float(now)) == []
    assert not calls
    made.release("last")
    assert admitted(made, 10.0) == ["waits"]


@pytest.mark.parametrize("strategy", [Strategy.STRICT_FIFO, Strategy.BACKFILL])
def test_an_elastic_head_whose_smallest_start_lacks_nodes_alone_starts_when_one_comes(strategy: Strategy) -> None:
    """What its queue keeps for it was taken for quota that it lacks: nobody woke it, and all stood behind it."""
    made, there = engine(queue("q", 4, strategy=strategy), nodes={"a": 2, "b": 1})
    made.submit(gang("runs", "q", cpu=2), 0.0)
    assert admitted(made) == ["runs"]
    made.submit(gang("wide", "q", cpu=2, pods=2, quorum=1, created=1.0), 0.0)
    made.submit(gang("later", "q", cpu=1, created=2.0), 0.0)
    assert admitted(made, 2.0) == []
    there.put_node(NodeRecord("c", {"cpu": 4000}))
    made.wake_nodes()
    assert admitted(made, 3.0) == ["wide"]


def test_hundreds_of_jobs_that_no_node_is_large_enough_for_cost_a_cycle_little() -> None:
    """All nodes were gone through for each, to find the one that comes nearest."""
    made, there = engine(queue("q", 10_000, strategy=Strategy.BACKFILL), nodes={f"n-{i}": 8 for i in range(1_000)})
    for number in range(60):
        made.submit(gang(f"huge{number}", "q", cpu=9, created=float(number), max_run_seconds=60 + number), 0.0)
    assert costs.counted(lambda: admitted(made)) == []
    there.put_node(NodeRecord("n-1", {"cpu": 8000}, {"kind": "n", "changed": "again"}))
    made.wake_nodes()
    assert costs.counted(lambda: admitted(made, 2.0)) == []
    there.put_node(NodeRecord("large", {"cpu": 9000}, {"kind": "n"}))
    made.wake_nodes()
    assert admitted(made, 3.0) == ["huge0"]
