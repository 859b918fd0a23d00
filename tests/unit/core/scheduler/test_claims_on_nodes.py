"""Who has others stopped has their nodes kept for it, and stopping comes to an end."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scheduler.test_nodes import admitted, engine
from tests.unit.core.worlds import gang, queue, run_to_rest
from webhook.core.ledger import text
from webhook.core.ledger.record import Ledger, with_places
from webhook.core.model.policy import Preemption, PreemptionPolicy
from webhook.core.nodes import capacity, turns
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine

PREEMPTS = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
LOW, WIDE = gang("x", "q", cpu=4), gang("wide", "q", cpu=4, pods=2, priority=5, created=2.0)


def two_are_stopped() -> tuple[Engine, Capacity]:
    """Two gangs of one node each are being stopped for one of two nodes, and the quota has room for one besides."""
    made, there = engine(queue("q", 12, preemption=PREEMPTS), nodes={"a": 4, "b": 4})
    for name in "xy":
        made.submit(gang(name, "q", cpu=4), 0.0)
    assert admitted(made) == ["x", "y"]
    made.submit(WIDE, 2.0)
    assert [each.uid for each in made.cycle(3.0, Fences(), epoch=1).preempted] == ["x", "y"]
    return made, there


def test_who_was_stopped_does_not_start_again_on_the_nodes_that_it_left_for_another() -> None:
    made, _ = two_are_stopped()
    made.release("x")
    made.submit(LOW, 4.0)
    assert admitted(made, 4.0) == []
    made.release("y")
    assert admitted(made, 5.0) == ["wide"]


def test_a_new_leader_keeps_the_nodes_that_the_claim_names() -> None:
    made, before = two_are_stopped()
    ledger = text.decode(text.encode(Ledger(1, 1, claims=made.claims())))
    (claim,) = ledger.claims.values()
    assert [dict(each.places) for each in claim.planned.pod_sets] == [{"a": 1, "b": 1}]
    after, there = engine(queue("q", 12, preemption=PREEMPTS), nodes={"a": 4, "b": 4})
    stopping = made.state.allocations.by_uid["y"].reservation
    there.allot("y", before.allotments["y"])
    after.restore(stopping)
    after.state.allocations.stop("y")
    after.restore_claims(ledger.claims)
    # The gang that claims is not read yet.
    after.submit(LOW, 4.0)
    assert admitted(after, 4.0) == []
    after.submit(WIDE, 5.0)
    assert admitted(after, 5.0) == []
    after.release("y")
    assert admitted(after, 6.0) == ["wide"]


def test_what_a_claim_names_is_kept_on_nodes_that_are_read_before_the_job_that_claims() -> None:
    made, before = two_are_stopped()
    made.release("x")
    after, _ = engine(queue("q", 12, preemption=PREEMPTS), nodes={})
    after.know_nodes(None)
    after.restore(made.state.allocations.by_uid["y"].reservation)
    after.state.allocations.stop("y")
    after.restore_claims(made.claims())
    assert admitted(after, 4.0) == []
    there = before.copy()
    there.unclaim("wide")
    after.know_nodes(there)
    after.submit(LOW, 5.0)
    assert admitted(after, 5.0) == []
    after.submit(WIDE, 6.0)
    after.release("y")
    assert admitted(after, 6.0) == ["wide"]


def test_what_is_kept_on_nodes_is_free_when_they_are_not_asked_any_more() -> None:
    made, there = two_are_stopped()
    made.know_nodes(None)
    assert there.claimants() == []
    made.withdraw("wide")
    made.know_nodes(there)
    made.release("x")
    made.submit(LOW, 4.0)
    assert admitted(made, 4.0) == ["x"]


def test_a_claim_of_an_earlier_release_that_names_no_nodes_is_given_some() -> None:
    made, before = two_are_stopped()
    (claim,) = made.claims().values()
    after, there = engine(queue("q", 12, preemption=PREEMPTS), nodes={"a": 4, "b": 4})
    for name in "xy":
        there.allot(name, before.allotments[name])
        after.restore(made.state.allocations.by_uid[name].reservation)
        after.state.allocations.stop(name)
    plain = type(claim)(with_places(claim.planned, {}), claim.awaits)
    after.restore_claims({"wide": plain})
    after.submit(WIDE, 2.0)
    assert admitted(after, 4.0) == []
    after.release("x")
    after.submit(LOW, 4.0)
    assert admitted(after, 5.0) == []
    assert [dict(each.places) for each in after.claims()["wide"].planned.pod_sets] == [{"a": 1, "b": 1}]


def test_a_claim_whose_node_goes_away_is_kept_on_another() -> None:
    made, there = two_are_stopped()
    there.drop_node("a")
    there.put_node(NodeRecord("c", {"cpu": 4000}, {}))
    made.wake_nodes()
    assert admitted(made, 4.0) == []
    made.submit(gang("z", "q", cpu=4), 4.0)
    assert admitted(made, 4.0) == [], "c is kept now"
    for name in "xy":
        made.release(name)
    assert admitted(made, 5.0) == ["wide"]
    assert made.state.allocations.by_uid["wide"].reservation.pod_sets[0].places == {"b": 1, "c": 1}


def test_a_claim_lapses_when_somebody_elses_pods_took_its_node_and_what_it_kept_is_free() -> None:
    made, there = two_are_stopped()
    made.release("x")
    there.bind("foreign", Bound("a", {"cpu": 4000}))
    made.wake_nodes()
    made.submit(LOW, 4.0)
    assert admitted(made, 4.0) == []
    assert made.claims() == {}
    made.release("y")
    assert admitted(made, 5.0) == ["x"]
    assert there.free["b"]["cpu"] == 0


def test_a_claim_stands_while_its_nodes_are_only_not_looked_at_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a take-over, or where somebody makes jobs that all ask something else."""
    made, _ = two_are_stopped()
    monkeypatch.setattr(turns, "ROUND_VISITS", 4)
    monkeypatch.setattr(capacity, "SHAPES_MAX", 2)
    for number in range(6):
        made.submit(gang(f"s{number}", "q", placement={"node_selector": {"number": str(number)}}), 4.0)
    assert admitted(made, 4.0) == []
    for name in "xy":
        made.release(name)
    started: list[str] = []
    for turn in range(6):
        plan = made.cycle(5.0 + turn, Fences(), epoch=1)
        started += [each.name for each in plan.admitted]
        assert started or made.claims()
    assert started == ["wide"]


@given(
    st.lists(st.sampled_from([2, 4]), min_size=1, max_size=4),
    st.integers(0, 6),
    st.lists(st.tuples(st.sampled_from([2, 4]), st.integers(1, 3), st.integers(0, 2)), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_stopping_comes_to_an_end_and_nobody_is_stopped_for_a_gang_that_does_not_start(
    nodes: list[int], beyond: int, gangs: list[tuple[int, int, int]], chance: Random
) -> None:
    """Whoever is stopped waits again, and nobody else comes or ends."""
    made, there = engine(
        queue("q", sum(nodes) + beyond, preemption=PREEMPTS),
        nodes={f"node-{number}": cpu for number, cpu in enumerate(nodes)},
    )
    waiting = {
        f"g{number}": gang(f"g{number}", "q", cpu=cpu, pods=pods, priority=priority, created=float(number))
        for number, (cpu, pods, priority) in enumerate(gangs)
    }
    run_to_rest(made, list(waiting.values()), chance)
    for node in there.nodes:
        held = sum(
            waiting[uid].pod_sets[0].price.requests["cpu"] * each.places["main"].get(node, 0)
            for uid, each in there.allotments.items()
        )
        assert there.spare(node)["cpu"] == there.nodes[node].capacity["cpu"] - held >= 0
