"""The keyed heap: whatever is pushed, moved and taken out, the first item is the one with the smallest place."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.pending.keyed_heap import KeyedHeap

STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 3)), max_size=30)


@given(STEPS)
def test_the_first_is_the_one_with_the_smallest_place_and_of_equals_the_one_pushed_first(
    steps: list[tuple[str, int | None]],
) -> None:
    heap: KeyedHeap[str] = KeyedHeap()
    model: dict[str, tuple[int, int]] = {}
    for number, (item, place) in enumerate(steps):
        if place is None:
            heap.discard(item)
            model.pop(item, None)
        else:
            heap.push(place, item)
            model[item] = (place, number)
        expected = min(model, key=lambda each: model[each], default=None)
        twin = heap.copy(lambda each: each.upper())
        assert heap.first() == expected
        assert twin.first() == (None if expected is None else expected.upper())
        assert set(heap) == set(model)
    popped = []
    while (first := heap.pop()) is not None:
        popped.append(first)
    assert popped == [(model[item][0], item) for item in sorted(model, key=lambda each: model[each])]
    assert heap.first() is None
    assert list(heap) == []
