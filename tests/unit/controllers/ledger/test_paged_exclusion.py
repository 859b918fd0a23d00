"""The fence of index and pages alone: candidates that take over whenever they like lose nothing that was acknowledged.

No clock helps here. Each candidate believes at any moment that the lease of the others has run out and that its own has
not. Requests and answers take time, get lost, arrive twice or long after their sender gave up. What one leader was told
is stored, every later leader finds, until one who knew of it gives it back. Every seed is another story.
"""

import asyncio
from random import Random

import async_solipsism
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controllers.ledger.keepers import reservation
from webhook.clock import LoopClock
from webhook.controllers.ledger.errors import LeaseLost
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.core.ledger.record import Ledger
from webhook.errors import ApiError
from webhook.kube.election import Elector
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.faults import FaultPlan, FaultRates

STORY_SECONDS = 60.0
RATES = FaultRates(
    dropped=0.03, reply_lost=0.03, late=0.05, duplicated=0.05, request_delay_seconds=0.3, late_seconds=10.0
)

pytestmark = pytest.mark.usefixtures("small_pages")


class Reckless(Elector):
    """Takes over whenever it likes, and holds on whatever the time."""

    def may_acquire(self, now: float) -> bool:
        return True

    def must_quit(self, now: float) -> bool:
        return False


class World:
    """The candidates, what was acknowledged, and what anybody has asked to give back."""

    def __init__(self, rng: Random, cluster: SimulatedCluster) -> None:
        self.rng = rng
        self.cluster = cluster
        self.acknowledged: set[str] = set()
        self.given_back: set[str] = set()
        self.terms = self.numbers = self.most_pages = 0

    def check(self, ledger: Ledger) -> None:
        """Whoever begins to lead knows all that was acknowledged."""
        missing = self.acknowledged - self.given_back - ledger.entries.keys()
        assert not missing, f"a leader of epoch {ledger.epoch} does not know {missing}"

    async def live(self) -> None:
        """Campaign and lead, term after term."""
        while True:
            await asyncio.sleep(self.rng.uniform(0, 6))
            self.terms += 1
            api = self.cluster.api(faults=FaultPlan(Random(self.rng.getrandbits(64)), RATES))
            keeper = LedgerKeeper(api, Reckless(f"term-{self.terms}"), now=LoopClock().now)
            try:
                if await keeper.campaign():
                    await self.lead(keeper)
            except (LeaseLost, ApiError):
                continue

    async def lead(self, keeper: LedgerKeeper) -> None:
        """Reserve and give back until somebody else leads."""
        if keeper.ledger is None:
            assert keeper.missing, "a ledger that nobody edited must be readable"
            await keeper.replace(Ledger(1, 1))
        assert keeper.ledger is not None
        self.check(keeper.ledger)
        for _ in range(self.rng.randrange(30)):
            await asyncio.sleep(self.rng.choice([0.0, 0.1, 2.0]) * self.rng.random())
            self.numbers += 1
            new = [f"gang-{self.numbers}-{each}" for each in range(self.rng.randrange(3))]
            known = sorted(keeper.ledger.entries)
            old = self.rng.sample(known, min(len(known), self.rng.randrange(3 if len(known) < 16 else 8)))
            self.given_back.update(old)
            await keeper.commit(map(reservation, new), old)
            self.acknowledged.update(new)
            self.most_pages = max(self.most_pages, len(keeper.ledger.pages))


async def tell(seed: int) -> World:
    rng = Random(seed)
    cluster = SimulatedCluster(Random(seed), namespaces=("tutti-system",))
    async with cluster:
        world = World(rng, cluster)
        # The first ledger is there; how one is made is another story.
        first = LedgerKeeper(cluster.api(), Reckless("first"), now=LoopClock().now)
        await first.campaign()
        await first.replace(Ledger(1, 1))
        tasks = [asyncio.create_task(world.live()) for _ in range(3)]
        await asyncio.wait(tasks, timeout=STORY_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(outcome, asyncio.CancelledError):
                raise outcome  # type: ignore[misc]
    return world


def told(seed: int) -> World:
    with asyncio.Runner(loop_factory=async_solipsism.EventLoop) as runner:
        return runner.run(tell(seed))


@settings(max_examples=20)
@given(seed=st.integers(0, 1_000_000))
def test_what_was_acknowledged_is_found_by_every_later_leader(seed: int) -> None:
    told(seed)


def test_the_stories_are_worth_telling() -> None:
    """Leadership really changes hands in them while there are pages."""
    worlds = [told(seed) for seed in range(5)]
    assert sum(world.terms for world in worlds) > 50
    assert max(world.most_pages for world in worlds) > 3
