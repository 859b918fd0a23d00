"""Values that the type checker alone keeps from being changed are else what frozen dataclasses are."""

from dataclasses import field, replace

from webhook.core.model.frozen import frozen


@frozen
class _Pair:
    first: int
    second: tuple[str, ...] = ()
    seen: int = field(default=0, compare=False)


def test_frozen_values_are_equal_by_their_fields_and_can_be_keys() -> None:
    pair = _Pair(1, ("a",), seen=1)

    assert pair == _Pair(1, ("a",), seen=2)
    assert {pair: "found"}[_Pair(1, ("a",))] == "found"
    assert replace(pair, first=2) == _Pair(2, ("a",))
    assert replace(pair, first=2) != pair


def test_frozen_values_have_no_other_fields() -> None:
    assert not hasattr(_Pair(1), "__dict__")
