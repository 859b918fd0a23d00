"""What all tests share: their event loops, how properties are searched, and a log that costs little.

The loop is the real one, or virtual time for tests marked ``virtual_time``. Under virtual time a sleep costs nothing,
sockets live in memory, and a test in which every task waits for ever fails instead of hanging.

Properties try the same examples in each run, however slow the machine is; others with ``--hypothesis-profile explore``.
"""

import asyncio
import gc
from collections.abc import Callable, Mapping

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.virtual_loop import VirtualLoop

settings.register_profile("explore", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.register_profile("same", settings.get_profile("explore"), derandomize=True, database=None)
settings.load_profile("same")
# By default an exception is drawn with all that its frames hold: that takes seconds where a cluster is among it.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_configure(config: pytest.Config) -> None:
    """Declare our markers, and keep the collector from what is only added to: half of collecting the tests was its."""
    gc.disable()
    config.addinivalue_line("markers", "virtual_time: run the test on a loop whose clock jumps over every wait")


def pytest_collection_finish() -> None:
    """Have the collector look at what tests make alone, and not at each turn: all that there is now stays for good."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Choose the event loop of one test."""
    if item.get_closest_marker("virtual_time") is not None:
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much the simulation has checked, in all processes together."""
    passed = terminalreporter.getreports("passed")
    steps = [value for report in passed for name, value in report.user_properties if name == "steps"]
    if steps:
        terminalreporter.write_line(f"simulation: {sum(steps)} stored writes checked in {len(steps)} stories")
