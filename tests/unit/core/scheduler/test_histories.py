"""Determinism, and one cycle as many single steps, over histories full of ties."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.core.histories import RULES, History, history
from webhook.core.scheduler.plan import Plan

ROOT = Path(__file__).parents[4]
SEEDS = {"classical": range(40), "fair": range(8), "decay": range(20), "one head": range(20)}
"""Shares cost more to compare."""


class InSingleSteps(History):
    """The same history, where each cycle stops after one admission or preemption and the next goes on."""

    def decide(self) -> Plan:
        """Repeat single steps until nothing is left to do."""
        steps: list[Plan] = []
        while plan := self.engine.cycle(self.now, self.fences, 1, most=1):
            steps.append(plan)
        return Plan(
            tuple(r for plan in steps for r in plan.admitted),
            tuple(r for plan in steps for r in plan.grown),
            tuple(p for plan in steps for p in plan.preempted),
            tuple(s for plan in steps for s in plan.stopped),
        )


@pytest.mark.parametrize("rules", RULES)
def test_what_is_decided_does_not_depend_on_the_order_in_which_it_is_told(rules: str) -> None:
    for seed in SEEDS[rules]:
        assert history(seed, 0, RULES[rules]) == history(seed, seed + 1, RULES[rules]), f"history {seed}"


@pytest.mark.parametrize("rules", ["classical", "fair", "decay"])
def test_a_history_of_full_cycles_is_one_of_single_steps(rules: str) -> None:
    for seed in SEEDS[rules]:
        assert history(seed, 0, RULES[rules]) == InSingleSteps(seed, 0, RULES[rules]).run(), f"history {seed}"


def test_processes_that_hash_differently_decide_alike() -> None:
    def decided_with(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.unit.core.histories", "3"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout

    first, second = decided_with("1"), decided_with("2")
    assert first.count("\n") == 3 * len(RULES)
    assert first == second
