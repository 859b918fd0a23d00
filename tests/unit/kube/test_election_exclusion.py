"""Two electors never both believe that they lead, whatever is late, lost or paused, while their clocks tick alike."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from webhook.kube.election import Elector

CANDIDATES = st.sampled_from(["one", "two", "three"])
UNIX = 1_767_225_600.0


class Exclusion(RuleBasedStateMachine):
    """A register with compare-and-swap, three candidates whose clocks differ by a constant, and messages that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.register: str | None = None
        self.version = 0
        self.electors: dict[str, Elector] = {}
        self.offsets: dict[str, float] = {}
        self.reads: dict[str, tuple[str | None, int]] = {}
        self.writes: dict[str, list[tuple[str, int, float]]] = {}
        self.done: dict[str, float] = {}

    @initialize(offsets=st.tuples(*[st.floats(0, 1e6)] * 3))
    def begin(self, offsets: tuple[float, float, float]) -> None:
        for name, offset in zip(["one", "two", "three"], offsets, strict=True):
            self.electors[name], self.offsets[name], self.writes[name] = Elector(name), offset, []

    def clock(self, name: str) -> float:
        return self.time + self.offsets[name]

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 1.9, 2.1, 4.0, 6.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.time += seconds

    @rule(name=CANDIDATES)
    def read(self, name: str) -> None:
        """The server answers; the answer may be taken in much later."""
        self.reads[name] = (self.register, self.version)

    @rule(name=CANDIDATES)
    def take_in(self, name: str) -> None:
        if name in self.reads:
            self.electors[name].observe(self.reads[name][0], self.clock(name))

    @rule(name=CANDIDATES)
    def send(self, name: str) -> None:
        """Send a write, if the rules allow one: to be applied whenever, if it still can be."""
        elector, now = self.electors[name], self.clock(name)
        if name not in self.reads or name in self.done:
            return
        if elector.leading(now) or elector.may_acquire(now):
            self.writes[name] = [(elector.record(UNIX + self.time), self.reads[name][1], now)]

    @rule(name=CANDIDATES)
    def apply(self, name: str) -> None:
        for text, version, sent_at in self.writes[name]:
            if version == self.version:
                self.register, self.version = text, self.version + 1
                self.done[name] = sent_at
            self.writes[name] = []

    @rule(name=CANDIDATES)
    def learn_that_it_was_applied(self, name: str) -> None:
        if name in self.done:
            self.electors[name].renewed(self.done.pop(name))
            self.reads[name] = (self.register, self.version)

    @rule(name=CANDIDATES)
    def release(self, name: str) -> None:
        elector = self.electors[name]
        if elector.leading(self.clock(name)) and name not in self.done:
            version = self.reads[name][1]
            text = elector.released(UNIX + self.time)
            if version == self.version:
                self.register, self.version = text, self.version + 1

    @rule()
    def delete_the_record(self) -> None:
        if all(elector.holder or elector.leading(self.clock(name)) for name, elector in self.electors.items()):
            self.register, self.version = None, self.version + 1

    @invariant()
    def at_most_one_leads(self) -> None:
        leaders = [name for name, elector in self.electors.items() if elector.leading(self.clock(name))]
        assert len(leaders) <= 1

    @invariant()
    def a_leader_never_outstays_its_deadline(self) -> None:
        for name, elector in self.electors.items():
            assert not (elector.leading(self.clock(name)) and elector.must_quit(self.clock(name)))


TestExclusion: Any = Exclusion.TestCase
TestExclusion.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
