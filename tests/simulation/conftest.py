"""The option by which a failed run is replayed."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--seed``."""
    parser.addoption("--seed", type=int, default=None, help="run this seed of the simulation alone")
    parser.addoption("--seeds", type=int, default=None, help="run so many seeds of each weather")
