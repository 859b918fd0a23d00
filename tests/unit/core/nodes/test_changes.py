"""Whoever looks at what changed time and again learns of each change, however many there are."""

from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.changes import Changes
from webhook.core.nodes.node import Bound, NodeRecord


def test_who_is_behind_by_few_changes_when_the_log_is_shortened_is_told_them() -> None:
    changes, seen, forgotten = Changes(), 0, list[int]()
    for step in range(100):
        told = changes.since(seen)
        if told is None:
            forgotten.append(step)
        else:
            assert list(told) == ([] if step == 0 else [f"n{number}" for number in range(1000)])
        seen = changes.count
        changes.note((f"n{number}" for number in range(1000)), 10)
    assert not forgotten
    assert changes.count == 100_000
    assert len(changes._log) <= 8 * 1024


def test_who_is_far_behind_is_told_to_look_at_all() -> None:
    changes = Changes()
    changes.note(["n"] * 10_000, 10)
    assert changes.since(0) is None
    assert list(changes.since(9_999) or ()) == ["n"]
    assert list(changes.since(10_000) or ()) == []


def test_changes_that_nobody_asks_for_take_no_memory_for_good() -> None:
    there = Capacity()
    for number in range(10):
        there.put_node(NodeRecord(f"n{number}", {"cpu": 4000}))
    for number in range(20_000):
        there.bind("pod", Bound(f"n{number % 10}", {"cpu": 1}))
    assert there.changes.count > 20_000
    assert len(there.changes._log) <= 8 * 1024
