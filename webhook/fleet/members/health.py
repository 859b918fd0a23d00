"""Whether one member answers, how quickly, and with what a hub can use: what is shown of it, and who is asked first."""

import asyncio
import contextlib
from typing import Final

import structlog

from webhook import metrics

log = structlog.get_logger(__name__)

REST_SECONDS: Final = 2.0
SLOW_SECONDS: Final = 2.0
"""An answer that takes longer is slow, unless it is a page of all objects of a kind: a gang waits for several."""
SLOW_AGAIN_SECONDS: Final = 30.0
"""For so long a member counts as slow: the next answer may be as slow, whatever came quickly in between."""


class Health:
    """Of one member, by the name that the hub knows it by."""

    def __init__(self, member: str) -> None:
        self._member = member
        self._rests_until = 0.0
        self._slow_until = 0.0
        self._followed = False
        """It is a member of a hub that runs, which shows whether it answers."""
        self.failure: str | None = None
        """Why it did not answer when it was last asked; empty when it did, None before it was."""
        self.failing_since: float | None = None
        """Loop time since when it has not answered once; None while it does."""
        self._unusable: dict[str, str] = {}
        """Why answers cannot be used that all its gangs rest on, by what was asked for last."""
        self.idle = ""
        """Why it starts nothing, though it answers: nobody leads its Tutti. In words that follow its name."""

    @property
    def trouble(self) -> str:
        """Why it is of no use: it does not answer, or not with what a hub can use, or nobody leads its Tutti."""
        return self.failure or self.unusable or self.idle

    @property
    def unusable(self) -> str:
        """Why a hub can use nothing of it, though it answers."""
        return next(iter(self._unusable.values()), "")

    @property
    def passed_by(self) -> bool:
        """Whether gangs that another member can have should not be offered to it at all."""
        return bool(self.failure or self.idle)

    def follow(self) -> None:
        """Show from now on whether it answers."""
        self._followed = True

    def leave(self) -> None:
        """Stop showing whether it answers: it is no longer a member."""
        self._followed = False
        with contextlib.suppress(KeyError):
            metrics.MEMBER_UNREACHABLE.remove(self._member)

    def reached(self) -> None:
        """Ask again at once, for it is asked by another connection from now on."""
        self._rests_until = self._slow_until = 0.0

    def rest(self) -> None:
        """Leave it alone for a moment."""
        self._rests_until = asyncio.get_running_loop().time() + REST_SECONDS

    @property
    def rests(self) -> bool:
        """It did not answer a moment ago."""
        return asyncio.get_running_loop().time() < self._rests_until

    async def rested(self) -> None:
        """Wait until it may be asked again."""
        await asyncio.sleep(max(0.0, self._rests_until - asyncio.get_running_loop().time()))

    def took(self, seconds: float) -> None:
        """Take in how long a gang may have to wait for one answer."""
        if seconds > SLOW_SECONDS:
            self._slow_until = asyncio.get_running_loop().time() + SLOW_AGAIN_SECONDS

    @property
    def slow(self) -> bool:
        """It answers, and so slowly that gangs which another member can have should not wait for it."""
        return asyncio.get_running_loop().time() < self._slow_until

    def note(self, failure: str) -> None:
        """Take in why it did not answer, or that it did, where that is empty."""
        now = asyncio.get_running_loop().time()
        self.failure, self.failing_since = failure, (self.failing_since or now) if failure else None
        self._show()

    def read(self, what: str, unusable: str = "") -> None:
        """Take in that it was asked for something that all its gangs rest on, and why the answer cannot be used."""
        if not unusable:
            self._unusable.pop(what, None)
        elif not self.failure:
            self._unusable[what] = unusable
        self._show()

    def leads(self, idle: str) -> None:
        """Take in that its Tutti has a leader, or why it starts nothing."""
        if idle and not self.idle:
            log.warning("fleet.no_leader", member=self._member, why=idle)
        self.idle = idle
        self._show()

    def _show(self) -> None:
        if self._followed:
            metrics.MEMBER_UNREACHABLE.labels(self._member).set(bool(self.trouble))
