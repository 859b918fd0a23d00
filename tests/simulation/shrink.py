"""One story of the simulation as a value, how it is told, and the shortest one that still fails."""

import gc
import time
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from tests import virtual_loop
from tests.simulation.mixtures import weather_of
from tests.simulation.weather import Weather
from tests.simulation.world import World

JOBS: Final = 12
LESS: Final[dict[str, Any]] = {
    "crash": 0.0,
    "freeze": 0.0,
    "deaths_told": 0.0,
    "deaths_imagined": 0.0,
    "pod_groups": 0,
    "ensembles": 0,
    "churn": 0,
    "failing": 0.0,
    "lent": 0,
    "two_flavors": False,
    "cut_off": 0,
    "fences": 0,
    "priorities": False,
    "elastic": 0.0,
    "stop_seconds": 1.0,
    "start_seconds": 1.0,
    "work_queues": 0.0,
    "many_shapes": False,
    "node_churn": 0,
    "nested": False,
    "hostile": 0,
    "hostile_kinds": False,
    "scheduled": 0.0,
    "unlisted": 0,
    "shut": 0,
    "in_credits": False,
    "adopted": False,
    "refused": 0,
    "slow_on_pods_seconds": 0.0,
    "replaced": 0,
    "ledger_lost": 0,
    "edited": 0,
    "bugs": 0.0,
    "releases": 0,
    "set_back": 0,
    "restored": False,
    "limited": 0.0,
    "clocks_apart_seconds": 0.0,
    "long": 0.0,
    "kept": 0.0,
    "children_ask": 0.0,
    "meshed": 0.0,
}
"""What may be left out of a weather, and what it is then."""


@dataclass(frozen=True, slots=True)
class Story:
    """What a seed chooses in a weather, up to so many jobs."""

    weather: str
    seed: int
    jobs: int = JOBS
    without: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """How to tell it again."""
        less = f" --without {','.join(self.without)}" if self.without else ""
        return f'python -m tests.simulation --weather "{self.weather}" --seed {self.seed} --jobs {self.jobs}{less}'

    def sky(self) -> Weather:
        """Return the weather without what is left out."""
        return replace(weather_of(self.weather), **{name: LESS[name] for name in self.without})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a story ended; an empty failure is a good end."""

    steps: int
    failure: str
    cpu_seconds: float
    story: int = 0
    """Checksum of all that was stored."""


def tell(story: Story) -> Outcome:
    """Run one story in virtual time, in a loop of its own."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    worlds: list[World] = []

    async def story_told() -> None:
        worlds.append(World(story.seed, story.sky()))
        await worlds[0].run(JOBS, 60, upto=story.jobs)

    began, failure = time.process_time(), ""
    # A story is short: what it leaves behind is collected once it is over, not looked through again and again.
    gc.disable()
    try:
        virtual_loop.run(story_told())
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    steps, checksum = (worlds[0].invariants.steps, worlds[0].invariants.story) if worlds else (0, 0)
    worlds.clear()
    # All that the story made is young, and nothing else is.
    gc.collect(0)
    gc.enable()
    return Outcome(steps, failure, time.process_time() - began, checksum)


def shrunk(story: Story) -> tuple[Story, Outcome]:
    """Return the shortest story found that fails as well: with fewer jobs, then with less in the weather."""
    best, outcome = story, tell(story)
    for jobs in range(1, story.jobs):
        shorter = replace(best, jobs=jobs)
        if (told := tell(shorter)).failure:
            best, outcome = shorter, told
            break
    for name, value in LESS.items():
        if getattr(best.sky(), name) == value:
            continue
        simpler = replace(best, without=(*best.without, name))
        if (told := tell(simpler)).failure:
            best, outcome = simpler, told
    return best, outcome
