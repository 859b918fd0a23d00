"""The option by which a failed run is replayed, and quiet."""

import gc
from collections.abc import Iterator

import pytest
import structlog


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--seed``."""
    parser.addoption("--seed", type=int, default=None, help="run this seed of the simulation alone")
    parser.addoption("--seeds", type=int, default=None, help="run so many seeds of each weather")


@pytest.fixture(autouse=True)
def _nothing_logged_or_collected() -> Iterator[None]:
    """Keep the story of a run out of the output, and what it costs low."""
    before = structlog.get_config()
    gc.disable()  # A story is short: what it leaves behind is collected at its end.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    gc.enable()
    structlog.configure(**before)
