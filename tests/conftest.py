"""Event loops for tests: the real one, or virtual time for tests marked ``virtual_time``.

Under virtual time a sleep costs nothing, sockets live in memory, and a test in which every task waits for ever fails
instead of hanging.
"""

import asyncio
from collections.abc import Callable, Mapping

import async_solipsism
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Declare our markers."""
    config.addinivalue_line("markers", "virtual_time: run the test on a loop whose clock jumps over every wait")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Choose the event loop of one test."""
    if item.get_closest_marker("virtual_time") is not None:
        return {"virtual": async_solipsism.EventLoop}
    return {"real": asyncio.new_event_loop}
