"""Two weathers at once have what either has, and none meet of which no story is told."""

from itertools import islice
from random import Random

import pytest

from tests.simulation.mixtures import APART, named_in, pairs, weather_of
from tests.simulation.weathers import WEATHERS
from webhook.laboratory.simulated.faults import CALM


def test_two_at_once_have_what_either_has() -> None:
    """And what both have is as rough as the rougher."""
    both = weather_of("crashing with pages + calm with elastic jobs")
    assert (both.page_bytes, both.elastic, both.crash, both.rates) == (300, 0.9, 0.05, CALM)


def test_a_name_that_no_weather_has_is_refused() -> None:
    """As one alone."""
    with pytest.raises(KeyError):
        weather_of("calm + nowhere")


def test_what_excludes_each_other_never_meets() -> None:
    """But in a weather that has both by itself."""
    for name in islice(pairs(Random(7)), 2000):
        first, second = (named_in(WEATHERS[part][0]) for part in name.split(" + "))
        for one, others in APART:
            assert not (first & one and second & others), name
