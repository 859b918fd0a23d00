"""Seeded runs of the whole system in virtual time: a failure names its seed, and the seed replays it."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count, islice
from random import Random

import pytest

from tests.simulation import world
from tests.simulation.mixtures import pairs, weather_of
from tests.simulation.shrink import Story, tell
from tests.simulation.sights import SEEDS, SHOWN
from tests.simulation.weather import Weather
from tests.simulation.weathers import PAST_FAILURES, WEATHERS
from tests.simulation.world import simulate

MIXTURES = 60
"""In so many stories there are two weathers at once."""
STEPS_PER_SEED = 200
"""A run that stores fewer writes than this simulated nothing."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a weather and seed."""
    if "seed" in metafunc.fixturenames:
        alone, number = metafunc.config.getoption("--seed"), metafunc.config.getoption("--seeds")
        cases = [
            pytest.param(weather, seed, id=f"{name} {seed}")
            for name, (weather, usual) in WEATHERS.items()
            for seed in ([alone] if alone is not None else range(1, (number or usual) + 1))
            if alone is not None or name not in SHOWN or seed not in SEEDS
        ]
        if alone is None:
            told = [*zip(islice(pairs(Random(1)), MIXTURES), count(1))]
            cases += [pytest.param(weather_of(name), seed, id=f"{name} {seed}") for name, seed in told]
            cases += [pytest.param(weather_of(name), seed, id=f"past {name} {seed}") for name, seed in PAST_FAILURES]
        metafunc.parametrize(("weather", "seed"), cases)


@pytest.mark.virtual_time
async def test_every_gang_starts_whole_and_nothing_is_oversubscribed_or_left_over(
    weather: Weather, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """Whatever is delayed, lost, repeated, killed or frozen."""
    steps = (await simulate(seed, weather)).invariants.steps
    record_property("steps", steps)
    assert steps > STEPS_PER_SEED


def test_the_same_seed_tells_the_same_story() -> None:
    """Two runs of one seed store the same writes."""
    first, second = (tell(Story("rough", 7, jobs=5)) for _ in range(2))
    assert first.story == second.story


@pytest.mark.parametrize(("name", "number"), [("crashing and a few at a time", 4242), ("rough with plain pods", 77)])
def test_a_seed_tells_the_same_story_in_another_process(name: str, number: int) -> None:
    """Or a failure could not be replayed: the order of a set is another one in each process."""
    stories = []
    for hash_seed in ("1", "5"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "tests.simulation", "--weather", name, "--seed", str(number)]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        stories.append(ended.stdout)
    assert stories[0] == stories[1]
    assert "nothing is violated" in stories[0]


def test_a_story_told_alone_has_pages_as_small_as_its_weather_says() -> None:
    """`make sim-long` tells what `make test` tells, also where bounds are made small."""
    large = tell(Story("calm", 1, jobs=6))
    small = tell(Story("calm with pages", 1, jobs=6))
    assert (large.failure, small.failure) == ("", "")
    assert small.steps > large.steps, "each page that comes to be is a write more"


def test_bytes_read_once_for_all_processes_tell_the_story_of_processes_that_read_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where etcd is set back, and one version comes to mean two states."""
    story = Story("rough with a backup restored", 3)
    once = tell(story)
    monkeypatch.setattr(world, "read_once", nullcontext)
    assert tell(story).story == once.story
