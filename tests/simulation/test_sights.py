"""Each weather that is named for one thing shows it: so often at least, in the first stories."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.simulation.sights import SEEDS, SHOWN, Sights
from tests.simulation.weathers import WEATHERS
from tests.simulation.world import World


@pytest.mark.virtual_time
@pytest.mark.parametrize("weather", SHOWN)
async def test_a_weather_shows_what_it_is_named_for(
    weather: str, record_property: Callable[[str, object], None]
) -> None:
    """All that every story is looked at for holds in these, too."""
    seen = Counter[str]()
    for seed in SEEDS:
        world = World(seed, WEATHERS[weather][0])
        sights = Sights(world)
        await world.run(jobs=12, busy_seconds=60)
        record_property("steps", world.invariants.steps)
        seen += sights.counted()
    print(weather, {what: seen[what] for what in SHOWN[weather]})
    assert {what: seen[what] for what in SHOWN[weather] if seen[what] < SHOWN[weather][what]} == {}, seen
