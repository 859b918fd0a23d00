"""What can go wrong between a client and the API server, chosen by a seed.

The faults are those of a real network and a real API server under load; none breaks a promise that the API makes. So
the order inside one watch stream is kept (a client may rely on it), while streams of different kinds run ahead of and
behind each other freely, and a stream may end, stall, or be told 410 at any point.
"""

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from random import Random


class Outcome(Enum):
    """What becomes of one request."""

    ANSWERED = "answered"
    THROTTLED = "throttled"
    """429, nothing was done."""
    UNAVAILABLE = "unavailable"
    """503, nothing was done."""
    CONFLICTED = "conflicted"
    """A write is told 409 as if somebody else had just written."""
    DROPPED = "dropped"
    """The request never arrived; the caller cannot know that."""
    REPLY_LOST = "reply lost"
    """Applied, but the caller sees a reset connection."""
    LATE = "late"
    """The caller sees a time-out; the write arrives later, when its precondition may have failed."""
    DUPLICATED = "duplicated"
    """Applied twice, the second time later."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How likely each fault is, from 0 to 1 for each request or watch line, and how long delays may be."""

    throttled: float = 0.0
    unavailable: float = 0.0
    conflicted: float = 0.0
    dropped: float = 0.0
    reply_lost: float = 0.0
    late: float = 0.0
    duplicated: float = 0.0
    request_delay_seconds: float = 0.0
    """Most that a request, and again its answer, is under way."""
    late_seconds: float = 20.0
    """Most that a late or duplicated write arrives after its caller gave up."""
    watch_ended: float = 0.0
    watch_gone: float = 0.0
    """A watch is told 410 at its start."""
    watch_stalled: float = 0.0
    """A stream falls silent without being closed, until the reader gives up."""
    watch_paused: float = 0.0
    watch_pause_seconds: float = 1.0
    """Most that a stream holds back before a line; where lines come fast, such pauses add up."""


CALM = FaultRates()
ROUGH = FaultRates(
    throttled=0.01,
    unavailable=0.01,
    conflicted=0.01,
    dropped=0.01,
    reply_lost=0.01,
    late=0.01,
    duplicated=0.01,
    request_delay_seconds=0.05,
    watch_ended=0.01,
    watch_gone=0.05,
    watch_stalled=0.001,
    watch_paused=0.05,
    watch_pause_seconds=2.0,
)
"""A bad day: about one request in fourteen goes wrong."""


def _fates(rates: FaultRates, write: bool) -> tuple[tuple[float, Outcome], ...]:
    """Return what may become of a request that is not simply answered, and how likely each is."""
    chances = (
        (rates.throttled, Outcome.THROTTLED),
        (rates.unavailable, Outcome.UNAVAILABLE),
        (rates.dropped, Outcome.DROPPED),
        (rates.reply_lost, Outcome.REPLY_LOST),
        (rates.conflicted if write else 0.0, Outcome.CONFLICTED),
        (rates.late if write else 0.0, Outcome.LATE),
        (rates.duplicated if write else 0.0, Outcome.DUPLICATED),
    )
    return tuple((rate, outcome) for rate, outcome in chances if rate)


class FaultPlan:
    """Draws the fate of each request and watch line from one seeded source."""

    def __init__(self, rng: Random, rates: FaultRates = ROUGH) -> None:
        self.rng = rng
        self.rates = rates
        self._fates_of = rates
        self._fates = (_fates(rates, False), _fates(rates, True))
        self.counts: Counter[str] = Counter()
        """What was injected so far, by name."""

    def request(self, write: bool) -> Outcome:
        """Return the fate of one request."""
        draw = self.rng.random()
        if self._fates_of is not self.rates:
            self._fates_of, self._fates = self.rates, (_fates(self.rates, False), _fates(self.rates, True))
        for rate, outcome in self._fates[write]:
            if draw < rate:
                self.counts[outcome.value] += 1
                return outcome
            draw -= rate
        return Outcome.ANSWERED

    def delay_seconds(self) -> float:
        """Return how long one message is under way."""
        most = self.rates.request_delay_seconds
        return round(most * self.rng.random(), 4) if most else 0.0

    @property
    def longest_seconds(self) -> float:
        """How long a request and its answer are under way together, at most."""
        return 2 * self.rates.request_delay_seconds

    def late_seconds(self) -> float:
        """Return how much later a late or second write arrives."""
        return round(self.rng.uniform(0.0, self.rates.late_seconds), 4)

    def chance(self, name: str, rate: float) -> bool:
        """Return whether a fault of a watch happens now."""
        if rate and self.rng.random() < rate:
            self.counts[name] += 1
            return True
        return False

    def pause_seconds(self) -> float:
        """Return how long a stream holds back before the next line; mostly not at all."""
        if self.chance("watch paused", self.rates.watch_paused):
            return round(self.rng.uniform(0.0, self.rates.watch_pause_seconds), 4)
        return 0.0
