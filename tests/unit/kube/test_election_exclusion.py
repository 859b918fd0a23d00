"""Two electors never both believe that they lead, whatever is late, lost or paused, while their clocks tick alike.

Three candidates with clocks of different origin share a record behind compare-and-swap. Requests and answers take any
time or get lost, processes stand still for seconds, leaders resign. Every seed is another story.
"""

import asyncio
from random import Random

import async_solipsism
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.kube.election import Elector

STORY_SECONDS = 300.0


class World:
    """The record, the candidates, and who leads at any moment."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.record: str | None = None
        self.version = 0
        self.electors = {name: Elector(name) for name in ("one", "two", "three")}
        self.offsets = {name: rng.uniform(0, 1000) for name in self.electors}
        self.leaders: list[str] = []

    def clock(self, name: str) -> float:
        return asyncio.get_running_loop().time() + self.offsets[name]

    def check(self) -> None:
        leading = [name for name, elector in self.electors.items() if elector.leading(self.clock(name))]
        assert len(leading) <= 1, f"{leading} lead at the same time"
        if leading and self.leaders[-1:] != leading:
            self.leaders += leading

    async def delay(self) -> None:
        """What a message or a scheduler does to a process: mostly little, sometimes seconds."""
        await asyncio.sleep(self.rng.choice([0.01, 0.05, 0.3, 1.0, 1.0, 3.0, 5.0]) * self.rng.random())

    def swap(self, text: str, version: int) -> bool:
        if version != self.version:
            return False
        self.record, self.version = text, self.version + 1
        return True

    async def live(self, name: str) -> None:
        """Follow the rules as a driver does: read, take in, write conditionally, note success."""
        elector, rng = self.electors[name], self.rng
        while True:
            await self.delay()
            text, version = self.record, self.version
            await self.delay()
            elector.observe(text, self.clock(name))
            self.check()
            now = self.clock(name)
            if elector.leading(now) and rng.random() < 0.1:
                self.swap(elector.released(now), version)
            elif elector.leading(now) or elector.may_acquire(now):
                await self.write(elector, name, version)
            self.check()

    async def write(self, elector: Elector, name: str, version: int) -> None:
        text, sent_at = elector.record(self.clock(name)), self.clock(name)
        await self.delay()
        applied = self.rng.random() < 0.9 and self.swap(text, version)
        await self.delay()
        if applied and self.rng.random() < 0.9:
            elector.renewed(sent_at)

    async def watch(self) -> None:
        while True:
            self.check()
            await asyncio.sleep(0.05)


async def tell(seed: int) -> list[str]:
    world = World(Random(seed))
    tasks = [asyncio.create_task(world.live(name)) for name in world.electors]
    tasks.append(asyncio.create_task(world.watch()))
    await asyncio.wait(tasks, timeout=STORY_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(outcome, asyncio.CancelledError):
            raise outcome  # type: ignore[misc]
    return world.leaders


def told(seed: int) -> list[str]:
    with asyncio.Runner(loop_factory=async_solipsism.EventLoop) as runner:
        return runner.run(tell(seed))


@settings(max_examples=20)
@given(seed=st.integers(0, 1_000_000))
def test_at_most_one_leads_at_any_moment(seed: int) -> None:
    told(seed)


def test_the_stories_are_worth_telling() -> None:
    """Leadership really changes hands in them, by release and by expiry."""
    assert sum(len(told(seed)) for seed in range(5)) > 25
