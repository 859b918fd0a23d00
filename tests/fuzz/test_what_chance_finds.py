"""The fuzzer finds by itself what an attacker once found: with a mend taken out, examples by chance notice.

Examples that somebody wrote down prove nothing here, so they are left out; the seed is always the same.
"""

from collections.abc import Callable, Generator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz import test_bytes_that_enter as bytes_that_enter
from webhook.core.ledger import bounds
from webhook.wire import nesting, watch

Broken = Callable[[pytest.MonkeyPatch], None]
TRIES = 4_000
"""One in some hundred notices. Which are tried depends on what else this process has imported, so it may take long."""


def examples_until_it_says(said: str, monkeypatch: pytest.MonkeyPatch, broken: Broken) -> int:
    """Return how many changed jobs were tried until one was noticed. Fails when none is."""
    tried = 0
    check = bytes_that_enter.test_any_change_of_a_real_job_is_read_by_its_own_kind.hypothesis.inner_test  # type: ignore[attr-defined]

    @settings(
        max_examples=TRIES,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def by_chance(data: st.DataObject) -> None:
        nonlocal tried
        tried += 1
        check(data)

    with monkeypatch.context() as patch:
        broken(patch)
        with pytest.raises(AssertionError, match=said):
            by_chance()
    return tried


def without_a_bound_on_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bounds, "too_large", lambda gang: None)


def without_decoders_that_bear_depth(patch: pytest.MonkeyPatch) -> None:
    """As it was when one object ended all processes: nothing is cut, and only expected errors are caught."""

    def uncut(raw: bytes, levels: int) -> Generator[None, None, bytes]:
        yield
        return raw

    patch.setattr(nesting, "_cut", uncut)
    patch.setattr(watch, "RecursionError", MemoryError, raising=False)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (without_a_bound_on_entries, "a gang takes too much of the ledger"),
        (without_decoders_that_bear_depth, "the feed has ended|unreadable=1"),
    ],
)
def test_without_its_mend_a_fault_is_found_by_chance(
    broken: Broken, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"{broken.__name__}: noticed after {examples_until_it_says(said, monkeypatch, broken)} examples")
