"""Which states of a gang's objects its last step has read or written: a watch that shows those tells nothing new."""

from typing import Final

from webhook.fleet.members.copies import Written
from webhook.wire.watch import version_number

NOTHING_READ: Final = ("", 0)


class LastRead:
    """The hub's job and the copy of one gang, as its last step left them."""

    def __init__(self) -> None:
        self._own = self._own_so_far = (0, 0)
        """The version of the hub's job, and how often its server had been set back then."""
        self._copy = self._copy_so_far = NOTHING_READ
        """Uid and version."""

    def own(self, version: int, set_backs: int) -> bool:
        """Take in a version of the hub's job; return whether its server was set back since, and nobody knows."""
        (before, noticed), self._own_so_far = self._own_so_far, (version, set_backs)
        return version < before and noticed == set_backs

    def copy(self, uid: str, version: str) -> None:
        """Take in the copy."""
        self._copy_so_far = uid, version_number(version)

    def wrote(self, copy: Written | None) -> bool:
        """Take in the copy as a write has left it; return whether there was one."""
        if copy is not None:
            self.copy(*copy)
        return copy is not None

    def begin(self) -> None:
        """A step begins, which has read no copy yet."""
        self._copy_so_far = NOTHING_READ

    def end(self) -> None:
        """A step has ended that has decided by all that it read."""
        self._own, self._copy = self._own_so_far, self._copy_so_far

    @property
    def newest(self) -> int:
        """The version of the hub's job that was read or written last."""
        return self._own_so_far[0]

    def has_own(self, version: int, set_backs: int) -> bool:
        """Return whether this version of the hub's job, or a later one, was read."""
        return version <= self._own[0] and set_backs == self._own[1]

    def has_copy(self, uid: str, version: int) -> bool:
        """Return whether this state of the copy, or a later one, was read."""
        return uid == self._copy[0] and version <= self._copy[1]
