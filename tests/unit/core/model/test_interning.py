"""Maps that many gangs have alike are one object."""

from weakref import ref

from webhook.core.model.interning import interned


def test_equal_maps_are_one() -> None:
    """Maps of maps too; the order is part of what they say."""
    flavors = interned({"main": interned({"cpu": "spot"})})
    assert flavors == {"main": {"cpu": "spot"}}
    assert interned({"main": interned({"cpu": "spot"})}) is flavors
    assert interned({"main": interned({"cpu": "default"})}) != flavors
    assert list(interned({"b": 1, "a": 1})) == ["b", "a"]


def test_a_map_that_nobody_has_is_not_kept() -> None:
    """What a tenant thinks of goes with its jobs."""
    gone = ref(interned({"never-again": 1}))
    assert gone() is None
