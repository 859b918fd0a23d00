"""The watchdog bites when it is not fed, even while the event loop cannot run."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from webhook.kube.watchdog import EXIT_CODE, Watchdog
from webhook.wire.times import unix_seconds

PATIENCE_SECONDS = 20.0


class Bitten:
    """Counts expiries and lets a test wait for one."""

    def __init__(self) -> None:
        self.times = 0
        self.happened = threading.Event()

    def __call__(self) -> None:
        self.times += 1
        self.happened.set()


@pytest.fixture
def bitten() -> Bitten:
    return Bitten()


@pytest.fixture
def watchdog(bitten: Bitten) -> Iterator[Watchdog]:
    watchdog = Watchdog(bitten)
    watchdog.start()
    yield watchdog
    watchdog.stop()


def test_it_bites_once_when_the_deadline_passes(watchdog: Watchdog, bitten: Bitten) -> None:
    watchdog.feed(time.monotonic() + 0.01)
    assert bitten.happened.wait(PATIENCE_SECONDS)
    watchdog.feed(time.monotonic() - 1)
    watchdog.stop()
    assert bitten.times == 1


def test_it_does_nothing_before_it_is_fed(watchdog: Watchdog, bitten: Bitten) -> None:
    watchdog.stop()
    assert bitten.times == 0


def test_a_later_deadline_replaces_an_earlier_one(watchdog: Watchdog, bitten: Bitten) -> None:
    watchdog.feed(time.monotonic() + 3600)
    watchdog.feed(time.monotonic() + 7200)
    watchdog.stop()
    assert bitten.times == 0


def test_a_released_lease_disarms_it(watchdog: Watchdog, bitten: Bitten) -> None:
    watchdog.feed(time.monotonic() + 3600)
    watchdog.disarm()
    watchdog.stop()
    assert bitten.times == 0


async def test_it_bites_while_the_event_loop_is_blocked(watchdog: Watchdog, bitten: Bitten) -> None:
    watchdog.feed(time.monotonic() + 0.01)
    # Blocks this very loop, on purpose, until the thread has acted.
    assert bitten.happened.wait(PATIENCE_SECONDS)


def test_a_bite_ends_the_whole_process_at_once() -> None:
    program = (
        "import time\n"
        "from webhook.kube.watchdog import Watchdog\n"
        "watchdog = Watchdog()\n"
        "watchdog.start()\n"
        "watchdog.feed(time.monotonic() + 0.01)\n"
        "try:\n"
        "    time.sleep(60)\n"
        "finally:\n"
        "    print('cleaned up')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=50, check=False)
    assert ended.returncode == EXIT_CODE
    assert ended.stdout == b""
    said = json.loads(ended.stderr)
    assert said["event"] == "loop.hung"
    assert unix_seconds(said["timestamp"]) == pytest.approx(time.time(), abs=60), "when, as in every other line"
