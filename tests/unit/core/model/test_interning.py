"""Maps that many gangs have alike are one object."""

from weakref import ref

from webhook.core.model.interning import shared


def test_equal_maps_are_one() -> None:
    """Maps of maps too; the order is part of what they say."""
    flavors = shared({"main": shared({"cpu": "spot"})})
    assert flavors == {"main": {"cpu": "spot"}}
    assert shared({"main": shared({"cpu": "spot"})}) is flavors
    assert shared({"main": shared({"cpu": "default"})}) != flavors
    assert list(shared({"b": 1, "a": 1})) == ["b", "a"]


def test_a_map_that_nobody_has_is_not_kept() -> None:
    """What a tenant thinks of goes with its jobs."""
    gone = ref(shared({"never-again": 1}))
    assert gone() is None
