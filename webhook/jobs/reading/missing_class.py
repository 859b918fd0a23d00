"""A priority class that a job names and that does not exist: what it is, and which ones do."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from webhook.core.notation.problem import some

_SHOWN: Final = 10
_OF_THE_SYSTEM: Final = "system-"


class MissingClass(NamedTuple):
    """Told to who wrote the job, in its warning and in the reason why it waits."""

    label: str
    """``Kind 'name'``."""
    others: str
    """Those of its kind that exist, the first few by name."""

    @property
    def help(self) -> str:
        """What lets the job go on."""
        return f"create it, or name another: {self.others}" if self.others else "create it: there is no other"


def missing_class(kind: str, name: str, known: Iterable[str]) -> MissingClass:
    """Return what is missing; classes of the system itself are not for jobs, and are not proposed."""
    others = sorted(other for other in known if not other.startswith(_OF_THE_SYSTEM))
    return MissingClass(f"{kind} {name!r}", some(others, _SHOWN))
